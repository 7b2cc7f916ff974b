"""GPUs as attribution sees them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SomeGpu:
    """One GPU, or one MIG instance."""

    uuid: str
    index: str = "0"
    device: str = "nvidia0"
    gi_id: str = ""
    gi_profile: str = ""
    mig_uuids: tuple[str, ...] = ()
    gi_placement: str = ""
    gi_alone: bool = False


UUID_0 = "GPU-11111111-2222-3333-4444-000000000000"
UUID_1 = "GPU-11111111-2222-3333-4444-000000000001"
MIG_0 = "MIG-aaaaaaaa-2222-3333-4444-000000000000"
MIG_0B = "MIG-aaaaaaaa-2222-3333-4444-00000000000b"
GPU_0 = SomeGpu(UUID_0)
GPU_1 = SomeGpu(UUID_1, "1", "nvidia1")
INSTANCE = SomeGpu(UUID_0, gi_id="3", mig_uuids=(MIG_0, MIG_0B))

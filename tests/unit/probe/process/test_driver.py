import ctypes
import uuid
from pathlib import Path
from typing import Any

import pytest

from kernelcast.probe.process.driver import CPU, UNKNOWN, claims, runtime_version
from kernelcast.wire.frames import DeviceClaim

FIRST = uuid.UUID("5d83f3ce-2b75-4a9f-8d10-0d2a3f1f0a01")
SECOND = uuid.UUID("5d83f3ce-2b75-4a9f-8d10-0d2a3f1f0a02")
NOT_INITIALIZED = 3


class Driver:
    """libcuda with these GPUs, as the CUDA Driver API describes it."""

    def __init__(self, *gpus: tuple[uuid.UUID, str], status: int = 0) -> None:
        self.gpus = gpus
        self.status = status

    def cuDeviceGetCount(self, count: Any) -> int:  # noqa: N802  the driver's name
        count._obj.value = len(self.gpus)
        return self.status

    def cuDeviceGet(self, device: Any, ordinal: int) -> int:  # noqa: N802  the driver's name
        device._obj.value = ordinal
        return 0

    def cuDeviceGetUuid_v2(self, raw: Any, device: ctypes.c_int) -> int:  # noqa: N802  the driver's name
        raw._obj[:] = list(self.gpus[device.value][0].bytes)
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: ctypes.c_int) -> int:  # noqa: N802  the driver's name
        name.value = self.gpus[device.value][1].encode()[:size]
        return 0


def test_devices_come_in_cudas_order_with_their_uuid_and_model() -> None:
    driver = Driver((FIRST, "NVIDIA H200"), (SECOND, "NVIDIA A100-SXM4-40GB MIG 1g.5gb"))
    assert claims("", lambda: driver) == (
        DeviceClaim(f"GPU-{FIRST}", "0", "NVIDIA H200"),
        DeviceClaim(f"MIG-{SECOND}", "1", "NVIDIA A100-SXM4-40GB MIG 1g.5gb"),
    )


def test_a_driver_that_the_program_does_not_use_yet_leaves_the_device_open() -> None:
    assert claims("", lambda: Driver((FIRST, "NVIDIA H200"), status=NOT_INITIALIZED)) == (UNKNOWN,)


def test_a_process_without_a_driver_leaves_the_device_open() -> None:
    def missing() -> Any:
        raise OSError("libcuda.so.1: cannot open shared object file")

    assert claims("", missing) == (UNKNOWN,)
    assert claims("", object) == (UNKNOWN,)


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [
        (None, ("0", "1")),
        ("2,3", ("2", "3")),
        (" 3 , 0 ", ("3", "0")),
        ("GPU-11111111", ("", "")),
        ("MIG-GPU-1/3/0,1", ("", "1")),
        ("5", ("5", "")),
    ],
)
def test_a_claim_has_the_nodes_number_or_none_where_only_some_gpus_are_visible(
    visible: str | None, numbers: tuple[str, ...]
) -> None:
    """Without NVML the exporter has no other: programs on GPUs 2 and 3 were both shown, and paused, as GPU 0."""
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    driver = Driver((FIRST, "NVIDIA H200"), (FIRST, "NVIDIA H200"))
    assert tuple(claim.gpu for claim in claims("", lambda: driver, environ)) == numbers


def test_a_program_without_a_gpu_runs_on_the_pseudo_device() -> None:
    for source in ("simulated", "cpu"):
        assert claims(source, lambda: Driver((FIRST, "NVIDIA H200"))) == (CPU,)


class Runtime:
    """libcudart of CUDA 12.4, or libnvrtc of 12.6."""

    def __init__(self, path: str) -> None:
        self.path = path
        if "/replaced/" in path:
            raise OSError(path)

    def cudaRuntimeGetVersion(self, version: Any) -> int:  # noqa: N802  the runtime's name
        version._obj.value = 12040
        return 0 if "/broken/" not in self.path else 35

    def nvrtcVersion(self, major: Any, minor: Any) -> int:  # noqa: N802  NVRTC's name
        major._obj.value, minor._obj.value = 12, 6
        return 0


@pytest.mark.parametrize(
    ("files", "version"),
    [
        (["/opt/nvidia/cuda_runtime/lib/libcudart.so.12", "/opt/libnvrtc.so.12"], "12.4"),
        (["/opt/torch/lib/libcudart-9335f6a2.so.12"], "12.4"),
        (["/opt/broken/libcudart.so.11", "/opt/libnvrtc.so.12"], "12.6"),
        (["/opt/replaced/libcudart.so.12 (deleted)", "/opt/libnvrtc.so.12"], "12.6"),
        (["/opt/replaced/libcudart.so.12 (deleted)", "/opt/libcudart.so.12"], "12.4"),
        (["/opt/libcudart_static_user.so", "/opt/libcudartery.so.1"], ""),
        ([], ""),
    ],
)
def test_the_cuda_version_is_that_of_the_runtime_that_the_process_has(
    tmp_path: Path, files: list[str], version: str
) -> None:
    maps = tmp_path / "maps"
    maps.write_text("".join(f"7f00-7f01 r-xp 0000 08:01 42    {file}\n" for file in [*files, *files]))
    assert runtime_version(maps, Runtime) == version


def test_a_runtime_that_cannot_be_asked_has_no_version(tmp_path: Path) -> None:
    (tmp_path / "maps").write_text("7f00-7f01 r-xp 0000 08:01 42    /gone/libcudart.so.12\n")
    assert runtime_version(tmp_path / "maps") == ""

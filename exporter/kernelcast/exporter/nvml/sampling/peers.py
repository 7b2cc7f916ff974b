"""The status of NVLink between the GPUs of a node, pair by pair."""

from collections.abc import Sequence
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final

from kernelcast.exporter.nvml.sampling.codes import Codes, error_name
from kernelcast.exporter.nvml.sampling.gpu_values import Failed
from kernelcast.exporter.nvml.sampling.inventory import Gpu

MAX_GPUS: Final = 32
"""Of which pairs are asked for: 496 calls an interval at most."""
PEER_CALL: Final = "nvmlDeviceGetP2PStatus"
UNKNOWN: Final = "Unknown"
STATUS_NAMES: Final = MappingProxyType(
    {
        0: "OK",
        1: "ChipsetNotSupported",
        2: "GPUNotSupported",
        3: "TopologyNotSupported",
        4: "DisabledByRegKey",
        5: "NotSupported",
        6: UNKNOWN,
    }
)
"""By nvmlGpuP2PStatus_t, in dcgm-exporter's words. Source: dcgm-exporter, internal/pkg/collector/const.go."""

Peers = dict[str, dict[str, int]]
"""By UUID, the status by the index of the other GPU."""


class PeerStatus:
    """Asks one NVML for the status of each pair.

    Args:
        nvml: pynvml, or a double of it.
        codes: Its error codes.
        failed: Called with the call and NVML's name for the error, for errors other than not supported.
    """

    def __init__(self, nvml: Any, codes: Codes, failed: Failed) -> None:
        self._nvml = nvml
        self._codes = codes
        self._failed = failed

    def read(self, gpus: Sequence[Gpu]) -> Peers:
        """The status of every pair of whole GPUs; a pair that cannot be asked is absent.

        NVML answers for the pair, in whichever order, so each is asked once.
        """
        whole = [gpu for gpu in gpus if not gpu.gi_id][:MAX_GPUS]
        found: Peers = {gpu.uuid: {} for gpu in whole}
        for one, other in combinations(whole, 2):
            status = self._status(one, other)
            if status is not None:
                found[one.uuid][other.index] = found[other.uuid][one.index] = status
        return found

    def _status(self, one: Gpu, other: Gpu) -> int | None:
        nvml = self._nvml
        try:
            return int(nvml.nvmlDeviceGetP2PStatus(one.handle, other.handle, nvml.NVML_P2P_CAPS_INDEX_NVLINK))
        except nvml.NVMLError as error:
            if not self._codes.expected(error.value):
                self._failed(PEER_CALL, error_name(error))
            return None

"""Effects of the faults that a GPU, its links or its driver report, at one moment.

Each function changes the arrays of an `Influence` for the GPUs of the mask `where`; `elapsed` is in seconds since the
fault began. `influence.py` calls them.
"""

from collections.abc import Mapping
from typing import Final

from kernelcast.exporter.simulate.effects import SECONDS_PER_MINUTE, Effect, Influence
from kernelcast.exporter.simulate.faults import SimulatedFault
from kernelcast.exporter.simulate.fleet_settings import BoolArray
from kernelcast.exporter.simulate.kinds import hardware as faults

RESET: Final = 1.0
"""nvml.h, nvmlDeviceGpuRecoveryAction_t: NVML_GPU_RECOVERY_ACTION_GPU_RESET."""


def _program_ends(sum_: Influence, fault: SimulatedFault, where: BoolArray, elapsed: float) -> None:
    if elapsed < fault["pause"]:
        sum_.load[where] = 0.0


def _lost(sum_: Influence, _fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.lost[where] = True
    sum_.load[where] = 0.0


def _corrected(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.bit_errors[where] += fault["rate"] / SECONDS_PER_MINUTE


def _nvlink_down(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.links_down[where] = fault["links"]
    sum_.recovery[where] = RESET


def _pcie_replays(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.pcie_replays[where] += fault["rate"] / SECONDS_PER_MINUTE


def _hung(sum_: Influence, _fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.hung[where] = True


def _clock_skew(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.ahead_seconds[where] = fault["ahead"]


HARDWARE_EFFECTS: Final[Mapping[str, Effect]] = {
    faults.XID_79: _lost,
    faults.XID_94: _program_ends,
    faults.ECC_UNCORRECTED: _program_ends,
    faults.ECC_BURST: _corrected,
    faults.NVLINK_DOWN: _nvlink_down,
    faults.PCIE_REPLAYS: _pcie_replays,
    faults.NVML_HANG: _hung,
    faults.CLOCK_SKEW: _clock_skew,
}

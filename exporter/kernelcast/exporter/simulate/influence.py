"""Combines the effects of faults and backgrounds on the fleet at one moment; `SimulatedFleet` calls it each step.

Each `Effect` changes the arrays of an `Influence` for the GPUs of the mask `where`; `elapsed` is in seconds since the
fault began.
"""

from collections.abc import Mapping
from typing import Final

from kernelcast.exporter.simulate import faults, shapes
from kernelcast.exporter.simulate.effects import (
    PCIE_LANES,
    SECONDS_PER_HOUR,
    SECONDS_PER_MINUTE,
    Effect,
    Influence,
)
from kernelcast.exporter.simulate.faults import SimulatedFault
from kernelcast.exporter.simulate.fleet_settings import BoolArray, SimulationSettings
from kernelcast.exporter.simulate.hardware_influence import HARDWARE_EFFECTS
from kernelcast.exporter.simulate.kinds import hardware

__all__ = ["PCIE_LANES", "Influence", "influence"]

_ON_A_NODE: Final = frozenset({hardware.NVML_HANG, hardware.CLOCK_SKEW})
"""Kinds that concern a node, whichever GPU they name."""


def influence(settings: SimulationSettings, seconds: float) -> Influence:
    """Combine what acts at a moment of simulated time."""
    combined = Influence.none(settings.count, settings.kernels)
    for fault in settings.faults:
        effect = _EFFECTS.get(fault.kind)
        if effect is not None and fault.active(seconds):
            elapsed = seconds - fault.start_seconds
            on_node = settings.nodes_of(fault)
            effect(combined, fault, on_node if fault.kind in _ON_A_NODE else settings.where(fault), elapsed)
            if fault.kind == hardware.XID_79 and elapsed < fault["pause"]:
                # The ranks of a job end together.
                combined.load[on_node] = 0.0
    return combined


def _thermal_drift(sum_: Influence, fault: SimulatedFault, where: BoolArray, elapsed: float) -> None:
    sum_.heat_c[where] += shapes.linear(elapsed, fault["rate"] / SECONDS_PER_MINUTE)


def _hot_but_stable(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.heat_c[where] += fault["rise"]


def _kernel_slowdown(sum_: Influence, fault: SimulatedFault, where: BoolArray, elapsed: float) -> None:
    grown = shapes.ramp(elapsed, fault["over"])
    sum_.kernel_factor[where, fault.kernel] *= 1.0 + (fault["factor"] - 1.0) * grown


def _bad_tuning(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.kernel_factor[where, fault.kernel] *= fault["factor"]


def _deploy(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.kernel_factor[where] *= fault["factor"]


def _memory_leak(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.leak_mib[where] += fault["rate"] / SECONDS_PER_MINUTE


def _rising_load(sum_: Influence, fault: SimulatedFault, where: BoolArray, elapsed: float) -> None:
    sum_.load[where] *= 1.0 + shapes.linear(elapsed, fault["rate"] / 100.0 / SECONDS_PER_MINUTE)


def _diurnal(sum_: Influence, fault: SimulatedFault, where: BoolArray, elapsed: float) -> None:
    sum_.load[where] *= 1.0 + fault["amplitude"] * shapes.periodic(elapsed, fault["period"])


def _contention(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.bandwidth_factor[where] *= fault["factor"]


def _straggler(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.compute_factor[where] *= fault["factor"]


def _power_brake(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.braked[where] = True
    sum_.clock_ratio[where] *= fault["ratio"]


def _power_cap(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.capped[where] = True
    sum_.clock_ratio[where] *= fault["ratio"]


def _low_clock(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.clock_ratio[where] *= fault["ratio"]


def _pcie_link(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.pcie_lanes[where] = fault["lanes"]


def _memory_errors(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.bit_errors[where] += fault["rate"] / SECONDS_PER_HOUR
    sum_.remapped_rows[where] += fault["rows"] / SECONDS_PER_HOUR


def _telemetry_lost(sum_: Influence, _fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.silent[where] = True


def _preallocated(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.preallocated[where] = fault["share"]


def _restart(sum_: Influence, fault: SimulatedFault, where: BoolArray, elapsed: float) -> None:
    if elapsed < fault["pause"]:
        sum_.load[where] = 0.0


def _diurnal_heat(sum_: Influence, fault: SimulatedFault, where: BoolArray, elapsed: float) -> None:
    sum_.heat_c[where] += fault["amplitude"] * shapes.periodic(elapsed, fault["period"])


def _warm_up(sum_: Influence, fault: SimulatedFault, where: BoolArray, elapsed: float) -> None:
    sum_.heat_c[where] += fault["rise"] * shapes.saturating(elapsed, fault["over"])


def _load_step(sum_: Influence, fault: SimulatedFault, where: BoolArray, _elapsed: float) -> None:
    sum_.load[where] *= fault["factor"]


def _sawtooth(sum_: Influence, fault: SimulatedFault, where: BoolArray, elapsed: float) -> None:
    sum_.cache_mib[where] += fault["height"] * shapes.sawtooth(elapsed, fault["period"])


def _spikes(sum_: Influence, fault: SimulatedFault, where: BoolArray, elapsed: float) -> None:
    spike = shapes.spikes(elapsed, fault["period"], fault["over"])
    sum_.kernel_factor[where, fault.kernel] *= 1.0 + (fault["factor"] - 1.0) * spike


def _slow_opening(sum_: Influence, fault: SimulatedFault, where: BoolArray, elapsed: float) -> None:
    sum_.kernel_factor[where] *= 1.0 + (fault["factor"] - 1.0) * shapes.opening(elapsed, fault["over"])


_EFFECTS: Final[Mapping[str, Effect]] = {
    faults.THERMAL_DRIFT: _thermal_drift,
    faults.HOT_BUT_STABLE: _hot_but_stable,
    faults.KERNEL_SLOWDOWN: _kernel_slowdown,
    faults.BAD_TUNING: _bad_tuning,
    faults.DEPLOY: _deploy,
    faults.MEMORY_LEAK: _memory_leak,
    faults.RISING_LOAD: _rising_load,
    faults.DIURNAL: _diurnal,
    faults.CONTENTION: _contention,
    faults.STRAGGLER: _straggler,
    faults.POWER_BRAKE: _power_brake,
    faults.POWER_CAP: _power_cap,
    faults.LOW_CLOCK: _low_clock,
    faults.PCIE_LINK: _pcie_link,
    faults.MEMORY_ERRORS: _memory_errors,
    faults.TELEMETRY_LOST: _telemetry_lost,
    faults.PREALLOCATED_MEMORY: _preallocated,
    faults.RESTART: _restart,
    faults.DIURNAL_HEAT: _diurnal_heat,
    faults.WARM_UP: _warm_up,
    faults.LOAD_STEP: _load_step,
    faults.SAWTOOTH_MEMORY: _sawtooth,
    faults.SPIKES: _spikes,
    faults.SLOW_OPENING: _slow_opening,
    **HARDWARE_EFFECTS,
}

"""Energy of each GPU, and estimates of its kernels' energy.

A GPU measures its energy as a whole. An interval's energy is divided by time: the active part is the share of the
interval in which kernels of reporting programs ran, the rest is idle. The active part is divided over kernels by their
GPU time. Programs that do not report, copies, and launches that a probe cannot see count as idle. Untimed launches of a
kernel are assumed to last as long as its timed ones. Where kernels are measured in windows, only the energy of the
measured share of an interval is divided; the rest is unmeasured.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from kernelcast.columnar import Sample
from kernelcast.exporter.totals.apportionment import active_part, apportion
from kernelcast.exporter.totals.emit import MICROJOULES_PER_JOULE
from kernelcast.exporter.totals.series import ProgramSeries
from kernelcast.wire.catalogue import OWN_NAMES, own_name
from kernelcast.wire.catalogue.devices import device, energy, gpu
from kernelcast.wire.identity import Labels, labels

MICROJOULES_PER_MILLIJOULE: Final = 1_000
NANOJOULES_PER_MICROJOULE: Final = 1_000
LONGEST_POWER_NS: Final = 60_000_000_000
"""Longest time between two readings for which energy is computed from power; an energy counter has no such limit."""
MAX_GPUS: Final = 4_096
"""Bound of memory, above the GPUs of a simulated fleet."""


class GpuKey(NamedTuple):
    """A whole GPU of a host; `source` as in `wire.identity`."""

    hostname: str
    uuid: str
    source: str


_OWN_METERED: Final = frozenset({device.TOTAL_ENERGY.otlp_name, device.POWER_USAGE.otlp_name})
_METERED: Final = _OWN_METERED | {name for name, own in OWN_NAMES.items() if own in _OWN_METERED}
"""Names of the rows that are metered, as the catalogue or a counters table has them."""


@dataclass(slots=True)
class EnergyReading:
    """One reading of a GPU's energy and power; None for a value that the GPU does not give.

    Attributes:
        time_ns: The time of its samples, Unix nanoseconds.
        taken_ns: Its running time, nanoseconds.
        energy_mj: The GPU's energy counter, millijoules.
        power_w: Power in watts.
    """

    time_ns: int
    taken_ns: int
    energy_mj: int | None = None
    power_w: float | None = None


@dataclass(slots=True)
class GpuEnergy:
    """One GPU's energy since it was first seen, in microjoules.

    Attributes:
        gpu: Its index.
        start_ns: Time when it was first seen, Unix nanoseconds.
        active_uj: Energy while kernels ran.
        idle_uj: All other energy of measured time.
        unmeasured_uj: Energy while programs ran and were not measured.
        last: The last reading, with which the next one is compared; None before the first one, and after a restart.
    """

    gpu: str
    start_ns: int
    active_uj: int = 0
    idle_uj: int = 0
    unmeasured_uj: int = 0
    last: EnergyReading | None = None


class EnergyMeter:
    """Adds each interval's energy to GPUs and kernels. The aggregator has one, and uses it on the daemon's thread.

    Attributes:
        gpus: Energy by GPU; it survives a restart.
    """

    def __init__(self) -> None:
        self.gpus: dict[GpuKey, GpuEnergy] = {}

    def add_interval(
        self, samples: Iterable[Sample], programs: Iterable[ProgramSeries], running_ns: int | None = None
    ) -> list[Sample]:
        """Add the energy since the last call to GPUs and to the kernels that ran on them.

        Args:
            samples: Device samples of this interval.
            programs: All known programs; the energy of their kernels is increased.
            running_ns: Running time of the interval; None where the clock of the samples was never set back.

        Returns:
            The energy of each GPU among the samples; for one in MIG mode the reason why there is none.
        """
        readings, divided = _readings(samples, running_ns)
        users: dict[GpuKey, list[ProgramSeries]] = {}
        for series in programs:
            users.setdefault(GpuKey(series.key.hostname, series.key.uuid, series.key.source), []).append(series)
        shown: list[Sample] = []
        for key, (index, reading) in readings.items():
            if key in divided:
                if key in self.gpus:
                    self.gpus[key].last = None
                shown.append(_absent(key, index, reading.time_ns))
                continue
            found = self._measured(key, index, reading, users.get(key, []))
            if found is not None:
                shown.extend(_samples(key, found, reading.time_ns))
        return shown

    def _measured(
        self, key: GpuKey, index: str, reading: EnergyReading, users: list[ProgramSeries]
    ) -> GpuEnergy | None:
        known = self.gpus.get(key)
        if known is None:
            if (reading.energy_mj is None and reading.power_w is None) or len(self.gpus) >= MAX_GPUS:
                return None
            known = self.gpus[key] = GpuEnergy(index, reading.time_ns)
        last = known.last
        if last is not None and reading.time_ns == last.time_ns:
            return known
        known.last = reading
        used_uj = _used_uj(last, reading) if last is not None else None
        for series in users:
            series.metered = True
        if last is None or used_uj is None:
            for series in users:
                series.spent_ns.clear()
                series.take_measured()
            return known
        measured_uj, measured_ns = _measured_part(used_uj, reading.taken_ns - last.taken_ns, users)
        known.unmeasured_uj += used_uj - measured_uj
        if measured_ns:
            active_uj = _divide(measured_uj, measured_ns, users)
            known.active_uj += active_uj
            known.idle_uj += measured_uj - active_uj
        return known


def _measured_part(used_uj: int, elapsed_ns: int, users: list[ProgramSeries]) -> tuple[int, int]:
    """Return the energy and the time of an interval in which kernels were measured; all of it without programs."""
    times = [series.take_measured() for series in users]
    running_ns, measured_ns = (sum(column) for column in zip(*times, strict=True)) if times else (0, 0)
    if not running_ns:
        return used_uj, elapsed_ns
    measured_ns = min(measured_ns, running_ns)
    return used_uj * measured_ns // running_ns, elapsed_ns * measured_ns // running_ns


def _divide(used_uj: int, elapsed_ns: int, users: list[ProgramSeries]) -> int:
    """Divide the energy of one interval over the kernels that ran; returns the active part, in microjoules."""
    shares = [(series, signature, ns) for series in users for signature, ns in series.spent_ns.items() if ns]
    weights = [ns for _, _, ns in shares]
    active_uj = active_part(used_uj, elapsed_ns=elapsed_ns, spent_ns=sum(weights))
    if shares:
        for (series, signature, _), part_uj in zip(shares, apportion(active_uj, weights), strict=True):
            series.charge(signature, part_uj)
    for series in users:
        series.spent_ns.clear()
    return active_uj


def _used_uj(last: EnergyReading, now: EnergyReading) -> int | None:
    """Return the energy between two readings; None if the counter fell, or there is neither a counter nor power."""
    if last.energy_mj is not None and now.energy_mj is not None:
        used_mj = now.energy_mj - last.energy_mj
        return used_mj * MICROJOULES_PER_MILLIJOULE if used_mj >= 0 else None
    elapsed_ns = now.taken_ns - last.taken_ns
    if last.power_w is None or now.power_w is None or elapsed_ns > LONGEST_POWER_NS:
        return None
    return round((last.power_w + now.power_w) / 2 * elapsed_ns / NANOJOULES_PER_MICROJOULE)


def _readings(
    samples: Iterable[Sample], running_ns: int | None
) -> tuple[dict[GpuKey, tuple[str, EnergyReading]], set[GpuKey]]:
    """Return index and reading of each GPU among the samples, and the GPUs that are divided into MIG instances."""
    readings: dict[GpuKey, tuple[str, EnergyReading]] = {}
    divided: set[GpuKey] = set()
    places: dict[Labels, tuple[GpuKey, str, bool]] = {}
    seen: Labels | None = None
    for sample in samples:
        # The rows of a GPU have the same labels, so only rows with power or energy matter after the first.
        if sample.attributes is seen and sample.metric.otlp_name not in _METERED:
            continue
        if not sample.metric.otlp_name.startswith("DCGM_FI_"):
            continue
        seen = sample.attributes
        place = places.get(sample.attributes)
        if place is None:
            place = places[sample.attributes] = _place(sample.attributes)
        key, index, instance = place
        if instance:
            divided.add(key)
            continue
        ran_ns = sample.time_ns if running_ns is None else running_ns
        _, reading = readings.setdefault(key, (index, EnergyReading(sample.time_ns, ran_ns)))
        if not isinstance(sample.value, int | float):
            continue
        own = own_name(sample.metric.otlp_name)
        if own == device.TOTAL_ENERGY.otlp_name:
            reading.energy_mj = int(sample.value)
        elif own == device.POWER_USAGE.otlp_name:
            reading.power_w = float(sample.value)
    return readings, divided


def _place(attributes: Labels) -> tuple[GpuKey, str, bool]:
    """Return key and index of the GPU in some labels, and whether the labels are those of an instance."""
    own = dict(attributes)
    key = GpuKey(own.get("Hostname", ""), own.get("UUID", ""), own.get("source", ""))
    return key, own.get("gpu", ""), bool(own.get("GPU_I_ID"))


def _own(key: GpuKey, index: str) -> Mapping[str, str]:
    return {"Hostname": key.hostname, "UUID": key.uuid, "gpu": index, "source": key.source}


def _samples(key: GpuKey, known: GpuEnergy, time_ns: int) -> Iterator[Sample]:
    states = [("active", known.active_uj), ("idle", known.idle_uj)]
    if known.unmeasured_uj:
        states.append(("unmeasured", known.unmeasured_uj))
    for state, used_uj in states:
        attributes = labels(**_own(key, known.gpu), state=state)
        yield Sample(energy.ENERGY, attributes, time_ns, used_uj / MICROJOULES_PER_JOULE, known.start_ns)


def _absent(key: GpuKey, index: str, time_ns: int) -> Sample:
    """Return the sample that says why a divided GPU has no energy: an instance's share cannot be measured."""
    own = labels(**_own(key, index), field=energy.ENERGY.prometheus_name, reason="mig")
    return Sample(gpu.FIELD_ABSENT, own, time_ns, 1)

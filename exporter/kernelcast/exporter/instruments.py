"""The daemon's own metrics (`kernelcast_exporter_*`), made from the catalogue's rows.

`daemon.py` sets them after each interval; hints, outcomes and NVML count their errors through the methods below.
"""

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from kernelcast.exporter.hints.inbox import OUTCOMES as HINT_OUTCOMES
from kernelcast.exporter.nvml.isolation.isolated import IsolatedSampler
from kernelcast.exporter.nvml.sampling import health, labels
from kernelcast.exporter.nvml.sampling.fields import CALL_NAMES
from kernelcast.exporter.nvml.sampling.nvlink import LINKS_CALL, STATE_CALL
from kernelcast.exporter.nvml.sampling.peers import PEER_CALL
from kernelcast.exporter.nvml.sampling.reading import IMPLAUSIBLE
from kernelcast.exporter.pipeline import Tick
from kernelcast.exporter.schedule import Lateness
from kernelcast.exporter.state import StateFile
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.runtime.instruments import counter, gauge
from kernelcast.wire.catalogue import exporter as rows

NVML_CALLS: Final = (*CALL_NAMES, *labels.CALL_NAMES, *health.CALL_NAMES, PEER_CALL, LINKS_CALL, STATE_CALL)
"""All label values under which errors of NVML are counted."""


class Instruments:
    """The collectors; every known label value starts at 0.

    Any thread may call the methods that count one event; the daemon's thread calls the others, once an interval.

    Args:
        registry: Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.ticks = counter(rows.TICKS, registry)
        self.ticks_missed = counter(rows.TICKS_MISSED, registry)
        self.tick_errors = counter(rows.TICK_ERRORS, registry)
        self.points = counter(rows.POINTS, registry)
        self._lateness = gauge(rows.TICK_LATENESS, registry)
        self._duration = gauge(rows.TICK_DURATION, registry)
        self._programs = gauge(rows.PROGRAMS, registry)
        kernels = gauge(rows.KERNELS, registry)
        self._admitted, self._other = kernels.labels("admitted"), kernels.labels("other")
        self._retired = counter(rows.PROGRAMS_RETIRED, registry)
        self._saves = counter(rows.STATE_SAVES, registry)
        self._ignored = _labelled(counter(rows.TOTALS_IGNORED, registry), ("fallen", "refused", "late"))
        self._state_errors = _labelled(counter(rows.STATE_ERRORS, registry), ("save", "load", "final"))
        self._hints = _labelled(counter(rows.HINTS, registry), HINT_OUTCOMES)
        self._outcomes = _labelled(counter(rows.OUTCOMES, registry), ("published", "unmatched", "dropped"))
        self._nvml_errors = _labelled(counter(rows.NVML_ERRORS, registry), NVML_CALLS)
        self._nvml_implausible = counter(rows.NVML_IMPLAUSIBLE, registry)
        self._nvml_starts = counter(rows.NVML_STARTS, registry)
        self._nvml_crashes = counter(rows.NVML_CRASHES, registry)
        self._nvml_hangs = counter(rows.NVML_HANGS, registry)
        self._nvml_hung = gauge(rows.NVML_HUNG, registry)
        self._nvml_unusable = gauge(rows.NVML_UNUSABLE, registry)
        self._device_metrics_off = gauge(rows.DEVICE_METRICS_OFF, registry)
        self._seen: dict[Counter, int] = {}

    def hint(self, outcome: str) -> None:
        """Count a hint that was read."""
        self._hints[outcome].inc()

    def outcome(self, outcome: str) -> None:
        """Count an outcome of a program."""
        self._outcomes[outcome].inc()

    def nvml_error(self, call: str, error: str) -> None:
        """Count a failed NVML call, or a reading that was left out because it is implausible."""
        if error == IMPLAUSIBLE:
            self._nvml_implausible.inc()
        else:
            self._nvml_errors[call].inc()

    def nvml(self, sampler: IsolatedSampler) -> None:
        """Set the state of the process that calls NVML."""
        self._follow(self._nvml_starts, sampler.starts)
        self._follow(self._nvml_crashes, sampler.crashes)
        self._follow(self._nvml_hangs, sampler.hangs)
        self._nvml_unusable.set(int(sampler.blind))
        self._nvml_hung.clear()
        if sampler.hanging is not None:
            self._nvml_hung.labels(sampler.hanging).set(1)

    def device_metrics(self, *, off: str) -> bool:
        """Set whether device metrics are written, and the reason if not; the reason is empty if they are."""
        self._device_metrics_off.clear()
        if off:
            self._device_metrics_off.labels(off).set(1)
        return not off

    def interval(self, tick: Tick, lateness: Lateness, duration_seconds: float) -> None:
        """Count a completed interval."""
        self.ticks.inc()
        self.points.inc(tick.points)
        self._lateness.set(lateness.seconds)
        self._duration.set(duration_seconds)

    def aggregation(self, aggregator: Aggregator) -> None:
        """Set the aggregator's counts and its number of series."""
        counts = aggregator.counts
        self._follow(self._ignored["fallen"], counts.fallen)
        self._follow(self._ignored["refused"], counts.refused)
        self._follow(self._ignored["late"], counts.late)
        self._follow(self._retired, counts.retired)
        kernels = [kernel for member in aggregator.members.values() for kernel in member.series.kernels.values()]
        admitted = sum(kernel.admitted for kernel in kernels)
        self._programs.set(len(aggregator.members))
        self._admitted.set(admitted)
        self._other.set(len(kernels) - admitted)

    def state(self, state: StateFile) -> None:
        """Set the state file's counts."""
        self._follow(self._saves, state.saves)
        self._follow(self._state_errors["save"], state.errors)
        self._follow(self._state_errors["load"], state.refused)
        self._follow(self._state_errors["final"], state.final_reports.errors + state.outcome_log.errors)

    def _follow(self, shown: Counter, total: int) -> None:
        """Increase a counter to a total that is kept elsewhere."""
        shown.inc(total - self._seen.get(shown, 0))
        self._seen[shown] = total


def _labelled(family: Counter, values: tuple[str, ...]) -> Mapping[str, Counter]:
    return {value: family.labels(value) for value in values}

"""Converts a program's series to samples of the catalogue's rows; `Aggregator.samples` calls it once an interval."""

from collections.abc import Collection, Iterator
from typing import Final

from kernelcast.columnar import Sample
from kernelcast.exporter.totals.increments import LaunchTotals, Timed
from kernelcast.exporter.totals.process import ProcessTotals
from kernelcast.exporter.totals.series import TOTAL_LIMIT, KernelSeries, ProgramSeries
from kernelcast.wire.catalogue import Metric, kernel
from kernelcast.wire.catalogue.devices import energy
from kernelcast.wire.frames import COST_BOUNDS, KernelName, TunableClaim
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND, DurationTotals
from kernelcast.wire.identity import Labels, Versions, labels
from kernelcast.wire.kernels import OTHER

COUNTERS: Final[dict[str, tuple[Metric, tuple[str, ...]]]] = {
    "memcpy_bytes": (kernel.MEMCPY_BYTES, ("kind", "pinned")),
    "memcpy_operations": (kernel.MEMCPY_OPERATIONS, ("kind", "pinned")),
    "memcpy_ns": (kernel.MEMCPY_SECONDS, ("kind", "pinned")),
    "sync_ns": (kernel.SYNC_WAIT, ("type",)),
    "sync_calls": (kernel.SYNC_CALLS, ("type",)),
    "device_ns": (kernel.DEVICE_TIME, ("state",)),
    "running_ns": (kernel.PROBE_RUNNING, ()),
    "measured_ns": (kernel.PROBE_MEASURED, ()),
    "waits_measured_ns": (kernel.PROBE_WAITS_MEASURED, ()),
    "overhead_ns": (kernel.PROBE_OVERHEAD, ()),
    "decoding_ns": (kernel.PROBE_DECODING, ()),
    "dropped_frames": (kernel.PROBE_DROPPED, ()),
    "dropped_records": (kernel.PROBE_RECORDS, ()),
    "untimed_records": (kernel.PROBE_UNTIMED, ()),
    "dropped_outcomes": (kernel.PROBE_OUTCOMES, ()),
    "malformed_hints": (kernel.PROBE_MALFORMED, ()),
    "region_launches": (kernel.REGION_LAUNCHES, ("region",)),
    "region_gpu_ns": (kernel.REGION_GPU, ("region",)),
    "region_wall_ns": (kernel.REGION_WALL, ("region",)),
    "unseen_launches": (kernel.PROBE_UNSEEN, ("reason",)),
    "steps": (kernel.STEPS, ()),
    "items": (kernel.ITEMS, ()),
    "megaflops": (kernel.FLOPS, ()),
    "step_ns": (kernel.STEP_SECONDS, ()),
    "lost_processes": (kernel.LOST_PROCESSES, ()),
    "skipped_steps": (kernel.SKIPPED_STEPS, ()),
    "phase_ns": (kernel.PHASE_SECONDS, ("phase",)),
    "gpu_phase_ns": (kernel.GPU_PHASE_SECONDS, ("phase",)),
    "gpu_steps": (kernel.GPU_PHASE_STEPS, ()),
    "compilations": (kernel.COMPILATIONS, ()),
    "compile_ns": (kernel.COMPILATION_SECONDS, ()),
    "allocator_retries": (kernel.ALLOCATOR_RETRIES, ()),
    "out_of_memory": (kernel.OUT_OF_MEMORY, ()),
    "trial_lost_ns": (kernel.TRIAL_LOST, ()),
    "trial_allowed_ns": (kernel.TRIAL_ALLOWED, ()),
}
"""By name of a counter from `process.flatten`: its row, and the labels of its key. Names with `_ns` become seconds,
`megaflops` operations."""

DURATIONS: Final = {"launch_gaps": kernel.LAUNCH_GAP, "step_durations": kernel.STEP_DURATION}
"""By name of a histogram of `Counters`: its row."""
MICROJOULES_PER_JOULE: Final = 1_000_000
SQUARE_NANOSECONDS_PER_SQUARE_SECOND: Final = NANOSECONDS_PER_SECOND**2


class Emitter:
    """Makes the samples of one program on one GPU at one time."""

    def __init__(self, series: ProgramSeries, time_ns: int) -> None:
        self._series = series
        self._time_ns = time_ns
        key = series.key
        self._base = {**series.device.join_labels(key.source), "program": key.program, "rank": key.rank}

    def samples(self, live: Collection[ProcessTotals]) -> Iterator[Sample]:
        """Return all samples; `live` are the processes that have not ended."""
        for shown in self._series.admitted:
            yield from self._kernel(shown)
        for kernel_class, totals in self._series.other.items():
            base = self._labels(kernel=OTHER, kernel_class=kernel_class)
            yield from self._launches(base, totals, detailed=False)
            yield from self._energy(base, self._series.other_energy_uj.get(kernel_class, 0))
        yield from self._counters()
        yield from self._durations()
        yield from self._coverage()
        if live:
            yield self._gauge(kernel.PROCESSES, self._labels(), len(live))
        yield from self._processes(live)
        yield from self._hints()

    def _labels(self, **own: str) -> Labels:
        return labels(**self._base, **own)

    def _counter(self, metric: Metric, attributes: Labels, value: float) -> Sample:
        return Sample(metric, attributes, self._time_ns, value, self._series.start_ns)

    def _gauge(self, metric: Metric, attributes: Labels, value: float) -> Sample:
        return Sample(metric, attributes, self._time_ns, value)

    def _kernel(self, shown: KernelSeries) -> Iterator[Sample]:
        own = self._own(shown)
        yield from self._launches(own, shown.totals, detailed=shown.detailed)
        yield from self._energy(own, shown.energy_uj)
        config = shown.config
        if config is not None and (config.grid or config.block):
            yield self._gauge(kernel.KERNEL_INFO, self._configured(shown, config), 1)
        if config is not None and config.occupancy:
            yield self._gauge(kernel.OCCUPANCY, own, config.occupancy)
        for variant, totals in shown.variants.items():
            yield from self._variant(self._varied(shown, variant), totals)

    def _own(self, shown: KernelSeries) -> Labels:
        """Return a series' labels, sorted once and cached; sorting them every interval would be the largest cost."""
        made = shown.attributes.get("")
        if made is None:
            made = self._labels(kernel=shown.label, kernel_class=shown.kernel_class)
            shown.attributes[""] = made
        return made

    def _varied(self, shown: KernelSeries, variant: str) -> Labels:
        made = shown.attributes.get(variant)
        if made is None:
            made = self._labels(kernel=shown.label, kernel_class=shown.kernel_class, variant=variant)
            shown.attributes[variant] = made
        return made

    def _configured(self, shown: KernelSeries, config: KernelName) -> Labels:
        """Return the labels of the launch configuration; only the last one is cached."""
        made = shown.attributes.get(config)
        if made is None:
            shown.attributes = {key: known for key, known in shown.attributes.items() if isinstance(key, str)}
            made = self._labels(kernel=shown.label, kernel_class=shown.kernel_class, **_config(config))
            shown.attributes[config] = made
        return made

    def _launches(self, attributes: Labels, totals: LaunchTotals, *, detailed: bool) -> Iterator[Sample]:
        durations = totals.durations
        # Other threads keep the samples beyond this interval, while the totals grow, so a copy is returned.
        shown = durations.copy() if detailed else DurationTotals(durations.count, durations.sum_ns)
        start_ns = self._series.start_ns
        yield Sample(kernel.DURATION, attributes, self._time_ns, shown, start_ns, detailed)
        yield self._counter(kernel.LAUNCHES, attributes, totals.launches)
        yield self._counter(kernel.TIMED_LAUNCHES, attributes, durations.count)
        if totals.queue_delays:
            delay_seconds = totals.queue_delay_ns / NANOSECONDS_PER_SECOND
            yield self._counter(kernel.QUEUE_DELAY, attributes, delay_seconds)
            yield self._counter(kernel.QUEUE_DELAYS, attributes, totals.queue_delays)
        if totals.graph_launches:
            yield self._counter(kernel.GRAPH_LAUNCHES, attributes, totals.graph_launches)

    def _energy(self, attributes: Labels, energy_uj: int) -> Iterator[Sample]:
        if self._series.metered:
            yield self._counter(energy.KERNEL_ENERGY, attributes, energy_uj / MICROJOULES_PER_JOULE)

    def _variant(self, attributes: Labels, totals: Timed) -> tuple[Sample, ...]:
        """Make the sample of a variant, by a short path because most samples are of this kind."""
        time_ns, start_ns = self._time_ns, self._series.start_ns
        seconds = totals.sum_ns / NANOSECONDS_PER_SECOND
        squares = totals.sum_squares_ns2 / SQUARE_NANOSECONDS_PER_SQUARE_SECOND
        return (
            Sample(kernel.VARIANT_LAUNCHES, attributes, time_ns, totals.count, start_ns),
            Sample(kernel.VARIANT_SECONDS, attributes, time_ns, seconds, start_ns),
            Sample(kernel.VARIANT_SQUARES, attributes, time_ns, squares, start_ns),
        )

    def _counters(self) -> Iterator[Sample]:
        for (name, *values), total in self._series.counters.items():
            metric, label_names = COUNTERS[name]
            value = total / NANOSECONDS_PER_SECOND if name.endswith("_ns") else total
            if name == "megaflops":
                value *= 1e6
            own = dict(zip(label_names, values, strict=True))
            yield self._counter(metric, self._labels(**own), value)

    def _durations(self) -> Iterator[Sample]:
        series = self._series
        for name, durations in series.durations.items():
            yield Sample(
                DURATIONS[name], self._labels(), self._time_ns, durations.copy(), series.start_ns, detailed=True
            )

    def _coverage(self) -> Iterator[Sample]:
        """Return the share of timed launches among all: those that the method misses count as untimed.

        Launches in time that was not measured are unknown; as many a second are assumed as in the time that was.
        """
        series = self._series
        parts = [*(one.totals for one in series.admitted), *series.other.values()]
        launches = sum(part.launches for part in parts)
        launches += sum(total for key, total in series.counters.items() if key[0] == "unseen_launches")
        if launches:
            timed = sum(part.durations.count for part in parts)
            running_ns, measured_ns = (series.counters.get((name,), 0) for name in ("running_ns", "measured_ns"))
            measured = measured_ns / running_ns if running_ns else 1.0
            yield self._gauge(kernel.PROBE_COVERAGE, self._labels(), timed / launches * measured)

    def _processes(self, live: Collection[ProcessTotals]) -> Iterator[Sample]:
        """Return the samples of live processes: one per state for all processes in it, and the sums of pools."""
        facts: set[tuple[Labels, Metric]] = set()
        pools: dict[tuple[str, str], int] = {}
        allocated: dict[str, int] = {}
        for process in live:
            facts.update(self._facts(process))
            for state, size_bytes in process.allocator.items():
                allocated[state] = allocated.get(state, 0) + size_bytes
            for key, size_bytes in process.pools.items():
                pools[key] = pools.get(key, 0) + size_bytes
        yield from (self._gauge(metric, attributes, 1) for attributes, metric in sorted(facts, key=_fact_order))
        for (pool, state), size_bytes in pools.items():
            yield self._gauge(
                kernel.MEMORY_POOL, self._labels(pool=pool, state=state), min(size_bytes, TOTAL_LIMIT - 1)
            )
        for state, size_bytes in allocated.items():
            yield self._gauge(kernel.ALLOCATOR, self._labels(state=state), min(size_bytes, TOTAL_LIMIT - 1))
        if moments_ns := [process.progress_ns for process in live if process.progress_ns]:
            yield self._gauge(kernel.PROGRESS, self._labels(), min(moments_ns) / NANOSECONDS_PER_SECOND)
        yield from self._standing(live)
        ratios = [process.status.sample_ratio for process in live if process.status]
        if ratios:
            yield self._gauge(kernel.PROBE_SAMPLE, self._labels(), min(ratios))
        costs = [process.status.cost for process in live if process.status and process.status.cost]
        if costs:
            _, highest = max((cost[1], cost) for cost in costs)
            for bound, ratio in zip(COST_BOUNDS, highest, strict=True):
                yield self._gauge(kernel.PROBE_COST, self._labels(bound=bound), ratio)

    def _standing(self, live: Collection[ProcessTotals]) -> Iterator[Sample]:
        """Return how long processes have stood still; of several in one state the longest."""
        found: dict[Labels, float] = {}
        for standing in (process.standing for process in live):
            if standing is not None:
                own = {"job_id": standing.job_id, "state": standing.state, "stacks": standing.stacks}
                attributes = self._labels(**{name: value for name, value in own.items() if value})
                found[attributes] = max(standing.seconds, found.get(attributes, 0.0))
        yield from (self._gauge(kernel.STANDING, attributes, seconds) for attributes, seconds in found.items())

    def _facts(self, process: ProcessTotals) -> Iterator[tuple[Labels, Metric]]:
        if process.method or process.version:
            yield self._labels(method=process.method, version=process.version), kernel.PROBE_INFO
        if process.versions != Versions():
            yield self._labels(**process.versions.labels()), kernel.PROGRAM_INFO
        if process.status:
            yield self._labels(state=process.status.state, reason=process.status.reason), kernel.PROBE_STATE
        if process.phase:
            yield self._labels(phase=process.phase), kernel.PHASE
        if process.job:
            yield self._labels(**process.job), kernel.JOB_INFO
        for claim in process.tunables:
            yield self._labels(**_claim(claim)), kernel.TUNABLE_INFO

    def _hints(self) -> Iterator[Sample]:
        for (tunable, state), count in self._series.outcomes.items():
            yield self._counter(kernel.HINT_OUTCOMES, self._labels(tunable=tunable, state=state), count)
        for tunable, ratio in self._series.measured.items():
            yield self._gauge(kernel.HINT_MEASURED, self._labels(tunable=tunable), ratio)


def _config(config: KernelName) -> dict[str, str]:
    return {
        "grid": config.grid,
        "block": config.block,
        "registers": str(config.registers) if config.registers else "",
        "shared_memory": str(config.shared_memory_bytes),
        "local_memory": str(config.local_memory_bytes) if config.local_memory_bytes else "",
    }


def _fact_order(fact: tuple[Labels, Metric]) -> tuple[str, Labels]:
    return fact[1].prometheus_name, fact[0]


def _claim(claim: TunableClaim) -> dict[str, str]:
    return {
        "tunable": claim.name,
        "value": claim.value,
        "allowed": ",".join(claim.allowed),
        "kind": claim.kind,
        "scope": claim.scope,
        "granularity": claim.granularity,
        "kernel": ";".join(claim.kernels),
        "device_model": claim.device_model,
        "code_version": claim.code_version,
        "changes_results": "" if claim.changes_results is None else str(claim.changes_results).lower(),
    }

"""The last totals of one process on one GPU, from which the increment of its next report is computed."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from kernelcast.exporter.totals.increments import CounterKey, LaunchTotals, ReportIncrement, difference, variant_growth
from kernelcast.exporter.totals.report import ProcessReport, Standing
from kernelcast.wire.frames import PHASES, Counters, KernelName, KernelRow, Status, TunableClaim, VariantRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Versions
from kernelcast.wire.kernels import normalise

DURATIONS: Final = ("launch_gaps", "step_durations")
"""Histograms of `Counters`."""
JOB_LABELS: Final = ("job", "local_rank", "world_size", "backend", "precision")
"""Names in `Counters.job`, which are labels of `kernelcast_program_job_info`."""
MAX_TRACKED: Final = 20_000
"""Largest number of kernels and of (kernel, variant) pairs of a process; real traces have 49 to 170 and 192 to 579."""
MAX_COUNTERS: Final = 512
"""Above the most that a `Counters` frame has: 33 rows of each list, with 3 + 2 + 1 + 3 + 1 totals, and 25 more."""
MAX_TUNABLES: Final = 64
"""Tunables of a process that are shown; each is a series."""
MAX_SIGNATURE_CHARACTERS: Final = 16_384
"""Templates make long signatures; longer ones are cut, so kernels that differ beyond this share a series."""


class ProcessTotals:
    """One process on one GPU: the totals of its reports so far, and its status. A `ProgramOnGpu` has one per process.

    Invariant: `rows`, `variants`, `counters` and `durations` never fall; a report with a lower total is ignored, and
    counted.

    Attributes:
        names: The process's kernel numbers to kernels, signatures normalised.
        rows: Kernel number to its last totals.
        variants: (kernel number, variant) to its last totals.
        counters: Counter to its last total.
        durations: Its last histograms that are not per kernel, by the name of their field in `Counters`.
        pools: (pool, state) to bytes, from its last report.
        allocator: State to bytes of its framework's allocator, from its last report.
        phase: Its present phase; empty if that is not known.
        progress_ns: Its last step or change of phase, Unix nanoseconds; 0 before the first.
        job: Names and values of its place in its job.
        standing: Whether it stands still; None if it makes no steps.
        status: Its present measurement status; None if it never sent one.
        tunables: Its last claims of tunables.
        method: Its measurement method.
        version: Its probe's version.
        versions: Versions that it runs on.
        confirmed: False for a process known from a snapshot only, until it reports again.
    """

    __slots__ = (
        "allocator",
        "confirmed",
        "counters",
        "durations",
        "job",
        "method",
        "names",
        "phase",
        "pools",
        "progress_ns",
        "rows",
        "standing",
        "status",
        "tunables",
        "variants",
        "version",
        "versions",
    )

    def __init__(self) -> None:
        self.names: dict[int, KernelName] = {}
        self.rows: dict[int, LaunchTotals] = {}
        self.variants: dict[tuple[int, str], VariantRow] = {}
        self.counters: dict[CounterKey, int] = {}
        self.durations: dict[str, DurationTotals] = {}
        self.pools: dict[tuple[str, str], int] = {}
        self.allocator: dict[str, int] = {}
        self.phase = ""
        self.progress_ns = 0
        self.job: dict[str, str] = {}
        self.standing: Standing | None = None
        self.status: Status | None = None
        self.tunables: tuple[TunableClaim, ...] = ()
        self.method = ""
        self.version = ""
        self.versions = Versions()
        self.confirmed = True

    def advance(self, report: ProcessReport) -> ReportIncrement:
        """Store a report; returns its increment over the process's last one."""
        growth = ReportIncrement()
        self.confirmed = True
        self._describe(report)
        for name in report.names:
            self._learn(name, growth)
        for row in report.rows:
            self._advance_row(row, growth)
        for variant, timed in report.variants.items():
            self._advance_variant(variant, timed, growth)
        if report.lost is not None:
            lost = ("lost_processes",)
            growth.counters[lost] = int(report.lost and not self.counters.get(lost))
            self.counters[lost] = int(report.lost)
        if report.counters is not None:
            self._keep_present(report.counters)
            for key, total in flatten(report.counters, probe=bool(self.version)):
                self._advance_counter(key, total, growth)
            for histogram in DURATIONS:
                durations: DurationTotals | None = getattr(report.counters, histogram)
                if durations is not None:
                    self._advance_durations(histogram, durations, growth)
        return growth

    def signature(self, kernel: int) -> str:
        """Return the normalised signature of one of the process's kernels; empty while unknown."""
        name = self.names.get(kernel)
        return name.signature if name else ""

    def _describe(self, report: ProcessReport) -> None:
        self.method = report.method or self.method
        self.version = report.version or self.version
        self.versions = report.versions if report.versions != Versions() else self.versions
        self.status = report.status or self.status
        self.standing = report.standing or self.standing
        if report.tunables is not None:
            self.tunables = report.tunables[:MAX_TUNABLES]

    def _learn(self, name: KernelName, growth: ReportIncrement) -> None:
        if name.kernel not in self.names and len(self.names) >= MAX_TRACKED:
            growth.refused += 1
            return
        signature = normalise(name.signature[:MAX_SIGNATURE_CHARACTERS])
        learned = replace(name, signature=signature)
        self.names[name.kernel] = learned
        growth.configs.append(learned)

    def _advance_row(self, row: KernelRow, growth: ReportIncrement) -> None:
        before = self.rows.get(row.kernel)
        if before is None and len(self.rows) >= MAX_TRACKED:
            growth.refused += 1
            return
        if before is not None and before.equals_row(row):
            return
        now = LaunchTotals.of(row)
        grown = now.since(before or LaunchTotals())
        if grown is None:
            growth.fallen += 1
            return
        self.rows[row.kernel] = now
        known = growth.kernels.setdefault(self.signature(row.kernel), grown)
        if known is not grown:
            known.add(grown)

    def _advance_variant(self, key: tuple[int, str], now: VariantRow, growth: ReportIncrement) -> None:
        before = self.variants.get(key)
        if now == before:
            return
        if before is None and len(self.variants) >= MAX_TRACKED:
            growth.refused += 1
            return
        grown = variant_growth(self.signature(key[0]), now, before)
        if grown is None:
            growth.fallen += 1
            return
        self.variants[key] = now
        growth.variants.append(grown)

    def _keep_present(self, counters: Counters) -> None:
        """Keep the values that are no totals."""
        self.pools = {(pool, state): size_bytes for pool, state, size_bytes in counters.pools}
        self.allocator = dict(counters.allocator)
        self.phase = counters.phase if counters.phase in PHASES else ""
        self.progress_ns = counters.progress_ns
        self.job = {name: value for name, value in counters.job if name in JOB_LABELS}

    def _advance_durations(self, name: str, now: DurationTotals, growth: ReportIncrement) -> None:
        grown = difference(now, self.durations.get(name) or DurationTotals())
        if grown is None:
            growth.fallen += 1
            return
        self.durations[name] = now.copy()
        growth.durations[name] = grown

    def _advance_counter(self, key: CounterKey, total: int, growth: ReportIncrement) -> None:
        before = self.counters.get(key)
        if before is None and len(self.counters) >= MAX_COUNTERS:
            growth.refused += 1
            return
        if total < (before or 0):
            growth.fallen += 1
            return
        self.counters[key] = total
        growth.counters[key] = growth.counters.get(key, 0) + total - (before or 0)


def _where_known(counters: Counters) -> Iterator[tuple[CounterKey, int]]:
    """Return totals that not every process has: one without items has no rate of them, not a rate of 0."""
    if counters.steps:
        yield ("steps",), counters.steps
        if counters.items:
            yield ("items",), counters.items
        if counters.megaflops:
            yield ("megaflops",), counters.megaflops
        yield ("step_ns",), counters.step_ns
        if counters.skipped_steps:
            yield ("skipped_steps",), counters.skipped_steps
    if counters.trial_allowed_ns:
        yield ("trial_lost_ns",), counters.trial_lost_ns
        yield ("trial_allowed_ns",), counters.trial_allowed_ns
    if counters.running_ns:
        yield ("running_ns",), counters.running_ns
        yield ("measured_ns",), counters.measured_ns
        yield ("waits_measured_ns",), counters.waits_measured_ns


def _of_framework(counters: Counters) -> Iterator[tuple[CounterKey, int]]:
    """Return the totals of phases, compilations and the allocator, as far as the program has any."""
    for phase, phase_ns in counters.phases:
        if phase in PHASES:
            yield ("phase_ns", phase), phase_ns
    if counters.gpu_steps:
        yield ("gpu_steps",), counters.gpu_steps
        for phase, gpu_ns in counters.gpu_phases:
            if phase in PHASES:
                yield ("gpu_phase_ns", phase), gpu_ns
    if counters.compilations:
        yield ("compilations",), counters.compilations
        yield ("compile_ns",), counters.compile_ns
    if counters.allocator:
        yield ("allocator_retries",), counters.allocator_retries
        yield ("out_of_memory",), counters.out_of_memory


def flatten(counters: Counters, *, probe: bool) -> Iterator[tuple[CounterKey, int]]:
    """Return the totals of `counters` by key; rows of the same kind are summed.

    Args:
        counters: The reported counters.
        probe: Whether a probe measured them, so that its cost is known; a recording has no such cost.
    """
    totals: dict[CounterKey, int] = {}

    def add(key: CounterKey, value: int) -> None:
        totals[key] = totals.get(key, 0) + value

    for kind, pinned, copied_bytes, operations, copy_ns in counters.memcpy:
        add(("memcpy_bytes", kind, pinned), copied_bytes)
        add(("memcpy_operations", kind, pinned), operations)
        add(("memcpy_ns", kind, pinned), copy_ns)
    for sync, calls, wait_ns in counters.sync:
        add(("sync_calls", sync), calls)
        add(("sync_ns", sync), wait_ns)
    for state, state_ns in counters.device_time:
        add(("device_ns", state), state_ns)
    for region, launches, gpu_ns, wall_ns in counters.regions:
        add(("region_launches", region), launches)
        add(("region_gpu_ns", region), gpu_ns)
        add(("region_wall_ns", region), wall_ns)
    totals.update(_of_framework(counters))
    for reason, launches in counters.unseen:
        add(("unseen_launches", reason), launches)
    totals.update(_where_known(counters))
    if probe:
        add(("overhead_ns",), counters.overhead_ns)
        add(("decoding_ns",), counters.decoding_ns)
        add(("dropped_frames",), counters.dropped_frames)
        add(("dropped_records",), counters.dropped_records)
        add(("untimed_records",), counters.untimed_records)
        add(("dropped_outcomes",), counters.dropped_outcomes)
        add(("malformed_hints",), counters.malformed_hints)
    yield from totals.items()

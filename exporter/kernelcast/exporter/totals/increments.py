"""Increments since a process's last report: reported totals are cumulative, series add up the increments."""

from dataclasses import dataclass, field

from kernelcast.wire.frames import KernelName, KernelRow, VariantRow
from kernelcast.wire.histogram import DurationTotals

CounterKey = tuple[str, ...]
"""Key of a total that is not per kernel: its name (a key of `emit.COUNTERS`), then the values of its labels.

Example: `("memcpy_bytes", "h2d", "true")`.
"""

VariantGrowth = tuple[str, str, int, int, int]
"""Signature, variant, timed launches, their GPU time in ns, and its squares in ns²: the increment of one variant."""


@dataclass(slots=True)
class LaunchTotals:
    """Launches of a kernel, and the sums over its timed launches.

    Attributes:
        launches: Number of launches, timed or not.
        durations: GPU time of the timed launches.
        queue_delays: Launches whose queue delay is known.
        queue_delay_ns: The sum of those delays.
        graph_launches: Launches that came from a CUDA graph.
    """

    launches: int = 0
    durations: DurationTotals = field(default_factory=DurationTotals)
    queue_delays: int = 0
    queue_delay_ns: int = 0
    graph_launches: int = 0

    @classmethod
    def of(cls, row: KernelRow) -> "LaunchTotals":
        """Copy the totals of a row, because its source may continue to count in the same object."""
        queue = (row.queue_delays, row.queue_delay_ns, row.graph_launches)
        return cls(row.launches, row.durations.copy(), *queue)

    @property
    def gpu_time_ns(self) -> int:
        """GPU time of the timed launches, in nanoseconds."""
        return self.durations.sum_ns

    @property
    def estimated_ns(self) -> int:
        """Estimated GPU time of all launches, if untimed ones take as long as timed ones."""
        timed = self.durations.count
        return self.durations.sum_ns * self.launches // timed if timed else 0

    def add(self, other: "LaunchTotals") -> None:
        """Add another set of launches to this one."""
        self.launches += other.launches
        self.durations.add(other.durations)
        self.queue_delays += other.queue_delays
        self.queue_delay_ns += other.queue_delay_ns
        self.graph_launches += other.graph_launches

    def equals_row(self, row: KernelRow) -> bool:
        """Whether a row has exactly these totals."""
        durations, other = self.durations, row.durations
        return (
            self.launches == row.launches
            and durations.sum_ns == other.sum_ns
            and self.queue_delay_ns == row.queue_delay_ns
            and self.queue_delays == row.queue_delays
            and self.graph_launches == row.graph_launches
            and durations == other
        )

    def since(self, before: "LaunchTotals") -> "LaunchTotals | None":
        """Return the increment since `before`; None if any total is lower than before."""
        launches = self.launches - before.launches
        queue_delays = self.queue_delays - before.queue_delays
        queue_delay_ns = self.queue_delay_ns - before.queue_delay_ns
        graph_launches = self.graph_launches - before.graph_launches
        if launches < 0 or queue_delays < 0 or queue_delay_ns < 0 or graph_launches < 0:
            return None
        durations = difference(self.durations, before.durations)
        if durations is None:
            return None
        return LaunchTotals(launches, durations, queue_delays, queue_delay_ns, graph_launches)


@dataclass(slots=True)
class Timed:
    """Sums over the timed launches of a kernel in one launch configuration: variants have no buckets.

    Attributes:
        count: Number of timed launches.
        sum_ns: Sum of their GPU times.
        sum_squares_ns2: Sum of the squares of their GPU times.
    """

    count: int = 0
    sum_ns: int = 0
    sum_squares_ns2: int = 0

    def add(self, count: int, sum_ns: int, sum_squares_ns2: int) -> None:
        """Add other launches to these."""
        self.count += count
        self.sum_ns += sum_ns
        self.sum_squares_ns2 += sum_squares_ns2


@dataclass(slots=True)
class ReportIncrement:
    """The increment of one report to the series of its program.

    Attributes:
        kernels: Increments by normalised signature; an empty signature for kernels whose name has not arrived.
        variants: Increments of variants.
        counters: Increments by counter.
        durations: Increments of its histograms, by the name of the field in `Counters`.
        configs: Names and launch configurations in the report, signatures normalised.
        fallen: Number of totals that were lower than the same process's last ones, and were ignored.
        refused: Number of totals that were ignored because the process exceeds a limit.
    """

    kernels: dict[str, LaunchTotals] = field(default_factory=dict)
    variants: list[VariantGrowth] = field(default_factory=list)
    counters: dict[CounterKey, int] = field(default_factory=dict)
    durations: dict[str, DurationTotals] = field(default_factory=dict)
    configs: list[KernelName] = field(default_factory=list)
    fallen: int = 0
    refused: int = 0


def variant_growth(signature: str, now: VariantRow, before: VariantRow | None) -> VariantGrowth | None:
    """Return the difference of `now` and `before`; None if any total is lower than before."""
    _, variant, launches, sum_ns, squares = now
    if before is not None:
        launches -= before.launches
        sum_ns -= before.sum_ns
        squares -= before.sum_squares_ns2
    if launches < 0 or sum_ns < 0 or squares < 0:
        return None
    return signature, variant, launches, sum_ns, squares


def difference(now: DurationTotals, before: DurationTotals) -> DurationTotals | None:
    """Return the difference of `now` and `before`; None if any total is lower than before."""
    count, sum_ns = now.count - before.count, now.sum_ns - before.sum_ns
    squares, zero_count = now.sum_squares_ns2 - before.sum_squares_ns2, now.zero_count - before.zero_count
    known, present = before.buckets, now.buckets
    if min(count, sum_ns, squares, zero_count) < 0 or not known.keys() <= present.keys():
        return None
    buckets = {index: added for index, total in present.items() if (added := total - known.get(index, 0))}
    if buckets and min(buckets.values()) < 0:
        return None
    return DurationTotals(count, sum_ns, squares, zero_count, buckets)

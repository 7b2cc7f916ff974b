"""The series of one program on one GPU: sums over its processes, which never fall."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kernelcast.exporter.totals.admission import admit
from kernelcast.exporter.totals.increments import CounterKey, LaunchTotals, ReportIncrement, Timed, VariantGrowth
from kernelcast.exporter.totals.process import MAX_TRACKED
from kernelcast.wire.frames import KernelName
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device, Labels
from kernelcast.wire.kernels import COMPUTE, MAX_VARIANT_CHARACTERS, OTHER, kernel_class, label

MAX_VARIANTS: Final = 8
"""Number of variants of one kernel with series of their own; the rest are summed as `other`."""
MAX_SERIES_COUNTERS: Final = 512
"""Keys of `ProgramSeries.counters`, as `process.MAX_COUNTERS` for one process."""
MEASURED_TIMES: Final = ("running_ns", "measured_ns")
"""Keys of the time of a program's processes, and of the part of it in which kernels were measured."""
TOTAL_LIMIT: Final = 2**63
"""First integer that OTLP cannot hold. Only a faulty program reports it, and its export would fail."""


class SeriesKey(NamedTuple):
    """The labels that identify the series of a program."""

    hostname: str
    uuid: str
    gi_id: str
    program: str
    rank: str
    source: str


@dataclass(slots=True)
class KernelSeries:
    """One kernel of a program, all processes together.

    Attributes:
        signature: Normalised signature; empty for the sum of kernels whose name has not arrived.
        gpu_time_ns: GPU time since the program began; decides about admission.
        admitted: Whether it has a series of its own; never reset.
        detailed: Whether its histogram is sent with buckets; never reset.
        totals: Totals of its own series.
        pending: Increments since the last interval, while it is not admitted.
        variants: Variant to totals, of an admitted kernel.
        pending_variants: Increments of the last interval, of variants without totals yet.
        config: The launch configuration last seen.
        attributes: Cache of its label sets, by the labels that are added to its own.
        energy_uj: Energy of its own series, in microjoules.
        pending_energy_uj: Energy since the last interval, while it is not admitted.
    """

    signature: str
    gpu_time_ns: int = 0
    admitted: bool = False
    detailed: bool = False
    totals: LaunchTotals = field(default_factory=LaunchTotals)
    pending: LaunchTotals = field(default_factory=LaunchTotals)
    variants: dict[str, Timed] = field(default_factory=dict)
    pending_variants: dict[str, Timed] = field(default_factory=dict)
    config: KernelName | None = None
    attributes: dict[str | KernelName, Labels] = field(default_factory=dict)
    energy_uj: int = 0
    pending_energy_uj: int = 0

    @property
    def label(self) -> str:
        """The value of the label `kernel`."""
        return label(self.signature)

    @property
    def kernel_class(self) -> str:
        """The value of the label `kernel_class`."""
        return kernel_class(self.signature) if self.signature else COMPUTE

    @property
    def waits(self) -> bool:
        """Whether it was launched, has a name, and has no series of its own yet."""
        return not self.admitted and bool(self.signature) and bool(self.gpu_time_ns or self.pending.launches)

    def settle_variants(self) -> None:
        """Give new variants of the last interval their series, hottest first, and sum the rest as `other`."""
        for name, totals in sorted(self.pending_variants.items(), key=lambda item: (-item[1].sum_ns, item[0])):
            known = name in self.variants
            room = len(self.variants) - (OTHER in self.variants) < MAX_VARIANTS
            short = len(name) <= MAX_VARIANT_CHARACTERS
            kept = name if known or (room and short and name != OTHER) else OTHER
            self.variants.setdefault(kept, Timed()).add(totals.count, totals.sum_ns, totals.sum_squares_ns2)
        self.pending_variants.clear()


class ProgramSeries:
    """All series of one program on one GPU.

    `grow` adds what processes report, and `settle` closes an interval; samples are made right after it. Increments of a
    kernel without a series wait for `settle`, which admits it or adds them to `other`.

    Attributes:
        key: Labels of the program.
        device: The GPU from the first report; its labels never change.
        start_ns: Start of the cumulative series, Unix nanoseconds.
        active_ns: Running time of the last interval in which a process was alive; 0 until the interval of its report
            is closed.
        kernels: By normalised signature.
        other: Sums of the kernels without a series, by kernel class.
        counted: Sum of launches, timed launches of variants, and durations; it stays below `TOTAL_LIMIT`.
        counters: Totals that are not per kernel.
        durations: Histograms that are not per kernel, by the name of their field in `Counters`: idle times, steps.
        spent_ns: Signature to the GPU time, estimated for untimed launches, since energy was last divided.
        divided_ns: Running and measured time of its processes when energy was last divided.
        metered: Whether its GPU's energy is known, so that its kernels' energy is exposed.
        other_energy_uj: Energy of the kernels without a series, by kernel class.
        outcomes: (tunable, state) to the number of hints.
        measured: Tunable to the last measured ratio of kernel times.
    """

    def __init__(self, key: SeriesKey, device: Device, start_ns: int) -> None:
        self.key = key
        self.device = device
        self.start_ns = start_ns
        self.counted = 0
        self.active_ns = 0
        self.kernels: dict[str, KernelSeries] = {}
        self.other: dict[str, LaunchTotals] = {}
        self.counters: dict[CounterKey, int] = {}
        self.durations: dict[str, DurationTotals] = {}
        self.spent_ns: dict[str, int] = {}
        self.divided_ns = (0, 0)
        self.metered = False
        self.other_energy_uj: dict[str, int] = {}
        self.outcomes: dict[tuple[str, str], int] = {}
        self.measured: dict[str, float] = {}

    @property
    def gpu_time_ns(self) -> int:
        """GPU time of all kernels."""
        return sum(kernel.gpu_time_ns for kernel in self.kernels.values())

    @property
    def admitted(self) -> list[KernelSeries]:
        """Kernels with a series of their own."""
        return [kernel for kernel in self.kernels.values() if kernel.admitted]

    def grow(self, growth: ReportIncrement) -> int:
        """Add the increments of a report; returns the number of totals beyond a limit."""
        refused = 0
        for signature, grown in growth.kernels.items():
            kernel = self._kernel(signature)
            if not self._countable(grown.launches):
                refused += 1
                continue
            kernel.gpu_time_ns += grown.gpu_time_ns
            (kernel.totals if kernel.admitted else kernel.pending).add(grown)
            self.spent_ns[kernel.signature] = self.spent_ns.get(kernel.signature, 0) + grown.estimated_ns
        refused += sum(not self._grow_variant(grown_variant) for grown_variant in growth.variants)
        for name in growth.configs:
            self._kernel(name.signature).config = name
        for histogram, grown_durations in growth.durations.items():
            if self._countable(grown_durations.count):
                self.durations.setdefault(histogram, DurationTotals()).add(grown_durations)
            else:
                refused += 1
        return refused + self._grow_counters(growth.counters)

    def take_measured(self) -> tuple[int, int]:
        """Return the running and the measured time of its processes since the last call."""
        (running, measured), now = self.divided_ns, tuple(self.counters.get((one,), 0) for one in MEASURED_TIMES)
        self.divided_ns = (now[0], now[1])
        return now[0] - running, now[1] - measured

    def charge(self, signature: str, energy_uj: int) -> None:
        """Add to the energy of a kernel."""
        self.kernels[signature].pending_energy_uj += energy_uj

    def settle(self, *, max_kernels: int | None, detailed_kernels: int) -> None:
        """Admit kernels, then add the increments of the others since the last interval to `other`.

        Published totals never move: a kernel's own series starts with its unpublished increments only.
        """
        # Example: in interval 1 a kernel has 5 launches and no series: `other` grows by 5. In interval 2 it has 3 more
        # and is admitted: its own series starts at 3, and `other` keeps the 5.
        total_ns = self.gpu_time_ns
        waiting = [kernel for kernel in self.kernels.values() if kernel.waits]
        shown = self.admitted
        for kernel in admit(waiting, taken=len(shown), slots=max_kernels, total_ns=total_ns):
            kernel.admitted = True
            shown.append(kernel)
        plain = [kernel for kernel in shown if not kernel.detailed]
        for kernel in admit(plain, taken=len(shown) - len(plain), slots=detailed_kernels, total_ns=total_ns):
            kernel.detailed = True
        for kernel in self.kernels.values():
            self._settle_kernel(kernel)

    def _settle_kernel(self, kernel: KernelSeries) -> None:
        """Move a kernel's pending increments to its own series, or to `other` if it has none."""
        if kernel.pending.launches or kernel.pending.durations.count:
            if kernel.admitted:
                kernel.totals.add(kernel.pending)
            else:
                self.other.setdefault(kernel.kernel_class, LaunchTotals()).add(kernel.pending)
            kernel.pending = LaunchTotals()
        if kernel.pending_energy_uj:
            if kernel.admitted:
                kernel.energy_uj += kernel.pending_energy_uj
            else:
                known_uj = self.other_energy_uj.get(kernel.kernel_class, 0)
                self.other_energy_uj[kernel.kernel_class] = known_uj + kernel.pending_energy_uj
            kernel.pending_energy_uj = 0
        if kernel.pending_variants and kernel.admitted:
            kernel.settle_variants()
        kernel.pending_variants.clear()

    def _grow_variant(self, grown: VariantGrowth) -> bool:
        """Add the increment of a variant; False if it is beyond a limit."""
        signature, variant, count, sum_ns, squares = grown
        kernel = self._kernel(signature)
        timed = kernel.variants.get(variant) or kernel.pending_variants.get(variant)
        full = timed is None and len(kernel.pending_variants) >= MAX_TRACKED
        if full or not self._countable(count):
            return False
        if timed is None:
            timed = kernel.pending_variants[variant] = Timed()
        timed.add(count, sum_ns, squares)
        return True

    def _kernel(self, signature: str) -> KernelSeries:
        """Return the kernel's entry; beyond the limit all share the one without a name, which is never admitted."""
        kernel = self.kernels.get(signature)
        if kernel is None:
            name = signature if len(self.kernels) < MAX_TRACKED else ""
            kernel = self.kernels.setdefault(name, KernelSeries(name))
        return kernel

    def _countable(self, amount: int) -> bool:
        """Add to `counted` if the sum still fits OTLP's integers; returns whether it did."""
        if self.counted + amount >= TOTAL_LIMIT:
            return False
        self.counted += amount
        return True

    def _grow_counters(self, counters: Mapping[CounterKey, int]) -> int:
        refused = 0
        for key, grown in counters.items():
            total = self.counters.get(key, 0) + grown
            if total >= TOTAL_LIMIT or (key not in self.counters and len(self.counters) >= MAX_SERIES_COUNTERS):
                refused += 1
                continue
            self.counters[key] = total
        return refused

"""Cumulative totals of one process, to which the program's threads add in about a microsecond.

Hooks, methods of measurement and `probe.observe` add; the probe's thread (`ReportSender`) reads. Memory is bounded:
each device has a limit of kernels, beyond which all count as `other`; a histogram has at most 400 buckets. A *cell* has
the totals of one kernel on one device; a cell is *changed* until its totals were sent.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, NamedTuple

from kernelcast.probe.recording.device_recorder import MAX_DEVICES, DeviceRecorder, GpuPhaseTotals, guarded
from kernelcast.probe.recording.texts import LONGEST_NS, Dimensions, plain, printable, whole
from kernelcast.probe.recording.totals import MAX_KINDS, TOTAL_LIMIT, Cell, DeviceTotals, check_durations
from kernelcast.wire.frames import Counters, KernelName, KernelRow, VariantRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.kernels import COLLECTIVE, OTHER, OTHER_COLLECTIVES, kernel_class

if TYPE_CHECKING:
    from kernelcast.probe.recording.step_times import StepTimes

__all__ = [
    "LONGEST_NS",
    "MAX_DEVICES",
    "MAX_KERNELS",
    "MAX_KINDS",
    "Cell",
    "Dimensions",
    "Recorder",
    "Spent",
    "plain",
    "printable",
]

# Far above the kernels of real traces, 49 to 170.
MAX_KERNELS: Final = 2048


class Spent(NamedTuple):
    """Device time and launches of one kernel so far."""

    sum_ns: int
    timed: int
    launches: int


class Recorder(DeviceRecorder):
    """Adds up the program's reports. Every method may be called from any thread, and none raises.

    Args:
        max_kernels: Kernels counted separately on one device; the rest is added to `other` or `other collectives`.
    """

    def __init__(self, *, max_kernels: int = MAX_KERNELS) -> None:
        super().__init__()
        self._max_kernels = max_kernels
        self.configuration = 0
        """Number of the configuration in force; each step of a trial has a new one."""
        self.step_times: StepTimes | None = None
        """Receives the launches of an open trial's steps."""
        self.launch_counts: Callable[[], Mapping[tuple[int, str], int]] | None = None
        """Returns the launches so far by device and kernel, where a method counts them as they happen."""

    def observe(  # noqa: PLR0913  a launch has this many properties
        self,
        signature: str,
        duration_ns: int,
        *,
        grid: Dimensions = None,
        block: Dimensions = None,
        registers: int = 0,
        shared_memory_bytes: int = 0,
        device: int = 0,
        variant: str = "",
        configuration: int | None = None,
    ) -> None:
        """Add one timed launch; `configuration` is the number in force at the launch, if that is some time ago."""
        began_ns = perf_counter_ns()
        try:
            if self._interrupts():
                self.refused += 1
                return
            totals = self._devices.get(device) or self._open(device)
            duration_ns = int(duration_ns)
            if not 0 <= duration_ns < LONGEST_NS:  # not `whole`: the program waits
                self.refused += 1
                return
            cell = totals.by_raw.get(signature) or self._admit(totals, signature)
            configured = grid is not None or block is not None
            registers, shared = (whole(registers), whole(shared_memory_bytes)) if configured else (0, 0)
            with self._lock:
                if cell.durations.sum_ns + duration_ns >= TOTAL_LIMIT:
                    self.refused += 1
                    return
                cell.launches += 1
                cell.durations.observe(duration_ns)
                cell.changed = True
                if configured:
                    cell.grid, cell.block = grid, block
                    cell.registers, cell.shared = registers, shared
                if variant:
                    _grow_variant(totals.variant(cell, variant), 1, duration_ns, duration_ns * duration_ns)
                self.overhead_ns += perf_counter_ns() - began_ns
            times = self.step_times
            if times is not None:
                number = self.configuration if configuration is None else configuration
                times.timed(device, cell.signature, duration_ns, number)
        except Exception:  # noqa: BLE001  nothing here may reach the program
            self.refused += 1

    @guarded
    def count(self, signature: str, launches: int, *, device: int = 0) -> bool:
        """Add launches that were not timed."""
        if launches == 0:
            return True
        totals = self._devices.get(device) or self._open(device)
        launches = whole(launches)
        cell = totals.by_raw.get(signature) or self._admit(totals, signature)
        with self._lock:
            if cell.launches + launches >= TOTAL_LIMIT:
                return False
            cell.launches += launches
            cell.changed = True
        times = self.step_times
        if times is not None:
            times.launched(device, cell.signature, launches, self.configuration)
        return True

    def sampled(self, signature: str, device: int, duration_ns: int, configuration: int) -> None:
        """Add a timed launch to an open trial; `absorb` adds it to the totals, `launch_counts` counts it."""
        times = self.step_times
        if times is not None:
            times.timed(device, printable(signature), duration_ns, configuration, launches=0)

    @guarded
    def absorb(  # noqa: PLR0913  the properties of a kernel
        self,
        signature: str,
        device: int = 0,
        *,
        launches: int,
        durations: DurationTotals,
        queue_delays: int = 0,
        queue_delay_ns: int = 0,
        graph_launches: int = 0,
        name: KernelName | None = None,
        variant: str = "",
    ) -> bool:
        """Add a decoder's sums over many launches of one kernel.

        Args:
            signature: The kernel's signature.
            device: Index into the devices of this process.
            launches: Number of launches, timed or not.
            durations: Durations of the timed launches; the object is not kept.
            queue_delays: Launches whose queue delay is known.
            queue_delay_ns: The sum of these delays.
            graph_launches: Launches that came from a CUDA graph.
            name: The launch configuration last seen; its number and signature do not matter.
            variant: Name of the launch configuration that the timed launches share.
        """
        launches, queue_delay_ns = whole(launches, TOTAL_LIMIT), whole(queue_delay_ns, TOTAL_LIMIT)
        queue_delays, graph_launches = whole(queue_delays, launches + 1), whole(graph_launches, launches + 1)
        check_durations(durations)
        totals = self._devices.get(device) or self._open(device)
        cell = totals.by_raw.get(signature) or self._admit(totals, signature)
        with self._lock:
            grown = (cell.launches + launches, cell.durations.sum_ns + durations.sum_ns)
            if durations.count > launches or max(*grown, cell.queue_delay_ns + queue_delay_ns) >= TOTAL_LIMIT:
                return False
            cell.launches += launches
            cell.durations.add(durations)
            cell.queue_delays += queue_delays
            cell.queue_delay_ns += queue_delay_ns
            cell.graph_launches += graph_launches
            if name is not None:
                _configure(cell, name)
            if variant:
                kept = totals.variant(cell, variant)
                _grow_variant(kept, durations.count, durations.sum_ns, durations.sum_squares_ns2)
            cell.changed = True
        return True

    @guarded
    def absorb_variants(self, signature: str, device: int, variants: Sequence[tuple[str, int, int, int]]) -> bool:
        """Add launches to the variants of a kernel; `absorb` has added them to the kernel already.

        Args:
            signature: The kernel's signature.
            device: Index into the devices of this process.
            variants: Text, timed launches, their sum and sum of squares in nanoseconds.
        """
        grown = [
            (text, whole(count), whole(sum_ns, TOTAL_LIMIT), int(squares)) for text, count, sum_ns, squares in variants
        ]
        totals = self._devices.get(device) or self._open(device)
        cell = totals.by_raw.get(signature) or self._admit(totals, signature)
        with self._lock:
            for text, count, sum_ns, squares in grown:
                _grow_variant(totals.variant(cell, text), count, sum_ns, squares)
            cell.changed = True
        return True

    def devices(self) -> list[int]:
        """The devices with totals."""
        return list(self._devices)

    def cells(self, device: int) -> list[Cell]:
        """The kernels of a device."""
        return list(self._devices[device].by_signature.values())

    def take(self, cell: Cell) -> KernelRow:
        """Return a kernel's present totals, and mark them as sent."""
        with self._lock:
            cell.changed = False
            return cell.row()

    def take_variants(self, cells: Iterable[Cell]) -> tuple[VariantRow, ...]:
        """Return the totals of variants that changed since the last call."""
        with self._lock:
            return tuple(row for cell in cells for row in cell.take_variants())

    def mark_unsent(self, cells: Iterable[Cell]) -> None:
        """Mark kernels as unsent, because their frame was lost or the exporter was restarted."""
        with self._lock:
            for cell in cells:
                cell.mark_unsent()

    def counters(
        self, device: int, *, dropped_frames: int, dropped_outcomes: int = 0, malformed_hints: int = 0
    ) -> Counters:
        """Return a device's counters besides kernels; the process's own are reported for the device used first."""
        totals, progress, budget = self._devices[device], self.progress, self.budget
        measured = self.measured.until(self.clock())
        allocator, job = self.allocator(device), self.job() if device == self.home else ()
        standby = self.standby() if device == self.home else ""
        marks_ns = self.marks_cost() if device == self.home else 0
        gpu_phases = self.gpu_phases() if device == self.home else GpuPhaseTotals()
        with self._lock:
            counters = replace(
                totals.counters(device),
                allocator=allocator.sizes,
                allocator_retries=allocator.retries,
                out_of_memory=allocator.failed,
                **measured._asdict(),
            )
            if device != self.home:
                return counters
            return replace(
                counters,
                overhead_ns=self.overhead_ns + marks_ns,
                decoding_ns=self.decoding_ns,
                dropped_frames=dropped_frames,
                dropped_records=self.dropped_records + self.refused,
                untimed_records=self.timeless_records,
                steps=progress.steps,
                items=progress.items,
                megaflops=progress.megaflops,
                step_ns=progress.step_ns,
                trial_lost_ns=budget.lost_ns,
                trial_allowed_ns=budget.allowed_ns if budget.is_used else 0,
                dropped_outcomes=dropped_outcomes,
                malformed_hints=malformed_hints,
                step_durations=progress.durations(),
                skipped_steps=progress.skipped,
                phases=progress.phases(),
                phase=self.phase(),
                progress_ns=progress.progressed_at(),
                compilations=progress.compilations,
                compile_ns=progress.compile_ns,
                job=job,
                standby=standby,
                gpu_steps=gpu_phases.steps,
                gpu_phases=gpu_phases.phases,
            )

    def charge(self, cost_ns: int) -> None:
        """Add to the probe's own cost."""
        with self._lock:
            self.overhead_ns += cost_ns

    def decode(self, decoding_ns: int) -> None:
        """Add processor time of the decoder, on a thread of its own."""
        with self._lock:
            self.decoding_ns += decoding_ns

    def forked(self) -> None:
        """Replace the lock in a forked child, where a thread of the parent may hold it for ever; end a trial."""
        self._make_lock()
        self.step_times = None  # they have a lock of their own

    def touch(self) -> None:
        """Start reporting, although nothing was measured yet."""
        self.touched = True

    def spent(self, signatures: Iterable[str]) -> dict[tuple[int, str], Spent]:
        """Device time and launches so far of the named kernels (without names: all), by device and signature."""
        wanted = frozenset(signatures)
        found = {}
        for device, totals in list(self._devices.items()):
            for cell in list(totals.by_signature.values()):
                if wanted and cell.signature not in wanted:
                    continue
                with self._lock:
                    found[device, cell.signature] = Spent(cell.durations.sum_ns, cell.durations.count, cell.launches)
        return found

    def _admit(self, totals: DeviceTotals, raw: str) -> Cell:
        signature = printable(raw)
        with self._lock:
            cell = totals.by_signature.get(signature)
            if cell is None and len(totals.by_signature) >= self._max_kernels:
                signature = OTHER_COLLECTIVES if kernel_class(signature) == COLLECTIVE else OTHER
                cell = totals.by_signature.get(signature)
            if cell is None:
                cell = totals.by_signature.setdefault(signature, Cell(signature))
            if len(totals.by_raw) < 2 * self._max_kernels:
                totals.by_raw[raw] = cell
            return cell


def _configure(cell: Cell, name: KernelName) -> None:
    cell.grid, cell.block = name.grid, name.block
    cell.registers, cell.shared = whole(name.registers), whole(name.shared_memory_bytes)
    cell.local = whole(name.local_memory_bytes)
    cell.occupancy = min(max(0.0, float(name.occupancy)), 1.0)  # in this order NaN loses


def _grow_variant(kept: list[int], count: int, sum_ns: int, sum_squares_ns2: int) -> None:
    kept[0] += count
    kept[1] += sum_ns
    kept[2] += sum_squares_ns2

"""Time of the GPU in the phases of a step, by CUDA events of PyTorch at the marks of one step a report.

The probe's thread puts a `MarkedPhases` in the place of `StepTotals.phase_ns`, to which each mark of the timeline adds:
so the program's own thread records an event there, until a step has passed. Other steps, and programs without a
CUDA context, run nothing of this. Nothing waits for the GPU: the probe's thread asks at later reports whether it has
come so far. Traps as in `cupy.events`.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, Final

from kernelcast.probe.marks.timeline import CHECKPOINT, COMPILATION
from kernelcast.probe.process.driver import relax_capture
from kernelcast.probe.recording.device_recorder import GpuPhaseTotals
from kernelcast.probe.recording.step_totals import PHASES, PhaseTimes, StepTotals

MAX_MARKS: Final = 256
"""Marks of a step that is timed; one with more is left out."""
INTERRUPTIONS: Final = frozenset({CHECKPOINT, COMPILATION})
"""Phases that begin within another one, without a mark: a step that has them is left out."""
NANOSECONDS_PER_MILLISECOND: Final = 1e6


class GpuPhases:
    """Returns the totals so far. Only the probe's thread calls it: each call reads a timed step, and chooses the next.

    Args:
        progress: Steps of the program.
        modules: The imported modules.
        contexts: Returns the devices on which this process has a CUDA context.
        relax: Lets the calling thread ask for events while another thread captures a graph.
    """

    def __init__(
        self,
        progress: StepTotals,
        modules: Mapping[str, Any],
        contexts: Callable[[], tuple[int, ...]],
        relax: Callable[[], None] = relax_capture,
    ) -> None:
        self._progress = progress
        self._modules = modules
        self._contexts = contexts
        self._relax = relax
        self._marked: MarkedPhases | None = None
        self._free: list[Any] = []
        self._has_failed = False
        self.steps = 0
        """Steps that were timed."""
        self._phase_ns = [0] * len(PHASES)

    def __call__(self) -> GpuPhaseTotals:
        """Return the totals; after an error of CUDA, which may be the program's, no further step is timed."""
        cuda = getattr(self._modules.get("torch"), "cuda", None)
        if cuda is not None and self._progress.steps and not self._has_failed:
            try:
                if cuda.is_initialized():
                    self._advance(cuda)
            except Exception:  # noqa: BLE001  CUDA's, or a PyTorch of another form
                self._has_failed = True
        return GpuPhaseTotals(
            self.steps, tuple((name, ns) for name, ns in zip(PHASES, self._phase_ns, strict=True) if ns)
        )

    def _advance(self, cuda: Any) -> None:
        marked = self._marked
        if marked is not None:
            if not marked.is_done or not self._read(cuda, marked):
                return
            self._free.extend(marked.events)
            self._marked = None
        contexts = self._contexts()
        if contexts:
            self._marked = MarkedPhases(self._progress, cuda, contexts, self._free)
            self._progress.phase_ns = self._marked

    def _read(self, cuda: Any, marked: "MarkedPhases") -> bool:
        """Add a step's times; returns False while the GPU has not come to its end."""
        if not marked.steps:
            return True
        cuda.set_device(marked.device)  # of this thread, which would get a context on device 0 else
        self._relax()  # of this thread as well
        if not all(event.query() for event in marked.events):
            return False
        for phase, (begin, end) in zip(marked.phases, pairwise(marked.events), strict=True):
            self._phase_ns[phase] += max(0, round(begin.elapsed_time(end) * NANOSECONDS_PER_MILLISECOND))
        self.steps += marked.steps
        return True


class MarkedPhases:
    """The times of the phases, as a list: each time that one is set, an event is recorded on the current stream.

    From the first mark after the end of a step to the first one after the end of the next: each phase of a step is in
    it once. Then, and where a step cannot be timed, the list takes its place again. The program's threads set times.

    Args:
        progress: Where it takes the list's place.
        cuda: PyTorch's `torch.cuda`, or its double.
        contexts: Devices with a CUDA context; on another one an event would make a context.
        free: Events that may be used again.

    Attributes:
        events: Recorded so far.
        phases: The phase between each event and the next one.
        device: The device of the events.
        is_done: Whether no further event is recorded.
        steps: Whole steps between the first event and the last; 0 for a step that could not be timed.
    """

    __slots__ = (
        "_began_at",
        "_contexts",
        "_cuda",
        "_free",
        "_progress",
        "_times",
        "device",
        "events",
        "is_done",
        "phases",
        "steps",
    )

    def __init__(self, progress: StepTotals, cuda: Any, contexts: tuple[int, ...], free: list[Any]) -> None:
        self._progress = progress
        self._times: PhaseTimes = progress.phase_ns
        self._cuda = cuda
        self._contexts = contexts
        self._free = free
        self._began_at = progress.steps
        self.events: list[Any] = []
        self.phases: list[int] = []
        self.device = -1
        self.is_done = False
        self.steps = 0

    def __iter__(self) -> Iterator[int]:
        """Iterate over the times."""
        return iter(self._times)

    def __getitem__(self, phase: int) -> int:
        """Return the time of a phase."""
        return self._times[phase]

    def __setitem__(self, phase: int, time_ns: int) -> None:
        """Set the time of a phase, which ends now."""
        self._times[phase] = time_ns
        if self.is_done or (self._progress.steps == self._began_at and not self.events):
            return
        try:
            self._mark(phase)
        except Exception:  # noqa: BLE001  nothing here may reach the program
            self._end()

    def _mark(self, phase: int) -> None:
        cuda, steps = self._cuda, self._progress.steps
        device = cuda.current_device()
        known = (self.device,) if self.events else self._contexts
        if (
            phase in INTERRUPTIONS
            or len(self.events) > MAX_MARKS
            or device not in known
            or cuda.is_current_stream_capturing()
        ):
            self._end()
            return
        event = self._free.pop() if self._free else cuda.Event(enable_timing=True)
        event.record()
        if self.events:
            self.phases.append(phase)
            self.steps = steps - self._began_at
        else:
            self.device, self._began_at = device, steps
        self.events.append(event)
        if self.steps:
            self._end()

    def _end(self) -> None:
        self.is_done = True
        if self._progress.phase_ns is self:
            self._progress.phase_ns = self._times


METHODS: Final = (MarkedPhases.__setitem__, MarkedPhases.__getitem__)
"""What a mark calls; `torch.compile` is not to see it."""

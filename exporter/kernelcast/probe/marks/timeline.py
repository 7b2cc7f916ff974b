"""The timeline of the thread that trains: steps, and the phase of each moment, from marks.

A mark is the begin or end of a function of the framework: fetching a batch, `backward`, the optimizer's step. The
framework's hooks (`marks.torch_functions`) call one method for each, on the program's threads; the probe's thread
reads `StepTotals`. Time between two marks belongs to one phase, so that the phases of a step add up to it:

| phase | from | to |
|---|---|---|
| data | a batch is asked for | it is there |
| forward | the batch is there; in a step's closure its begin; without a batch the last mark | `backward` begins |
| backward | `backward` or `autograd.grad` begins | it ends |
| optimizer | the step of the optimizer or of the gradient scaler begins | it ends; without the closure's phases |
| evaluation | a batch is asked for, or used, without gradients | the next batch is asked for, or there is none |
| checkpoint, compilation | the function begins | it ends, within any other phase |
| other | any other mark | the next mark |

A step that the program or its trainer marks as a whole (JAX's `StepTraceAnnotation`, a training batch of Keras) has no
forward, backward and optimizer of its own: what is not data, evaluation, checkpoint or compilation is `other`.
"""

from collections.abc import Callable
from functools import partial
from threading import get_ident
from time import perf_counter_ns
from typing import Any, Final

from kernelcast.probe.recording.step_totals import PHASES, StepTotals

DATA, FORWARD, BACKWARD, OPTIMIZER, EVALUATION, CHECKPOINT, COMPILATION, OTHER = range(len(PHASES))

# States of the thread between two marks. The mark that ends one decides the phase of its time.
_BETWEEN, _BATCH, _AFTER, _STEP, _FETCH, _BACKWARD, _EVALUATION = range(7)
_SHOWN: Final = (OTHER, FORWARD, OTHER, OPTIMIZER, DATA, BACKWARD, EVALUATION)
"""The phase of a state while it lasts, as far as it is known."""
# State to phase, by the kind of the next mark; a batch that was used without gradients is `EVALUATION` instead.
_BY_FETCH: Final = (OTHER, FORWARD, OTHER, OTHER, -1, -1, EVALUATION)
_BY_FETCH_OF_WHOLE: Final = (OTHER, OTHER, OTHER, OPTIMIZER, -1, -1, EVALUATION)
"""Below 0: a fetch within another fetch or within `backward` does not count."""
_BY_BACKWARD: Final = (FORWARD, FORWARD, FORWARD, FORWARD, DATA, BACKWARD, EVALUATION)
_BY_STEP: Final = (OTHER, FORWARD, OTHER, OPTIMIZER, DATA, BACKWARD, EVALUATION)
_BY_WHOLE: Final = (OTHER, OTHER, OTHER, OPTIMIZER, DATA, BACKWARD, EVALUATION)
"""Of the end of a step in a program whose steps are marked as a whole, as is `_BY_FETCH_OF_WHOLE`."""

_FUSED: Final = 0
"""Identity of all optimizers that step within `backward`."""


class Timeline:
    """Steps and phases of this process. Methods are called on the program's threads, and take about 0.3 microseconds.

    The thread that trains is the last that began `backward` or a step, before that the first that fetched; other
    threads' fetches are not its waits. A method that begins something returns whether it counts: only then its end may
    be marked.

    Args:
        totals: Where steps and phases are added up; `Probe` reports it.
        clock: Monotonic nanoseconds.

    Attributes:
        totals: As above; another one may be put there at any time.
        on_first_step: Called once, at the end of the first step.
        without_gradients: Set where gradients are switched off, by any thread.
        loop_ended: Whether the loop over training batches has ended, and no other work of training has begun.
    """

    def __init__(self, totals: StepTotals, clock: Callable[[], int] = perf_counter_ns) -> None:
        self.totals = totals
        self.on_first_step: Callable[[], object] | None = None
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Forget the state of the thread that trains, as in a forked child."""
        self.without_gradients = self.loop_ended = False
        self._has_loader = False
        self._state = _BETWEEN
        self._since_ns = self._clock()
        self._owner = 0
        self._pending_ns = 0  # time of the present state before an interruption
        self._interrupted = -1  # the phase that interrupts the state
        self._in_step = self._in_backward = False
        self._stepped = self._stepped_in_backward = False
        self._items = 0  # of the step, from batches that it has used
        self._fetched_items = 0  # of batches that were fetched and not used yet
        self._round: set[int] = set()  # optimizers that have stepped since the last step ended, its own among them
        self._fetched = False
        self._by_fetch = _BY_FETCH
        self._ended_within = False  # a step has ended since the last one that is marked as a whole began
        self._compiling_since_ns = 0

    @property
    def thread(self) -> int:
        """Identity of the thread that trains; 0 before there is one."""
        return self._owner

    def phase(self) -> str:
        """The present phase; empty before the first step or `backward`."""
        if not self._owner:
            return ""
        shown = self._interrupted if self._interrupted >= 0 else _SHOWN[self._state]
        if shown == OTHER and self._state == _BETWEEN and self._by_fetch is _BY_FETCH:
            # An evaluation without a loader; and without any loader a batch is not seen, so that a step is at work.
            shown = EVALUATION if self.without_gradients else OTHER if self._has_loader else FORWARD
        return PHASES[shown]

    def fetching(  # noqa: C901  one function: torch.compile would compile further ones within a compiled loop
        self, fetch: Callable[[Any], Any], has_gradients: Callable[[], bool], items: Callable[[Any, Any], int] | None
    ) -> Callable[[Any], Any]:
        """Return a function that does as `fetch`, and marks the wait for a batch.

        Args:
            fetch: Returns the next batch of an iterator.
            has_gradients: Returns whether gradients are switched on.
            items: Returns the size of an iterator's batch, 0 if that is not known; None where it never is.
        """
        clock = self._clock

        def __next__(iterator: Any) -> Any:  # noqa: C901, N807, PLR0912  as above
            phase = self._by_fetch[self._state]
            if phase < 0 or self._interrupted >= 0 or (get_ident() != self._owner and not self._is_first()):
                try:
                    return fetch(iterator)
                except BaseException as error:
                    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                    raise
            if phase == FORWARD and self.without_gradients:
                phase, self._fetched_items = EVALUATION, 0
            now_ns = clock()
            totals = self.totals
            totals.phase_ns[phase] += now_ns - self._since_ns
            totals.progress_ns = self._since_ns = now_ns
            self.loop_ended = False
            if has_gradients():
                self._state = _FETCH
            else:
                self._state, self._fetched_items = _EVALUATION, 0
            try:
                batch = fetch(iterator)
            except BaseException as error:
                self._fetch_fails()
                error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                raise
            now_ns = clock()
            totals = self.totals
            if self._state == _FETCH:
                totals.phase_ns[DATA] += now_ns - self._since_ns
                self._state = _BATCH
                self._fetched = self._has_loader = True
                self.without_gradients = False
                if items is not None:
                    try:  # the usual batch without another call: a list, whose first tensor has the loader's size
                        size = iterator._index_sampler.batch_size  # noqa: SLF001
                        usual = size if type(batch) is list and batch[0].shape[0] == size else -1
                    except Exception:  # noqa: BLE001  a batch or a sampler of the program's own kind
                        usual = -1
                    self._fetched_items += usual if usual >= 0 else items(iterator, batch)
            elif self._state == _EVALUATION:
                totals.phase_ns[EVALUATION] += now_ns - self._since_ns
            else:  # another thread has gone on with the training meanwhile
                return batch
            totals.progress_ns = self._since_ns = now_ns
            return batch

        return __next__

    def _fetch_fails(self) -> None:
        """There is no further batch, or fetching it failed."""
        if self._state in {_FETCH, _EVALUATION}:
            self.loop_ended = self._state == _FETCH
            self._close(DATA if self._state == _FETCH else EVALUATION)
            self._state = _STEP if self._in_step else _BETWEEN

    def backward_begins(self) -> bool:
        """`backward` begins."""
        thread = get_ident()
        if self._in_backward or self._interrupted >= 0 or (self._in_step and thread != self._owner):
            return False
        if thread != self._owner:
            self._move_to(thread)
        self._in_backward = True
        self.loop_ended = False
        self._close(_BY_BACKWARD[self._state])
        self._use_batches()
        self._state = _BACKWARD
        return True

    def backward_ends(self) -> None:
        """`backward` has ended, and with it the step of optimizers that step within it."""
        self._close(BACKWARD)
        self._in_backward = False
        self._state = _STEP if self._in_step else _AFTER
        if self._stepped_in_backward:
            self._stepped_in_backward = False
            if not self._in_step:
                self._end_step(_FUSED, skipped=False)

    def step_begins(self, *, scaled: bool = False) -> bool:
        """The step of an optimizer begins, or that of a gradient scaler, which may skip it."""
        thread = get_ident()
        if self._in_backward:
            self._stepped_in_backward = True
            return False
        if self._in_step or self._interrupted >= 0:
            self._stepped = True
            return False
        if thread != self._owner:
            self._move_to(thread)
        self._in_step = True
        self._stepped = not scaled
        self._close(_BY_STEP[self._state])
        self._use_batches()
        self._state = _STEP
        return True

    def step_ends(self, optimizer: int, *, failed: bool = False) -> None:
        """The outermost step, of the optimizer of this identity, has ended, or has raised an exception."""
        self._close(_BY_STEP[self._state])
        self._in_step = self.without_gradients = False
        self._state = _BETWEEN
        if not failed:
            self._end_step(optimizer, skipped=not self._stepped)

    def whole_begins(self) -> None:
        """A step that is marked as a whole begins."""
        self._ended_within = False

    def whole_ends(self) -> None:
        """It has ended; one within which other steps have ended is none of its own."""
        if self._in_step or self._in_backward:
            return
        thread = get_ident()
        if thread != self._owner:
            self._move_to(thread)
        self._by_fetch = _BY_FETCH_OF_WHOLE
        self._close(_BY_WHOLE[self._state])
        self._state = _BETWEEN
        self._fetched_items = 0  # of an evaluation as well as of the step: their number is not certain
        if not self._ended_within:
            self._count(skipped=False)

    def interrupt(self, phase: int) -> bool:
        """`EVALUATION`, `CHECKPOINT` or `COMPILATION` begins, within the present state, which goes on afterwards."""
        if get_ident() != self._owner or self._interrupted >= 0:
            return False
        now_ns = self._clock()
        self._pending_ns = now_ns - self._since_ns
        self.totals.progress_ns = self._since_ns = now_ns
        self._interrupted = phase
        return True

    def resume(self) -> None:
        """The interruption has ended."""
        now_ns = self._clock()
        totals = self.totals
        totals.phase_ns[self._interrupted] += now_ns - self._since_ns
        totals.progress_ns = now_ns
        self._since_ns, self._pending_ns = now_ns - self._pending_ns, 0
        self._interrupted = -1

    def marking(
        self, phase: int, function: Callable[..., Any], *, unless: Callable[[], bool] = lambda: False
    ) -> Callable[..., Any]:
        """Return a function that does as `function`, and marks its begin and its end.

        Args:
            phase: `BACKWARD`; or `EVALUATION` or `CHECKPOINT`, which interrupt any other phase.
            function: What takes the time of the phase.
            unless: Asked at each call; where it holds, nothing is marked.
        """
        begins, ends = self.backward_begins, self.backward_ends
        if phase != BACKWARD:
            begins, ends = partial(self.interrupt, phase), self.resume

        def marked(*arguments: Any, **named: Any) -> Any:
            if unless():
                return function(*arguments, **named)
            counts = begins()
            try:
                return function(*arguments, **named)
            except BaseException as error:
                error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                raise
            finally:
                if counts:
                    ends()

        return marked

    def compilation_begins(self) -> None:
        """A compilation begins, on any thread."""
        self._compiling_since_ns = self._clock()
        self.interrupt(COMPILATION)

    def compilation_ends(self, took_ns: int | None = None, *, compilations: int = 1) -> None:
        """It has ended.

        Args:
            took_ns: Its time; None for the time since the last one began.
            compilations: 0 for a part of a compilation that is not its last.
        """
        totals = self.totals
        totals.compilations += compilations
        totals.compile_ns += self._clock() - self._compiling_since_ns if took_ns is None else took_ns
        if self._interrupted == COMPILATION and get_ident() == self._owner:
            self.resume()

    def _is_first(self) -> bool:
        """Whether there is no thread that trains yet; this one, which asks for a batch, is taken for it."""
        if not self._owner:
            self._owner = get_ident()
            if not self.totals.steps:
                self.totals.begun_ns = self._clock()
            return True
        return False

    def _use_batches(self) -> None:
        self._items += self._fetched_items
        self._fetched_items = 0

    def _move_to(self, thread: int) -> None:
        """Follow the training to another thread, whose first step is no part of the one before."""
        self._owner = thread
        self._round = set()

    def _close(self, phase: int) -> None:
        now_ns = self._clock()
        totals = self.totals
        totals.phase_ns[phase] += now_ns - self._since_ns + self._pending_ns
        totals.progress_ns = self._since_ns = now_ns
        self._pending_ns = 0

    def _end_step(self, optimizer: int, *, skipped: bool) -> None:
        """End a step, unless it is the step of a further optimizer, of the same batch."""
        stepped = self._round
        if stepped and optimizer not in stepped and not self._fetched:
            stepped.add(optimizer)
            return
        self._round = {optimizer}
        self._fetched = False
        self._count(skipped=skipped)

    def _count(self, *, skipped: bool) -> None:
        self._ended_within = True
        items, self._items = self._items, 0
        self.totals.advance_by_itself(self._since_ns, items, skipped=skipped)
        if self.on_first_step is not None:
            started, self.on_first_step = self.on_first_step, None
            started()
            if self.totals.steps == 1:  # the time that it took is not the program's
                self._since_ns = self.totals.first_ns = self.totals.last_ns = self._clock()

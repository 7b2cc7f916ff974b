"""Queue of outcomes, a program's answers to hints, kept until the exporter confirms them."""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kernelcast.probe.recording.texts import plain
from kernelcast.wire.events import Hint, Outcome, OutcomeState, to_event

# Bound of waiting and sent events together: a hint has two or three outcomes, so it is that of about a hundred hints.
MAX_KEPT: Final = 256
# Characters of a reason. It may have a compiler's log in it, and an event that fits into no frame would hold back all
# later ones. The end is kept as well, because the predictor reads it (`LATER`, `LIFTED_BY`).
MAX_REASON_BEGIN: Final = 1500
MAX_REASON_END: Final = 400
# Outcomes that `history` shows.
MAX_HISTORY: Final = 64
# Tunables and spaces with a `TrialResult`.
MAX_RESULTS: Final = 256


@dataclass(slots=True)
class TrialResult:
    """What the trials of a tunable, or the searches of a space, have come to.

    Attributes:
        first_value: The value in force before this run's first trial.
        value: The value in force.
        kept_value: The value that was kept last; empty before one was.
        time_ratio: Time with it over that with the program's own value; None where that was not measured.
        trial_id: Id of the trial or search that runs; empty if none does.
        reason: Reason of the last decision.
    """

    first_value: str = ""
    value: str = ""
    kept_value: str = ""
    time_ratio: float | None = None
    trial_id: str = ""
    reason: str = ""

    @property
    def is_open(self) -> bool:
        """Whether a trial or a search runs."""
        return bool(self.trial_id)

    @property
    def is_kept(self) -> bool:
        """Whether a kept value is in force."""
        return bool(self.kept_value) and self.value == self.kept_value

    def add(self, outcome: Outcome) -> None:
        """Add an outcome; one of a candidate that failed within a search says nothing of the search itself."""
        self.first_value = self.first_value or outcome.previous
        if outcome.state is OutcomeState.APPLIED:
            self.trial_id = outcome.hint_id
        elif outcome.state is OutcomeState.KEPT:
            self._keep(outcome)
        elif outcome.state is not OutcomeState.ROLLED_BACK or outcome.hint_id != self.trial_id:
            return
        if outcome.state is not OutcomeState.APPLIED:
            self.reason = outcome.reason
            self.trial_id = "" if outcome.hint_id == self.trial_id else self.trial_id
        self.value = outcome.value
        if self.kept_value and not self.is_kept and not self.is_open:
            self.kept_value, self.time_ratio = "", None

    def _keep(self, outcome: Outcome) -> None:
        """A value that is kept in place of another kept one is faster than that one: their ratios are multiplied."""
        kept, ratio = outcome.candidate or outcome.value, outcome.measured_ratio or outcome.step_time_ratio
        before = self.time_ratio if self.kept_value not in ("", kept) else None
        self.kept_value = kept
        self.time_ratio = ratio if before is None or ratio is None else before * ratio


class OutcomeQueue:
    """A bounded queue of outcome events; if full, the oldest is dropped and counted.

    The program's threads add; the probe's thread sends, reconnects and receives confirmations; a lock orders them.
    Each event has an id, drawn once. A sent event is kept until it is confirmed, and sent again after a reconnect.

    Args:
        program: Name of the program.
        rank: Its rank in the job, as text.
        clock: Unix nanoseconds.
        wake: Called after each addition; wakes the probe's thread.
    """

    def __init__(self, program: str, rank: str, clock: Callable[[], int], wake: Callable[[], None]) -> None:
        self._program = program
        self._rank = rank
        self._clock = clock
        self._wake = wake
        self._lock = threading.RLock()  # a signal handler may stop the probe while its thread adds an outcome
        self._waiting: deque[dict[str, Any]] = deque()
        self._sent: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self._history: deque[Outcome] = deque(maxlen=MAX_HISTORY)
        self._results: dict[str, TrialResult] = {}
        self.dropped = 0

    def add(self, hint: Hint, state: OutcomeState, reason: str, **facts: Any) -> None:
        """Add the outcome of a hint; `facts` are further fields of `Outcome`."""
        self.add_trial(hint.hint_id, hint.tunable, state, reason, **facts)

    def add_trial(self, trial_id: str, tunable: str, state: OutcomeState, reason: str, **facts: Any) -> None:
        """Add the outcome of a trial: of a hint, or one of the program's own, whose id takes the hint's place."""
        outcome = Outcome(
            hint_id=trial_id,
            program=self._program,
            tunable=tunable,
            state=state,
            rank=self._rank,
            reason=_shortened(plain(reason)),
            **facts,
        )
        event = to_event(outcome, source="/kernelcast/probe", time_ns=self._clock())
        with self._lock:
            if len(self._waiting) + len(self._sent) >= MAX_KEPT:
                self._drop_oldest()
            self._waiting.append(event)
            self._history.append(outcome)
            if tunable in self._results or len(self._results) < MAX_RESULTS:
                self._results.setdefault(tunable, TrialResult()).add(outcome)
        self._wake()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def history(self) -> tuple[Outcome, ...]:
        """Return the last `MAX_HISTORY` outcomes, oldest first, whether sent or not."""
        with self._lock:
            return tuple(self._history)

    @property
    def results(self) -> Mapping[str, TrialResult]:
        """Return what trials and searches have come to, by the name of the tunable or space."""
        with self._lock:
            return dict(self._results)

    def first(self) -> dict[str, Any] | None:
        """Return the oldest event that is not sent; it stays in the queue until `sent` is called."""
        with self._lock:
            return self._waiting[0] if self._waiting else None

    def sent(self, event: dict[str, Any]) -> None:
        """Note that `event` was sent, unless a full queue has dropped it meanwhile; it waits for its confirmation."""
        with self._lock:
            if self._waiting and self._waiting[0] is event:
                self._sent[event["id"]] = self._waiting.popleft()

    def confirmed(self, event_ids: Iterable[str]) -> None:
        """Forget events that need not be sent again."""
        with self._lock:
            for event_id in event_ids:
                self._sent.pop(event_id, None)

    def reconnected(self) -> None:
        """Queue the unconfirmed events again, before the younger ones."""
        with self._lock:
            self._waiting.extendleft(reversed(self._sent.values()))
            self._sent.clear()

    def restore(self, events: Iterable[dict[str, Any]]) -> None:
        """Queue the events that an earlier run of the program left, before its own."""
        with self._lock:
            self._waiting.extendleft(reversed(list(events)))

    def left(self) -> list[dict[str, Any]]:
        """Return the events to save for the program's next run, oldest first: all that may not have been delivered."""
        with self._lock:
            return [*self._sent.values(), *self._waiting]

    @property
    def unconfirmed(self) -> int:
        """Number of sent events whose confirmation is still to come."""
        with self._lock:
            return len(self._sent)

    def _drop_oldest(self) -> None:
        if self._sent:
            self._sent.popitem(last=False)
        else:
            self._waiting.popleft()
        self.dropped += 1


def _shortened(reason: str) -> str:
    if len(reason) <= MAX_REASON_BEGIN + MAX_REASON_END:
        return reason
    return f"{reason[:MAX_REASON_BEGIN]} ... {reason[-MAX_REASON_END:]}"

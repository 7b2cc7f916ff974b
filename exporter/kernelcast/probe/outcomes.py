"""Queue of the outcomes of hints, until they are sent to the exporter."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kernelcast.wire.events import Hint, Outcome, OutcomeState, to_event

MAX_WAITING: Final = 256
MAX_HISTORY: Final = 64


class OutcomeQueue:
    """A bounded queue of outcome events, safe for several threads; if full, the oldest is dropped and counted.

    Args:
        program: The program.
        rank: Its rank.
        clock: Unix nanoseconds.
        wake: Called after each addition.
    """

    def __init__(self, program: str, rank: str, clock: Callable[[], int], wake: Callable[[], None]) -> None:
        self._program = program
        self._rank = rank
        self._clock = clock
        self._wake = wake
        self._lock = threading.Lock()
        self._waiting: deque[dict[str, Any]] = deque()
        self._history: deque[Outcome] = deque(maxlen=MAX_HISTORY)
        self.dropped = 0

    def add(self, hint: Hint, state: OutcomeState, reason: str, **facts: Any) -> None:
        """Add the outcome of a hint; `facts` are further fields of `Outcome`."""
        self.add_trial(hint.hint_id, hint.tunable, state, reason, **facts)

    def add_trial(self, trial_id: str, tunable: str, state: OutcomeState, reason: str, **facts: Any) -> None:
        """Add the outcome of a trial of a hint, or of one that the program has chosen by itself."""
        outcome = Outcome(
            hint_id=trial_id,
            program=self._program,
            tunable=tunable,
            state=state,
            rank=self._rank,
            reason=reason,
            **facts,
        )
        event = to_event(outcome, source="/kernelcast/probe", time_ns=self._clock())
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                self._waiting.popleft()
                self.dropped += 1
            self._waiting.append(event)
            self._history.append(outcome)
        self._wake()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def history(self) -> tuple[Outcome, ...]:
        """Return the last 64 outcomes, oldest first, whether sent or not."""
        with self._lock:
            return tuple(self._history)

    def first(self) -> dict[str, Any] | None:
        """Return the oldest event; it stays in the queue until `discard` is called after sending."""
        with self._lock:
            return self._waiting[0] if self._waiting else None

    def discard(self, event: dict[str, Any]) -> None:
        """Remove the oldest event if it still is `event`."""
        with self._lock:
            if self._waiting and self._waiting[0] is event:
                self._waiting.popleft()

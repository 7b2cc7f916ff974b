"""Outcomes that programs have sent, until `OutcomeRelay` fetches them and Kafka has them."""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Final

from kernelcast.exporter.hints.received import ReceivedOutcome
from kernelcast.wire.errors import FrameError

MAX_ID_CHARACTERS: Final = 64
"""Longest event id of an outcome; a UUID has 36."""
IDS_AT_ONCE: Final = 256
"""Ids in one frame; `encode` makes two of it where JSON needs several bytes for a character."""


class ReceivedOutcomes:
    """A bounded queue; if full, the oldest is dropped. The registry has one and uses it under the server's lock.

    Outcomes that were fetched are remembered (`_open`) until Kafka has them, as many as may wait.

    Args:
        limit: Limit of waiting outcomes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: deque[ReceivedOutcome] = deque()
        self._open: OrderedDict[str, ReceivedOutcome] = OrderedDict()

    def add(self, received: ReceivedOutcome) -> bool:
        """Queue an outcome; False if another one was dropped for it."""
        self._open[received.event_id] = received
        if len(self._open) > self._limit:
            self._open.popitem(last=False)
        dropped = len(self._waiting) >= self._limit
        if dropped:
            self._waiting.popleft()
        self._waiting.append(received)
        return not dropped

    def take(self) -> list[ReceivedOutcome]:
        """Return the outcomes since the last call."""
        found = list(self._waiting)
        self._waiting.clear()
        return found

    def settled(self, outcomes: Iterable[ReceivedOutcome]) -> None:
        """Forget outcomes that Kafka has, or refused for good."""
        for one in outcomes:
            self._open.pop(one.event_id, None)

    def open_of(self, nonce: str) -> list[ReceivedOutcome]:
        """Return the outcomes of a process that are not settled, oldest first."""
        return [one for one in self._open.values() if one.nonce == nonce]


def by_process(outcomes: Iterable[ReceivedOutcome]) -> Iterator[tuple[str, list[str]]]:
    """Return the nonce of each process and the ids of its outcomes, at most `IDS_AT_ONCE` in one batch."""
    ids: dict[str, list[str]] = {}
    for one in outcomes:
        ids.setdefault(one.nonce, []).append(one.event_id)
    for nonce, all_ids in ids.items():
        for start in range(0, len(all_ids), IDS_AT_ONCE):
            yield nonce, all_ids[start : start + IDS_AT_ONCE]


def checked_id(event_id: str) -> str:
    """Return the id of an event that a program has sent.

    Raises:
        FrameError: It is too long to be remembered.
    """
    if len(event_id) > MAX_ID_CHARACTERS:
        raise FrameError(
            f"Outcome frame has an event id of {len(event_id)} characters; the limit is {MAX_ID_CHARACTERS}; use a UUID"
        )
    return event_id

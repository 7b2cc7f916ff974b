"""Recognises events that were written more than once: delivery is at least once, and a repeat has the same id.

Readers of outcomes and hints (exporter, probe, predictor) ask it before they count an event.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Final

from kernelcast.wire.cloudevents import joined_key

MAX_EVENT_IDS: Final = 16_384
"""Ids that a reader remembers: 36 characters each, with their source some 3 MB."""


def event_key(event: dict[str, Any]) -> str:
    """Return what identifies an event by CloudEvents 1.0: its source and its id."""
    return joined_key(event["source"], event["id"])


class RecentIds:
    """The newest ids, of events or processes, a bounded number; the oldest is forgotten first. Not thread-safe.

    Args:
        most: The number of ids.
    """

    def __init__(self, most: int = MAX_EVENT_IDS) -> None:
        self._limit = most
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        """Number of ids that are remembered."""
        return len(self._ids)

    def __contains__(self, event_id: str) -> bool:
        """Whether this id was added, as far as remembered."""
        return event_id in self._ids

    def add(self, event_id: str) -> bool:
        """Remember an id; False for a repeat, an id that was remembered already."""
        if event_id in self._ids:
            return False
        self._ids[event_id] = None
        if len(self._ids) > self._limit:
            self._ids.popitem(last=False)
        return True

    def restore(self, event_ids: Iterable[str]) -> None:
        """Replace all ids, oldest first."""
        self._ids.clear()
        for event_id in event_ids:
            self.add(event_id)

    def saved(self) -> list[str]:
        """Return all ids, oldest first."""
        return list(self._ids)

"""Moves of keys between partitions, as producers make them."""

from dataclasses import dataclass, field
from itertools import pairwise

TopicKey = tuple[str, bytes]
"""A topic, and the key of a producer's messages."""
REMEMBERED_TIMES = 24
LONG_INTERVALS = 1.5


@dataclass
class Moves:
    """The last move of each key, for the records of all partitions in the order in which they are written.

    Attributes:
        seconds: By topic and key, when a record last went to another partition than the one before.
        origin: By topic and key, the partition that they left then.
        to_added: Topics and keys of which all moves have led to partitions that had just been added.
        uneven: Topics and keys whose last two intervals before their last move were both longer than usual.
    """

    seconds: dict[TopicKey, float] = field(default_factory=dict)
    origin: dict[TopicKey, tuple[str, int]] = field(default_factory=dict)
    to_added: set[TopicKey] = field(default_factory=set)
    uneven: set[TopicKey] = field(default_factory=set)
    _last: dict[TopicKey, int] = field(default_factory=dict)
    _partitions: dict[TopicKey, int] = field(default_factory=dict)
    _written: dict[TopicKey, list[float]] = field(default_factory=dict)

    def note(self, key: TopicKey, number: int, *, partitions: int, now_seconds: float) -> None:
        """Note a record.

        Args:
            key: Its topic and key.
            number: The partition that it goes to.
            partitions: How many the topic has now.
            now_seconds: When it is written.
        """
        if self._last.setdefault(key, number) != number:
            added = number >= self._partitions.get(key, 0) and (key not in self.seconds or key in self.to_added)
            (self.to_added.add if added else self.to_added.discard)(key)
            (self.uneven.add if self._has_slowed(key) else self.uneven.discard)(key)
            self.origin[key] = (key[0], self._last[key])
            self._last[key], self.seconds[key] = number, now_seconds
        self._partitions[key] = partitions
        times = self._written.setdefault(key, [])
        if times[-1:] != [now_seconds]:  # held messages come at once: no interval to a bridge either
            self._written[key] = [*times, now_seconds][-REMEMBERED_TIMES:]

    def _has_slowed(self, key: TopicKey) -> bool:
        """Whether the last two intervals are longer than the shortest one that is remembered."""
        gaps = [later - earlier for earlier, later in pairwise(self._written.get(key, ()))]
        return bool(gaps) and min(gaps[-2:]) > LONG_INTERVALS * min(gaps)

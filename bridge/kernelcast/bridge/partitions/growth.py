"""Detects partitions that were added to topics; series may move to them from the partitions of other replicas."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kernelcast.bridge.partitions.partition import Key
from kernelcast.bridge.tables.columns import ADDED, GROWN, UNCHANGED
from kernelcast.runtime.kafka.topic_names import TopicNames

GROWTH_SECONDS: Final = 600.0
"""Time after growth in which series are expected to move. By default, librdkafka and Java look for added
partitions every 300 s."""
EXPIRIES_PER_TTL: Final = 30
"""How often in a time-to-live a replica looks for series that have ended or may have moved."""


class PartitionGrowth:
    """Partitions of all topics by Kafka's last answer, and those added recently. Only the consuming thread uses it.

    Attributes:
        examined: Topics of which the starts of all partitions have been noted, once they were assigned to us.
    """

    def __init__(self) -> None:
        self.examined: frozenset[str] = frozenset()
        self._numbers: dict[str, frozenset[int]] = {}
        self._added: dict[Key, float] = {}

    def known(self, topic: str) -> frozenset[int] | None:
        """Return the partition numbers of a topic; None before Kafka has listed them."""
        return self._numbers.get(topic)

    def counts(self, topics: TopicNames) -> dict[str, int]:
        """Return the number of partitions of each of some topics, as far as Kafka has listed them."""
        return {topic: len(numbers) for topic, numbers in self._numbers.items() if topic in topics}

    def note(self, partitions: Iterable[Key], now_seconds: float) -> list[Key]:
        """Note Kafka's list of partitions; returns those that were added since the last call.

        Args:
            partitions: Partitions of all topics.
            now_seconds: Time of a monotonic clock.
        """
        found: dict[str, set[int]] = {}
        for topic, number in partitions:
            found.setdefault(topic, set()).add(number)
        added = [
            (topic, number)
            for topic, numbers in found.items()
            for number in sorted(numbers - self._numbers.get(topic, numbers))
        ]
        self._numbers = {topic: frozenset(numbers) for topic, numbers in found.items()}
        self._added = {key: until for key, until in self._added.items() if until > now_seconds}
        self._added |= dict.fromkeys(added, now_seconds + GROWTH_SECONDS)
        return added

    def note_starts(self, topic: str, starts: Mapping[Key, int], now_seconds: float) -> list[Key]:
        """Detect partitions that were added to a topic before we read it, by its offsets one time-to-live ago.

        Added partitions have the highest numbers and no messages older than that, while other partitions have some. A
        bridge may have listed the partitions before, with an assignment of none of them: that shows no earlier growth.

        Args:
            topic: The topic.
            starts: The offsets at that time, of all partitions for which Kafka has answered.
            now_seconds: Time of a monotonic clock.

        Returns:
            The partitions that were added and were not known as such.
        """
        last_old = max((key for key, start in starts.items() if start > 0), default=None)
        young = [] if last_old is None else [key for key, start in starts.items() if start == 0 and key > last_old]
        added = [key for key in young if key not in self._added]
        self._added |= dict.fromkeys(added, now_seconds + GROWTH_SECONDS)
        if frozenset(number for _, number in starts) == self._numbers.get(topic):
            self.examined |= {topic}
        return added

    def look_again(self, topics: Iterable[str]) -> None:
        """Examine topics again that were deleted and created again.

        Their known partitions stay: a series may move to a partition of the new topic that the deleted one did not
        have, while another replica still exposes its former total.
        """
        self.examined -= frozenset(topics)

    def states(self, owned: Collection[Key], caught_up: Iterable[Key]) -> dict[Key, int]:
        """Return UNCHANGED, GROWN or ADDED for each of our partitions; UNCHANGED if we own the whole topic.

        Args:
            owned: Our partitions.
            caught_up: Our partitions that have been read up to their end. A series may have moved to one of the others.
        """
        read: dict[str, set[int]] = {}
        for topic, number in caught_up:
            read.setdefault(topic, set()).add(number)
        grown = {topic for topic, _ in self._added}
        shared = {topic for topic in grown if not self._numbers.get(topic, frozenset()) <= read.get(topic, set())}
        return {key: UNCHANGED if key[0] not in shared else ADDED if key in self._added else GROWN for key in owned}

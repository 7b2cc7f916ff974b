"""Limits, by Kafka's append times, from which the store computes the ages of the series of each partition.

A partition that lags is measured by the newest append time that was read from it, so lag expires nothing. A partition
that has been read to its end is measured by `BrokerClock`.

Series move between partitions when partitions are added to a topic, or when a producer changes its partitioner. The old
partition still has the last values from before the move. A replica that reads it again must not expose them beside
the live ones. So the silence of a partition that has been read to its end is measured by append times alone: from its
own newest one to the newest one of all partitions, including those of other replicas.

Time in which Kafka does not answer for a partition does not count as silence of its series (`contact`). After a topic
has grown, it counts while Kafka takes messages in other partitions: the series may have moved there, to another
replica. And then an outage counts for the series alone that were last seen before it: the others have been silent since
they were seen.
"""

from collections.abc import Mapping

from kernelcast.bridge.partitions.broker_clock import BrokerClock
from kernelcast.bridge.partitions.outages import OutageRows
from kernelcast.bridge.partitions.partition import Key, Partition


class SeriesAges:
    """Reads the partitions of an `Ownership`; every mapping is by partition number. For the consuming thread.

    Attributes:
        moving: Numbers of partitions whose series may have moved to other replicas, because their topic has grown.
    """

    def __init__(
        self, partitions: Mapping[Key, Partition], clock: BrokerClock, *, joint: bool, ttl_seconds: float
    ) -> None:
        """Read partitions as they are at each call.

        Args:
            partitions: The assigned ones.
            clock: Kafka's.
            joint: Whether a series may be in several partitions.
            ttl_seconds: How long an outage of Kafka counts after its end.
        """
        self._partitions, self._clock = partitions, clock
        self._joint, self._ttl_seconds = joint, ttl_seconds
        self.moving: frozenset[int] = frozenset()

    def reference_ms(self, now_seconds: float) -> dict[int, int]:
        """Return the time of Kafka's clock that the messages read so far have reached."""
        broker_ms = self._clock.at(now_seconds)
        references = {}
        for partition in self._partitions.values():
            reference = broker_ms if partition.at_end and broker_ms is not None else partition.newest_append_ms
            references[partition.number] = int(partition.held_ms if partition.held_until >= 0 else reference)
        return references

    def oldest_ms(self, ttl_ms: int, now_seconds: float) -> dict[int, int]:
        """Return the append time before which a series has expired."""
        silent_ms = self._silent_ms(now_seconds)
        return {
            number: reference - silent_ms[number] - ttl_ms
            for number, reference in self.reference_ms(now_seconds).items()
        }

    def heard_ms(self, now_seconds: float) -> dict[int, int]:
        """Return the append time up to which any point of a partition's series would have been read.

        While a partition is read, that is the append time of its newest message. After it has been read to its end, it
        is the newest append time of any partition: if all are silent, Kafka itself may be. The time of reading does not
        count, because a partition may be read again long after. A broker clock that is behind the others is corrected
        for, once a message of its partition has shown the difference. If a series may be in several partitions, the
        earliest of their times counts. Outages are subtracted, but not where series may have moved: see `outages`.
        """
        heard, silent_ms = {}, self._silent_ms(now_seconds)
        silent_ms |= dict.fromkeys(self.moving, 0)
        for partition in self._partitions.values():
            if partition.held_until >= 0:
                heard[partition.number] = partition.held_ms - silent_ms[partition.number]
            elif partition.newest_append_ms or not partition.at_end:
                elsewhere_ms = self._clock.newest_append_ms - partition.behind_ms if partition.silent else 0
                newest_ms = max(partition.newest_append_ms, elsewhere_ms)
                heard[partition.number] = newest_ms - silent_ms[partition.number]
        return dict.fromkeys(heard, min(heard.values())) if self._joint and heard else heard

    def outages(self) -> OutageRows:
        """Return the outages of the partitions of which series may have moved."""
        return OutageRows.of(
            (partition.number, outage)
            for partition in self._partitions.values()
            if partition.number in self.moving
            for outage in partition.contact.outages
        )

    def _silent_ms(self, now_seconds: float) -> dict[int, int]:
        """Return the length of Kafka's outages that does not count as silence of a partition's series."""
        silent_ms, now_ms = {}, self._clock.at(now_seconds) or 0.0
        for partition in self._partitions.values():
            away_ms = partition.contact.silent_ms(now_seconds, self._ttl_seconds) if partition.passed else 0
            if away_ms and partition.number in self.moving:
                away_ms = min(away_ms, partition.contact.quiet_ms(now_ms))
            silent_ms[partition.number] = away_ms
        return silent_ms

"""Outages of Kafka by its append times, and the part of them that does not count as silence of a series.

`Contact` records outages; the store gets them with the state of growth, when it expires, withdraws or releases series.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from kernelcast.bridge.tables.columns import Int32Array, Int64Array, UInt8Array

UNENDED: Final = 2**62
"""End of an outage after which no message is known yet."""


@dataclass(slots=True)
class Outage:
    """An outage by Kafka's append times.

    Attributes:
        began_ms: Time of Kafka's last answer.
        noticed_ms: Time of the first query without an answer. Kafka has not answered for some time by then.
        ended_ms: Append time of the first message after that, in any partition; UNENDED before the first.
    """

    began_ms: int
    noticed_ms: int
    ended_ms: int = UNENDED

    def note_appends(self, append_ms: Int64Array) -> None:
        """Note the append times of messages, which may be read in any order."""
        after_ms = append_ms[append_ms > self.noticed_ms]
        if len(after_ms):
            self.ended_ms = min(self.ended_ms, int(after_ms.min()))

    def length_ms(self, now_ms: float) -> float:
        """Return how long it has lasted until some time."""
        return max(0.0, min(self.ended_ms, now_ms) - self.began_ms)


class OutageRows(NamedTuple):
    """Outages of several partitions, one row per outage; see `Outage`.

    Attributes:
        partition: Number of the partition.
        began_ms: See `Outage`.
        noticed_ms: See `Outage`.
        ended_ms: See `Outage`.
    """

    partition: Int64Array
    began_ms: Int64Array
    noticed_ms: Int64Array
    ended_ms: Int64Array

    @classmethod
    def of(cls, outages: Iterable[tuple[int, Outage]]) -> "OutageRows":
        """Make rows of partition numbers and outages."""
        rows = [(number, one.began_ms, one.noticed_ms, one.ended_ms) for number, one in outages]
        table: Int64Array = np.array(rows, np.int64).reshape(-1, 4)
        return cls(*(table[:, column].copy() for column in range(4)))


NO_OUTAGES: Final = OutageRows.of(())


class Growth(NamedTuple):
    """State of partitions whose topics may have grown.

    Attributes:
        states: By partition, UNCHANGED, GROWN or ADDED.
        outages: Outages of the partitions that are not UNCHANGED.
    """

    states: UInt8Array
    outages: OutageRows


def away_ms(
    outages: OutageRows, begins_ms: Int64Array, partitions: Int32Array, since_ms: Int64Array, heard_ms: Int64Array
) -> Int64Array:
    """Return how much of the silence of some series was in outages.

    Example: a series was last seen at 100 s, its partition is known until 200 s, and an outage lasted from 90 to 130 s.
    The result is 30 s. Of a series that was last seen at 140 s it is 0.

    Args:
        outages: The outages.
        begins_ms: When they began: one of the columns of `outages`.
        partitions: The partition of each series.
        since_ms: When each series was last seen.
        heard_ms: The append time up to which any point of the series would have been read.
    """
    total: Int64Array = np.zeros(len(partitions), np.int64)
    for partition, began_ms, ended_ms in zip(outages.partition, begins_ms, outages.ended_ms, strict=True):
        shared_ms = np.minimum(ended_ms, heard_ms) - np.maximum(since_ms, began_ms)
        total += np.where(partitions == partition, np.maximum(shared_ms, 0), 0)
    return total

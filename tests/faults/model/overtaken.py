"""Delta points that no total has because their producer's clock was corrected: docs/bridge.md names this limit.

A partition without a leader gets points after newer ones of their series have come in another partition, which another
replica reads. That replica's total has a gap where they lie, and they are added to it once they have all come. A clock
that ran ahead and is corrected ends the gaps of its series. The bound is exact: the points of such a clock that newer
ones of another partition have overtaken, if they came less than `ADDED_SECONDS` before the correction, or after it.
"""

from collections.abc import Iterator
from typing import Final

from tests.faults.model.cluster import Cluster, Key
from tests.faults.model.producers import DELTAS, Producer

from kernelcast.bridge.delta.adoption import QUIET_MS, READ_SECONDS

ADDED_SECONDS: Final = QUIET_MS / 1000 + 2 * READ_SECONDS
"""Time in which late points are added: none comes any more, they are in a snapshot, and it is read."""


def overtaken(producer: Producer) -> int:
    """Return how many of a producer's delta points may be in no total, each once."""
    records, written = list(_records(producer.cluster)), producer.deltas_seconds
    return len(
        {
            body
            for key, body, came_seconds in records
            if body in producer.ahead
            and any(written[body] < at < came_seconds + ADDED_SECONDS for at in producer.corrections_seconds)
            and any(
                key != other and came_seconds >= before_seconds and written.get(newer, 0.0) > written[body]
                for other, newer, before_seconds in records
            )
        }
    )


def _records(cluster: Cluster) -> Iterator[tuple[Key, bytes, float]]:
    """Yield partition, body and append time of each record of delta series."""
    for key, log in cluster.logs.items():
        for record in log if key[0] == DELTAS else ():
            if record.body is not None:
                yield key, record.body, record.append_ms / 1000

"""Delta points that are lost when a topic is deleted: no snapshot has them, and the bridge that had read them is dead.

A restarted bridge of mode `replica` continues the totals of a replica that lives, which cannot have these
points. The bound is exact: the points of the deleted topic that the dead bridge had read, less those in any snapshot.
"""

from collections.abc import Collection, Iterable, Mapping

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from tests.faults.model.cluster import Cluster, Key
from tests.faults.model.producers import DELTAS
from tests.support.bridge.list_kafka import StateLog

from kernelcast.bridge.delta.persistence.snapshot import SnapshotPart, load


def points(cluster: Cluster, producer: int, reached: Mapping[Key, int]) -> set[bytes]:
    """Return the delta points of a producer before some offsets, each once."""
    return {
        record.body
        for key, offset in reached.items()
        if key[0] == DELTAS
        for record in cluster.logs.get(key, ())[:offset]
        if record.body is not None and _is_of(record.body, producer)
    }


def unsaved(cluster: Cluster, producer: int, reached: Mapping[Key, int]) -> int:
    """Return the number of a producer's points that a bridge had read, and that are in no snapshot."""
    saved = _saved(cluster.state, f"id-{cluster.ids.get(DELTAS, 0)}", reached)
    return len(points(cluster, producer, reached) - points(cluster, producer, saved))


def _saved(state: StateLog, topic_id: str, keys: Collection[Key]) -> dict[Key, int]:
    """Return, by partition, the highest offset of any snapshot of a topic."""
    furthest = dict.fromkeys(keys, 0)
    for parts in _by_identity(state):
        snapshot = load(parts)
        if snapshot.topic_ids.get(DELTAS) == topic_id:
            furthest |= {key: max(offset, furthest[key]) for key, offset in snapshot.positions if key in furthest}
    return furthest


def _by_identity(state: StateLog) -> Iterable[list[SnapshotPart]]:
    """Return the parts of each snapshot that was ever written."""
    found: dict[bytes, list[SnapshotPart]] = {}
    written = [record.body for log in state.logs.values() for record in log]
    for part in (SnapshotPart.of(body) for body in written if body is not None):
        found.setdefault(part.identity, []).append(part)
    return found.values()


def _is_of(body: bytes, producer: int) -> bool:
    """Return whether a record is a producer's; bad messages are no one's."""
    if b"service.instance.id" not in body:
        return False
    (resource,) = ExportMetricsServiceRequest.FromString(body).resource_metrics
    named = {attribute.key: attribute.value.string_value for attribute in resource.resource.attributes}
    return named["service.instance.id"] == f"i{producer}"

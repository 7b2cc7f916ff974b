"""Metrics of delta points, made from the catalogue's rows; every counter starts at 0."""

from typing import Final

from prometheus_client import CollectorRegistry

from kernelcast.bridge.by_producer import CountedByProducer
from kernelcast.bridge.delta.columns import LOST, OUTCOMES
from kernelcast.runtime.instruments import counter, gauge
from kernelcast.wire.catalogue import bridge as rows

SNAPSHOTS: Final = ("written", "failed")
BEGINNINGS: Final = ("restored", "missing", "too_old", "unusable", "other_log", "unread")


class DeltaInstruments:
    """The metrics of the running totals."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.points = counter(rows.DELTA_POINTS, registry)
        self.series = gauge(rows.DELTA_SERIES, registry)
        self.forgotten_gaps = counter(rows.DELTA_FORGOTTEN_GAPS, registry)
        self.snapshots = counter(rows.DELTA_SNAPSHOTS, registry)
        self.snapshot_bytes = counter(rows.DELTA_SNAPSHOT_BYTES, registry)
        self.beginnings = counter(rows.DELTA_BEGINNINGS, registry)
        self.lost = CountedByProducer(rows.LOST_DELTA_POINTS, (OUTCOMES[code] for code in LOST), registry)
        for outcome in OUTCOMES.values():
            self.points.labels(outcome)
        for outcome in SNAPSHOTS:
            self.snapshots.labels(outcome)
        for cause in BEGINNINGS:
            self.beginnings.labels(cause)

"""Metrics of the bridge itself, on its `/metrics`; they do not travel through Kafka.

The bridge makes counters and gauges from these rows (`bridge/instruments.py` and others). Panels and rules name them.
"""

from typing import Final

from kernelcast.wire.catalogue.model import Kind, Metric

_BRIDGE: Final = "bridge"


def _counter(name: str, help: str, *labels: str) -> Metric:  # noqa: A002  the field's name
    return Metric(f"kernelcast_bridge_{name}_total", Kind.COUNTER, help, labels=labels, source=_BRIDGE)


def _gauge(name: str, help: str, *labels: str) -> Metric:  # noqa: A002  the field's name
    return Metric(f"kernelcast_bridge_{name}", Kind.GAUGE, help, labels=labels, source=_BRIDGE)


def _histogram(name: str, help: str, *labels: str) -> Metric:  # noqa: A002  the field's name
    return Metric(f"kernelcast_bridge_{name}", Kind.HISTOGRAM, help, labels=labels, source=_BRIDGE)


MESSAGES: Final = _counter("messages", "Messages read from Kafka.", "topic")
FORMATS: Final = _counter(
    "messages_by_format",
    "Messages by the format they were read as: otlp_proto, otlp_json, remote_write, prometheus, influx, json, unknown, "
    "or one of the site's own.",
    "topic",
    "format",
)
POINTS: Final = _counter("points", "Data points decoded from them.", "topic")
DISCARDED_POINTS: Final = _counter(
    "discarded_points",
    "Points that were not stored, by cause: wire_only, temporality, delta, type_conflict, series_limit, metric_limit, "
    "unnamed, labels_too_long, older, second_writer, malformed_histogram, producer_limit, name_conflict, unsupported.",
    "cause",
)
CLAMPED_POINTS: Final = Metric(
    "kernelcast_producer_clamped_points_total",
    Kind.COUNTER,
    "Points whose time lay further in the future than future_tolerance_seconds, so that they are shown at their append "
    "time, by producer. Of 100 producers, the others are `other`.",
    labels=("job", "instance"),
    source=_BRIDGE,
)
DECODE_FAILURES: Final = _counter(
    "decode_failures",
    "Messages that could not be decoded, or have delta points (`DeltaError`; their other points are stored), by topic "
    "and error; they go to the dead letters.",
    "topic",
    "error",
)
SERIES: Final = _gauge(
    "series",
    "Series held (a histogram is one): exposed, catching_up (hidden until their partition has caught up), held "
    "(hidden until a replica that had them before the topic grew has withdrawn them), absent (their producer says that "
    "they have no value).",
    "state",
)
LINES: Final = _gauge("lines", "Lines that all series in memory would have on /metrics; max_series limits this number.")
LINES_LIMIT: Final = _gauge("lines_limit", "Maximum number of lines; beyond it new series are refused and counted.")
LIMIT_USED: Final = _gauge(
    "limit_used_ratio",
    "Used part of a limit, of the metric or producer that uses most of it: lines in all, of one metric, of one "
    "producer; producers listed. At 1, new series are refused and counted.",
    "limit",
)
REFUSED_SERIES: Final = _gauge("refused_series", "Series that a limit refuses now, by cause.", "cause")
TYPE_CONFLICTS: Final = _counter(
    "type_conflicts",
    "Series refused because a metric of another kind has their name, by metric; the 101st and further are `other`.",
    "metric",
)
NAME_CONFLICTS: Final = _counter(
    "name_conflicts",
    "Series refused because another metric of their producer has the same name and labels here (`jobs.done` and "
    "`jobs_done`), by the refused metric's name; the 101st and further are `other`.",
    "metric",
)
HELP_CONFLICTS: Final = _counter(
    "help_conflicts", "Series whose help text differs from their metric's; the first help text stays."
)
UNLISTED_SERIES: Final = _counter(
    "unlisted_series", "Series of producers beyond max_producers: exposed, but without metrics of their producer."
)
DROPPED_EXEMPLARS: Final = _counter(
    "dropped_exemplars", "Points whose exemplars were dropped because there was no room."
)
PRODUCERS: Final = _gauge("producers", "Producers (a job and an instance) known now.")
PRODUCER_UP: Final = Metric(
    "kernelcast_producer_up",
    Kind.GAUGE,
    "1 while a producer sends samples at its usual intervals, else 0; exposed for two times-to-live after the last "
    "one. Where replicas share partitions, each exposes its own view: alert on max_over_time.",
    labels=("job", "instance"),
    source=_BRIDGE,
)
PRODUCER_AGE: Final = Metric(
    "kernelcast_producer_last_sample_age_seconds",
    Kind.GAUGE,
    "Time since a producer's last sample reached Kafka, by Kafka's clock.",
    labels=("job", "instance"),
    source=_BRIDGE,
)
PRODUCER_REFUSED: Final = Metric(
    "kernelcast_producer_refused_series",
    Kind.GAUGE,
    "Series of a producer that a limit refuses now, by cause; only the 20 producers with the most.",
    labels=("job", "instance", "cause"),
    source=_BRIDGE,
)
IDENTITY_CONFLICTS: Final = Metric(
    "kernelcast_producer_identity_conflicts_total",
    Kind.COUNTER,
    "Signs that two live producers share one identity (job and instance), by sign. Points refused: resource (another "
    "resource writes the series), start_time (the series began later, yet the point is newer). Counted only: key (a "
    "series returned to its former message key or partition), host (points come in turn from two hosts). Of 100 "
    "producers, the others are `other`.",
    labels=("job", "instance", "sign"),
    source=_BRIDGE,
)
TARGET_INFO: Final = Metric(
    "target_info",
    Kind.INFO,
    "Attributes of a producer's resource, as labels.",
    labels=("job", "instance"),
    source=_BRIDGE,
)
REMOVED_SERIES: Final = _counter(
    "removed_series",
    "Series removed, by cause: expired (no producer wrote them), revoked (their partition went), tombstone (a message "
    "with their key and no value said so).",
    "cause",
)
TOMBSTONES: Final = _counter(
    "tombstones",
    "Messages without a value, by kind: keyed (the series of their key have ended), unkeyed (they mean nothing).",
    "topic",
    "kind",
)
LAG: Final = _gauge("lag_messages", "Messages on Kafka that have not been read yet.", "topic", "partition")
LAG_SECONDS: Final = _gauge(
    "lag_seconds",
    "Age of the newest message read, while there are others to be read; 0 when there are none.",
    "topic",
    "partition",
)
UNKEYED_MESSAGES: Final = _counter(
    "unkeyed_messages",
    "Messages left out because they have no key, which a consumer group needs; see bridge.mode.",
    "topic",
)
SKIPPED_MESSAGES: Final = _counter(
    "skipped_messages", "Messages that were skipped because the bridge was too far behind.", "topic"
)
DEADLETTERS_LEFT: Final = _counter(
    "deadletters_left",
    "Undecodable messages that were not sent to the dead-letter topic, by reason: repeated (they were sent before), "
    "dead_letter (they are dead letters already).",
    "reason",
)
OFFSET_RESTARTS: Final = _counter(
    "offset_restarts", "Partitions whose offsets restarted, because their topic was deleted and created again.", "topic"
)
PARTITIONS: Final = _gauge(
    "partitions", "Assigned partitions, by state: exposed, or catching_up with Kafka's offset at assignment.", "state"
)
TOPIC_PARTITIONS: Final = _gauge(
    "topic_partitions", "Partitions of a topic that the bridges read, by Kafka, whoever has them assigned.", "topic"
)
REBALANCES: Final = _counter("rebalances", "Changes of the assignment, by event: assigned, revoked, lost.", "event")
CAUGHT_UP: Final = _gauge("ready", "1 when the group membership is stable and every partition has caught up.")
KAFKA_OUTAGE: Final = _gauge(
    "kafka_outage_seconds",
    "Longest time for which Kafka has not answered for a partition of this bridge; 0 while it answers. In an outage "
    "the series stay as they were: their values are at least as old.",
)
APPEND_TIME: Final = _gauge(
    "append_time_available",
    "1 if Kafka sets the messages' timestamps (LogAppendTime); 0 if expiry depends on the producers' clocks.",
    "topic",
)
CLOCK_AHEAD: Final = _gauge(
    "clock_ahead_seconds",
    "Maximum difference of event time minus Kafka's append time in the last batch; negative means delay.",
    "topic",
)
FRESHNESS: Final = _histogram(
    "event_to_store_seconds",
    "Time from a point's event to its being ready for a scrape, the newest point of each message.",
    "topic",
)
SERVED: Final = _histogram(
    "event_to_scrape_seconds",
    "Time from a point's event to the first scrape that shows it, the slowest message of each batch read.",
    "topic",
)
SCRAPE_DURATION: Final = _histogram("scrape_encoding_seconds", "Time to encode the series for a scrape.")
SCRAPE_BYTES: Final = _gauge("scrape_bytes", "Bytes of the last page of series, as sent.")
ALERTS: Final = _counter(
    "alerts",
    "Alerts that Alertmanager delivered, by outcome: acknowledged by Kafka, unacknowledged (Alertmanager tries again), "
    "refused (not a valid notification).",
    "outcome",
)

ROWS: Final[tuple[Metric, ...]] = (
    MESSAGES,
    FORMATS,
    POINTS,
    DISCARDED_POINTS,
    CLAMPED_POINTS,
    DECODE_FAILURES,
    SERIES,
    LINES,
    LINES_LIMIT,
    LIMIT_USED,
    REFUSED_SERIES,
    TYPE_CONFLICTS,
    NAME_CONFLICTS,
    HELP_CONFLICTS,
    UNLISTED_SERIES,
    DROPPED_EXEMPLARS,
    PRODUCERS,
    PRODUCER_UP,
    PRODUCER_AGE,
    PRODUCER_REFUSED,
    IDENTITY_CONFLICTS,
    TARGET_INFO,
    REMOVED_SERIES,
    TOMBSTONES,
    LAG,
    LAG_SECONDS,
    UNKEYED_MESSAGES,
    SKIPPED_MESSAGES,
    DEADLETTERS_LEFT,
    OFFSET_RESTARTS,
    PARTITIONS,
    TOPIC_PARTITIONS,
    REBALANCES,
    CAUGHT_UP,
    KAFKA_OUTAGE,
    APPEND_TIME,
    CLOCK_AHEAD,
    FRESHNESS,
    SERVED,
    SCRAPE_DURATION,
    SCRAPE_BYTES,
    ALERTS,
)

"""What the bridge says about itself, on its own `/metrics`; these do not travel through Kafka."""

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
POINTS: Final = _counter("points", "Data points decoded from them.", "topic")
DISCARDED_POINTS: Final = _counter(
    "discarded_points",
    "Points that were not stored, by cause: wire_only, temporality, type_conflict, series_limit, metric_limit, "
    "unnamed, labels_too_long, older, second_writer, malformed_histogram, unsupported.",
    "cause",
)
CLAMPED_POINTS: Final = _counter(
    "clamped_points", "Points whose time lay too far in the future and was set to their append time."
)
DECODE_FAILURES: Final = _counter(
    "decode_failures",
    "Messages that could not be decoded, by topic and error; they go to the dead letters.",
    "topic",
    "error",
)
SERIES: Final = _gauge(
    "series",
    "Series held (a histogram is one): exposed, catching_up (hidden until their partition has caught up), absent "
    "(their producer says that they have no value).",
    "state",
)
LINES: Final = _gauge("lines", "Lines that all series held make on /metrics; what the limit counts.")
LINES_LIMIT: Final = _gauge("lines_limit", "The most lines held; beyond, new series are refused and counted.")
REMOVED_SERIES: Final = _counter(
    "removed_series",
    "Series removed, by cause: expired (no producer wrote them), revoked (their partition went).",
    "cause",
)
LAG: Final = _gauge("lag_messages", "Messages on Kafka that have not been read yet.", "topic", "partition")
PARTITIONS: Final = _gauge(
    "partitions", "Partitions assigned, by state: exposed, or catching_up to where Kafka was at assignment.", "state"
)
REBALANCES: Final = _counter("rebalances", "Changes of the assignment, by event: assigned, revoked, lost.", "event")
CAUGHT_UP: Final = _gauge("ready", "1 when the group membership is stable and every partition has caught up.")
APPEND_TIME: Final = _gauge(
    "append_time_available",
    "1 where Kafka stamps messages itself (LogAppendTime); 0 where expiry must trust the producers' clocks.",
    "topic",
)
CLOCK_AHEAD: Final = _gauge(
    "clock_ahead_seconds",
    "How far event times ran ahead of Kafka's append times, at most, in the last batch read; negative is delay.",
    "topic",
)
FRESHNESS: Final = _histogram(
    "event_to_store_seconds",
    "Time from a point's event to its being in the store, the newest point of each message.",
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
    POINTS,
    DISCARDED_POINTS,
    CLAMPED_POINTS,
    DECODE_FAILURES,
    SERIES,
    LINES,
    LINES_LIMIT,
    REMOVED_SERIES,
    LAG,
    PARTITIONS,
    REBALANCES,
    CAUGHT_UP,
    APPEND_TIME,
    CLOCK_AHEAD,
    FRESHNESS,
    SCRAPE_DURATION,
    SCRAPE_BYTES,
    ALERTS,
)

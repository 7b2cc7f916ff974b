"""Metrics that every daemon has of itself, on its `/metrics`; they do not travel through Kafka.

`kernelcast.runtime` makes counters and gauges from these rows: its producer, consumer, dead letters and web server.
"""

from typing import Final

from kernelcast.wire.catalogue.model import Kind, Metric

_RUNTIME: Final = "runtime"

BUILD_INFO: Final = Metric(
    "kernelcast_build_info", Kind.INFO, "Which daemon this is.", labels=("service", "version"), source=_RUNTIME
)
PRODUCER_MESSAGES: Final = Metric(
    "kernelcast_producer_messages_total",
    Kind.COUNTER,
    "Messages for Kafka, by outcome: sent (Kafka answered, and did not refuse for good), acknowledged (of the sent "
    "ones), failed (not accepted), refused (of the failed ones, for good) or dropped (never queued).",
    labels=("topic", "outcome"),
    source=_RUNTIME,
)
PRODUCER_DROPPED: Final = Metric(
    "kernelcast_producer_dropped_messages_total",
    Kind.COUNTER,
    "Messages that never entered the queue towards Kafka, by cause: queue_full, too_large or refused.",
    labels=("topic", "cause"),
    source=_RUNTIME,
)
PRODUCER_QUEUE: Final = Metric(
    "kernelcast_producer_queue_messages", Kind.GAUGE, "Messages that Kafka has not answered yet.", source=_RUNTIME
)
CONSUMER_ERRORS: Final = Metric(
    "kernelcast_consumer_errors_total",
    Kind.COUNTER,
    "Errors met while reading from Kafka, by librdkafka's name for them.",
    labels=("error",),
    source=_RUNTIME,
)
CONSUMER_RECOVERIES: Final = Metric(
    "kernelcast_consumer_recoveries_total",
    Kind.COUNTER,
    "Steps taken because a partition, or the membership of a group, stood still although Kafka answered: seek (a "
    "partition was sought again), new_client (the Kafka client was replaced), failed (a partition was given up, while "
    "the others go on).",
    labels=("step",),
    source=_RUNTIME,
)
CONSUMER_FAILED: Final = Metric(
    "kernelcast_consumer_failed_partitions",
    Kind.GAUGE,
    "Partitions of a topic that are not read although Kafka has more messages and answers, also after a new client.",
    labels=("topic",),
    source=_RUNTIME,
)
DEADLETTER_MESSAGES: Final = Metric(
    "kernelcast_deadletter_messages_total",
    Kind.COUNTER,
    "Messages that could not be used, by topic: sent to the dead-letter topic, or dropped by its rate limit.",
    labels=("topic", "outcome"),
    source=_RUNTIME,
)
HTTP_REQUESTS: Final = Metric(
    "kernelcast_http_requests_total",
    Kind.COUNTER,
    "HTTP requests answered, by route and status.",
    labels=("handler", "code"),
    source=_RUNTIME,
)
HTTP_REFUSED_REQUESTS: Final = Metric(
    "kernelcast_http_refused_requests_total",
    Kind.COUNTER,
    "HTTP requests refused, by reason: waiting (too many wait for /metrics), waited (for too long), connections (all "
    "places are taken), rate_limit, logins (too many of one address failed or wait), login_queue (too many wait).",
    labels=("reason",),
    source=_RUNTIME,
)
HTTP_CLOSED_CONNECTIONS: Final = Metric(
    "kernelcast_http_closed_connections_total",
    Kind.COUNTER,
    "HTTP connections closed because all places were taken, by reason: evicted (the longest idle one of the address "
    "with the most), refused (a new one, when none was idle).",
    labels=("reason",),
    source=_RUNTIME,
)


def _process(name: str, kind: Kind, help: str) -> Metric:  # noqa: A002  the field's name
    return Metric(f"process_{name}", kind, help, source="prometheus_client's ProcessCollector")


PROCESS: Final = (
    _process("cpu_seconds_total", Kind.COUNTER, "Total user and system CPU time spent in seconds."),
    _process("max_fds", Kind.GAUGE, "Maximum number of open file descriptors."),
    _process("open_fds", Kind.GAUGE, "Number of open file descriptors."),
    _process("resident_memory_bytes", Kind.GAUGE, "Resident memory size in bytes."),
    _process("start_time_seconds", Kind.GAUGE, "Start time of the process since unix epoch in seconds."),
    _process("virtual_memory_bytes", Kind.GAUGE, "Virtual memory size in bytes."),
)

ROWS: Final[tuple[Metric, ...]] = (
    BUILD_INFO,
    PRODUCER_MESSAGES,
    PRODUCER_DROPPED,
    PRODUCER_QUEUE,
    CONSUMER_ERRORS,
    CONSUMER_RECOVERIES,
    CONSUMER_FAILED,
    DEADLETTER_MESSAGES,
    HTTP_REQUESTS,
    HTTP_REFUSED_REQUESTS,
    HTTP_CLOSED_CONNECTIONS,
    *PROCESS,
)

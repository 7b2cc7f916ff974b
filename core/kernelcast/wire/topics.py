"""The topics on Kafka: their keys, values, clean-up policies and settings.

Services take the names from here. `kernelcast topics apply` creates the topics with these settings, and
`kernelcast doctor` compares them.
"""

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

PARTITIONER: Final = "murmur2_random"
"""librdkafka's name for the Java clients' partitioner: one key, one partition, whichever client wrote it."""

DEFAULT_PARTITIONS: Final = 12
"""Fixed once a topic is made: changing it would move keys between partitions and split series."""

MAX_EXPORT_BYTES: Final = 512 * 1024
"""An export request is split between points before it grows past this; half of Kafka's default message limit."""

MAX_MESSAGE_BYTES: Final = 1_048_588
"""The largest message that a topic must accept at least, unless it names more: Kafka's own default of
`max.message.bytes`. A topic with a lower limit refuses exports permanently."""

DAY_MS: Final = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of the contract.

    Attributes:
        name: Its name on the broker.
        key: Content of the record key, for people. `a + b`, `a | b` and `text| a` are parts of a `joined_key`.
        value: Content of the record value, for people.
        cleanup: Kafka's `cleanup.policy`.
        retention_ms: Kafka's `retention.ms`, where the policy deletes; None leaves the broker's default.
        partitions: Number of partitions, fixed at creation.
        help: Content of the topic, for people.
        extra: Further topic settings, by Kafka's names.
    """

    name: str
    key: str
    value: str
    cleanup: str
    help: str
    retention_ms: int | None = None
    partitions: int = DEFAULT_PARTITIONS
    extra: MappingProxyType[str, str] = field(default_factory=lambda: MappingProxyType({}), hash=False)

    @property
    def config(self) -> dict[str, str]:
        """Topic-level settings as Kafka names them."""
        config = {
            "cleanup.policy": self.cleanup,
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(MAX_MESSAGE_BYTES),
            **self.extra,
        }
        if self.retention_ms is not None:
            config["retention.ms"] = str(self.retention_ms)
        return config


_OTLP = "OTLP ExportMetricsServiceRequest, protobuf"
_EVENT = "CloudEvents 1.0, JSON"

DEVICE = Topic("kernelcast.device", "host", _OTLP, "delete", "device metrics under DCGM's names", DAY_MS)
KERNELS = Topic("kernelcast.kernels", "program", _OTLP, "delete", "per-kernel metrics of programs", DAY_MS)
FORECASTS = Topic(
    "kernelcast.forecasts", "as its subject", _OTLP, "delete", "forecasts and predicted degradation", DAY_MS
)
HINTS = Topic("kernelcast.hints", "program + tunable + device model", _EVENT, "compact", "tuning hints for programs")
OUTCOMES = Topic(
    "kernelcast.outcomes",
    "hint id",
    _EVENT,
    "delete",
    "outcomes of hints in programs",
    7 * DAY_MS,
)
ORDERS = Topic(
    "kernelcast.orders",
    "stop| program | node",
    _EVENT,
    "compact",
    "stop orders of people, and their approvals of hints",
    # Few messages; one partition keeps them in one sequence for every reader. An approval has the key
    # `approval|` and the hint's id.
    partitions=1,
)
POLICY = Topic(
    "kernelcast.policy",
    "policy, or experience| program | space | device model | code version",
    _EVENT,
    "compact",
    "the site's policy for trials, and what searches of spaces have found on all nodes",
    partitions=1,
)
ALERTS = Topic(
    "kernelcast.alerts", "alert fingerprint", _EVENT, "compact,delete", "alerts as Alertmanager sent them", 7 * DAY_MS
)
FINDINGS = Topic(
    "kernelcast.findings",
    "finding id, for a mark: mark| and the finding id",
    _EVENT,
    "compact,delete",
    "findings of the predictor, and people's marks on them",
    # A mark is a person's verdict on a finding; it counts for 30 days. A lasting finding is written again every day.
    35 * DAY_MS,
)
BASELINES = Topic(
    "kernelcast.baselines", "kernel + configuration + device model", _EVENT, "compact", "baselines, from all nodes"
)
STATE = Topic(
    "kernelcast.state",
    "service + partition",
    "snapshot with the offset it stands at",
    "compact",
    "state of bridges and predictors, from which they continue after a restart",
    # A restart reads all of it, and Kafka does not compact the segment being written: by default 1 GiB or seven days.
    extra=MappingProxyType(
        {
            "max.message.bytes": str(8 * 1024 * 1024),
            "segment.bytes": str(64 * 1024 * 1024),
            "segment.ms": str(10 * 60 * 1000),
            "min.cleanable.dirty.ratio": "0.1",
        }
    ),
)
DEADLETTER = Topic(
    "kernelcast.deadletter",
    "original key",
    "original bytes; headers: topic, partition, offset, error",
    "delete",
    "messages that could not be used",
    7 * DAY_MS,
    extra=MappingProxyType({"max.message.bytes": str(8 * 1024 * 1024)}),
)

TOPICS: Final = (
    DEVICE,
    KERNELS,
    FORECASTS,
    HINTS,
    OUTCOMES,
    ORDERS,
    POLICY,
    ALERTS,
    FINDINGS,
    BASELINES,
    STATE,
    DEADLETTER,
)
METRIC_TOPICS: Final = (DEVICE, KERNELS, FORECASTS)
"""Topics of OTLP metrics, which the bridge reads unless its settings name others."""

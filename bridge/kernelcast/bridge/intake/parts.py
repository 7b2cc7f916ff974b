"""The dependencies and rules of an `Intake`, which `Bridge` makes: its consumer, its parts, and its policy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from confluent_kafka import TopicPartition

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.inputs import Selection
from kernelcast.bridge.instruments import Instruments
from kernelcast.bridge.intake.inquiry import OffsetConsumer
from kernelcast.bridge.intake.membership import SESSION_SECONDS
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.runtime.kafka.clients import DeadLetterSink
from kernelcast.runtime.kafka.topic_names import TopicNames

NO_TOPICS: Final = TopicNames(())


class IntakeConsumer(OffsetConsumer, Protocol):
    """The part of a Kafka consumer that is needed here: `runtime.kafka.Consumer`."""

    def consume(self, max_messages: int, timeout_seconds: float) -> tuple[list[Any], list[Any]]:
        """Read messages, and errors apart from them."""

    def ends(self) -> list[TopicPartition]:
        """Return the partitions read to their end since the last call, with the end offset."""

    def known_high(self, partition: TopicPartition) -> int:
        """Return the last known high watermark, without a query."""

    def commit(self, offsets: Sequence[TopicPartition], *, wait: bool = False) -> None:
        """Commit the offsets of the next messages to be read; with `wait`, a refusal is raised."""


@dataclass(frozen=True, slots=True)
class IntakeParts:
    """The dependencies of an intake; all but the clock and the instruments are used on the consuming thread only."""

    source: IntakeConsumer
    selection: Selection
    store: SeriesStore
    dead_letters: DeadLetterSink
    instruments: Instruments
    clock: Clock


@dataclass(frozen=True, slots=True)
class IntakePolicy:
    """Rules of an intake.

    Attributes:
        ttl_seconds: How long a series stays after its last point, by Kafka's clock.
        tolerance_ns: How far ahead of its append time a point may be, see `future_points`.
        max_lag_seconds: How far reading may fall behind before messages are skipped; 0 skips none.
        grouped: Whether a consumer group assigns the partitions, so that a series must stay in one.
        session_seconds: Session time-out of the group: after this time without a poll it assigns our partitions to
            others.
        topics: The topics that are read, by all replicas together.
    """

    ttl_seconds: float = 300.0
    max_lag_seconds: float = 0.0
    grouped: bool = True
    session_seconds: float = SESSION_SECONDS
    topics: TopicNames = NO_TOPICS
    tolerance_ns: int = 10_000_000_000

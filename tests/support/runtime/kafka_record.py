"""Double of a message of Kafka."""

from dataclasses import dataclass

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME


@dataclass(frozen=True)
class Record:
    """A message as `confluent_kafka.Message` has it.

    Attributes:
        at: Topic, partition and offset.
        body: Its value; None is a tombstone.
        append_ms: Its time, Unix milliseconds.
        kind: Kind of the time.
        keyed: Its key.
        header_items: Its headers.
    """

    at: tuple[str, int, int]
    body: bytes | None
    append_ms: int = 0
    kind: int = TIMESTAMP_LOG_APPEND_TIME
    keyed: bytes | None = b"key"
    header_items: tuple[tuple[str, bytes], ...] = ()

    def headers(self) -> list[tuple[str, bytes]] | None:
        return list(self.header_items) or None

    def topic(self) -> str:
        return self.at[0]

    def partition(self) -> int:
        return self.at[1]

    def offset(self) -> int:
        return self.at[2]

    def key(self) -> bytes | None:
        return self.keyed

    def value(self) -> bytes | None:
        return self.body

    def timestamp(self) -> tuple[int, int]:
        return self.kind, self.append_ms

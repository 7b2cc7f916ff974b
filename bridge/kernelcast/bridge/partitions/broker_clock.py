"""A lower bound of Kafka's clock, from the append times of messages: the local wall clock may differ."""


class BrokerClock:
    """The newest append time that is known, and the time that has passed here since. For the consuming thread.

    Attributes:
        newest_append_ms: Newest append time of all partitions, also of those of other replicas; 0 before the first.
    """

    def __init__(self) -> None:
        self.newest_append_ms = 0
        self._read_ms: float | None = None
        self._read_at_seconds = 0.0

    def note_read(self, append_ms: int, now_seconds: float) -> None:
        """Note the newest append time of a batch that was read.

        Args:
            append_ms: By Kafka's clock.
            now_seconds: Time of a monotonic clock.
        """
        self.note(append_ms)
        bound = self.at(now_seconds)
        if bound is None or self.newest_append_ms > bound:
            self._read_ms, self._read_at_seconds = float(self.newest_append_ms), now_seconds

    def note(self, append_ms: int) -> None:
        """Note an append time from an answer of Kafka, which does not say how long ago that was."""
        self.newest_append_ms = max(self.newest_append_ms, append_ms)

    def at(self, now_seconds: float) -> float | None:
        """Return a lower bound of Kafka's clock in milliseconds; None before the first message was read."""
        return None if self._read_ms is None else self._read_ms + (now_seconds - self._read_at_seconds) * 1000.0

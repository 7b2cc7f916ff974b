"""Length of Kafka's outages per partition; during an outage, silence of a series does not mean that it has ended."""

from dataclasses import dataclass


@dataclass(slots=True)
class Contact:
    """Contact with the leader of one partition. Only the consuming thread uses it; all times are monotonic.

    While Kafka does not answer, producers cannot write either. So the length of an outage is subtracted from the age
    of series, until one time-to-live after its end: by then every producer has written again, or its series has ended.

    Attributes:
        answered_at_seconds: When Kafka last answered a fetch or a query.
        failed: Whether a query has failed since then. A pause without a query is not an outage.
        away_seconds: Length of the outages that have ended and still count.
        returned_at_seconds: When the last of them ended.
    """

    answered_at_seconds: float = 0.0
    failed: bool = False
    away_seconds: float = 0.0
    returned_at_seconds: float = 0.0

    def answered(self, now_seconds: float, ttl_seconds: float) -> None:
        """Note an answer of Kafka; it ends an outage."""
        self.away_seconds = self._ended_seconds(now_seconds, ttl_seconds)
        if self.failed:
            self.away_seconds += now_seconds - self.answered_at_seconds
            self.failed, self.returned_at_seconds = False, now_seconds
        self.answered_at_seconds = now_seconds

    def silent_ms(self, now_seconds: float, ttl_seconds: float) -> int:
        """Return the time to subtract from the age of series."""
        running_seconds = now_seconds - self.answered_at_seconds if self.failed else 0.0
        return round((self._ended_seconds(now_seconds, ttl_seconds) + running_seconds) * 1e3)

    def _ended_seconds(self, now_seconds: float, ttl_seconds: float) -> float:
        """Return the length of ended outages; 0 after contact for one time-to-live."""
        counts = self.failed or now_seconds - self.returned_at_seconds <= ttl_seconds
        return self.away_seconds if counts else 0.0

"""Length of Kafka's outages per partition; during an outage, silence of a series does not mean that it has ended.

An outage has two lengths. By the clock of this machine it lasts from Kafka's last answer to its next one. By Kafka's
append times it ends with the first message that was appended after it, in any partition. The second one is needed where
series may have moved to other partitions: their producers wrote again as soon as Kafka took messages anywhere. And a
bridge that was suspended in an outage reads on long after the outage.
"""

from dataclasses import dataclass, field

from kernelcast.bridge.partitions.outages import Outage
from kernelcast.bridge.tables.columns import Int64Array


@dataclass(slots=True)
class Contact:
    """Contact with the leader of one partition. Only the consuming thread uses it; times in seconds are monotonic.

    While Kafka does not answer, producers cannot write either. So the length of an outage is subtracted from the age
    of series, until Kafka has answered for one time-to-live after its end, without the time of later outages: by then
    every producer has written again, or its series has ended.

    Attributes:
        answered_at_seconds: When Kafka last answered a fetch or a query.
        failed: Whether a query has failed since then. A pause without a query is not an outage.
        ended: End and length, in seconds, of each outage that has ended and still counts, oldest first.
        outages: The same outages by Kafka's times, then the present one.
    """

    answered_at_seconds: float = 0.0
    failed: bool = False
    ended: list[tuple[float, float]] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)

    def answered(self, now_seconds: float, ttl_seconds: float) -> None:
        """Note an answer of Kafka; it ends an outage."""
        if self.failed:
            self.ended.append((now_seconds, now_seconds - self.answered_at_seconds))
            self.failed = False
        gone = len(self.ended) - len(self._lengths_seconds(now_seconds, ttl_seconds))
        del self.ended[:gone], self.outages[:gone]
        self.answered_at_seconds = now_seconds

    def unanswered(self, *, began_ms: float, noticed_ms: float) -> None:
        """Note a query without an answer; the times are Kafka's, at its last answer and now."""
        if not self.failed:
            self.failed = True
            self.outages.append(Outage(round(began_ms), round(noticed_ms)))

    def note_appends(self, append_ms: Int64Array) -> None:
        """Note the append times of messages of any partition: the first one after an outage is its end."""
        for outage in self.outages:
            outage.note_appends(append_ms)

    def silent_ms(self, now_seconds: float, ttl_seconds: float) -> int:
        """Return the time to subtract from the age of series."""
        ended_seconds = sum(self._lengths_seconds(now_seconds, ttl_seconds))
        return round((ended_seconds + self.outage_seconds(now_seconds)) * 1e3)

    def quiet_ms(self, now_ms: float) -> int:
        """Return for how long Kafka took no message in any partition, in the outages that count, until some time."""
        return round(sum(outage.length_ms(now_ms) for outage in self.outages))

    def outage_seconds(self, now_seconds: float) -> float:
        """Return the length of the outage so far; 0 where there is none."""
        return now_seconds - self.answered_at_seconds if self.failed else 0.0

    def _lengths_seconds(self, now_seconds: float, ttl_seconds: float) -> list[float]:
        """Return the lengths of the ended outages that still count, newest first."""
        lengths, away_seconds = list[float](), self.outage_seconds(now_seconds)
        for ended_at_seconds, length in reversed(self.ended):
            if now_seconds - ended_at_seconds - away_seconds > ttl_seconds:
                break
            lengths.append(length)
            away_seconds += length
        return lengths

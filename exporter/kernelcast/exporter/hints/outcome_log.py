"""Log on disk of outcomes of processes whose connection has ended, until Kafka has them.

A program keeps its outcomes until they are confirmed. One that has ended sends nothing again, so outcomes that Kafka
has not acknowledged by then would be lost if this exporter were killed. The next run of the exporter writes them to
Kafka with the same ids, by which readers recognise a repeat.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final, Self

from kernelcast.exporter.delivery.spool.lane import Lane
from kernelcast.exporter.delivery.spool.record import SpooledMessage
from kernelcast.exporter.hints.received import ReceivedOutcome
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.cloudevents import decode_event, encode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import outcome_from, to_event

DIRECTORY: Final = "outcomes"
MAX_BYTES: Final = 8 * 2**20
"""Limit of the outcomes that wait for Kafka; one takes about 1 KiB."""
SEGMENT_BYTES: Final = 2**18
"""Size at which a new file begins; a file is removed once all of its outcomes are settled."""

_log = get_logger(__name__)


class OutcomeLog:
    """A log of outcomes in a separate directory. Not thread-safe: the probe server calls it under its lock.

    An outcome is *settled* when Kafka has acknowledged it, or refused it for good.

    Args:
        directory: The exporter's state directory; its lock keeps other exporters out.
        max_bytes: Size at which writing stops until Kafka has taken some.

    Attributes:
        errors: Outcomes that could not be written or read.
    """

    def __init__(self, directory: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._lane = Lane(directory / DIRECTORY, segment_bytes=SEGMENT_BYTES)
        self._max_bytes = max_bytes
        self._numbers: dict[str, int] = {}
        self.errors = 0

    def open(self) -> Self:
        """Open the log of the exporter's last run.

        Raises:
            OSError: The directory cannot be made, read or written.
        """
        self._lane.open()
        return self

    def close(self) -> None:
        """Close the files; safe to call twice."""
        self._lane.close()

    def restore(self) -> list[ReceivedOutcome]:
        """Return the outcomes that Kafka has not acknowledged, as far as known, oldest first; call it once."""
        found = []
        while (entry := self._lane.read()) is not None:
            number, record = entry
            try:
                event = decode_event(record.value or b"")
                received = ReceivedOutcome(outcome_from(event), event["id"], (record.key or b"").decode())
            except (EventError, ValueError) as error:
                self._failed("an outcome cannot be read", error)
                self._lane.settle(number)
                continue
            if self._numbers.setdefault(received.event_id, number) == number:
                found.append(received)
            else:
                self._lane.settle(number)
        return found

    def append(self, outcomes: Iterable[ReceivedOutcome], now_ns: int) -> tuple[list[str], int | None]:
        """Write outcomes that are not in the log yet.

        Returns:
            The ids of those that are in the log now, and a file descriptor to sync and close; None if nothing was
            written.
        """
        ids, before = [], self._lane.next
        for one in outcomes:
            if one.event_id not in self._numbers:
                try:
                    self._numbers[one.event_id] = self._lane.append(self._record(one, now_ns))
                except (OSError, EventError) as error:
                    self._failed("an outcome cannot be written", error)
                    continue
            ids.append(one.event_id)
        return ids, self._lane.tail() if self._lane.next > before else None

    def settle(self, event_ids: Iterable[str]) -> None:
        """Remove outcomes that Kafka has acknowledged, or refused for good."""
        numbers = [number for one in event_ids if (number := self._numbers.pop(one, None)) is not None]
        for number in numbers:
            self._lane.settle(number)
        if numbers:
            try:
                self._lane.save_head()
            except OSError as error:
                _log.warning("settled outcomes of programs will be written again", reason=str(error))

    def _record(self, received: ReceivedOutcome, now_ns: int) -> SpooledMessage:
        event = to_event(received.outcome, source="/kernelcast/exporter", time_ns=now_ns, event_id=received.event_id)
        record = SpooledMessage(now_ns, received.nonce.encode(errors="replace"), encode_event(event))
        if self._lane.size_bytes + record.size_bytes > self._max_bytes:
            raise OSError(f"{self._lane.size_bytes} bytes wait for Kafka; the limit is {self._max_bytes}")
        return record

    def _failed(self, message: str, error: Exception) -> None:
        self.errors += 1
        _log.warning(message, reason=str(error))

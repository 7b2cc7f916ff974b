"""The last reports of programs whose connection has ended, on disk until the state holds them.

The state is written once an interval. A program that has ended reports to no later exporter, so its reports since the
last save would be lost if this exporter were killed. One file append for all programs that end at the same time costs
less than writing the whole state.

The records of one process are a JSON description and its totals in the frames of the probe's socket, all under its
nonce as key. The state says up to which record it holds them (`final_reports`); a state of an older exporter does not
say so, and then the records do not belong to it.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import orjson

from kernelcast.exporter.delivery.spool.lane import Lane
from kernelcast.exporter.delivery.spool.record import Record
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.session import ProbeSession
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.errors import FrameError
from kernelcast.wire.frames import Bye, Hello, decode, encode
from kernelcast.wire.identity import Device, Process

DIRECTORY: Final = "final"
MAX_BYTES: Final = 64 * 2**20
"""Of all records that the state does not hold yet; a process of 170 kernels takes about 40 KiB."""
SEGMENT_BYTES: Final = 2**20
_DESCRIPTION: Final = b"{"
"""The first byte of a description; a frame begins with `K`."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Departure:
    """A process whose connection ended.

    Attributes:
        session: Its session.
        final: It has ended and will not come back.
    """

    session: ProbeSession
    final: bool


class FinalReports:
    """A log of last reports in a directory of its own. Not thread-safe: the probe server calls it under its lock.

    Args:
        directory: The exporter's state directory; its lock keeps other exporters out.
        max_bytes: Beyond it nothing more is written until the state is saved.

    Attributes:
        polled: The first record whose totals the last poll did not bring; the state stores it.
        errors: Reports that could not be written; a crash before the next save of the state loses them.
    """

    def __init__(self, directory: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._lane = Lane(directory / DIRECTORY, segment_bytes=SEGMENT_BYTES)
        self._max_bytes = max_bytes
        self._released = 0
        self.polled = 0
        self.errors = 0

    def open(self) -> Self:
        """Find the records of the exporter's last run.

        Raises:
            OSError: The directory cannot be made, read or written.
        """
        self._lane.open()
        self._released = self.polled = self._lane.head
        if self._lane.cut:
            _log.warning("last reports of programs were damaged; the rest is used", lost=self._lane.cut)
        return self

    def close(self) -> None:
        """Close the files; safe to call twice."""
        self._lane.close()

    def restore(self, aggregator: Aggregator, since: int | None) -> int:
        """Give the aggregator what its state does not hold.

        Args:
            aggregator: With the state that was saved.
            since: The state's `final_reports`; None where there is none, and the records are dropped.

        Returns:
            Processes restored.
        """
        sessions: dict[str, ProbeSession] = {}
        damaged = self._lane.cut > 0
        while (found := self._lane.read()) is not None:
            number, record = found
            # After damage numbers may be lower; totals that the state holds already add nothing a second time.
            if since is not None and (damaged or number >= since):
                self._take(sessions, record)
        for session in sessions.values():
            for report in session.reports():
                aggregator.recall(report)
        # Should the log have been lost, its numbers must not begin again below the state's.
        self._lane.start_at(since or 0)
        self.polled = self._lane.next
        return len(sessions)

    def append(self, departures: Iterable[Departure]) -> int | None:
        """Write these processes' totals that the state does not hold; hand the result to `sync`.

        Returns:
            A file descriptor to sync and close; None where there is nothing to sync.
        """
        before = self._lane.next
        for departure in departures:
            try:
                self._append(departure)
            except (OSError, FrameError) as error:
                self.errors += 1
                _log.warning("last report of a program cannot be written", reason=str(error))
        return self._lane.tail() if self._lane.next > before else None

    def mark(self) -> None:
        """A poll takes everything that processes have reported so far."""
        self.polled = self._lane.next

    def release(self) -> None:
        """Forget the records before the last poll: the state on disk holds its totals."""
        for number in range(self._released, self.polled):
            self._lane.settle(number)
        self._released = self.polled
        try:
            self._lane.save_head()
        except OSError as error:
            _log.warning("last reports of programs cannot be released", reason=str(error))

    def _append(self, departure: Departure) -> None:
        session = departure.session
        key = session.process.nonce.encode(errors="replace")
        packets = [packet for frame in session.unsaved() for packet in encode(frame)]
        if departure.final:
            packets += encode(Bye())
        size_bytes = sum(map(len, packets))
        if self._lane.size_bytes + size_bytes > self._max_bytes:
            raise OSError(
                f"{size_bytes} bytes on top of {self._lane.size_bytes} are more than {self._max_bytes}; "
                "the next save of the state holds them"
            )
        for value in (_description(session), *packets):
            self._lane.append(Record(0, key, value))

    def _take(self, sessions: dict[str, ProbeSession], record: Record) -> None:
        nonce, value = (record.key or b"").decode(errors="replace"), record.value or b""
        try:
            if value.startswith(_DESCRIPTION):
                sessions.setdefault(nonce, _session(value))
            elif nonce in sessions:
                sessions[nonce].take(decode(value))
        except (FrameError, ValueError, KeyError, TypeError) as error:
            self.errors += 1
            _log.warning("last report of a program cannot be read", reason=str(error))


def sync(file: int | None) -> None:
    """Put what `append` wrote on the disk, and close the descriptor; needs no lock."""
    if file is None:
        return
    try:
        os.fdatasync(file)
    except OSError as error:
        _log.warning("last report of a program cannot be synced", reason=str(error))
    finally:
        os.close(file)


def _description(session: ProbeSession) -> bytes:
    return orjson.dumps(
        {
            "process": session.process,
            "devices": session.devices,
            "method": session.method,
            "version": session.hello.version,
        }
    )


def _session(description: bytes) -> ProbeSession:
    parts = orjson.loads(description)
    process = Process(**parts["process"])
    devices = tuple(Device(**{**item, "mig_uuids": tuple(item["mig_uuids"])}) for item in parts["devices"])
    hello = Hello(
        process.program,
        process.nonce,
        process.start_ns,
        process.pid,
        rank=process.rank,
        method=str(parts["method"]),
        version=str(parts["version"]),
        source=process.source,
    )
    return ProbeSession(process, hello, devices, ProbeLimits())

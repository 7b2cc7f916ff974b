"""Log on disk of the last reports of programs whose connection has ended, until the saved state includes them.

The state is written once an interval. A program that has ended reports to no later exporter, so its reports since the
last save would be lost if this exporter were killed. One file append for all programs that end at the same time costs
less than writing the whole state.

The records of one process are a JSON description and its totals as frames of the probe's socket, all with its nonce as
key. The state has the number of the first record that it does not include (`final_reports`). A state of an older
exporter has no such number; the records are not used with it.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

import orjson

from kernelcast.exporter.delivery.spool.lane import Lane
from kernelcast.exporter.delivery.spool.record import SpooledMessage
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.session import ProbeSession
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.errors import FrameError
from kernelcast.wire.frames import Bye, Hello, decode, encode
from kernelcast.wire.identity import Device, Process

DIRECTORY: Final = "final"
MAX_BYTES: Final = 64 * 2**20
"""Limit of all records that the state does not include yet; a process of 170 kernels takes about 40 KiB."""
SEGMENT_BYTES: Final = 2**20
_DESCRIPTION: Final = b"{"
"""First byte of a description; a frame begins with `K`."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Departure:
    """A process whose connection ended.

    Attributes:
        session: Its session.
        final: Whether it has ended and cannot reconnect.
    """

    session: ProbeSession
    final: bool


class FinalReports:
    """A log of last reports in a separate directory. Not thread-safe: the probe server calls it under its lock.

    Args:
        directory: The exporter's state directory; its lock keeps other exporters out.
        max_bytes: Size at which writing stops until the state is saved.

    Attributes:
        polled: Number of the first record whose totals were not in the last poll; the state stores it.
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
        """Add the reports that the saved state does not include to the aggregator.

        Args:
            aggregator: The aggregator, restored from the state.
            since: The state's `final_reports`; None if it has none, and the records are dropped.

        Returns:
            The number of restored processes.
        """
        sessions: dict[str, ProbeSession] = {}
        damaged = self._lane.cut > 0
        while (found := self._lane.read()) is not None:
            number, record = found
            # After damage numbers may be lower than before. Totals are cumulative, so reading one twice adds nothing.
            if since is not None and (damaged or number >= since):
                self._restore_record(sessions, record)
        for session in sessions.values():
            for report in session.reports():
                aggregator.recall(report)
        # If the log was lost, new numbers must not be below the state's.
        self._lane.start_at(since or 0)
        self.polled = self._lane.next
        return len(sessions)

    def append(self, departures: Iterable[Departure]) -> int | None:
        """Write the totals of processes that the state does not include; pass the result to `sync`.

        Returns:
            A file descriptor to sync and close; None if there is nothing to sync.
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
        """Note a poll: it includes everything that processes have reported so far."""
        self.polled = self._lane.next

    def release(self) -> None:
        """Delete the records before the last poll: the state on disk includes its totals."""
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
            self._lane.append(SpooledMessage(0, key, value))

    def _restore_record(self, sessions: dict[str, ProbeSession], record: SpooledMessage) -> None:
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
    """Sync the records that `append` wrote, and close the descriptor; needs no lock."""
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

"""The aggregator's state on disk, saved before its totals are published, so that no series falls after a crash.

The file is a header line (format, version, SHA-256 and length of the rest) and a JSON document. It is replaced
atomically: a new file is written, synced and renamed, and the directory is synced.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import orjson

from kernelcast.exporter.hints.outcome_log import OutcomeLog
from kernelcast.exporter.hints.receivers import HintReceivers
from kernelcast.exporter.private_files import make_directory, open_private, write_private
from kernelcast.exporter.programs.last.final_reports import FinalReports
from kernelcast.exporter.totals import snapshot
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.errors import ConfigurationError

FORMAT: Final = b"kernelcast-exporter-state"
VERSION: Final = b"3"
FILE_NAME: Final = "exporter.state"
_FINAL_REPORTS: Final = "final_reports"
"""Key of the first record of `FinalReports` that the document does not include."""
_SEPARATORS: Final = (",", ":")

_HINT_RECEIVERS: Final = "hint_receivers"
"""Key of the receivers of hints."""

Listener = Callable[[], None]

_log = get_logger(__name__)


class StateFile:
    """Keeps one exporter's state in a separate directory. Only the daemon's thread uses it.

    Args:
        directory: The exporter's own directory; created if needed.

    Attributes:
        final_reports: Last reports of programs, which the state may not include yet.
        outcome_log: Outcomes of programs that have ended, until Kafka has them.
        hint_receivers: The users whose processes got each hint; stored in the state.
        after_save: Called after the state on disk includes the reports of the last poll.
        saves: Number of written snapshots.
        errors: Number of snapshots that could not be written.
        refused: Number of files that are corrupt or foreign, or are so in part; they are renamed or copied.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self.final_reports = FinalReports(directory)
        self.outcome_log = OutcomeLog(directory)
        self.hint_receivers = HintReceivers()
        self.after_save: Listener = lambda: None
        self._lock: int | None = None
        self._written = b""
        self.saves = 0
        self.errors = 0
        self.refused = 0

    def open(self) -> "StateFile":
        """Create the directory, and lock it until `close`.

        Raises:
            ConfigurationError: It cannot be created or written, or another exporter uses it.
        """
        directory = self.path.parent
        try:
            make_directory(directory)
            self._lock = open_private(directory / "lock", os.O_RDWR | os.O_CREAT)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.final_reports.open()
            self.outcome_log.open()
        except BlockingIOError:
            self.close()
            raise ConfigurationError(
                f"exporter.state_directory {directory} is used by another exporter; give each a directory of its own "
                "with --state.directory"
            ) from None
        except OSError as error:
            self.close()
            raise ConfigurationError(
                f"exporter.state_directory {directory} cannot be used: {error.strerror}; name one that can be written "
                "with --state.directory"
            ) from None
        return self

    def close(self) -> None:
        """Unlock the directory; safe to call twice."""
        self.final_reports.close()
        self.outcome_log.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def load(self, aggregator: Aggregator) -> bool:
        """Restore the saved state to a new aggregator; False if there is none that can be used."""
        document = self._load(aggregator)
        restored = self.final_reports.restore(aggregator, document[_FINAL_REPORTS] if document is not None else None)
        if restored:
            _log.info("last reports restored", processes=restored)
        return document is not None

    def _load(self, aggregator: Aggregator) -> snapshot.Document | None:
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._refuse(str(error))
            return None
        try:
            document = _parse(content)
            document[_FINAL_REPORTS] = int(document[_FINAL_REPORTS])
            self.hint_receivers.restore(document[_HINT_RECEIVERS])
            unreadable = snapshot.restore(aggregator, document)
        except snapshot.UNREADABLE as error:
            self._refuse(f"{type(error).__name__}: {error}")
            return None
        if unreadable:
            self._keep_copy(content, unreadable)
        return document

    def save(self, aggregator: Aggregator, *, final: bool = False) -> None:
        """Write the aggregator's state; a failure is counted and logged, and the old file is removed.

        A snapshot that is older than published points would let series fall after a crash. Without one the exporter
        starts at zero with a later start time, which every reader can handle. A GPU's energy grows all the time, so
        storing it would cause a write at every interval of an idle node. It is stored at the end only, and restarts at
        zero after a crash.

        Args:
            aggregator: The aggregator.
            final: Whether this is the last save, after which nothing is published.
        """
        further_keys = {
            _FINAL_REPORTS: self.final_reports.polled,
            _HINT_RECEIVERS: self.hint_receivers.document(),
        }
        body = _serialised(snapshot.take(aggregator, energy=final) | further_keys)
        if body == self._written:
            self.after_save()
            return
        try:
            self._replace(_header(body) + body)
        except OSError as error:
            self.errors += 1
            self._written = b""
            _log.error(
                "state could not be saved",
                path=str(self.path),
                error=str(error),
                lost="all totals: they begin again at 0, should the exporter end before the next save",
                remedy="free space, or name another directory with --state.directory",
            )
            self._discard()
            return
        self._written = body
        self.saves += 1
        self.after_save()

    def _replace(self, content: bytes) -> None:
        temporary = self.path.with_suffix(".tmp")
        write_private(temporary, content, sync=True)
        temporary.replace(self.path)
        directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _discard(self) -> None:
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            _log.warning("outdated state could not be removed", path=str(self.path), error=str(error))

    def _keep_copy(self, content: bytes, unreadable: list[str]) -> None:
        """Keep a copy of a file of which some programs cannot be read."""
        self.refused += 1
        path, programs = self._refused_path, len(unreadable)
        _log.warning("programs of the state cannot be read", kept_as=str(path), programs=programs, reason=unreadable[0])
        try:
            write_private(path, content)
        except OSError as error:
            _log.warning("the state cannot be copied", path=str(path), error=str(error))

    @property
    def _refused_path(self) -> Path:
        return self.path.with_suffix(".refused")

    def _refuse(self, reason: str) -> None:
        self.refused += 1
        refused_path = self._refused_path
        _log.warning(
            "state cannot be used; starting afresh", path=str(self.path), kept_as=str(refused_path), reason=reason
        )
        try:
            self.path.replace(refused_path)
        except OSError as error:
            _log.warning("refused state could not be renamed", path=str(self.path), error=str(error))


def _serialised(document: snapshot.Document) -> bytes:
    """Format the document as JSON; totals beyond 64 bits, which only faulty programs report, need the slower writer."""
    try:
        return orjson.dumps(document)
    except orjson.JSONEncodeError:
        return json.dumps(document, separators=_SEPARATORS, ensure_ascii=False).encode()


def _header(body: bytes) -> bytes:
    digest = hashlib.sha256(body).hexdigest().encode()
    return b" ".join((FORMAT, VERSION, digest, str(len(body)).encode())) + b"\n"


def _parse(content: bytes) -> snapshot.Document:
    head, _, body = content.partition(b"\n")
    format_, version, *_ = *head.split(b" "), b"", b""
    if format_ == FORMAT and version != VERSION:
        raise ValueError(f"it has version {version.decode(errors='replace')}; this exporter reads {VERSION.decode()}")
    if head + b"\n" != _header(body):
        raise ValueError(f"header {head[:80]!r} does not fit its {len(body)} bytes")
    document = json.loads(body)
    if not isinstance(document, dict):
        raise TypeError(f"the document is a {type(document).__name__}, not an object")
    return document

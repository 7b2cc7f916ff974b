"""Outcomes that a process could not deliver, in a file of the node, for the next run of the program to send.

No method raises; a file that cannot be written loses them.
"""

import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kernelcast.probe.outcomes import MAX_KEPT
from kernelcast.tuning.journal import lines

VERSION: Final = 1
MAX_LINES: Final = 2 * MAX_KEPT
"""Newest lines that stay if the file is replaced: no exporter may ever take them."""
SUFFIX: Final = ".outcomes"
LIFE_NS: Final = 7 * 24 * 3600 * 1_000_000_000
"""An older outcome says little about a program; as long as Kafka keeps outcomes by default."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Parts of a process that its outcomes depend on; the exporter adds those of the process that sends them."""

    device_model: str
    code_version: str


class LeftOutcomes:
    """The file of one program and rank, for processes of the same node, device model and code version.

    The directory may be shared between nodes.

    Args:
        journal: Path of the program's journal.
        rank: Rank of the process.
        clock: Unix nanoseconds.

    Attributes:
        failures: Reads and writes that failed.
    """

    def __init__(self, journal: Path, rank: str, clock: Callable[[], int]) -> None:
        readable = re.sub(r"[^A-Za-z0-9_-]", "_", rank)[:64]
        self.path = journal.with_suffix(f".{readable}{SUFFIX}" if readable else SUFFIX)
        self._clock = clock
        self._host = socket.gethostname()
        self._restored: set[str] = set()
        self.failures = 0

    def restore(self, origin: Origin) -> list[dict[str, Any]]:
        """Return the events that earlier runs have left and that were not returned before, oldest first."""
        here = {"host": self._host, **asdict(origin)}
        found = {line["event"]["id"]: line["event"] for line in self._lines() if line.items() >= here.items()}
        new = [event_id for event_id in found if event_id not in self._restored][-MAX_KEPT:]
        self._restored.update(new)
        return [found[event_id] for event_id in new]

    def update(self, left: Iterable[dict[str, Any]], origin: Origin) -> None:
        """Add the events that this process leaves, and remove the restored ones that it has delivered."""
        events = {event["id"]: event for event in left}
        delivered = self._restored - events.keys()
        try:
            new = [self._line(event, origin) for event_id, event in events.items() if event_id not in self._restored]
            if new:
                lines.append(self.path, *new)
            if delivered or (new and self.path.stat().st_size > lines.LARGEST_BYTES):
                lines.replace(self.path, lambda: self._kept(delivered))
        except (OSError, ValueError):
            self.failures += 1

    def _kept(self, delivered: set[str]) -> list[dict[str, Any]]:
        return [line for line in self._lines() if line["event"]["id"] not in delivered][-MAX_LINES:]

    def _line(self, event: dict[str, Any], origin: Origin) -> dict[str, Any]:
        here = {"version": VERSION, "host": self._host, "time_ns": self._clock()}
        return {**here, **asdict(origin), "event": event}

    def _lines(self) -> list[dict[str, Any]]:
        try:
            found = list(lines.read(self.path))
        except FileNotFoundError:
            return []
        except OSError:
            self.failures += 1
            return []
        return [line for line in found if self._is_usable(line)]

    def _is_usable(self, line: dict[str, Any]) -> bool:
        event, time_ns = line.get("event"), line.get("time_ns")
        return (
            line.get("version") == VERSION
            and isinstance(time_ns, int)
            and self._clock() - time_ns < LIFE_NS
            and isinstance(event, dict)
            and isinstance(event.get("id"), str)
        )

"""The record of a run with real processes: a line for each schedule, to which a run that was stopped adds the rest."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from tests.faults.model.operations import Schedule

HELD: Final = "held"
HEAD: Final = """\
# Random schedules with three Kafka nodes and real processes: python -m tests.faults.run --real N --record FILE
# Columns, with tabs between them: seed/number, revision, date, seconds, verdict, mode, operations (which, amount).
"""


@dataclass(frozen=True)
class Result:
    """Result of one schedule.

    Attributes:
        name: Its seed and number.
        kind: Which invariant does not hold; empty where all hold.
        detail: How that was seen.
        seconds: How long it took.
    """

    name: str
    schedule: Schedule
    kind: str
    detail: str
    seconds: float


class Record:
    """A file of results; None keeps nothing. Several threads may add to it."""

    def __init__(self, path: Path | None, revision: str) -> None:
        self._path, self._revision = path, revision
        self._lock = threading.Lock()
        if path is not None and not path.exists():
            path.write_text(HEAD)

    def done(self) -> frozenset[str]:
        """Names of the schedules that it has."""
        if self._path is None:
            return frozenset()
        lines = self._path.read_text().splitlines()
        return frozenset(line.partition("\t")[0] for line in lines if line and not line.startswith("#"))

    def add(self, result: Result) -> None:
        """Add a line."""
        setting = result.schedule.setting
        verdict = " ".join(f"{result.kind}: {result.detail}".split())[:300] if result.kind else HELD
        columns = (
            result.name,
            self._revision,
            f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z",
            f"{result.seconds:.0f}",
            verdict,
            setting.mode,
            plain(result.schedule),
        )
        self._append("\t".join(columns))

    def note(self, text: str) -> None:
        """Add a comment."""
        self._append(f"# {text}")

    def _append(self, line: str) -> None:
        if self._path is not None:
            with self._lock, self._path.open("a") as file:
                file.write(f"{line}\n")


def plain(schedule: Schedule) -> str:
    """Operations on one line, as `kill(1,3) wait(8)`."""
    return " ".join(_operation(one) for one in schedule.operations)


def _operation(operation: Sequence[object]) -> str:
    name, which, amount = operation
    return f"wait({amount})" if name == "wait" else f"{name}({which},{amount})"

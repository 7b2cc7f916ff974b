"""Findings of a step, written as they come: a step that is killed keeps those before."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO


class Skipped(Exception):  # noqa: N818  no error: the step ends with a reason
    """The step cannot run here; the message says why."""


class StepReport:
    """Receives the findings of one step.

    Args:
        file: Receives one JSON object a line.
        folder: For files that a step keeps, such as raw records.
        rehearsal: Whether there is no GPU, and doubles take its place.
    """

    def __init__(self, file: TextIO, folder: Path, *, rehearsal: bool = False) -> None:
        self._file = file
        self.folder = folder
        self.rehearsal = rehearsal

    def figures(self, **figures: Any) -> None:
        """Keep figures that are compared with nothing."""
        self._write({"figures": figures})

    def check(self, name: str, holds: bool, **figures: Any) -> None:  # noqa: FBT001  the result of a comparison
        """Keep the result of a comparison and the figures that were compared; one that fails, fails the step."""
        self._write({"check": name, "holds": bool(holds), "figures": figures})

    def measured(self, feature: str, figure: str) -> None:
        """Keep a row of the table in `docs/verified.md`: a fact that this step has shown, with its figure."""
        self._write({"measured": {"feature": feature, "figure": figure}})

    def skipped(self, reason: str) -> None:
        """Note that the step did not run."""
        self._write({"skipped": reason})

    def ended(self) -> None:
        """Note that the step came to its end."""
        self._write({"ended": True})

    def _write(self, finding: dict[str, Any]) -> None:
        self._file.write(json.dumps(finding, default=str) + "\n")
        self._file.flush()


def merged(lines: Iterable[str]) -> dict[str, Any]:
    """Merge a step's findings into one: `ok`, `failed`, `skipped`, `measured` and the figures by name.

    `ok` is None where nothing was compared. A line that the step was killed in is left out.
    """
    figures: dict[str, Any] = {}
    checks: dict[str, bool] = {}
    rows: list[dict[str, str]] = []
    result: dict[str, Any] = {}
    for line in lines:
        try:
            finding = json.loads(line)
        except ValueError:
            continue
        figures |= finding.get("figures", {})
        if "check" in finding:
            checks[finding["check"]] = finding["holds"] and checks.get(finding["check"], True)
        if "measured" in finding:
            rows.append(finding["measured"])
        result |= {key: finding[key] for key in ("skipped", "ended") if key in finding}
    failed = [name for name, holds in checks.items() if not holds]
    result["ok"] = not failed if checks else None
    if failed:
        result["failed"] = failed
    return {**result, **({"measured": rows} if rows else {}), "figures": figures}

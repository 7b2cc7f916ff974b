"""Runs one step in a process of its own: `python -m tests.gpu.day.child JSON`. `driver.py` starts it."""

import importlib
import json
import sys
from pathlib import Path

from tests.gpu.day.needs import missing
from tests.gpu.day.report import Skipped, StepReport


def main(argument: str) -> None:
    """Run the step; an exception ends the process with its traceback, of which the driver keeps the last line."""
    work = json.loads(argument)
    with Path(work["findings"]).open("a") as file:
        report = StepReport(file, Path(work["folder"]), rehearsal=work["rehearsal"])
        reason = "" if work["rehearsal"] and work["has_double"] else missing(work["needs"])
        module, _, name = work["function"].partition(":")
        try:
            if reason:
                raise Skipped(reason)  # noqa: TRY301  a step may skip in its middle, too
            getattr(importlib.import_module(module), name)(report)
        except Skipped as skipped:
            report.skipped(str(skipped))
        report.ended()


if __name__ == "__main__":
    main(sys.argv[1])

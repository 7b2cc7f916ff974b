"""Steps of a GPU day that end well, crash, hang or are killed."""

import ctypes
import os
import signal
import subprocess
import sys
import time

from tests.gpu.day.report import Skipped, StepReport


def holds(report: StepReport) -> None:
    report.check("sum", 1 + 1 == 2, launches=2)
    report.measured("Sums", "2 of 2")


def does_not_hold(report: StepReport) -> None:
    report.check("sum", True, before=1)
    report.check("product", False, after=2)


def raises(report: StepReport) -> None:
    report.figures(before=1)
    raise RuntimeError("the program answered 15")


def crashes(report: StepReport) -> None:
    report.figures(before=1)
    ctypes.string_at(0)


def leaves(report: StepReport) -> None:
    report.figures(before=1)
    os._exit(0)


def hangs(report: StepReport) -> None:
    """Ignores SIGTERM, and has a child that does."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    report.figures(child=child.pid)
    time.sleep(600)


def leaves_a_child(report: StepReport) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    report.figures(child=child.pid)


def sleeps(report: StepReport) -> None:
    report.figures(before=1)
    time.sleep(600)


def skips(report: StepReport) -> None:
    raise Skipped("no such thing here")

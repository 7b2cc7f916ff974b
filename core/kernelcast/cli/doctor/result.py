"""Results of the doctor's checks, each with a remedy."""

from dataclasses import dataclass
from enum import Enum


class CheckLevel(Enum):
    """Severity of a result; `FAIL` gives the command exit code 1 or 2."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check.

    Attributes:
        check: Name of the check.
        level: Whether kernelcast works with it: fully, in part, or not.
        found: What it found.
        remedy: The remedy; empty if none is needed.
        wrong_settings: Whether a failure is due to the given settings; the command then exits with 2, else with 1.
    """

    check: str
    level: CheckLevel
    found: str
    remedy: str = ""
    wrong_settings: bool = False


def ok(check: str, found: str) -> CheckResult:
    """Return a result without a remedy."""
    return CheckResult(check, CheckLevel.OK, found)


def warn(check: str, found: str, remedy: str) -> CheckResult:
    """Return a result about a part that will be missing; the rest works."""
    return CheckResult(check, CheckLevel.WARN, found, remedy)


def fail(check: str, found: str, remedy: str) -> CheckResult:
    """Return a result about a part that will not work."""
    return CheckResult(check, CheckLevel.FAIL, found, remedy)

"""Findings of the doctor's checks, each with a remedy."""

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """Severity of a finding."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Attributes:
        check: Name of the check.
        level: Whether kernelcast works with it: fully, in part, or not.
        found: The finding.
        remedy: The remedy; empty if none is needed.
        wrong_settings: Whether the given settings cannot work; the command exits with 2.
    """

    check: str
    level: Severity
    found: str
    remedy: str = ""
    wrong_settings: bool = False


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check, Severity.OK, found)


def warn(check: str, found: str, remedy: str) -> Finding:
    """Something will be missing, the rest works."""
    return Finding(check, Severity.WARN, found, remedy)


def fail(check: str, found: str, remedy: str) -> Finding:
    """It will not work like this."""
    return Finding(check, Severity.FAIL, found, remedy)

"""`--fast` leaves out tests that call compiled functions, start a process, or start a broker, and counts them.

No list of such tests is kept. Under `--fast` three doors are closed: the first call of a compiled function, the start
of a process and the start of the embedded broker skip the test that tries. So a new test is sorted by its actions,
and a fresh clone compiles nothing. Besides, tests that compute for seconds are marked as `slow`, and left out, too.
"""

import subprocess
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.process import BaseProcess
from typing import Any, Final, NoReturn

import pytest

CALLS: Final = "call compiled functions"
STARTS: Final = "start a process"
BROKER: Final = "start a broker"
COMPUTES: Final = "compute for seconds"
REASONS: Final = (CALLS, STARTS, BROKER, COMPUTES)
FIXTURES: Final[Mapping[str, str]] = {"compiled": CALLS, "loaded": CALLS, "kafka": BROKER, "cluster": BROKER}
"""Fixtures whose tests are left out before anything of them runs."""
SMALLEST_SHARE: Final = 2 / 3
"""Of the unit tests, how many must remain; below it the run fails."""
FEWEST: Final = 1_000
"""A run of fewer tests is a part of them, whose share says nothing."""


def doors() -> list[tuple[Any, str, str]]:
    """Class, method and reason: the first calls of a test that need machine code, a process or a broker."""
    from numba.core.dispatcher import Dispatcher

    from kernelcast.runtime.kafka.embedded import EmbeddedBroker

    return [
        (Dispatcher, "_compile_for_args", CALLS),
        (subprocess.Popen, "__init__", STARTS),
        (BaseProcess, "start", STARTS),
        (EmbeddedBroker, "__enter__", BROKER),
    ]


def close_doors(replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """Skip each test of this process that goes through one of the doors.

    Args:
        replace: Replaces a method of a class.
    """
    for owner, name, reason in doors():
        replace(owner, name, _skipping(reason))


def _skipping(reason: str) -> Callable[..., NoReturn]:
    def skip(*_: object, **__: object) -> NoReturn:
        pytest.skip(reason)

    return skip


def mark(items: Iterable[pytest.Item]) -> None:
    """Skip the tests that are marked as slow, or name a fixture of compiled code or of a broker."""
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason=COMPUTES))
        for name in FIXTURES.keys() & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.skip(reason=FIXTURES[name]))


def left_out(skipped: Iterable[pytest.TestReport]) -> Counter[str]:
    """Number of skipped tests by reason."""
    reasons = (report.longrepr[2].removeprefix("Skipped: ") for report in skipped if isinstance(report.longrepr, tuple))
    return Counter(reason for reason in reasons if reason in REASONS)


def summary(ran: int, counts: Mapping[str, int]) -> str:
    """One line: how many tests ran, and how many were left out for which reason."""
    whole = ran + sum(counts.values())
    parts = ", ".join(f"{counts[reason]} that {reason}" for reason in REASONS if counts.get(reason))
    return f"fast: {ran} of {whole} tests ran ({ran / max(1, whole):.0%}); left out: {parts or 'none'}"


def enough(ran: int, counts: Mapping[str, int]) -> bool:
    """Whether enough tests ran, where all were asked for."""
    whole = ran + sum(counts.values())
    return whole < FEWEST or ran >= SMALLEST_SHARE * whole

"""The option `--fast`: the skipped tests and the printed summary."""

import os
import subprocess
import sys
from collections.abc import Callable
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

import numba
import pytest
from tests.support import fast

from kernelcast.runtime.kafka.embedded import EmbeddedBroker


def compiled_function() -> None:
    one: Any = numba.njit(lambda: 1)
    one()


def process() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def worker() -> None:
    get_context("spawn").Process(target=os.getpid).start()


def broker() -> None:
    with EmbeddedBroker():
        pass


@pytest.mark.parametrize(
    ("use", "reason"),
    [(compiled_function, fast.CALLS), (process, fast.STARTS), (worker, fast.STARTS), (broker, fast.BROKER)],
)
def test_a_test_that_goes_through_a_door_is_left_out(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[], None], reason: str
) -> None:
    fast.close_doors(monkeypatch.setattr)
    with pytest.raises(pytest.skip.Exception, match=reason):
        use()


def test_tests_left_out_are_counted_by_reason_and_others_that_skip_are_not() -> None:
    def skipped(why: str) -> Any:
        return SimpleNamespace(longrepr=("file", 1, f"Skipped: {why}"))

    counts = fast.left_out([skipped(fast.CALLS), skipped(fast.CALLS), skipped(fast.BROKER), skipped("no GPU")])
    assert counts == {fast.CALLS: 2, fast.BROKER: 1}
    line = fast.summary(9, counts)
    assert line.startswith("fast: 9 of 12 tests ran (75%)")
    assert "2 that call compiled functions, 1 that start a broker" in line


@pytest.mark.parametrize(("ran", "is_enough"), [(2_000, True), (1_999, False)])
def test_two_thirds_are_enough(ran: int, is_enough: bool) -> None:  # noqa: FBT001
    assert fast.enough(ran, {fast.CALLS: 3_000 - ran}) is is_enough


def test_a_single_file_is_judged_by_no_share() -> None:
    assert fast.enough(0, {fast.CALLS: 14})

"""The record of real schedules, and what draws and times them; nothing is started."""

import time
from pathlib import Path

import pytest
from tests.faults.real import waiting
from tests.faults.real.operations import MORE_WEIGHTS, WEIGHTS, RealOperations, drawn
from tests.faults.record import HELD, Record, Result


def test_a_run_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    record = Record(tmp_path / "record.txt", "abc")
    record.add(Result("9/0", drawn("9/0"), "", "", 40.2))
    record.note("stopped")
    again = Record(tmp_path / "record.txt", "abd")
    assert again.done() == {"9/0"}
    again.add(Result("9/1", drawn("9/1"), "a counter falls", "orders_total\n5 -> 3", 61.0))
    assert again.done() == {"9/0", "9/1"}
    verdicts = [line.split("\t")[4] for line in (tmp_path / "record.txt").read_text().splitlines() if line[0] != "#"]
    assert verdicts == [HELD, "a counter falls: orders_total 5 -> 3"]


def test_a_real_schedule_is_the_same_for_the_same_seed() -> None:
    assert drawn("7/7") == drawn("7/7") != drawn("7/8")


def test_every_operation_that_is_drawn_is_one() -> None:
    assert not [name for name in (*WEIGHTS, *MORE_WEIGHTS) if not hasattr(RealOperations, name)]


def test_time_spent_waiting_for_a_processor_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, waited = [100.0], [7.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(waiting, "waits", lambda _pid: {Path("main"): waited[0]})
    patience = waiting.Patience(10.0, tuple)
    clock[0], waited[0] = 108.0, 12.0
    assert not patience.ended
    clock[0] = 114.0
    assert not patience.ended
    clock[0] = 116.0
    assert patience.ended


def test_a_time_limit_ends_however_busy_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(waiting, "waits", lambda _pid: {Path("main"): clock[0]})
    patience = waiting.Patience(10.0, tuple)
    clock[0] = 49.0
    assert not patience.ended
    clock[0] = 51.0
    assert patience.ended

"""The journal: kept configurations, and those that ended a process, across restarts."""

import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import Journal, JournalMachine, JournalProcess, Measurement, lines
from kernelcast.tuning.journal.journal import COMPACT_BYTES


def journal(directory: Path, pid: int = 1, alive: tuple[int, ...] = ()) -> Journal:
    process = JournalProcess("node", pid, f"start of {pid}")
    return Journal(directory, "training", process, clock=lambda: 1000.0, running=lambda one: one.pid in alive)


def test_what_was_kept_is_known_at_the_next_start_for_the_same_code(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.begin("block", "128", "v1")
    first.end("block", "128", Decision.KEPT, "v1", ratio=0.8)
    second = journal(tmp_path, pid=2)
    assert second.kept("block", "v1") == "128"
    assert second.kept("block", "v2") is None
    assert second.kept("tile", "v1") is None
    second.forget("block", "v1")
    assert journal(tmp_path, pid=3).kept("block", "v1") is None


def test_a_candidate_that_ended_its_process_is_never_tried_again(tmp_path: Path) -> None:
    journal(tmp_path, pid=1).begin("block", "1024")
    for restart in range(2, 52):
        assert "ended when it was tried" in journal(tmp_path, pid=restart).banned("block", "1024")


def test_a_candidate_is_not_blamed_where_its_process_runs_or_it_had_survived(tmp_path: Path) -> None:
    first = journal(tmp_path, pid=1)
    first.begin("block", "128")
    assert not first.banned("block", "128")
    assert not journal(tmp_path, pid=2, alive=(1,)).banned("block", "128")
    first.survived("block", "128")
    assert not journal(tmp_path, pid=3).banned("block", "128")
    first.begin("block", "256")
    first.end("block", "256", None)
    assert not journal(tmp_path, pid=3).banned("block", "256")


def test_a_failed_candidate_is_banned_with_its_reason_and_kept_no_longer(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.end("block", "1024", Decision.KEPT)
    first.end("block", "1024", Decision.FAILED, reason="out of resources")
    second = journal(tmp_path, pid=2)
    assert second.banned("block", "1024") == "it failed before: out of resources"
    assert second.kept("block") is None


def test_an_open_search_is_known_to_the_next_process_of_the_same_code_until_it_ends(tmp_path: Path) -> None:
    first = journal(tmp_path)
    measured = (Measurement("[0]", (2.0, 2.1), 2.0), Measurement("[2]", (1.4,), 2.0))
    for measurement in measured:
        first.measured("feed", "v1", 7, measurement)
    first.end("block", "x" * COMPACT_BYTES, Decision.ROLLED_BACK)
    for restart in (2, 3):  # the first one compacts the file
        second = journal(tmp_path, pid=restart)
        assert second.measurements("feed", "v1", 7) == measured
        assert not second.measurements("feed", "v2", 7)
        assert not second.measurements("feed", "v1", 8)
    second.searched("feed", "v1", 7)
    assert not journal(tmp_path, pid=4).measurements("feed", "v1", 7)


@pytest.mark.parametrize("times", [None, 3.0, [], ["2.0"], [0.0], [-1.0], [1e300]])
def test_a_line_without_usable_times_is_no_measurement(tmp_path: Path, times: Any) -> None:
    line = {"version": 1, "state": "measured", "space": "feed", "config": "[2]", "code_version": "", "device": ""}
    lines.append(journal(tmp_path).path, {**line, "search": 7, "times": times, "launch_seconds": 2.0})
    assert not journal(tmp_path, pid=2).measurements("feed", "", 7)


def test_damaged_lines_and_an_unwritable_directory_do_not_raise(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.end("block", "128", Decision.KEPT)
    with first.path.open("ab") as file:
        file.write(b'{"version":1,"state":"ke\n[1]\n\xff\n{"version":2}\n')
    assert journal(tmp_path).kept("block") == "128"
    blocked = tmp_path / "file"
    blocked.write_text("")
    nowhere = journal(blocked)
    nowhere.begin("block", "128")
    assert nowhere.failures


def test_a_long_journal_is_shortened_and_says_the_same(tmp_path: Path) -> None:
    first = journal(tmp_path)
    first.end("block", "1024", Decision.FAILED, reason="out of resources")
    first.end("block", "128", Decision.KEPT)
    first.end("batch", "64", Decision.KEPT, approved_by="ana")
    first.end("batch", "64", Decision.KEPT, reason="checked again")
    while first.path.stat().st_size <= COMPACT_BYTES:
        first.end("block", "256", Decision.ROLLED_BACK, reason="x" * 200)
    again = journal(tmp_path, pid=2)
    assert again.path.stat().st_size < 4096
    for one in (again, journal(tmp_path, pid=3)):
        assert one.kept("block") == "128"
        approved = one.last_kept("batch")
        assert approved is not None
        assert approved.approved_by == "ana"
        assert one.banned("block", "1024") == "it failed before: out of resources"
        assert not one.banned("block", "256")


def on(directory: Path, device: str, driver: str = "550.54") -> Journal:
    process = JournalProcess("node", 1, "start of 1")
    return Journal(directory, "training", process, clock=lambda: 1000.0, machine=JournalMachine(lambda: device, driver))


def test_a_journal_that_many_ranks_have_written_forgets_neither_a_ban_nor_a_kept_value(tmp_path: Path) -> None:
    """Eight ranks with some shapes each write 3 MB in one run; nothing of it was read but the last megabyte."""
    first = journal(tmp_path)
    first.end("block", "1024", Decision.FAILED, reason="CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
    first.end("block", "128", Decision.KEPT)
    survived = {"version": 1, "state": "survived", "space": "tile", "reason": "x" * 1000}
    lines.append(first.path, *({**survived, "config": str(number % 100)} for number in range(3000)))
    for pid in (2, 3):
        later = journal(tmp_path, pid)
        assert later.kept("block") == "128"
        assert "OUT_OF_RESOURCES" in later.banned("block", "1024")
    assert first.path.stat().st_size < COMPACT_BYTES


def test_each_device_model_has_its_own_kept_configuration(tmp_path: Path) -> None:
    """A home directory is shared between nodes with different GPUs."""
    on(tmp_path, "NVIDIA A100").end("block", "128", Decision.KEPT, "v1")
    assert on(tmp_path, "NVIDIA H100").kept("block", "v1") is None
    on(tmp_path, "NVIDIA H100").end("block", "256", Decision.KEPT, "v1")
    assert on(tmp_path, "NVIDIA A100").kept("block", "v1") == "128"
    assert on(tmp_path, "NVIDIA H100").kept("block", "v1") == "256"
    on(tmp_path, "NVIDIA H100").forget("block", "v1")
    assert on(tmp_path, "NVIDIA H100").kept("block", "v1") is None
    assert on(tmp_path, "NVIDIA A100").kept("block", "v1") == "128"


def test_a_configuration_that_failed_on_one_device_may_run_on_another(tmp_path: Path) -> None:
    on(tmp_path, "NVIDIA A100").end("block", "1024", Decision.FAILED, reason="out of resources")
    assert not on(tmp_path, "NVIDIA H100").banned("block", "1024")
    assert on(tmp_path, "NVIDIA A100").banned("block", "1024")
    assert on(tmp_path, "").banned("block", "1024"), "an unknown device may be that one"


def test_lines_without_a_device_count_for_each_device(tmp_path: Path) -> None:
    unknown = journal(tmp_path)
    unknown.end("block", "128", Decision.KEPT)
    unknown.end("block", "1024", Decision.FAILED, reason="out of resources")
    assert "device" not in unknown.path.read_text()
    assert "driver" not in unknown.path.read_text()
    later = on(tmp_path, "NVIDIA A100")
    assert later.kept("block") == "128"
    assert later.banned("block", "1024")
    later.forget("block")
    assert on(tmp_path, "NVIDIA A100").kept("block") is None


def test_time_and_driver_of_a_kept_configuration_survive_a_compaction(tmp_path: Path) -> None:
    first = on(tmp_path, "NVIDIA A100")
    first.end("block", "128", Decision.KEPT)
    for number in range(COMPACT_BYTES // 100):
        first.begin("block", f"{number % 7}")
    on(tmp_path, "NVIDIA A100")
    assert first.path.stat().st_size < COMPACT_BYTES
    found = on(tmp_path, "NVIDIA A100", "560.28").last_kept("block")
    assert found is not None
    assert (found.config, found.time, found.driver) == ("128", 1000.0, "550.54")
    assert on(tmp_path, "NVIDIA H100").kept("block") is None


def test_a_rank_that_a_candidate_has_ended_bans_it_whatever_the_other_ranks_of_the_node_note(tmp_path: Path) -> None:
    """Ranks of one node share the file; the others survive the candidate, or are interrupted in it."""
    first, second, third = (journal(tmp_path, pid=pid) for pid in (1, 2, 3))
    for rank in (first, second, third):
        rank.begin("batch", "128")
    first.survived("batch", "128")
    third.end("batch", "128", Decision.INCONCLUSIVE, reason="a rank is gone")
    assert "ended when it was tried" in journal(tmp_path, pid=4, alive=(1, 3)).banned("batch", "128")
    assert not journal(tmp_path, pid=4, alive=(1, 2, 3)).banned("batch", "128"), "the second rank runs on"
    for number in range(COMPACT_BYTES // 100):
        first.begin("tile", f"{number % 7}")
    journal(tmp_path, pid=5)
    assert first.path.stat().st_size < COMPACT_BYTES
    assert "ended when it was tried" in journal(tmp_path, pid=6).banned("batch", "128")
    second.survived("batch", "128")
    assert not journal(tmp_path, pid=7).banned("batch", "128")


def test_what_was_kept_last_counts_although_no_device_was_known_then(tmp_path: Path) -> None:
    on(tmp_path, "NVIDIA A100").end("block", "128", Decision.KEPT)
    without = Journal(tmp_path, "training", JournalProcess("node", 1, "start of 1"), clock=lambda: 2000.0)
    without.end("block", "64", Decision.KEPT)
    assert on(tmp_path, "NVIDIA A100").kept("block") == "64"


def test_a_line_with_an_unusable_time_hides_no_other_line(tmp_path: Path) -> None:
    first = journal(tmp_path)
    lines.append(first.path, *({"version": 1, "space": "block", "time": time} for time in ("soon", [1], 10**400)))
    first.end("block", "128", Decision.KEPT)
    second = journal(tmp_path, pid=2)
    assert second.kept("block") == "128"
    assert not second.failures


def test_a_program_whose_name_is_cut_within_a_character_has_a_journal(tmp_path: Path) -> None:
    """Linux cuts the name of a process after 15 bytes; a script with a Cyrillic or Chinese name ends in half of one."""
    name = Path("/proc/self/comm")
    before = name.read_bytes()
    name.write_bytes("обучение_модели.py".encode()[:15])
    try:
        Journal(tmp_path, "training").begin("block", "128")
        assert not Journal(tmp_path, "training", JournalProcess("node", 1, "1")).banned("block", "128"), "it runs"
    finally:
        name.write_bytes(before)


def test_a_line_about_a_process_without_a_number_hides_no_other_line(tmp_path: Path) -> None:
    first = journal(tmp_path)
    by = {"host": "node", "pid": float("inf"), "start": "1"}
    first.path.write_text(
        json.dumps({"version": 1, "state": "begin", "space": "block", "config": "64", "by": by}) + "\n"
    )
    assert "ended when it was tried" in journal(tmp_path, pid=2).banned("block", "64")


def test_a_line_that_is_written_while_the_file_is_replaced_is_in_the_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    lines.append(path, {"line": 1})
    lock = fcntl.flock

    def replace_first(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        lines.replace(path, lambda: [{"line": 1}])  # another process: this one has opened the file and not locked it
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", replace_first)
    lines.append(path, {"line": 2})
    assert list(lines.read(path)) == [{"line": 1}, {"line": 2}]


def test_a_line_that_another_process_writes_during_the_start_survives_the_compaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, other = journal(tmp_path), journal(tmp_path, pid=3)
    while not first.path.exists() or first.path.stat().st_size <= COMPACT_BYTES:
        first.end("block", "64", Decision.ROLLED_BACK, reason="x" * 200)
    read = lines.read

    def read_and_begin(path: Path) -> Iterator[dict[str, Any]]:
        yield from read(path)
        monkeypatch.setattr(lines, "read", read)
        other.begin("block", "1024")  # the program does not wait for the lock

    monkeypatch.setattr(lines, "read", read_and_begin)
    journal(tmp_path, pid=2)
    assert first.path.stat().st_size < COMPACT_BYTES
    assert "ended when it was tried" in journal(tmp_path, pid=4).banned("block", "1024")


def test_a_long_journal_is_read_once_at_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """15 MiB took 2.2 s of the program's start: they were read, and read again to shorten the file."""
    first = journal(tmp_path)
    first.end("block", "128", Decision.KEPT)
    survived = {"version": 1, "state": "survived", "space": "tile", "config": "1", "reason": "x" * 1000}
    lines.append(first.path, *[survived] * 300)
    read, paths = lines.read, []

    def counted(path: Path) -> Iterator[dict[str, Any]]:
        paths.append(path)
        return read(path)

    monkeypatch.setattr(lines, "read", counted)
    with first.path.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # another process appends: the file is read, and not shortened
        assert journal(tmp_path, pid=2).kept("block") == "128"
        assert first.path.stat().st_size > COMPACT_BYTES
    assert journal(tmp_path, pid=3).kept("block") == "128"
    assert first.path.stat().st_size < COMPACT_BYTES
    assert len(paths) == 2


def test_a_candidate_that_begins_on_another_thread_does_not_disturb_a_question(tmp_path: Path) -> None:
    journal(tmp_path, pid=2).begin("block", "1024")

    def is_running(_process: JournalProcess) -> bool:
        asked.begin("block", "1024")  # as another thread of the program would at this moment
        return True

    asked = Journal(tmp_path, "training", JournalProcess("node", 1, "start"), running=is_running)
    assert not asked.banned("block", "1024")

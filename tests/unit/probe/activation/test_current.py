import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelcast import probe
from kernelcast.probe.activation import current
from kernelcast.probe.process.imports import ImportWatch


@pytest.fixture
def running(tmp_path: Path) -> Iterator[probe.Probe]:
    yield probe.start("training", socket_path=str(tmp_path / "none.sock"), source="simulated", code_version="v1")
    probe.stop()


def test_a_program_runs_the_same_where_no_probe_was_started() -> None:
    block = probe.tunable("block_size", [48, 128], 48)
    probe.observe("k", 5)
    probe.count("k")
    probe.copy("h2d", 1, 1)
    probe.sync("stream", 1)
    probe.step()
    probe.stop()
    assert block.value == 48


def test_the_functions_speak_for_the_probe_that_runs(running: probe.Probe) -> None:
    probe.observe("k", 5, block=(48, 1, 1), device=1)
    probe.count("k", 2, device=1)
    probe.copy("h2d", 100, 7, pinned=True, device=1)
    probe.sync("stream", 9, device=1)
    probe.step()
    (cell,) = running.recorder.cells(1)
    assert (cell.launches, cell.durations.sum_ns, cell.name().block) == (3, 5, "48x1x1")
    counters = running.recorder.counters(1, dropped_frames=0)
    assert counters.memcpy == (("h2d", "true", 100, 1, 7),)
    assert counters.sync == (("stream", 1, 9),)
    assert running.steps == 1
    assert running.settings.code_version == "v1"


def test_starting_twice_gives_the_probe_that_runs(running: probe.Probe) -> None:
    assert probe.start("another") is running


def watches() -> list[ImportWatch]:
    return [finder for finder in sys.meta_path if isinstance(finder, ImportWatch)]


def test_nvtx_leaves_no_watch_of_imports_behind_a_stopped_probe(tmp_path: Path) -> None:
    others = [finder for finder in sys.meta_path if not isinstance(finder, ImportWatch)]
    of_other_tests = [watch for watch in watches() if not watch.has_ended]
    for _ in range(2):
        probe.start("training", socket_path=str(tmp_path / "none.sock"), source="simulated", nvtx=True)
        assert [watch for watch in watches() if not watch.has_ended] != of_other_tests
        probe.stop()
    assert [finder for finder in sys.meta_path if not isinstance(finder, ImportWatch)] == others
    assert [watch for watch in watches() if not watch.has_ended] == of_other_tests


def test_two_threads_that_start_at_once_get_the_same_probe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The thread that has found a CUDA context starts the probe, while the program calls `start` itself."""
    path = str(tmp_path / "none.sock")
    found: list[probe.Probe] = []
    other = threading.Thread(target=lambda: found.append(probe.start("b", socket_path=path, source="simulated")))

    class Interrupted(probe.Probe):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            if not other.ident:
                other.start()
                other.join(0.2)  # time enough for a start, if nothing prevents it

    monkeypatch.setattr(current, "Probe", Interrupted)
    running = probe.start("a", socket_path=path, source="simulated")
    other.join()
    probe.stop()
    assert found == [running]


def test_a_stopped_probe_makes_room_for_a_new_process_identity(running: probe.Probe) -> None:
    probe.stop()
    second = probe.start("training", socket_path=running.settings.socket_path, source="simulated")
    assert second.nonce != running.nonce


def test_any_text_of_a_program_about_itself_can_be_encoded(tmp_path: Path) -> None:
    running = probe.start(socket_path=tmp_path / "none.sock", code_version="\ud800" * 500, method="m" * 500)  # type: ignore[arg-type]
    settings = running.settings
    probe.stop()
    assert settings.socket_path == str(tmp_path / "none.sock")
    assert settings.code_version == "?" * 128
    assert len(settings.method) == 64


def test_a_process_that_can_have_no_more_threads_runs_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    running = probe.start("training", socket_path=str(tmp_path / "none.sock"), source="simulated")
    running.observe("k", 1)
    probe.step()
    probe.stop()
    assert "can't start new thread; the program runs on" in caplog.text


def test_a_source_the_contract_does_not_know_counts_as_simulated(tmp_path: Path) -> None:
    running = probe.start("training", socket_path=str(tmp_path / "none.sock"), source="guessed")
    assert running.settings.source == "simulated"
    probe.stop()


@pytest.mark.parametrize("given", ["{", "[" * 100_000, '{"block_size": 7}'])
def test_a_program_without_standard_error_keeps_its_value_where_another_cannot_be_used(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python has no `sys.stderr` in a process whose descriptor 2 is closed, as that of a daemon."""
    monkeypatch.setenv("KERNELCAST_SET", given)
    monkeypatch.setattr(sys, "stderr", None)
    assert probe.tunable("block_size", [48, 128], 48).value == 48


def test_a_version_that_is_a_number_is_taken_as_text(tmp_path: Path) -> None:
    version: Any = 7
    running = probe.start("training", socket_path=str(tmp_path / "none.sock"), source="simulated", code_version=version)
    probe.stop()
    assert running.settings.code_version == "7"

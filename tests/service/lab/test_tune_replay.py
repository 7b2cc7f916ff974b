"""`python -m lab.tune_replay` with its oracle: two processes and a Unix socket."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from lab import tune_replay
from lab.replay import tuner_command
from lab.replay.client import OracleError
from lab.replay.lines import JsonLines
from lab.replay.run import SeedResult
from tests.support.recordings import grid
from tests.support.waiting import LONGEST_SECONDS

from kernelcast.tuning.formats import kernel_tuner
from kernelcast.wire.errors import KernelcastError

TUNER = [sys.executable, "-m", "lab.tune_replay"]
ORACLE = [sys.executable, "-m", "lab.tune_oracle"]


@pytest.fixture(scope="module")
def cachefile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "grid.json"
    path.write_text(json.dumps(kernel_tuner.document(grid())))
    return path


@pytest.fixture(scope="module")
def oracle(cachefile: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("oracle")
    command = [*ORACLE, str(cachefile), "--socket", str(folder / "s"), "--log", str(folder / "log")]
    with subprocess.Popen([*command, "--budget", "40"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield folder / "s"
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONGEST_SECONDS) == 0
    assert not (folder / "s").exists()


def tune(*arguments: str | Path) -> tuple[subprocess.CompletedProcess[str], Any]:
    done = subprocess.run([*TUNER, *map(str, arguments)], capture_output=True, text=True, timeout=280, check=False)
    return done, json.loads(done.stdout) if done.stdout else None


def test_a_recording_is_tuned_by_a_process_that_does_not_read_it(cachefile: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    done, document = tune(cachefile, "--budget", "60", "--seeds", "2", "--log", log)
    assert done.returncode == 0, done.stderr
    assert set(document) == {"tool", "version", "runs"}
    assert [run["seed"] for run in document["runs"]] == [0, 1]
    recorded = kernel_tuner.read(cachefile).entries
    best = min(entry.typical for entry in recorded.values() if not entry.failed)
    for run in document["runs"]:
        assert run["evaluations"] == 60
        assert run["launches"] < 1500
        assert recorded[tuple(run["kept"])].typical < 1.1 * best
        assert run["verdicts"][-1]["decision"] == "kept"
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    measured = [one for one in entries if (one.get("request") or {}).get("op") == "measure"]
    for run in document["runs"]:
        mine = [one for one in measured if one["seed"] == run["seed"]]
        assert len({json.dumps(one["request"]["config"]) for one in mine}) == run["evaluations"]
        assert sum(len(one["answer"].get("times", [])) for one in mine) == run["launches"]
    ends = [one["answer"] for one in entries if (one.get("request") or {}).get("op") == "end"]
    assert ends == [{"ok": True}] * 2
    assert "seed 1: 60 configurations" in done.stderr


def test_a_running_oracle_is_used_and_its_budget_holds(oracle: Path) -> None:
    done, document = tune("--measure", f"unix:{oracle}", "--budget", "1000", "--seeds", "2")
    assert done.returncode == 0, done.stderr
    assert [run["evaluations"] for run in document["runs"]] == [40, 40]
    _, again = tune("--measure", f"unix:{oracle}", "--first-seed", "1")
    same, other = again["runs"][0], document["runs"][1]
    assert {key: same[key] for key in ("seed", "launches", "kept", "best", "verdicts")} == {
        key: other[key] for key in ("seed", "launches", "kept", "best", "verdicts")
    }, "a seed depends on nothing that came before it"


def test_measurements_of_another_device_come_first(oracle: Path, cachefile: Path) -> None:
    done, document = tune("--measure", f"unix:{oracle}", "--budget", "6", "--warm-from", cachefile)
    assert done.returncode == 0, done.stderr
    recorded = kernel_tuner.read(cachefile).entries
    best = min(entry.typical for entry in recorded.values() if not entry.failed)
    assert recorded[tuple(document["runs"][0]["kept"])].typical < 1.02 * best


@pytest.mark.usefixtures("compiled")
def test_verdicts_that_went_through_exporter_kafka_and_predictor_are_those_of_the_tuner(
    cachefile: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    done, through = tune(cachefile, "--budget", "20", "--through", "kafka", "--log", log)
    assert done.returncode == 0, done.stderr
    _, alone = tune(cachefile, "--budget", "20")
    (run,), (other,) = through["runs"], alone["runs"]
    assert run.keys() == other.keys()
    for same in ("seed", "evaluations", "kept", "best"):
        assert run[same] == other[same]
    assert [one["decision"] for one in run["verdicts"]] == [one["decision"] for one in other["verdicts"]]
    requests = [(json.loads(line).get("request") or {}) for line in log.read_text().splitlines()]
    said = [{key: one[key] for key in one if key != "op"} for one in requests if one.get("op") == "verdict"]
    assert said == run["verdicts"]
    assert {"op": "end", "kept": run["kept"]} in requests


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_with_a_document_and_no_process_stays(cachefile: Path, number: signal.Signals) -> None:
    command = [*TUNER, str(cachefile), "--seeds", "5000", "--budget", "30"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("seed 0: 30 configurations")
        process.send_signal(number)
        out, err = process.communicate(timeout=LONGEST_SECONDS)
    assert process.returncode == 128 + number
    assert json.loads(out)["runs"][0]["seed"] == 0
    assert f"stopped by {number.name}" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ((), 2, "give a CACHEFILE or --measure"),
        (("--measure", "tcp:host"), 2, "give unix:SOCKET"),
        (("--measure", "unix:/nowhere/at/all"), 1, "nothing answers on /nowhere/at/all"),
        (("nowhere.json",), 2, "nowhere.json cannot be read"),
        (("--measure", "unix:/x", "--budget", "0"), 2, "--budget is 0; the minimum is 1"),
        (("--measure", "unix:/x", "--seeds", "0"), 2, "--seeds is 0"),
        (("--measure", "unix:/x", "--warm-from", "nowhere.json"), 2, "nowhere.json cannot be read"),
    ],
)
def test_an_option_or_file_that_cannot_be_used_is_an_error_message(
    arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    done, _ = tune(*arguments)
    assert done.returncode == code
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_an_oracle_that_breaks_off_fails_that_seed_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    space = {
        "parameters": {"x": [1, 2, 3]},
        "valid": [[1], [2], [3]],
        "start": [2],
        "budget": 3,
        "device": "d",
        "kernel": "k",
        "unit": "ms",
    }

    def serve(server: socket.socket) -> None:
        for seed in range(3):
            connection, _ = server.accept()
            with connection:
                lines = JsonLines(connection)
                assert lines.read()["seed"] == seed
                lines.write(space)
                while (request := lines.read()) is not None:
                    if seed == 1:
                        lines.write({"times": ["fast"], "left": 1})
                    elif request["op"] == "measure":
                        lines.write({"times": [float(request["config"][0])] * request["launches"], "left": 3})
                    else:
                        lines.write({"ok": True})

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        done, document = tune("--measure", f"unix:{path}", "--seeds", "3")
        thread.join(LONGEST_SECONDS)
    assert done.returncode == 1
    assert "error" in document["runs"][1]
    assert [document["runs"][place]["kept"] for place in (0, 2)] == [[1], [1]]


def in_place_of_python(folder: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """Have the commands start a program that prints a line, ignores SIGTERM and does not end."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\ntrap '' TERM\necho '{line}'\nwhile :; do sleep 0.1; done\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(tuner_command, "_END_SECONDS", 0.1)


def test_an_oracle_that_neither_starts_nor_ends_is_an_error_message(
    cachefile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place_of_python(tmp_path, monkeypatch, "hello")
    with pytest.raises(OracleError, match="did not say 'ready', and does not end"):
        tuner_command.main([str(cachefile)])


def test_a_program_that_does_not_end_after_its_verdicts_fails_its_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_place_of_python(tmp_path, monkeypatch, "{}")
    monkeypatch.setattr(tune_replay, "SEED_SECONDS", 0.1)
    monkeypatch.setattr(tune_replay, "_wait_for_messages", lambda *_: {})
    monkeypatch.setattr(tune_replay, "delivered", lambda *_: SeedResult(0, {"verdicts": [], "kept": None}))
    services: Any = SimpleNamespace(socket=tmp_path / "socket", bootstrap_servers="")
    options: Any = SimpleNamespace(budget=1, search="own", warm_from=[])
    with pytest.raises(KernelcastError, match=r"did not end within 0\.1 s"):
        tune_replay._replay(0, tmp_path, options, services, services)

"""The demo's services as child processes."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from kernelcast.cli.demo.children import KERNELCAST, DemoProcess, Supervisor


def test_children_stop_in_reverse_and_one_that_dies_is_noticed(tmp_path: Path) -> None:
    supervisor = Supervisor()
    code = "import signal,sys,time; signal.signal(15, lambda *_: sys.exit(0)); print('up', flush=True); time.sleep(60)"
    steady = supervisor.start(DemoProcess("steady", (sys.executable, "-c", code), tmp_path / "steady.log"))
    dying = supervisor.start(
        DemoProcess("dying", (sys.executable, "-c", "raise SystemExit('no luck')"), tmp_path / "d.log")
    )
    assert supervisor.wait_for(dying, 20)
    assert supervisor.failed() == [dying]
    assert "no luck" in dying.log_end()
    while "up" not in steady.log_end():
        time.sleep(0.02)
    assert supervisor.stop() == {"steady": 0, "dying": 1}


@pytest.mark.parametrize("command", ["exporter", "bridge", "predictor", "replay", "simulate", "example"])
def test_our_programs_end_cleanly_if_they_are_stopped_before_they_listen(command: str, tmp_path: Path) -> None:
    example = (sys.executable, "-m", "kernelcast.probe.example", "--program", "example")
    log, environ = tmp_path / "early.log", {"KERNELCAST_SOCKET": str(tmp_path / "socket")}
    line = example if command == "example" else (*KERNELCAST, command)
    child = DemoProcess(command, line, log, unblocks=True, environ=environ)
    child.start()
    child.stop()
    assert (child.exit_code, child.state) == (0, "stopped"), child.log_end()
    assert "Traceback" not in child.log_end(100)


def test_a_users_program_that_does_not_handle_sigterm_is_no_failure(tmp_path: Path) -> None:
    child = DemoProcess("early", (sys.executable, "-c", "import time; time.sleep(60)"), tmp_path / "early.log")
    child.start()
    child.stop()
    assert (child.state, child.failed) == ("stopped", False)


def test_the_processes_of_a_users_program_end_with_it(tmp_path: Path) -> None:
    """`--program "bash train.sh"`: the shell ends at SIGTERM, and does not pass it on."""
    child, worker = started_with_worker("sleep 600 & {}; wait", tmp_path)
    child.stop()
    assert child.state == "stopped"
    assert has_ended(worker)


def test_the_processes_of_a_users_program_end_if_it_has_ended_before_them(tmp_path: Path) -> None:
    child, worker = started_with_worker("sleep 600 & {}; exit 3", tmp_path)
    assert child.process is not None
    child.process.wait(10)
    child.stop()
    assert child.state == "exited 3"
    assert has_ended(worker)


def test_a_replay_of_what_could_be_read_is_no_failure(tmp_path: Path) -> None:
    child = DemoProcess("source", (sys.executable, "-c", "raise SystemExit(3)"), tmp_path / "source.log", ends=True)
    child.start()
    assert child.process is not None
    child.process.wait(10)
    assert (child.state, child.failed) == ("incomplete", False)


def test_a_second_ctrl_c_ends_the_processes_that_ignore_the_first(tmp_path: Path) -> None:
    supervisor = Supervisor()
    child, worker = started_with_worker(
        "(trap '' TERM; {}; exec sleep 600) & wait", tmp_path, pid="$(exec sh -c 'echo $PPID')"
    )
    supervisor.children.append(child)
    assert child.process is not None
    os.killpg(child.process.pid, signal.SIGTERM)
    child.process.wait(10)
    assert not has_ended(worker)
    supervisor.kill()
    wait_until_ended(worker)
    supervisor.kill()


def started_with_worker(script: str, folder: Path, pid: str = "$!") -> tuple[DemoProcess, Path]:
    """A shell that has started another process and written its id."""
    written = folder / "worker"
    child = DemoProcess("own", ("sh", "-c", script.format(f"echo {pid} > {written}")), folder / "log")
    child.start()
    while not (written.exists() and written.read_text().strip()):
        time.sleep(0.02)
    worker = Path("/proc", written.read_text().strip())
    assert worker.exists()
    return child, worker


def has_ended(process: Path) -> bool:
    """Whether a process is gone, or waits for its parent."""
    try:
        return "Z" in (process / "stat").read_text().rpartition(")")[2]
    except (FileNotFoundError, ProcessLookupError):
        return True


def wait_until_ended(process: Path) -> None:
    """Wait for a process that got SIGKILL."""
    deadline = time.monotonic() + 10
    while not has_ended(process):
        assert time.monotonic() < deadline, f"{process} has not ended"
        time.sleep(0.02)

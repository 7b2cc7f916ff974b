"""What real programs print below `kernelcast probe` and with its variable: lines, summary and report."""

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.require import REPOSITORY
from tests.support.ports import free_ports
from tests.support.service.packages import FRAMEWORKS, environment, python_with
from tests.support.service.probe_node import Node
from tests.support.waiting import LONGEST_SECONDS, eventually

from kernelcast.probe import command
from kernelcast.wire import standalone

pytestmark = pytest.mark.service

TRAINING = Path(__file__).with_name("training.py")
PLAIN = """
import sys, time
from kernelcast import probe
for _ in range(int(sys.argv[1])):
    for batch in probe.data([range(8)]):
        time.sleep(0.004)
    time.sleep(0.006)
    probe.step(items=8)
"""
PROBE = ("-m", "kernelcast.probe")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path / "probe.sock")
    made.server.page = "http://127.0.0.1:19400/"
    yield made
    made.server.close()


def switched(node: Node, **more: str) -> dict[str, str]:
    """The environment of a program that is switched on by the variable alone."""
    kept = environment(KERNELCAST_SOCKET=str(node.path), KERNELCAST_PROBE="1", **more)
    return {**kept, "PYTHONPATH": os.pathsep.join((command.PRELOAD, kept["PYTHONPATH"]))}


def run(arguments: list[str], environ: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    done = subprocess.run(
        arguments, env=environ, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    return done


def ours(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("kernelcast: ")]


def boxes(text: str) -> int:
    return sum(line.startswith("+- kernelcast: ") for line in text.splitlines())


def test_a_loop_with_explicit_steps_has_one_line_and_a_report_with_its_steps(node: Node, tmp_path: Path) -> None:
    report = tmp_path / "run.json"
    arguments = [sys.executable, *PROBE, "--report", str(report), "--", sys.executable, "-c", PLAIN, "300"]
    done = run(arguments, environment(KERNELCAST_SOCKET=str(node.path)))
    (line,) = ours(done.stderr)
    assert "has not used a GPU; steps are measured, kernels cannot be; see http://127.0.0.1:19400/" in line
    assert boxes(done.stderr) == 1
    found = json.loads(report.read_text())
    assert (found["steps"], found["items"], found["has_ended"]) == (300, 2400, True)
    assert set(found["phase_seconds"]) >= {"data"}


def test_the_box_is_for_a_terminal(node: Node) -> None:
    reader, writer = pty.openpty()
    arguments = [sys.executable, *PROBE, "--", sys.executable, "-c", PLAIN, "5"]
    environ = environment(KERNELCAST_SOCKET=str(node.path))
    assert boxes(run(arguments, environ).stderr) == 0
    with subprocess.Popen(arguments, env=environ, stderr=writer) as program:
        os.close(writer)
        assert program.wait(LONGEST_SECONDS) == 0
    text = ""
    try:
        while chunk := os.read(reader, 65536):
            text += chunk.decode()
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(reader)
    assert (len(ours(text)), boxes(text)) == (1, 1)


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("steps", [0, 1, 50], ids=["before the first step", "at the first step", "later"])
def test_ctrl_c_ends_a_program_with_its_box_as_it_ends_it_without_us(node: Node, steps: int, *, terminal: bool) -> None:
    """By SIGINT: a shell's loop goes on after a program that ends with 1."""
    reader, writer = pty.openpty() if terminal else os.pipe()
    # A shell's background job ignores SIGINT, and so would this program.
    code = f"import os, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n{PLAIN}"
    code += "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(30)\n"
    arguments = [sys.executable, *PROBE, "--", sys.executable, "-c", code, str(steps)]
    with subprocess.Popen(arguments, env=environment(KERNELCAST_SOCKET=str(node.path)), stderr=writer) as program:
        os.close(writer)
        ended = program.wait(LONGEST_SECONDS)
    shows_box = terminal and steps > 0
    assert (ended, boxes(os.read(reader, 65536).decode())) == (-signal.SIGINT, shows_box)
    os.close(reader)


def test_quiet_programs_programs_without_a_step_and_runs_of_pytest_print_nothing(node: Node, tmp_path: Path) -> None:
    python = sys.executable
    assert run([python, "-c", PLAIN, "5"], switched(node, KERNELCAST_QUIET="1")).stderr == ""
    assert run([python, "-c", PLAIN, "0"], switched(node)).stderr == ""
    assert run([python, "-m", "pip", "--version"], switched(node)).stderr == ""
    test = tmp_path / "test_training.py"
    test.write_text("from kernelcast import probe\ndef test_a_step():\n    [probe.step() for _ in range(9)]\n")
    done = run([python, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", str(test)], switched(node))
    assert "kernelcast" not in done.stdout + done.stderr


def test_each_standalone_exporter_begins_with_its_own_programs(tmp_path: Path) -> None:
    """The page is about the run that a person looks at, not about those before it."""
    code = (
        PLAIN
        + """
import urllib.request
from kernelcast.wire import standalone
page = f"http://127.0.0.1:{open(sys.argv[2] + '/kernelcast/' + standalone.PORT).read()}/metrics"
for _ in range(100):
    text = urllib.request.urlopen(page).read().decode()
    found = [line.split()[-1] for line in text.splitlines() if line.startswith("kernelcast_program_steps_total{")]
    if found == [sys.argv[1]]:
        break
    time.sleep(0.1)
print(found)
"""
    )
    environ = environment(XDG_RUNTIME_DIR=str(tmp_path))
    for steps in ("300", "200"):
        arguments = [sys.executable, *PROBE, "--standalone", "--", sys.executable, "-c", code, steps, str(tmp_path)]
        assert run(arguments, environ).stdout == f"['{steps}']\n"
        eventually(lambda: not (tmp_path / "kernelcast" / standalone.LIFE_LINE).exists())


def test_a_program_that_ends_by_os_exit_after_stop_has_its_report_and_its_box(node: Node, tmp_path: Path) -> None:
    """As ranks do that must not wait for each other's end."""
    report = tmp_path / "run.json"
    code = f"{PLAIN}\nimport os\nprobe.stop()\nos._exit(0)\n"
    arguments = [sys.executable, *PROBE, "--report", str(report), "--", sys.executable, "-c", code, "5"]
    done = run(arguments, environment(KERNELCAST_SOCKET=str(node.path)))
    assert boxes(done.stderr) == 1
    found = json.loads(report.read_text())
    assert (found["program"], found["steps"], found["has_ended"]) == ("python -c", 5, True)


@pytest.mark.parametrize("start", ["", "probe.start()"], ids=["command", "start in code"])
def test_a_loop_without_steps_is_told_what_to_call(node: Node, tmp_path: Path, start: str) -> None:
    code = f"from kernelcast import probe\n{start}\nsum(range(1_000_000))\n"
    report = tmp_path / "run.json"
    arguments = [sys.executable, *PROBE, "--report", str(report), "--", sys.executable, "-c", code]
    done = run(arguments, environment(KERNELCAST_SOCKET=str(node.path)))
    (line,) = ours(done.stderr)
    assert f"no step was seen, so nothing was measured, and no report is in {report}; call" in line


def test_a_launcher_and_a_program_that_fails_are_not_told_so(node: Node, tmp_path: Path) -> None:
    work = "[sum(range(1000)) for _ in range(50_000)]"
    launcher = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {work!r}])\n"
    environ = environment(KERNELCAST_SOCKET=str(node.path))
    for code in (launcher, "1 / 0"):
        arguments = [sys.executable, *PROBE, "--report", str(tmp_path / "r"), "--", sys.executable, "-c", code]
        done = subprocess.run(
            arguments, env=environ, capture_output=True, text=True, check=False, timeout=LONGEST_SECONDS
        )
        assert "kernelcast:" not in done.stderr


def test_a_module_that_python_runs_gives_its_name(node: Node, tmp_path: Path) -> None:
    package = tmp_path / "jobs"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text(PLAIN)
    environ = environment(KERNELCAST_SOCKET=str(node.path))
    environ["PYTHONPATH"] = os.pathsep.join((str(tmp_path), environ["PYTHONPATH"]))
    report = tmp_path / "run.json"
    run([sys.executable, *PROBE, "--report", str(report), "--", sys.executable, "-m", "jobs.train", "5"], environ)
    assert json.loads(report.read_text())["program"] == "jobs.train"


def test_start_in_code_has_the_line_and_no_box(node: Node, tmp_path: Path) -> None:
    code = f"from kernelcast import probe\nprobe.start(program='train')\n{PLAIN}"
    environ = environment(KERNELCAST_SOCKET=str(node.path))
    done = run([sys.executable, "-c", code, "5"], environ)
    assert (len(ours(done.stderr)), boxes(done.stderr)) == (1, 0)
    assert not list(tmp_path.glob("*.json"))


def test_a_program_that_is_killed_leaves_a_report(node: Node, tmp_path: Path) -> None:
    report = tmp_path / "run.json"
    arguments = [sys.executable, *PROBE, "--report", str(report), "--", sys.executable, "-c", PLAIN, "100000"]
    with subprocess.Popen(
        arguments, env=environment(KERNELCAST_SOCKET=str(node.path)), stderr=subprocess.DEVNULL
    ) as program:
        eventually(report.exists)
        program.send_signal(signal.SIGTERM)
        assert program.wait(LONGEST_SECONDS) == -signal.SIGTERM
    found = json.loads(report.read_text())
    assert found["steps"] > 0
    assert not found["has_ended"]


def test_a_refusal_reaches_the_program_in_the_exporters_words(tmp_path: Path) -> None:
    node = Node(tmp_path / "probe.sock", uids=(os.getuid() + 1,))
    done = run([sys.executable, "-c", PLAIN, "300"], switched(node))
    node.server.close()
    (line,) = ours(done.stderr)
    assert line.endswith(f"the exporter refuses this program: user {os.getuid()} may not report here")


def test_without_the_exporters_packages_standalone_says_what_to_install(node: Node) -> None:
    hidden = """
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "typer" else find(name, *more)
"""
    done = run([sys.executable, "-c", hidden + PLAIN, "5"], switched(node, KERNELCAST_PROBE_STANDALONE="1"))
    (line,) = ours(done.stderr)
    assert line.endswith("no exporter runs beside the program: it is not installed: pip install 'kernelcast[exporter]'")


def test_a_plain_pytorch_loop_has_its_line_within_a_minute_and_a_box_with_its_steps(node: Node, tmp_path: Path) -> None:
    """With two loader workers, which say nothing."""
    python, report = str(python_with(FRAMEWORKS)), tmp_path / "run.json"
    began = time.monotonic()
    done = run(
        [python, *PROBE, "--report", str(report), "--", python, str(TRAINING), "2", "2"],
        environment(KERNELCAST_SOCKET=str(node.path)),
    )
    assert time.monotonic() - began < 60
    (line,) = ours(done.stderr)
    assert "PyTorch has not used a GPU; steps and data are measured, kernels cannot be" in line
    assert boxes(done.stderr) == 1
    found = json.loads(report.read_text())
    assert (found["steps"], found["items"]) == (int(done.stdout), 512)
    assert {"data", "forward", "backward", "optimizer"} <= set(found["phase_seconds"])
    assert sum(found["phase_seconds"].values()) >= found["step_seconds"] * 0.999


def test_two_ranks_of_torchrun_have_one_line_and_one_box(node: Node, tmp_path: Path) -> None:
    python, report = str(python_with(FRAMEWORKS)), tmp_path / "run.json"
    (port,) = free_ports(1)
    torchrun = ["-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]
    done = run(
        [python, *PROBE, "--report", str(report), "--", python, *torchrun, str(TRAINING), "1", "0"],
        environment(KERNELCAST_SOCKET=str(node.path)),
    )
    assert (len(ours(done.stderr)), boxes(done.stderr)) == (1, 1)
    assert (json.loads(report.read_text())["rank"], json.loads(report.read_text())["steps"]) == ("0", 32)
    assert done.stdout.split() == ["32", "32"]


def test_standalone_without_a_gpu_prints_an_address_that_answers(tmp_path: Path) -> None:
    runtime = tmp_path / "runtime"
    runtime.mkdir()
    environ = environment(XDG_RUNTIME_DIR=str(runtime))
    environ["PYTHONPATH"] = os.pathsep.join((environ["PYTHONPATH"], str(REPOSITORY / "bridge")))
    arguments = [sys.executable, *PROBE, "--standalone", "--", sys.executable, "-c", PLAIN, "100000"]
    with subprocess.Popen(arguments, env=environ, stderr=subprocess.PIPE, text=True) as program:
        assert program.stderr is not None
        line = program.stderr.readline()
        port = (runtime / "kernelcast" / "port").read_text()
        assert f"see http://127.0.0.1:{port}/ or run: kernelcast top 127.0.0.1:{port}" in line
        page = f"import urllib.request as u; print(u.urlopen('http://127.0.0.1:{port}/metrics').read().decode())"
        eventually(lambda: "kernelcast_program_steps_total{" in run([sys.executable, "-c", page], environ).stdout)
        program.kill()
    eventually(lambda: not (runtime / "kernelcast" / "life.sock").exists())

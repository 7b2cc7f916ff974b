"""The command as a process: its imports, its pipes and its signals."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import LONGEST_SECONDS

from kernelcast.cli import app


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(("--version",), found=[]) == 0
    assert capsys.readouterr().out.startswith("kernelcast ")


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import sys; from kernelcast.cli.app import run; run(['--help']); "
        "heavy = {'typer', 'numba', 'numpy', 'statsmodels', 'confluent_kafka', 'pydantic'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


def test_a_reader_that_goes_away_ends_the_command_without_a_traceback() -> None:
    command = f"{sys.executable} -m kernelcast.cli topics apply --help | true"

    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.parametrize("arguments", ["--help", "--version", "health http://127.0.0.1:1/"])
def test_a_reader_that_went_away_before_the_last_line_is_an_exit_code_without_a_message(arguments: str) -> None:
    """The interpreter writes a short output at its exit."""
    command = f"{sys.executable} -m kernelcast.cli {arguments} | true; exit ${{PIPESTATUS[0]}}"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["config", "example"]], ids=" ".join)
def test_a_full_disk_is_one_line(arguments: list[str], unbuffered: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "kernelcast.cli", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 1
    assert done.stderr == "kernelcast: the output cannot be written: No space left on device\n"


def test_an_output_in_another_encoding_has_escapes_in_place_of_a_traceback() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kernelcast.cli", "topics", "apply", "--help"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "HOST:PORT[,\\u2026]" in done.stdout


def test_ctrl_c_ends_a_command_that_waits_without_a_traceback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        # A shell without job control lets what it starts in the background ignore SIGINT, which children inherit.
        default = ["env", "--default-signal=INT"]
        command = [*default, sys.executable, "-m", "kernelcast.cli", "health", url, "--timeout", "60"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            connection, _ = silent.accept()
            with connection:
                connection.recv(1)
                process.send_signal(signal.SIGINT)
                _, said = process.communicate(timeout=LONGEST_SECONDS)
    assert (process.returncode, said) == (130, b"")


def test_a_daemon_that_is_stopped_while_it_is_still_loading_ends_as_cleanly_as_later(tmp_path: Path) -> None:
    (tmp_path / "loading.py").write_text("import time\nprint('loading', flush=True)\ntime.sleep(60)\n")
    program = (
        "import sys; from importlib.metadata import EntryPoint; from kernelcast.cli.app import GROUP, run; "
        "sys.exit(run(['bridge'], found=[EntryPoint('bridge', 'loading:main', GROUP)]))"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}

    with subprocess.Popen([sys.executable, "-c", program], env=environ, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"loading\n"
        process.terminate()
        assert process.wait(LONGEST_SECONDS) == 0

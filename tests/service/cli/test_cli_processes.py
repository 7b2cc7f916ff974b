"""The command as a process: its imports, its pipes and its signals."""

import os
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

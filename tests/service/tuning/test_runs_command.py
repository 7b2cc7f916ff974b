"""`python -m kernelcast.tuning.runs` with real processes."""

import sys
from pathlib import Path

import pytest

from kernelcast.tuning.runs import main, run_command

pytestmark = pytest.mark.service


def test_the_command_reads_the_last_line_of_each_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import json, os\n"
        "size = json.loads(os.environ['KERNELCAST_SET'])['bucket_mb']\n"
        "assert os.environ['KERNELCAST_HINTS'] == 'off'\n"
        "print('working')\n"
        "print(json.dumps({'seconds': 3.0 if size == '25' else 1.0, 'items': 10}))\n"
    )
    command = ["--", sys.executable, "-S", "-E", str(program)]
    assert main(["--set", "bucket_mb=25", "--against", "bucket_mb=1", *command]) == 3
    assert '"decision": "rolled_back"' in capsys.readouterr().out
    program.write_text("raise SystemExit(7)")
    assert main(["--set", "bucket_mb=25", "--against", "bucket_mb=1", *command]) == 1
    assert "ended with 7" in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["--set", "bucket_mb", "--against", "bucket_mb=1", *command])
    assert stopped.value.code == 2


def test_output_in_no_encoding_and_a_program_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    """Review: UnicodeDecodeError lost all runs before; FileNotFoundError came as a traceback."""
    measured = run_command([sys.executable, "-c", "import sys; sys.stdout.buffer.write(b'\\xff\\n')"], {"x": "1"})
    assert 0 < measured.seconds < 60
    assert main(["--set", "x=1", "--against", "x=2", "--", "no-such-program"]) == 1
    assert "no-such-program cannot be started: [Errno 2] No such file or directory" in capsys.readouterr().err

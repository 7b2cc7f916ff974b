"""The probe's command and its line in site-packages, in new interpreters."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelcast.probe import command

PYTHON = sys.executable
ROOT = Path(__file__).parents[4]


def child(code: str, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    clean = {name: value for name, value in os.environ.items() if not name.startswith("KERNELCAST")}
    paths = os.pathsep.join(str(ROOT / root) for root in ("core", "exporter"))
    return subprocess.run(
        [PYTHON, *arguments, "-c", code] if code else [PYTHON, *arguments],
        env={**clean, "PYTHONPATH": paths, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


IMPORTED = """
import os, sys
before = set(sys.modules)
os.execvpe = lambda *_: (print(*sorted(set(sys.modules) - before)), sys.exit(0))
sys.argv = ["kernelcast", "probe", "--program", "train", "--", "python", "train.py"]
from kernelcast.cli.__main__ import main
main()
"""


def test_the_command_imports_next_to_nothing_before_it_becomes_the_program() -> None:
    ended = child(IMPORTED, "-S")
    theirs = {name for name in ended.stdout.split() if not name.startswith("kernelcast")}
    assert theirs <= {"time", "__future__"}, ended.stderr
    assert ended.stdout.split()[-1:], ended.stderr
    assert "kernelcast.cli.app" not in ended.stdout


def test_the_exit_code_is_the_programs() -> None:
    assert child("", "-m", "kernelcast.probe", "--", PYTHON, "-c", "raise SystemExit(7)").returncode == 7
    assert child("", "-m", "kernelcast.probe", "--", "/nowhere/at/all").returncode == 127
    assert child("", "-m", "kernelcast.probe", "--", "/").returncode == 126


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("nosuchprogram", "is it on PATH?"),
        ("pythn3", 'it is not on PATH; did you mean "python3"?'),
        ("train.py", "did you mean: kernelcast probe -- python train.py"),
        ("./nothing", "there is no such file; write the path of a program"),
    ],
)
def test_a_program_that_cannot_be_run_gets_one_sentence_with_a_remedy(
    tmp_path: Path, program: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python3").symlink_to(PYTHON)
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    ended = child("", "-m", "kernelcast.probe", "--", program, PATH=str(tmp_path))
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"kernelcast probe cannot run {program}: ")
    assert said in line


def test_without_a_program_it_says_what_to_write() -> None:
    ended = child("", "-m", "kernelcast.probe")
    assert ended.returncode == 2
    assert "kernelcast probe -- python train.py" in ended.stderr
    shown = child("", "-m", "kernelcast.probe", "--help")
    assert shown.returncode == 0
    for option in ("--standalone", "--method", "--hints", "--rank", "KERNELCAST_PROBE=1"):
        assert option in shown.stdout


ARMED = (
    "import sys; print('kernelcast.probe.activation.context_waiter' in sys.modules, "
    "'kernelcast.probe.activation.current' in sys.modules)"
)


def test_below_the_command_every_python_waits_and_has_loaded_next_to_nothing() -> None:
    ended = child("", "-m", "kernelcast.probe", "--", PYTHON, "-c", ARMED)
    assert (ended.stdout, ended.stderr) == ("True False\n", "")


def test_the_environments_own_sitecustomize_runs_as_ever(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins; builtins.MINE = 'mine'\n")
    paths = os.pathsep.join(str(path) for path in (command.PRELOAD, tmp_path, ROOT / "core", ROOT / "exporter"))
    shown = f"{ARMED}; print(MINE, sys.modules['sitecustomize'].__file__)"
    ended = child(shown, PYTHONPATH=paths, KERNELCAST_PROBE="1")
    assert ended.stdout.splitlines() == ["True False", f"mine {tmp_path / 'sitecustomize.py'}"]


def test_the_line_in_site_packages_does_nothing_without_the_variable_and_opens_the_door_with_it() -> None:
    line = (ROOT / "exporter" / "kernelcast_probe.pth").read_text()
    for value, expected in (("", False), ("0", False), ("off", False), ("1", True)):
        ended = child(f"{line}\n{ARMED}", KERNELCAST_PROBE=value)
        assert ended.stdout.split()[0] == str(expected), ended.stderr


def test_the_command_puts_no_module_of_its_own_in_front_of_the_programs(tmp_path: Path) -> None:
    (tmp_path / "door.py").write_text("MINE = 1\n")
    paths = os.pathsep.join(str(path) for path in (tmp_path, ROOT / "core", ROOT / "exporter"))
    program = "import door; print(door.MINE, door.__file__)"
    ended = child("", "-m", "kernelcast.probe", "--", PYTHON, "-c", program, PYTHONPATH=paths)
    assert ended.stdout.split() == ["1", str(tmp_path / "door.py")], ended.stderr
    assert [path.name for path in Path(command.PRELOAD).iterdir() if path.suffix == ".py"] == ["sitecustomize.py"]


FORKED = """
import os, sys, threading, types
sys.modules["numba.cuda"] = types.ModuleType("numba.cuda")
from kernelcast.probe.activation import context_waiter
contexts = []
context_waiter._contexts, context_waiter._driver_exists = lambda: contexts, lambda environ: True
parent = os.getpid()
begun, began = os.pipe()
started = threading.Event()
context_waiter.wait_for_context(lambda: (os.write(began, str(os.getppid() == parent).encode()), started.set()))
if os.fork() == 0:
    contexts.append(0)  # the child uses the GPU; its parent does not
    started.wait(5)
    os._exit(0)
os.close(began)
print(os.read(begun, 100).decode())
"""


def test_a_forked_child_is_measured_although_its_library_was_imported_before_the_fork() -> None:
    """The thread that queries the driver does not survive the fork."""
    ended = child(FORKED)
    assert (ended.stdout, ended.stderr) == ("True\n", "")


def unmeasured(code: str, marks: Path, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Run code in a Python that has no kernelcast, below the command."""
    python = [PYTHON, "-S", "-c"]  # without site-packages; `sitecustomize` is imported by hand, as `site` would
    code = f"import sitecustomize, subprocess, sys; again = {python!r}; {code}"
    given = {"PYTHONPATH": str(command.PRELOAD), "KERNELCAST_PROBE": "1", "TMPDIR": str(marks), **environ}
    return child(code, "-S", **given)


def test_a_python_without_kernelcast_says_so_in_one_line_with_the_remedy(tmp_path: Path) -> None:
    ended = unmeasured("print('runs')", tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "runs\n")
    (line,) = ended.stderr.splitlines()
    assert PYTHON in line
    assert f"{PYTHON} -m pip install kernelcast" in line


def test_processes_below_one_that_has_warned_do_not_warn(tmp_path: Path) -> None:
    again = "subprocess.run([*again, 'import sitecustomize'])"
    assert len(unmeasured(f"{again}; {again}", tmp_path).stderr.splitlines()) == 1


def test_processes_beside_each_other_below_one_command_say_it_once(tmp_path: Path) -> None:
    texts = [unmeasured("print('runs')", tmp_path, KERNELCAST_PROBE_LAUNCH="1-abc").stderr for _ in range(3)]
    assert [len(text.splitlines()) for text in texts] == [1, 0, 0]
    assert len(unmeasured("print('runs')", tmp_path, KERNELCAST_PROBE_LAUNCH="1-abd").stderr.splitlines()) == 1


def test_a_python_without_kernelcast_is_silent_where_the_probe_is_switched_off(tmp_path: Path) -> None:
    assert unmeasured("print('runs')", tmp_path, KERNELCAST_PROBE="0").stderr == ""

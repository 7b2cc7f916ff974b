"""`kernelcast probe [options] -- PROGRAM …`: run a program with the probe in it, without a change to the program.

The options become environment variables and the program takes this process's place (`exec`), so signals, the exit code,
the terminal and the process's id are its own. Standard library only: it works where nothing but the probe is installed.

It runs once for each rank and each wrapped command, so it imports nothing that plain options do not need: `argparse`
parses all other command lines, and writes help and errors.
"""

from __future__ import annotations

import os
import sys
import time

from kernelcast.probe.preload import door
from kernelcast.probe.switch import LAUNCH, REPORT, SWITCH

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence
    from typing import Final, NoReturn

    Execute = Callable[[str, list[str], dict[str, str]], NoReturn]
    Options = dict[str, str]

EXIT_CANNOT_RUN: Final = 126
EXIT_NOT_FOUND: Final = 127
PRELOAD: Final = os.path.join(os.path.dirname(os.path.realpath(door.__file__)), "pythonpath")  # noqa: PTH118, PTH120
"""The folder that goes first in `PYTHONPATH`: it holds `sitecustomize` alone."""

VARIABLES: Final = {
    "--program": "KERNELCAST_PROGRAM",
    "--rank": "KERNELCAST_RANK",
    "--socket": "KERNELCAST_SOCKET",
    "--interval": "KERNELCAST_PROBE_INTERVAL_SECONDS",
    "--method": "KERNELCAST_PROBE_METHOD",
    "--hints": "KERNELCAST_HINTS",
    "--standalone": "KERNELCAST_PROBE_STANDALONE",
    "--nvtx": "KERNELCAST_PROBE_NVTX",
    "--report": REPORT,
}
SWITCHES: Final = ("--standalone", "--nvtx")
CHOICES: Final = {
    "--method": ("auto", "cupti", "event", "count", "manual"),
    "--hints": ("on", "off"),
}

DESCRIPTION: Final = """\
Run a program with kernelcast's probe in it. Its GPU kernels are reported to the node's exporter, or to one that is
started beside it (--standalone); the program itself is not changed, and never waits for the probe. One line on stderr
says what is measured and where to look; at its end, on a terminal, a box of at most ten lines says where the time went.
KERNELCAST_QUIET=1 writes neither.

The probe sleeps until a process makes a step or has a CUDA context, and child processes inherit it: with torchrun,
mpirun or multiprocessing every rank reports under its own number.
"""
EPILOG: Final = """\
examples:
  kernelcast probe -- python train.py --epochs 3
  kernelcast probe --method cupti -- python train.py
  kernelcast probe --program resnet --standalone -- python train.py
  mpirun -n 8 kernelcast probe --program cfd -- python solver.py

The same without this command: KERNELCAST_PROBE=1 python train.py. Documentation: docs/probe.md.
"""


def main(arguments: Sequence[str], *, execute: Execute = os.execvpe) -> int:
    """Become the program that the arguments name.

    Args:
        arguments: As in `sys.argv`, without this command.
        execute: Replaces this process.

    Returns:
        The exit code, where the program could not be started: 126 or 127, as shells have it.
    """
    options, program = _plain(arguments) or _parsed(arguments)
    try:
        execute(program[0], program, {**os.environ, **environment(options, os.environ)})
    except OSError as error:
        sys.stderr.write(f"kernelcast probe cannot run {program[0]}: {_why_not(program[0], error, os.environ)}\n")
        return EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_CANNOT_RUN


def environment(options: Options, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that the program is run with, besides those that there are.

    The preload directory goes in front of `PYTHONPATH`: an editable installation has no `.pth` file of ours, and the
    program's Python may not be the one that runs this.

    Args:
        options: Values by option, as `--rank`; of a switch that is on, `1`.
        environ: This process's variables.
    """
    given = environ.get("PYTHONPATH", "")
    # An empty path within a list is the current directory, which the program may import from.
    paths = [path for path in given.split(os.pathsep) if path != PRELOAD] if given else []
    if "--report" in options:  # the program may change its directory
        options = {**options, "--report": os.path.abspath(options["--report"])}  # noqa: PTH100  likewise
    return {
        **{VARIABLES[name]: value for name, value in options.items()},
        SWITCH: environ.get(SWITCH) or "1",  # KERNELCAST_PROBE=0 switches off a command that is in a script
        LAUNCH: f"{os.getpid()}-{time.time_ns():x}",
        "PYTHONPATH": os.pathsep.join([PRELOAD, *paths]),
    }


def _why_not(program: str, error: OSError, environ: Mapping[str, str]) -> str:
    """Return the reason why a program cannot be run, with the remedy."""
    if program.endswith(".py") and os.path.isfile(program):  # noqa: PTH113  `pathlib` costs as much as a start
        return f"a script needs its interpreter; did you mean: kernelcast probe -- python {program}"
    if not isinstance(error, FileNotFoundError):
        return f"{error.strerror}; name a file that can be executed"
    if "/" in program:
        return "there is no such file; write the path of a program"
    from difflib import get_close_matches  # noqa: PLC0415  for a mistake only

    known: set[str] = set()
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        try:
            known.update(os.listdir(folder or "."))  # noqa: PTH208
        except OSError:
            continue
    close = get_close_matches(program, sorted(known), 1, 0.75)
    return f'it is not on PATH; did you mean "{close[0]}"?' if close else "is it on PATH? Else write its whole path"


def _plain(arguments: Sequence[str]) -> tuple[Options, list[str]] | None:
    """Return options and program if every option is complete, known and valid, and `--` follows them.

    None leaves the command line to `argparse`: abbreviated or joined options, a program without `--`, help, and
    mistakes.
    """
    options: Options = {}
    left = iter(arguments)
    for name in left:
        if name == "--":
            program = list(left)
            return (options, program) if program else None
        value = "1" if name in SWITCHES else next(left, "--") if name in VARIABLES else "--"
        if value.startswith("-") or value not in CHOICES.get(name, (value,)):
            return None
        try:
            options[name] = str(float(value)) if name == "--interval" else value
        except ValueError:
            return None
    return None


def _parsed(arguments: Sequence[str]) -> tuple[Options, list[str]]:
    """The same by `argparse`, which exits where it shows help or finds a mistake."""
    parser = _parser()
    parsed = parser.parse_args(arguments)
    program = parsed.program_line
    if program[:1] == ["--"]:
        del program[0]
    if not program:
        parser.error("no program was given; write it behind --, as in: kernelcast probe -- python train.py")
    chosen: Options = {}
    for name in VARIABLES:
        value = getattr(parsed, name[2:])
        if name in SWITCHES:
            chosen |= {name: "1"} if value else {}
        elif value is not None:
            chosen[name] = str(value)
    return chosen, program


def _parser() -> argparse.ArgumentParser:
    import argparse  # noqa: PLC0415  costs as much as an interpreter's start

    from kernelcast.wire.options import OptionParser  # noqa: PLC0415  likewise

    parser = OptionParser(
        prog="kernelcast probe",
        usage="kernelcast probe [options] -- PROGRAM [ARGUMENTS]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--program", metavar="NAME", help="name of the job; default: the script's name")
    add("--rank", metavar="RANK", help="its rank; default: what torchrun, MPI, Slurm or JAX say in the environment")
    add("--socket", metavar="PATH", help="the exporter's socket; default: /run/kernelcast/probe.sock")
    add("--interval", metavar="SECONDS", type=float, help="between two reports; default: 1")
    add(
        "--method",
        choices=CHOICES["--method"],
        help="how kernels are measured; auto takes the best that is allowed, CUPTI only if KERNELCAST_CUPTI=1; "
        "manual includes only the program's own reports",
    )
    add("--report", metavar="FILE.json", help="write the summary of the run there, and show it also without a terminal")
    add("--standalone", action="store_true", help="start an exporter beside the program, with /metrics of its own")
    add(
        "--hints",
        choices=CHOICES["--hints"],
        help="whether tuning hints may act on the program's tunables; default: on",
    )
    add("--nvtx", action="store_true", help="NVTX ranges of CuPy and PyTorch become regions")
    add("program_line", nargs=argparse.REMAINDER, metavar="PROGRAM", help="the program and its arguments, behind --")
    return parser

"""`kernelcast probe [options] -- PROGRAM …`: run a program with the probe in it, without a change to the program.

The options become environment variables and the program takes this process's place (`exec`), so signals, the exit code,
the terminal and the process's id are its own. Standard library only: it works where nothing but the probe is installed.
"""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from kernelcast.probe.preload import door

EXIT_CANNOT_RUN: Final = 126
EXIT_NOT_FOUND: Final = 127
PRELOAD: Final = Path(door.__file__).parent

Execute = Callable[[str, list[str], dict[str, str]], NoReturn]

DESCRIPTION: Final = """\
Run a program with kernelcast's probe in it. Its GPU kernels are reported to the node's exporter, or to one that is
started beside it (--standalone); the program itself is not changed, and never waits for the probe.

The probe sleeps until a process has a CUDA context, and child processes inherit it: with torchrun, mpirun or
multiprocessing every rank reports under its own number.
"""
EPILOG: Final = """\
examples:
  kernelcast probe -- python train.py --epochs 3
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
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.command:
        parser.error("no program was given; write it behind --, as in: kernelcast probe -- python train.py")
    try:
        execute(options.command[0], options.command, {**os.environ, **environment(options, os.environ)})
    except OSError as error:
        sys.stderr.write(f"kernelcast probe cannot run {options.command[0]}: {error.strerror}\n")
        return EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_CANNOT_RUN


def environment(options: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that the program is run with, besides those that there are.

    The preload directory goes in front of `PYTHONPATH`: an editable installation has no `.pth` file of ours, and the
    program's Python may not be the one that runs this.
    """
    paths = [path for path in environ.get("PYTHONPATH", "").split(os.pathsep) if path and Path(path) != PRELOAD]
    named = {
        "KERNELCAST_PROGRAM": options.program,
        "KERNELCAST_RANK": options.rank,
        "KERNELCAST_SOCKET": options.socket,
        "KERNELCAST_PROBE_INTERVAL_SECONDS": options.interval,
        "KERNELCAST_PROBE_METHOD": options.method,
        "KERNELCAST_PROBE_STANDALONE": "1" if options.standalone else None,
        "KERNELCAST_PROBE_NVTX": "1" if options.nvtx else None,
        "KERNELCAST_HINTS": options.hints,
    }
    chosen = {name: str(value) for name, value in named.items() if value is not None}
    return {**chosen, door.SWITCH: "1", "PYTHONPATH": os.pathsep.join([str(PRELOAD), *paths])}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kernelcast probe",
        usage="kernelcast probe [options] -- PROGRAM [ARGUMENTS]",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--program", metavar="NAME", help="what the job is called; default: the script's name")
    add("--rank", metavar="RANK", help="its rank; default: what torchrun, MPI, Slurm or JAX say in the environment")
    add("--socket", metavar="PATH", help="the exporter's socket; default: /run/kernelcast/probe.sock")
    add("--interval", metavar="SECONDS", type=float, help="between two reports; default: 1")
    add(
        "--method",
        choices=("auto", "cupti", "event", "count", "manual"),
        help="how kernels are measured; auto takes the best that is allowed, CUPTI only if KERNELCAST_CUPTI=1; "
        "manual reports only what the program itself reports",
    )
    add("--standalone", action="store_true", help="start an exporter beside the program, with /metrics of its own")
    add("--hints", choices=("on", "off"), help="whether tuning hints may act on the program's tunables; default: on")
    add("--nvtx", action="store_true", help="NVTX ranges of CuPy and PyTorch become regions")
    add("command", nargs="*", metavar="PROGRAM", help="the program and its arguments, behind --")
    return parser

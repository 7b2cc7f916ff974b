"""Runs what takes too long for each change: `python -m tests.nightly.run [--only STEP …] [--workers N]`.

Every step is run, also after one that failed; the end lists each with its seconds, and one failure makes the exit
code 1. Steps are separate commands, so each can be run alone; `--list` prints them.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
PYTHON: Final = sys.executable
CUPTI: Final = "tests/unit/probe/cupti"
PROMETHEUS_3: Final = ("tests/service/formats/test_push.py", "tests/service/formats/test_native_histograms.py")
say = partial(print, flush=True)


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the night.

    Attributes:
        name: A short description.
        command: The command line, run in the repository's root.
        environ: Variables that it needs besides ours.
    """

    name: str
    command: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)


def steps(workers: int) -> list[Step]:
    """All steps, the quickest findings first.

    Args:
        workers: Processes that a step may use.
    """
    pytest = (PYTHON, "-m", "pytest", "--quiet")
    processes = str(workers)
    parallel = ("--numprocesses", processes, "--dist", "loadfile")
    return [
        Step("dependencies without known vulnerabilities", (PYTHON, "-m", "tests.nightly.audit")),
        Step("the wheel with all extras, installed and run", (PYTHON, "-m", "tests.nightly.install")),
        Step("the decoder under sanitizers", (*pytest, f"{CUPTI}/test_cupti_sanitized.py"), {"CI": "true"}),
        Step("Prometheus 3, built from its modules", (PYTHON, "-m", "tests.service.built")),
        Step("what only Prometheus 3 shows", (*pytest, *PROMETHEUS_3), {"CI": "true", "KERNELCAST_REQUIRE_BUILT": "1"}),
        Step(
            "all properties with a thousand examples",
            (*pytest, *parallel, "--timeout", "3600", "--durations", "20", "tests/unit", "tests/compatibility"),
            {"HYPOTHESIS_PROFILE": "nightly"},
        ),
        Step("parsers under mutated messages", (PYTHON, "-m", "tests.fuzz.run", "--inputs", "1000000")),
        Step(
            "random faults in memory",
            (PYTHON, "-m", "tests.faults.run", "--schedules", "10000", "--processes", processes),
        ),
        Step("random faults with real processes", (PYTHON, "-m", "tests.faults.run", "--real", "20")),
    ]


def run(step: Step) -> tuple[int, float]:
    """Run a step; its exit code and seconds."""
    began = time.monotonic()
    done = subprocess.run(step.command, cwd=REPOSITORY, env={**os.environ, **step.environ}, check=False)
    return done.returncode, time.monotonic() - began


def main(arguments: Sequence[str]) -> int:
    """Run the steps and list what came of them.

    Returns:
        The exit code: 1 where a step failed.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.nightly.run", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="*", default=[], metavar="WORD", help="steps whose name contains a word")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes of a step")
    parser.add_argument("--list", action="store_true", help="print the steps and run none")
    options = parser.parse_args(arguments)
    chosen = [
        step for step in steps(options.workers) if not options.only or any(word in step.name for word in options.only)
    ]
    if options.list:
        for step in chosen:
            say(f"{step.name}: {' '.join(step.command)}")
        return 0
    return report({step.name: _announced(step) for step in chosen})


def _announced(step: Step) -> tuple[int, float]:
    say(f"\n== {step.name}: {' '.join(step.command)}")
    return run(step)


def report(results: Mapping[str, tuple[int, float]]) -> int:
    """Print a line for each step.

    Returns:
        The exit code: 1 where a step failed, or none ran.
    """
    say()
    for name, (code, seconds) in results.items():
        say(f"{'passed' if code == 0 else f'FAILED with {code}'}  {seconds:6.0f} s  {name}")
    return 0 if results and all(code == 0 for code, _ in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

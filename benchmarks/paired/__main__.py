"""Overhead of the probe in a program: paired runs, with and without it, interleaved.

    python -m benchmarks.paired --programs launch,compute,torch --methods event,cupti --pairs 12 --json paired.json

Each pair runs the program twice in processes of their own, in random order, so that a drifting clock or a warming GPU
hits both sides alike. An exporter runs beside all of them, fed or not, so that it costs both sides the same. The result
is the ratio of the timed sections (with / without): the mean over the pairs on the logarithm's scale, with its 95 %
interval by Student's t. Programs that need a missing library or GPU are named and skipped.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.paired.programs import PROGRAMS
from rich.console import Console
from rich.table import Table
from statsmodels.stats.weightstats import DescrStatsW
from tests.service.stack import Stack

from kernelcast.runtime.kafka.embedded import EmbeddedBroker

PROGRAM_FILE = Path(__file__).with_name("programs.py")
METHODS = ("auto", "cupti", "event", "count")
LIMIT_SECONDS = 600
AIM = 0.01
"""Overhead that the probe may have: 1 % of the program's time."""
WIDTH = 120


@dataclass(frozen=True, slots=True)
class Pair:
    """One run without the probe and one with it, seconds of the timed section."""

    without_seconds: float
    with_seconds: float


@dataclass(frozen=True, slots=True)
class Overhead:
    """Overhead in the pairs of one program, as shares of the time without the probe; 0.01 is 1 %."""

    program: str
    method: str
    pairs: int
    overhead: float
    low: float
    high: float
    seconds: float
    launches: int

    @property
    def verdict(self) -> str:
        """Against the aim of at most 1 %."""
        if self.high <= AIM:
            return "within 1 %"
        return "above 1 %" if self.low > AIM else "not distinguishable from 1 %"


class UnavailableError(Exception):
    """The program cannot run here."""


def overhead(program: str, method: str, pairs: Sequence[Pair], launches: int) -> Overhead:
    """The mean ratio and its 95 % interval, of at least two pairs."""
    logs = [math.log(pair.with_seconds / pair.without_seconds) for pair in pairs]
    described = DescrStatsW(logs)
    low, high = described.tconfint_mean(alpha=0.05)
    seconds = sum(pair.without_seconds for pair in pairs) / len(pairs)
    middle = math.expm1(float(described.mean))
    return Overhead(program, method, len(pairs), middle, math.expm1(low), math.expm1(high), seconds, launches)


def run(program: str, method: str | None, socket: Path) -> dict[str, Any]:
    """One run in a process of its own; `method` None is without the probe.

    Raises:
        UnavailableError: It ended with an error; its last line says why.
    """
    command = [sys.executable, str(PROGRAM_FILE), program]
    if method is not None:
        probe = [sys.executable, "-m", "kernelcast.probe", "--program", f"paired-{program}", "--socket", str(socket)]
        command = [*probe, "--method", method, "--", *command]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("KERNELCAST_")}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    if done.returncode:
        raise UnavailableError((done.stderr.strip().splitlines() or ["no message"])[-1])
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def measure(program: str, method: str, pairs: int, socket: Path) -> Overhead:
    """Run the pairs, in random order each."""
    found: list[Pair] = []
    launches = 0
    for _ in range(pairs):
        sides: list[str | None] = [None, method]
        random.shuffle(sides)
        times = {side: run(program, side, socket) for side in sides}
        launches = int(times[None]["launches"])
        found.append(Pair(times[None]["seconds"], times[method]["seconds"]))
    return overhead(program, method, found, launches)


@contextmanager
def exporter(directory: Path) -> Iterator[Stack]:
    """An exporter on the embedded broker."""
    with EmbeddedBroker() as broker, Stack(directory, broker.bootstrap_servers) as stack:
        stack.service("exporter")
        yield stack


def table(rows: Sequence[Overhead]) -> Table:
    """For people."""
    shown = Table()
    for head in ("program", "method", "pairs", "seconds", "launches/s", "overhead", "95 % interval", "aim"):
        shown.add_column(head, no_wrap=True)
    for row in rows:
        rate = f"{row.launches / row.seconds:,.0f}" if row.launches else ""
        interval = f"{row.low:+.2%} … {row.high:+.2%}"
        shown.add_row(
            row.program,
            row.method,
            str(row.pairs),
            f"{row.seconds:.2f}",
            rate,
            f"{row.overhead:+.2%}",
            interval,
            row.verdict,
        )
    return shown


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the requested pairs."""
    parser = argparse.ArgumentParser("python -m benchmarks.paired", description=__doc__)
    parser.add_argument("--programs", default=",".join(PROGRAMS), help=f"of {', '.join(PROGRAMS)}")
    parser.add_argument("--methods", default="auto", help=f"of {', '.join(METHODS)}")
    parser.add_argument("--pairs", type=int, default=10, help="at least 2; 10 or more for a figure")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args(arguments)
    programs, methods = options.programs.split(","), options.methods.split(",")
    if unknown := {*programs} - {*PROGRAMS} | {*methods} - {*METHODS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    if options.pairs < 2:
        parser.error(f"--pairs is {options.pairs}; an interval needs at least 2")
    console, rows = Console(width=WIDTH), []
    with tempfile.TemporaryDirectory() as directory, exporter(Path(directory)) as stack:
        for program in programs:
            for method in methods:
                try:
                    rows.append(measure(program, method, options.pairs, stack.socket))
                except UnavailableError as reason:
                    console.print(f"{program} left out: {reason}", markup=False)
                    break
                console.print(f"{program} with {method}: {rows[-1].overhead:+.2%}", markup=False)
    console.print(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()

"""Runs the tests that take too long for each change: `python -m tests.nightly.run [--only WORD …] [--short]`.

`steps` is the only list of them. Every step is run, also after one that failed; the end lists each with its seconds,
and one failure makes the exit code 1. Steps are separate commands, so each can be run alone: `--list` prints them.
`--short` runs each with few examples, to try a change of a step in minutes; it shows nothing else.
"""

import argparse
import os
import shlex
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
CUPTI: Final = "tests/service/probe/cupti"
BUILT_PROGRAMS: Final = ("tests/service/formats/test_native_histograms.py", "tests/service/formats/test_collector.py")
OWN_TOOLS: Final = (
    "tests/service/packaging/test_chart.py",
    "tests/service/packaging/test_deployment_tools.py",
    "tests/service/grafana/test_dashboard_linter.py",
)
BOUNDS_CHECKED: Final = {
    "NUMBA_BOUNDSCHECK": "1",
    "NUMBA_CACHE_DIR": str(REPOSITORY / ".cache" / "bounds-checked"),
}
"""numba raises IndexError for an index beyond an array. The machine code has a folder of its own, so that the night
leaves none beside the sources. `columnar.compiled.intrinsics` are not checked: guard pages in the tests show theirs."""
REAL_AT_ONCE: Final = 3
"""Real fault schedules at the same time, at most: each waits half of its minute, and has a Kafka of 0.5 GiB."""
say = partial(print, flush=True)


@dataclass(frozen=True, slots=True)
class Step:
    """One command of the night.

    Attributes:
        name: A short description.
        finds: The kind of fault that it finds and that `make test` does not.
        command: The command line, run in the repository's root.
        environ: Variables that it needs besides ours.
    """

    name: str
    finds: str
    command: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of examples of the steps that draw them at random.

    Attributes:
        profile: hypothesis' profile for properties.
        properties: Folders whose properties are tried.
        compiled: Folders whose tests run with bounds checks.
        inputs: Mutated messages.
        checked_inputs: Mutated messages for the code that checks bounds, which is slower.
        schedules: Fault schedules in memory.
        real_schedules: Fault schedules with real processes.
        fleet: Options of the benchmark of a fleet.
    """

    profile: str
    properties: Sequence[str]
    compiled: Sequence[str]
    inputs: int
    checked_inputs: int
    schedules: int
    real_schedules: int
    fleet: Sequence[str] = ()


WHOLE: Final = Sizes(
    profile="nightly",
    properties=("tests/unit", "tests/compatibility"),
    compiled=("tests/unit/columnar", "tests/unit/bridge", "tests/unit/predictor", "tests/compatibility"),
    inputs=1_000_000,
    checked_inputs=200_000,
    schedules=10_000,
    real_schedules=20,
)
SHORT: Final = Sizes(
    profile="fast",
    properties=("tests/unit/wire",),
    compiled=("tests/unit/columnar",),
    inputs=20_000,
    checked_inputs=20_000,
    schedules=40,
    real_schedules=1,
    fleet=("--small",),
)


def steps(workers: int, sizes: Sizes = WHOLE) -> list[Step]:
    """All steps, the quickest findings first.

    Args:
        workers: Processes that a step may use.
        sizes: Numbers of examples.
    """
    return [*_package_steps(), *_test_steps(workers, sizes), *_random_steps(workers, sizes), _fleet_step(sizes)]


def _package_steps() -> list[Step]:
    return [
        Step(
            "dependencies without known vulnerabilities",
            "a locked dependency that has become unsafe",
            (PYTHON, "-m", "tests.nightly.audit"),
        ),
        Step(
            "the wheel with all extras, installed and run",
            "a file or a dependency that only the checkout has",
            (PYTHON, "-m", "tests.nightly.install"),
        ),
        Step(
            "every panel on the demo",
            "a panel that no service ever fills, or words for an empty one that cannot be right",
            (PYTHON, "-m", "tests.nightly.demo_panels"),
        ),
        Step(
            "every page with Grafana's own components",
            "an option, unit or text that Grafana shows otherwise than we mean it, or than our served pages do",
            (PYTHON, "-m", "tests.nightly.grafana_components"),
        ),
    ]


def _test_steps(workers: int, sizes: Sizes) -> list[Step]:
    pytest = (PYTHON, "-m", "pytest", "--quiet")
    parallel = ("--numprocesses", str(workers), "--dist", "loadfile")
    return [
        Step(
            "the decoder under sanitizers",
            "reads and writes beyond memory in the C code for CUPTI",
            (*pytest, f"{CUPTI}/test_cupti_sanitized.py"),
            {"CI": "true"},
        ),
        Step(
            "helm, compose-go, dashboard-linter, Prometheus 3 and the Collector, built from their modules",
            "a program that no longer builds; the next steps need it",
            (PYTHON, "-m", "tests.service.built"),
        ),
        Step(
            "the chart, the compose file and the dashboards in their own tools",
            "a file that helm, Docker Compose or Grafana's linter refuses",
            (*pytest, *OWN_TOOLS),
            {"KERNELCAST_REQUIRE_BUILT": "1"},
        ),
        Step(
            "the formats that need Prometheus 3, and the Collector's recipes",
            "differences from the Prometheus and the Collector that users run now",
            (*pytest, *BUILT_PROGRAMS),
            {"CI": "true", "KERNELCAST_REQUIRE_BUILT": "1"},
        ),
        Step(
            "tests that are too long for each change",
            "what longer runs, more examples and other modes of the same tests find",
            (*pytest, *parallel, "--timeout", "1800", "--durations", "20", "-m", "nightly"),
            {"CI": "true"},
        ),
        Step(
            "the tuner through Kafka",
            "an outcome that is lost or changed between program, exporter, Kafka and predictor",
            (PYTHON, "-m", "tests.nightly.tune_replay"),
        ),
        Step(
            "every fault of the table in real time",
            "an alert that a real Prometheus and Alertmanager send late, twice or not at all",
            (PYTHON, "-m", "tests.nightly.real_time_faults"),
        ),
        Step(
            "each real service stopped and started in turn",
            "a stopped service that no alert names, or an alert that ends too early",
            (PYTHON, "-m", "tests.nightly.services_in_turn"),
        ),
        Step(
            "compiled code with bounds checks",
            "an index beyond an array, which compiled code otherwise follows in silence",
            (*pytest, *parallel, "--timeout", "3600", *sizes.compiled),
            BOUNDS_CHECKED,
        ),
        Step(
            "properties with a thousand examples",
            "rare inputs for which a property does not hold",
            (*pytest, *parallel, "--timeout", "3600", "--durations", "20", *sizes.properties),
            {"HYPOTHESIS_PROFILE": sizes.profile},
        ),
    ]


def _random_steps(workers: int, sizes: Sizes) -> list[Step]:
    fuzz = (PYTHON, "-m", "tests.fuzz.run")
    faults = (PYTHON, "-m", "tests.faults.run")
    real = (*faults, "--real", str(sizes.real_schedules), "--at-once", str(min(workers, REAL_AT_ONCE)))
    return [
        Step(
            "parsers under mutated messages, with bounds checks",
            "an index beyond an array for bytes that no producer sends",
            (*fuzz, "--inputs", str(sizes.checked_inputs)),
            BOUNDS_CHECKED,
        ),
        Step(
            "parsers under mutated messages",
            "a message that stops a parser, or changes the messages around it",
            (*fuzz, "--inputs", str(sizes.inputs)),
        ),
        Step(
            "random faults in memory",
            "an order of faults after which a total is wrong",
            (*faults, "--schedules", str(sizes.schedules), "--processes", str(workers)),
        ),
        Step(
            "random faults with real processes",
            "the same with a real Kafka, which is slower",
            real,
        ),
        Step(
            "random faults with real processes in a KIP-848 group",
            "the same with the newer group protocol, whose members learn of fewer changes",
            (*real, "--seed", "kip-848", "--protocol", "consumer"),
        ),
        Step(
            "random faults of ranks",
            "an error on one rank after which the ranks of a job differ, or wait for each other",
            (PYTHON, "-m", "tests.faults.ranks.run", "--schedules", str(sizes.schedules // 10), "--sockets", "4"),
        ),
    ]


def _fleet_step(sizes: Sizes) -> Step:
    return Step(
        "faults in a simulated fleet",
        "a change that pages too often, on the wrong GPU or with the wrong cause",
        (PYTHON, "-m", "benchmarks.predictor", "fleet", *sizes.fleet),
    )


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
    parser.add_argument("--short", action="store_true", help="try each step with few examples")
    options = parser.parse_args(arguments)
    all_steps = steps(options.workers, SHORT if options.short else WHOLE)
    chosen = [step for step in all_steps if not options.only or any(word in step.name for word in options.only)]
    if options.list:
        for step in chosen:
            say(f"{step.name}: finds {step.finds}\n    {_command_line(step)}")
        return 0
    say(f"{len(chosen)} of {len(all_steps)} steps, {options.workers} workers, at {_revision()}")
    return report({step.name: _announced(step) for step in chosen})


def _announced(step: Step) -> tuple[int, float]:
    """Run a step, its name printed before and its result after it: a night that is stopped shows what it has done."""
    say(f"\n== {step.name}: {_command_line(step)}")
    code, seconds = run(step)
    say(f"== {_result_line(step.name, code, seconds)}")
    return code, seconds


def _result_line(name: str, code: int, seconds: float) -> str:
    return f"{'passed' if code == 0 else f'FAILED with {code}'}  {seconds:6.0f} s  {name}"


def _revision() -> str:
    """Return the commit that the night runs on, or why it is unknown, and whether files differ from it."""
    git = ("git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=, with changes that are not committed")
    try:
        described = subprocess.run(git, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"an unknown revision ({error})"
    return described.stdout.strip() or f"an unknown revision ({described.stderr.strip()})"


def _command_line(step: Step) -> str:
    """Return a step's command for a shell."""
    return shlex.join((*(f"{name}={value}" for name, value in step.environ.items()), *step.command))


def report(results: Mapping[str, tuple[int, float]]) -> int:
    """Print a line for each step.

    Returns:
        The exit code: 1 where a step failed, or none ran.
    """
    say()
    for name, (code, seconds) in results.items():
        say(_result_line(name, code, seconds))
    return 0 if results and all(code == 0 for code, _ in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The command `lab.tune_replay`: starts an oracle if none is given, replays all seeds, prints one JSON document.

`lab/tune_replay.py` calls `main` and gives it the loop of services behind `--through kafka`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from kernelcast.tuning.formats import measurements
from kernelcast.tuning.search import OWN, named_search
from kernelcast.tuning.space import Space
from kernelcast.wire.errors import ConfigurationError, KernelcastError
from kernelcast.wire.options import OptionParser
from lab.replay.client import Oracle, OracleError
from lab.replay.run import SeedResult, replay
from lab.replay.server import READY
from lab.replay.signals import Stopped, stopping

MAX_SEEDS: Final = 10_000
_END_SECONDS: Final = 10
"""Time for the oracle to end."""
DESCRIPTION: Final = """\
Tune against a recording that the tuner cannot read. An oracle, a process of its own, answers each measurement with the
time of a recorded launch: one that runs already (--measure), or one that is started for CACHEFILE. Seeds are
independent. The result is one JSON document on standard output; progress goes to standard error.

For each seed the document has: evaluations (different configurations, failing ones and the start included), launches,
kept (the configuration that a verdict put in force, or the start), best (the fastest by estimate), verdicts,
suggest_ms_median (processor time of a suggestion), and lost_ratio (time of launches above the start's, over the start's
time for as many launches).

--through kafka tunes a program with the probe, whose outcomes go through an exporter and Kafka to a predictor. The
verdicts of the document are those that Kafka has delivered.
"""
EPILOG: Final = """\
examples:
  python -m lab.tune_replay convolution_A4000.json.gz --seeds 5 > runs.json
  python -m lab.tune_replay convolution_A4000.json.gz --warm-from convolution_A100.json.gz --log oracle.jsonl
  python -m lab.tune_replay --measure unix:/tmp/oracle --budget 100
  python -m lab.tune_replay convolution_A4000.json.gz --through kafka

exit code: 0 if all seeds ended, 1 if one did not, 2 for an option or file that cannot be used
"""

Replay = Callable[[int], SeedResult]
"""Replays a seed."""
Loop = Callable[[Path, argparse.Namespace], AbstractContextManager[Replay]]
"""Makes the `Replay` for the oracle of a socket; its context holds the services between tuner and oracle."""


def main(arguments: Sequence[str], loops: Mapping[str, Loop] = MappingProxyType({})) -> int:
    """Replay all seeds and print the document; returns the exit code.

    Args:
        arguments: Of the command line.
        loops: The loops of services that `--through` can choose.

    Raises:
        ConfigurationError: An option or a file cannot be used.
        OracleError: The oracle did not start.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if (options.cachefile is None) == (options.measure is None):
        parser.error("give a CACHEFILE or --measure unix:SOCKET, one of them")
    _check(options)
    if options.through not in (None, *loops):
        raise ConfigurationError(f"--through {options.through} takes python -m lab.tune_replay; run that")
    loop = loops.get(options.through, _tuner_alone)
    runs: list[dict[str, Any]] = []
    code = 0
    try:
        with stopping(), _oracle_socket(options) as path, loop(path, options) as replay_seed:
            for seed in range(options.first_seed, options.first_seed + options.seeds):
                run, progress = _replay_seed(seed, replay_seed)
                runs.append(run)
                sys.stderr.write(progress)
    except Stopped as stopped:
        sys.stderr.write(
            f"kernelcast: stopped by {stopped}; {len(runs)} of {options.seeds} seeds are in the document\n"
        )
        code = 128 + stopped.number
    except Exception:
        if runs:  # the seeds before it have ended
            _print(runs)
        raise
    _print(runs)
    return code or int(any("error" in run for run in runs))


def _print(runs: Sequence[Mapping[str, Any]]) -> None:
    document = {"tool": "kernelcast lab.tune_replay", "version": _version(), "runs": runs}
    sys.stdout.write(json.dumps(document, indent=1) + "\n")


@contextmanager
def _tuner_alone(path: Path, options: argparse.Namespace) -> Iterator[Replay]:
    """The tuner in this process."""
    devices = [measurements.read(file) for file in options.warm_from]

    def replayed(seed: int) -> SeedResult:
        with Oracle(path) as oracle:
            return replay(oracle, seed=seed, budget=options.budget, devices=devices, search=options.search)

    yield replayed


def _replay_seed(seed: int, replay_seed: Replay) -> tuple[dict[str, Any], str]:
    """Replay one seed; return its part of the document and a line for people."""
    try:
        run = replay_seed(seed)
    except ConfigurationError:
        raise
    except KernelcastError as error:
        return {"seed": seed, "error": str(error)}, f"kernelcast: seed {seed} did not end: {error}\n"
    found = run.document
    proved = ", ".join(f"{one['decision']} at {one['ratio']:.3f}" for one in found["verdicts"] if one["ratio"])
    return found, (
        f"seed {seed}: {found['evaluations']} configurations, {found['launches']} launches, "
        f"{proved or 'nothing to prove'}{f', {run.refusals} refused' if run.refusals else ''}\n"
    )


@contextmanager
def _oracle_socket(options: argparse.Namespace) -> Iterator[Path]:
    """The socket of the oracle; one that is started here ends with the block."""
    if options.measure is not None:
        yield Path(options.measure.removeprefix("unix:"))
        return
    with tempfile.TemporaryDirectory(prefix="kernelcast-oracle-") as folder:
        path = Path(folder) / "socket"
        command = [sys.executable, "-m", "lab.tune_oracle", str(options.cachefile)]
        command += ["--socket", str(path), "--budget", str(options.budget)]
        command += ["--log", str(options.log)] if options.log else []
        with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as process:
            try:
                if process.stdout is None or process.stdout.readline().strip() != READY.encode():
                    raise _not_started(options.cachefile, process)
                yield path
            finally:
                stop(process)


def _not_started(cachefile: Path, process: "subprocess.Popen[bytes]") -> KernelcastError:
    try:
        code = process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        return OracleError(f"the oracle for {cachefile} did not say {READY!r}, and does not end; start it again")
    kind = ConfigurationError if code == 2 else OracleError
    return kind(f"the oracle for {cachefile} did not start: exit code {code}; its reason is printed above")


def stop(process: "subprocess.Popen[Any]") -> None:
    """Terminate a process, and kill it if it has not ended in time."""
    process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _check(options: argparse.Namespace) -> None:
    if options.budget < 1:
        raise ConfigurationError(f"--budget is {options.budget}; the minimum is 1")
    named_search(options.search, Space.restricted("check", {"x": [1]}, start={"x": 1}), seed=0, budget=1)
    if not 1 <= options.seeds <= MAX_SEEDS:
        raise ConfigurationError(f"--seeds is {options.seeds}; it is between 1 and {MAX_SEEDS:,}")
    if options.measure is not None and (not options.measure.startswith("unix:") or options.measure == "unix:"):
        raise ConfigurationError(f"--measure is {options.measure}; give unix:SOCKET, such as unix:/tmp/oracle")
    if options.measure is not None and options.log is not None:
        raise ConfigurationError(
            "--log is an option of the oracle that is started for CACHEFILE; give it to python -m lab.tune_oracle"
        )
    repeated = {path for path in options.warm_from if options.warm_from.count(path) > 1}
    if repeated:
        raise ConfigurationError(f"--warm-from names {min(map(str, repeated))} twice; give each file once")


def _parser() -> argparse.ArgumentParser:
    parser = OptionParser(
        prog="python -m lab.tune_replay",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "cachefile",
        type=Path,
        nargs="?",
        help="recording for which an oracle is started; this process does not open it",
    )
    add("--measure", metavar="unix:SOCKET", help="socket of an oracle that runs already")
    add("--budget", type=int, default=200, help="different configurations for each seed (default: 200)")
    add("--seeds", type=int, default=1, help="number of seeds (default: 1)")
    add("--first-seed", type=int, default=0, help="the first seed; the others follow (default: 0)")
    add(
        "--warm-from",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="measurements on another device, as cache file or as JSON of kernelcast; repeatable",
    )
    add("--search", default=OWN, metavar="NAME", help="own (default), optuna, kernel-tuner, or that of another package")
    add("--through", choices=["kafka"], help="tune a program whose outcomes go through exporter, Kafka and predictor")
    add("--format", choices=["json"], default="json", help="format of the document")
    add("--log", type=Path, help="log of the oracle that is started: every request with its answer")
    return parser


def _version() -> str:
    try:
        return version("kernelcast")
    except PackageNotFoundError:
        return "unknown"

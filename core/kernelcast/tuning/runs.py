"""Whole runs of a program with two values of its tunables, in the order of an experiment, until it decides.

`python -m kernelcast.tuning.runs --set bucket_mb=25 --against bucket_mb=1 -- python train.py --steps 200`

For tunables that change at a restart only. Both values reach the program in KERNELCAST_SET, which `probe.tunable`
reads. If the last line of a run is a JSON object with `seconds`, and `items` if it counts them, the run is judged by
that, else by its wall time. No hints are tried in these runs, and values that the node has kept are not used.

exit code: 0 kept (proved faster), 3 not kept, 1 a run of the old value failed, 2 an option cannot be used
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from kernelcast.tuning.experiment import Arm, Decision, Experiment, ExperimentVerdict, Rules

SET: Final = "KERNELCAST_SET"
KEPT, FAILED, USAGE, NOT_KEPT = 0, 1, 2, 3
"""Exit codes."""
PROCESSES: Final = Rules(settle=0, maximum_new=40).by_epoch()
"""A process has nothing left of the one before: no run is left out, and a block has two."""


class RunFailedError(Exception):
    """A run ended with an error."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One run: its seconds and items."""

    seconds: float
    items: float = 1.0


def prove(
    run: Callable[[Mapping[str, str]], MeasuredRun],
    new: Mapping[str, str],
    old: Mapping[str, str],
    *,
    seed: int,
    rules: Rules = PROCESSES,
) -> ExperimentVerdict:
    """Run with new and old values in turn until the experiment decides.

    Args:
        run: Runs the program once with values of its tunables.
        new: The values on trial.
        old: The values in force.
        seed: Of the order.
        rules: Limits.

    Raises:
        RunFailedError: A run with the old values failed.
    """
    experiment = Experiment(seed=seed, rules=rules, attributed=True)
    while (verdict := experiment.verdict()) is None:
        if experiment.waiting:
            experiment.end_of_records()
            continue
        arm = experiment.next_arm()
        try:
            measured = run(new if arm is Arm.CANDIDATE else old)
        except RunFailedError as error:
            if arm is Arm.KEPT:
                raise
            experiment.failed(str(error))
        else:
            experiment.record(arm, measured.seconds, measured.items)
    return verdict


def run_command(command: Sequence[str], values: Mapping[str, str]) -> MeasuredRun:
    """Run a command once.

    Raises:
        RunFailedError: It cannot be started, or ended with another code than 0.
    """
    own = {SET: json.dumps(dict(values)), "KERNELCAST_HINTS": "off", "KERNELCAST_TUNING_DIRECTORY": "off"}
    began = time.monotonic()
    environ, pipe = {**os.environ, **own}, subprocess.PIPE
    try:
        done = subprocess.run(command, stdout=pipe, text=True, errors="replace", check=False, env=environ)
    except OSError as error:
        raise RunFailedError(f"{command[0]} cannot be started: {error}") from error
    seconds = time.monotonic() - began
    if done.returncode:
        raise RunFailedError(f"{command[0]} ended with {done.returncode} under {dict(values)}")
    return _reported(done.stdout) or MeasuredRun(seconds)


def _reported(output: str) -> MeasuredRun | None:
    """The measurement that a run prints as its last line; None if that is another line."""
    try:
        found = json.loads(output.strip().rpartition("\n")[2])
        return MeasuredRun(float(found["seconds"]), float(found.get("items", 1.0)))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def _values(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise argparse.ArgumentTypeError(f"{text!r} is no NAME=VALUE; write bucket_mb=25")
        found[name] = value
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Prove a change of values by whole runs; returns the exit code."""
    parser = argparse.ArgumentParser("python -m kernelcast.tuning.runs", description=__doc__.partition("\n")[0])
    parser.add_argument("--set", action="append", required=True, metavar="NAME=VALUE", help="a value on trial")
    parser.add_argument("--against", action="append", required=True, metavar="NAME=VALUE", help="the value in force")
    parser.add_argument("--seed", type=int, default=None, help="of the order; default: drawn")
    parser.add_argument("command", nargs="+", help="the program, after --")
    options = parser.parse_args(arguments)
    try:
        new, old = _values(options.set), _values(options.against)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    seed = Random().randrange(2**32) if options.seed is None else options.seed  # noqa: S311  no secret
    try:
        verdict = prove(lambda values: run_command(options.command, values), new, old, seed=seed)
    except RunFailedError as error:
        sys.stderr.write(f"kernelcast: {error}; nothing was compared\n")
        return FAILED
    runs = {"runs": verdict.kept_launches + verdict.candidate_launches, "ratio": verdict.ratio}
    document = {"decision": verdict.decision, "reason": verdict.reason, "interval": verdict.interval, **runs}
    sys.stdout.write(json.dumps(document) + "\n")
    return KEPT if verdict.decision is Decision.KEPT else NOT_KEPT


if __name__ == "__main__":
    sys.exit(main())

"""Runs random schedules of faults: `python -m tests.faults.run --schedules 10000 --seed 1 [--record FILE]`.

A schedule that breaks an invariant is shortened, printed as JSON, and can be run again with `--replay FILE`. Schedules
are drawn from a seed and a number instead of by hypothesis, because a run goes on after a finding, and because real
schedules (`--real`), which take a minute each, are shortened by the same code. A run with a finding ends with 1.
"""

import argparse
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from tests.faults.model.operations import ON_REQUEST, WEIGHTS, Schedule
from tests.faults.revision import revision
from tests.faults.shrink import shortened

say = partial(print, flush=True)
PROGRESS_SECONDS = 10.0


class Outcome(NamedTuple):
    """Result of one schedule; `kind` is empty where every invariant held."""

    number: int
    kind: str
    detail: str
    schedule: Schedule


def quiet() -> None:
    """Log nothing: faults make the bridges warn all the time."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))


def outcome(number: int, *, seed: str, without: Sequence[str], only: Sequence[str] = ()) -> Outcome:
    """Draw and run one schedule."""
    schedule = Schedule.drawn(f"{seed}/{number}", without=without, only=only)
    kind, detail = schedule.finding()
    return Outcome(number, kind, detail, schedule)


def in_process(options: argparse.Namespace, keep: Callable[[dict[str, Any]], None] = lambda _: None) -> dict[str, Any]:
    """Run schedules in memory, in several processes; returns the results to be recorded.

    Args:
        options: See `main`.
        keep: Called with the results so far about every ten seconds, so that a run that is stopped has a record.
    """

    def so_far() -> dict[str, Any]:
        return {
            "level": "in process",
            "done": done,
            "seconds": round(said - began),
            "found": found,
            "findings": findings,
        }

    began, found, done = time.monotonic(), Counter[str](), 0
    findings: list[dict[str, Any]] = []
    said = began
    one = partial(outcome, seed=options.seed, without=options.without, only=options.only)
    with Pool(options.processes, initializer=quiet) as pool:
        for result in pool.imap_unordered(one, range(options.first, options.first + options.schedules), 4):
            done += 1
            if result.kind:
                found[result.kind] += 1
                findings.append(recorded(result, shorten=found[result.kind] <= options.most))
            if time.monotonic() - said > PROGRESS_SECONDS or done == options.schedules:
                said = time.monotonic()
                say(f"{done} of {options.schedules} schedules, {found.total()} findings, {said - began:.0f} s")
                keep(so_far())
    return so_far()


def recorded(result: Outcome, *, shorten: bool) -> dict[str, Any]:
    """Print a finding; returns its record."""
    schedule, detail = result.schedule, result.detail
    say(f"schedule {result.number}: {result.kind}, after {len(schedule.operations)} operations: {detail}")
    if shorten:
        schedule = shortened(schedule, result.kind)
        _, detail = schedule.finding()
        say(f"  shortened: {json.dumps(schedule.plain())}\n  {detail}")
    return {"number": result.number, "kind": result.kind, "detail": detail, "schedule": schedule.plain()}


def replay(path: Path, *, real: bool, logs: Path | None, protocol: str) -> int:
    """Run one schedule from a file, in memory or with real processes; 1 if it breaks an invariant."""
    schedule = Schedule.of(json.loads(path.read_text()))
    if real:
        from tests.faults.real.run import runner  # needs Kafka

        with runner(say, logs=logs, protocol=protocol) as running:
            kind, detail = running.run(schedule)
    else:
        kind, detail = schedule.finding()
    say(f"{kind}: {detail}" if kind else "every invariant holds")
    return int(bool(kind))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.run", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--schedules", type=int, default=500, help="schedules in memory (default: 500)")
    parser.add_argument("--real", type=int, default=0, metavar="N", help="run N schedules with real processes instead")
    parser.add_argument("--seed", default="1", help="any text; the same seed draws the same schedules (default: 1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first schedule (default: 0)")
    parser.add_argument("--without", nargs="*", default=[], metavar="NAME", help="operations to leave out")
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        choices=[*WEIGHTS, *ON_REQUEST],
        metavar="NAME",
        help=f"operations to draw from, in memory; {', '.join(ON_REQUEST)} are drawn only if they are named",
    )
    parser.add_argument("--most", type=int, default=2, help="findings of one kind that are shortened (default: 2)")
    parser.add_argument("--processes", type=int, default=1, help="processes to run schedules in (default: 1)")
    parser.add_argument("--at-once", type=int, default=1, help="real schedules to run at the same time (default: 1)")
    parser.add_argument("--as-found", action="store_true", help="do not shorten real schedules that break an invariant")
    parser.add_argument(
        "--record",
        type=Path,
        help="file for the results: JSON; of real schedules a line each, and those in the file are not run again",
    )
    parser.add_argument("--logs", type=Path, help="folder for the logs of real schedules that break an invariant")
    parser.add_argument(
        "--protocol",
        choices=("classic", "consumer"),
        default="classic",
        help="of the group in real schedules; consumer is KIP-848's (default: classic)",
    )
    parser.add_argument("--replay", type=Path, help="JSON file with one schedule, to be run again; --real 1: really")
    options = parser.parse_args(arguments)
    quiet()
    if options.replay:
        return replay(options.replay, real=bool(options.real), logs=options.logs, protocol=options.protocol)
    at = revision()

    def whole_of(record: dict[str, Any]) -> dict[str, Any]:
        return {"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z", "revision": at, "seed": options.seed, **record}

    def keep(record: dict[str, Any]) -> None:
        if options.record:
            options.record.write_text(json.dumps(whole_of(record), indent=1) + "\n")

    if options.real:
        from tests.faults.real.run import Options, run_real  # needs Kafka

        how = Options(
            options.at_once,
            not options.as_found,
            options.record,
            tuple(options.without),
            options.logs,
            options.protocol,
        )
        record = run_real(options.real, seed=options.seed, first=options.first, say=say, options=how)
    else:
        record = in_process(options, keep)
        keep(record)
    whole = whole_of(record)
    found = sum(whole["found"].values())
    say(f"{whole['done']} schedules at {whole['revision']}, seed {options.seed}: {found} findings")
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main())

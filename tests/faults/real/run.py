"""Runs schedules with real processes on one cluster, several at once, and shortens those that fail."""

import contextlib
import resource
import shutil
import signal
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from tests.faults.model.invariants import Violation
from tests.faults.model.operations import Schedule
from tests.faults.model.world import Operation
from tests.faults.real.kafka import three_nodes
from tests.faults.real.operations import RealOperations, drawn, skipped
from tests.faults.real.skewed_clock import build
from tests.faults.real.world import BROKER_OPERATIONS, SETTLE_SECONDS, RealWorld, Scene, revive
from tests.faults.record import Record, Result
from tests.faults.revision import revision
from tests.faults.shrink import shrunk
from tests.service.nursery import nursery
from tests.support.runtime.certificates import self_signed

LONGEST_SECONDS: Final = 120.0
BATCH: Final = 60
"""In each batch of this many schedules, those with faults of brokers run last."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Options:
    """Options of a run.

    Attributes:
        at_once: Schedules that run at the same time; those with faults of brokers run alone.
        shorten: Whether operations are left out of schedules that fail, until none can be.
        record: File for results; schedules that it has are not run again.
        without: Operations to leave out.
        logs: Folder for the logs of schedules that fail.
        protocol: Of the bridges' group: `classic` or `consumer`.
    """

    at_once: int = 1
    shorten: bool = True
    record: Path | None = None
    without: tuple[str, ...] = ()
    logs: Path | None = None
    protocol: str = "classic"


class Runner:
    """Runs one schedule after the other, or several at once, in one scene.

    Attributes:
        stopping: Whether no further schedule is to begin.
    """

    def __init__(
        self,
        scene: Scene,
        say: Say,
        *,
        without: Sequence[str] = (),
        logs: Path | None = None,
        number: Iterator[int] | None = None,
    ) -> None:
        self._scene, self._say, self._logs = scene, say, logs
        self._number = number or count(1)
        self.stopping = threading.Event()
        reasons = skipped()
        self._without = {*without, *reasons}
        for name, reason in reasons.items():
            say(f"{name} is left out: {reason}")

    def drawn(self, name: str) -> tuple[str, Schedule]:
        """A name and its schedule, without what cannot be done."""
        return name, self._possible(drawn(name))

    def run(self, schedule: Schedule) -> tuple[str, str]:
        """Run a schedule: which invariant does not hold, and how it was seen; empty where all hold."""
        schedule = self._possible(schedule)
        tag = f"{next(self._number)}-{time.time_ns() % 1_000_000}"
        kind, detail = self._finding(schedule, tag)
        if kind and self._logs is not None:
            detail = f"{detail} (logs: {tag})"
        return kind, detail

    def _finding(self, schedule: Schedule, tag: str) -> tuple[str, str]:
        names = frozenset(operation.name for operation in schedule.operations)
        try:
            with contextlib.closing(RealWorld(schedule.setting, self._scene, tag, names)) as world:
                try:
                    world.begin()
                    _apply(schedule, world)
                    world.settle()
                except Violation as violation:
                    self._keep(world.directory)
                    pause = f"longest pause between writes: {world.longest_pause_seconds:.0f} s"
                    return violation.kind, f"{violation} ({pause})"
                except Exception:
                    self._keep(world.directory)
                    raise
        except AssertionError as error:
            return "a server fails", str(error)
        except Exception as error:  # noqa: BLE001  one schedule must not end the run
            return f"the run fails with {type(error).__name__}", traceback.format_exc(limit=-4)
        finally:
            if schedule.has(BROKER_OPERATIONS):
                for node in self._scene.kafka.nodes:
                    revive(node)
        return "", ""

    def result(self, name: str, schedule: Schedule) -> Result:
        """Run a schedule, and say what came of it."""
        began = time.monotonic()
        kind, detail = self.run(schedule)
        result = Result(name, schedule, kind, detail, time.monotonic() - began)
        self._say(f"real {name}: {kind or 'every invariant holds'} {detail[:300]} ({result.seconds:.0f} s)")
        return result

    def with_defect(self, name: str) -> "Runner":
        """A runner in the same scene whose bridges have a defect of `with_defect`."""
        return Runner(replace(self._scene, defect=name), self._say, number=self._number)

    def shortened(self, schedule: Schedule, kind: str) -> Schedule:
        """A schedule with operations left out; each try takes a minute, so nothing else is made smaller."""

        def still(few: Sequence[Operation]) -> bool:
            return self.run(replace(schedule, operations=tuple(few)))[0] == kind

        return replace(schedule, operations=tuple(shrunk(schedule.operations, still, smaller=lambda _: iter(()))))

    def _keep(self, directory: Path) -> None:
        if self._logs is not None:
            for log in directory.rglob("*.log"):
                kept = self._logs / directory.name
                kept.mkdir(parents=True, exist_ok=True)
                shutil.copy(log, kept)

    def _possible(self, schedule: Schedule) -> Schedule:
        return schedule.with_operations([one for one in schedule.operations if one.name not in self._without])


@contextlib.contextmanager
def runner(
    say: Say, *, without: Sequence[str] = (), logs: Path | None = None, protocol: str = "classic"
) -> Iterator[Runner]:
    """A runner with three nodes of its own; logs of schedules that fail are kept in `logs`."""
    with nursery() as nurse, three_nodes() as (kafka, directory):
        web, clocks = self_signed(directory, "web"), build(directory)
        scene = Scene(kafka, directory, nurse, web, clocks, protocol)
        yield Runner(scene, say, without=without, logs=logs)


def run_real(number: int, *, seed: str, first: int, say: Say, options: Options) -> dict[str, Any]:
    """Run real schedules; returns the results to be recorded."""
    began, processor_seconds = time.monotonic(), _processor_seconds()
    record = Record(options.record, revision())
    done = record.done()
    names = [f"{seed}/{each}" for each in range(first, first + number)]
    left = [name for name in names if name not in done]
    found, findings = Counter[str](), []
    made = runner(say, without=options.without, logs=options.logs, protocol=options.protocol)
    with made as running, _stopped_by_signals(running):
        results = list(run_all(running, map(running.drawn, left), at_once=options.at_once, record=record))
        for result in results:
            if result.kind:
                found[result.kind] += 1
                shorten = options.shorten and not running.stopping.is_set()
                short = running.shortened(result.schedule, result.kind) if shorten else result.schedule
                say(f"  {result.name}: {short.plain()}")
                findings.append(
                    {"name": result.name, "kind": result.kind, "detail": result.detail, "schedule": short.plain()}
                )
    seconds = time.monotonic() - began
    each = (_processor_seconds() - processor_seconds) / max(1, len(results))
    cost = f"{len(results)} schedules, {options.at_once} at once: {seconds:.0f} s, {each:.0f} processor seconds each"
    record.note(cost)
    say(cost)
    return {"level": "real", "done": len(results), "seconds": round(seconds), "found": found, "findings": findings}


def run_all(
    running: Runner, named: Iterable[tuple[str, Schedule]], *, at_once: int, record: Record
) -> Iterator[Result]:
    """Run schedules with their names, some at the same time; those with faults of brokers run alone."""
    left = list(named)
    for begin in range(0, len(left), BATCH):
        batch = left[begin : begin + BATCH]
        alone = [one for one in batch if one[1].has(BROKER_OPERATIONS)]
        yield from run_together(running, [one for one in batch if one not in alone], at_once=at_once, record=record)
        yield from run_together(running, alone, at_once=1, record=record)


def run_together(
    running: Runner, named: Iterable[tuple[str, Schedule]], *, at_once: int, record: Record
) -> list[Result]:
    """Run schedules with their names at the same time; faults of brokers in one of them are felt by all."""

    def one(which: tuple[str, Schedule]) -> Result | None:
        if running.stopping.is_set():
            return None
        result = running.result(*which)
        record.add(result)
        return result

    with ThreadPoolExecutor(at_once) as pool:
        return [result for result in pool.map(one, named) if result is not None]


@contextlib.contextmanager
def _stopped_by_signals(running: Runner) -> Iterator[None]:
    """Let SIGTERM and SIGINT end a run after the schedules that run now."""
    previous = {
        number: signal.signal(number, lambda *_: running.stopping.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _apply(schedule: Schedule, world: RealWorld) -> None:
    operations = RealOperations(world)
    patience = world.patience(LONGEST_SECONDS - SETTLE_SECONDS)
    for operation in schedule.operations:
        if not patience.ended:
            operations.apply(operation)


def _processor_seconds() -> float:
    """Of this process and of those that it has waited for, their children included."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)

"""Jobs of several ranks in one process: threads that meet in a group, with a clock of their own and invented times."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.support.probe.orders import GivenOrders

from kernelcast.probe.hints import HintContext, HintReceiver
from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.tunables import Terms, Tunable, TunableSet
from kernelcast.probe.tuned.space import ProgramSpace, SpaceServices, SpaceTerms, make_space
from kernelcast.tuning.experiment import Rules
from kernelcast.tuning.journal import Journal
from kernelcast.wire.cloudevents import NANOSECONDS
from kernelcast.wire.events import Hint, HintMode, Outcome, OutcomeState, to_event

NOW_NS = 1_000 * NANOSECONDS
HANG_SECONDS = 6.0
FINAL = (
    OutcomeState.KEPT,
    OutcomeState.ROLLED_BACK,
    OutcomeState.REJECTED,
    OutcomeState.EXPIRED,
    OutcomeState.SUPERSEDED,
)


class HangError(BaseException):
    """A rank waited for others that did not come: a defect of the code under test."""


class BrokenGroupError(ConnectionError):
    """A rank is gone, as sockets report it."""


class Meetings:
    """All-gathers of threads; a rank that is gone breaks them for all, as closed sockets do."""

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        self.held = 0
        self.gone = False
        self.hang_seconds = HANG_SECONDS
        self._condition = threading.Condition()
        self._texts: dict[int, str] = {}
        self._result: list[str] = []

    def of(self, rank: int) -> "RankGroup":
        return RankGroup(self, rank)

    def gather(self, rank: int, text: str) -> list[str]:
        with self._condition:
            if self.gone:
                raise BrokenGroupError("a rank is gone")
            number = self.held
            self._texts[rank] = text
            if len(self._texts) == self.ranks:
                self._result = [self._texts[one] for one in range(self.ranks)]
                self._texts = {}
                self.held += 1
                self._condition.notify_all()
            elif not self._condition.wait_for(lambda: self.held > number or self.gone, self.hang_seconds):
                self.gone = True
                raise HangError(f"rank {rank} waits in exchange {number}; there are {sorted(self._texts)}")
            if self.held == number:
                raise BrokenGroupError("a rank is gone")
            return list(self._result)

    def leave(self) -> None:
        with self._condition:
            self.gone = True
            self._condition.notify_all()


@dataclass
class RankGroup:
    """The group as one rank sees it, with errors that a test plants."""

    meetings: Meetings
    rank: int
    before: Callable[[], None] = lambda: None
    calls: int = 0

    def all_gather(self, text: str) -> list[str]:
        self.calls += 1
        self.before()
        return self.meetings.gather(self.rank, text)


QUICK = Rules(maximum_new=130, worst=1.2, short_launches=1, slot_launches=1, look_launches=0)
"""Trials of steps without long ones, so that few decide."""


class RankProgram:
    """One rank: a tunable, a clock, and steps whose time depends on the value."""

    def __init__(self, rank: int, terms: Terms, *, directory: Path | None = None, seed: int | None = 1) -> None:
        self.rank = rank
        self.now_ns = NOW_NS
        self.step_ns = 0
        self.recorder = Recorder()
        self.tunables = TunableSet()
        self.outcomes = OutcomeQueue("training", str(rank), lambda: self.now_ns, lambda: None)
        self.orders = GivenOrders([str(directory or "")], clock=lambda: self.now_ns / NANOSECONDS, program="training")
        self.context = HintContext(
            "training",
            str(rank),
            "v1",
            lambda: "NVIDIA A100",
            lambda: self.now_ns,
            QUICK,
            seed,
            self.orders,
            Journal(directory, "training") if directory else None,
            lambda: self.step_ns,
        )
        self.receiver = HintReceiver(self.tunables, self.recorder, self.outcomes, self.context)
        self.terms = terms
        self.values: list[int] = []
        self.configurations: list[str] = []
        self.batch: Any = None
        self.space: Any = None
        self.heard: list[Outcome] = []

    def register(self, name: str = "batch", restored: str | None = None) -> Tunable[int]:
        tunable = Tunable(name, [48, 64, 128], 48, self.terms)
        self.tunables.add(tunable)
        self.receiver.watch(tunable, restored)
        self.batch = tunable
        return tunable

    def declare(
        self,
        name: str,
        parameters: Mapping[str, Sequence[Any]],
        start: Mapping[str, Any],
        terms: SpaceTerms,
        share: float = 0.01,
    ) -> ProgramSpace:
        """Declare a space whose configuration the steps run."""

        def announce(name: str, allowed: Sequence[str], value: str, terms: Terms) -> Tunable[str]:
            tunable = Tunable(name, allowed, value, terms)
            last = self.context.journal.kept(name, "v1") if self.context.journal else None
            self.tunables.add(tunable)
            self.receiver.watch(tunable, last)
            return tunable

        services = SpaceServices(
            True,
            self.context.journal,
            self.receiver.trial_prevented,
            "v1",
            str(self.rank),
            announce=announce,
            search_together=self.receiver.councils.search_together,
        )
        made = make_space(name, parameters, start, None, None, services, terms=terms, share=share)
        self.space = made
        return made

    def hear(self, **changes: Any) -> None:
        facts: dict[str, Any] = {
            "hint_id": "h1",
            "program": "training",
            "tunable": "batch",
            "value": "128",
            "expires_at_ns": NOW_NS + 600 * NANOSECONDS,
            "mode": HintMode.CANARY,
        }
        self.receiver.receive(to_event(Hint(**{**facts, **changes}), source="/test", time_ns=NOW_NS))

    def step(self, seconds: float, *, items: float = 1.0, epoch: bool = False) -> None:
        """One step of the program that takes this long."""
        if self.batch is not None:
            self.values.append(self.batch.value)
        if self.space is not None:
            self.configurations.append(_shown(self.space.configuration))
        self.step_ns += round(seconds * 1e9)
        self.now_ns += round(seconds * 1e9)
        self.receiver.at_boundary(epoch=epoch, items=items)

    def outcomes_of(self, hint_id: str) -> list[Outcome]:
        return [one for one in self.outcomes.history if one.hint_id == hint_id]

    def final(self, hint_id: str = "h1") -> list[Outcome]:
        return [one for one in self.outcomes_of(hint_id) if one.state in FINAL]


@dataclass
class Job:
    """Ranks as threads.

    Attributes:
        programs: The ranks.
        errors: What reached a rank's program.
    """

    programs: list[RankProgram]
    errors: list[BaseException] = field(default_factory=list)

    def run(self, body: Callable[[RankProgram], None]) -> None:
        """Run a function on every rank at the same time; an error of any of them is raised here."""

        def guarded(program: RankProgram) -> None:
            try:
                body(program)
            except BaseException as error:  # noqa: BLE001  raised below, in the test's thread
                self.errors.append(error)

        threads = [threading.Thread(target=guarded, args=(program,), daemon=True) for program in self.programs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * HANG_SECONDS)
        assert not any(thread.is_alive() for thread in threads), "a rank hangs"
        if self.errors:
            raise self.errors[0]


def job_of(ranks: int, **terms: Any) -> tuple[Job, Meetings]:
    """Make a job whose ranks share a collective tunable; they register it when they run."""
    meetings = Meetings(ranks)
    groups = [meetings.of(rank) for rank in range(ranks)]
    programs = [RankProgram(rank, Terms(scope="collective", group=group, **terms)) for rank, group in enumerate(groups)]
    for program, group in zip(programs, groups, strict=True):
        program.group = group  # type: ignore[attr-defined]
    return Job(programs), meetings


def noisy(program: RankProgram, random: Random, times: dict[int, float], noise: float) -> float:
    """Time of a step with the present value."""
    return times[program.batch.value] * random.lognormvariate(0, noise)


def same(lists: Sequence[Sequence[Any]]) -> bool:
    """Whether all lists are equal."""
    return all(list(one) == list(lists[0]) for one in lists)


def _shown(configuration: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in configuration.items())

"""Random schedules of faults for four ranks with a collective tunable, as threads of one process.

Faults: a rank that is killed, errors of the program's group before and after an exchange, hints that come late or reach
some ranks only, hints that are withdrawn, orders to stop, ranks that end early, configurations that fail on another
node; in half of the jobs also SIGKILLs of Kafka, the predictor and the exporters, see `services`. In half of the jobs
the ranks search a collective space besides.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.faults.ranks.drawing import RANKS, STEPS, Fault, Schedule
from tests.faults.ranks.services import Services
from tests.support.probe.ranks import BrokenGroupError, Job, Meetings, RankGroup, RankProgram

from kernelcast.probe.ranks.messages import is_search
from kernelcast.probe.tunables import Terms
from kernelcast.probe.tuned.space import SpaceTerms
from kernelcast.tuning.search import Sweep
from kernelcast.tuning.space import Space
from kernelcast.wire.cloudevents import NANOSECONDS
from kernelcast.wire.events import HintMode, Outcome, OutcomeState, outcome_from, withdrawal
from kernelcast.wire.tuning.experience import Experience

FOR_ALL: Final = ("h1", "128")
FOR_SOME: Final = ("h2", "64")
ALLOWED: Final = {48, 64, 128}
KEY: Final = "training|batch|"
SPACE: Final = {"workers": [0, 4], "prefetch": [2, 4]}
SPACE_START: Final = {"workers": 0, "prefetch": 2}
BANNED: Final = "workers=4 prefetch=4"
CONFIGURATIONS: Final = {f"workers={one} prefetch={two}" for one in SPACE["workers"] for two in SPACE["prefetch"]}


class KilledError(BaseException):
    """The rank is gone without a word."""


class FaultyGroup:
    """A rank's group with planted errors; offers only the methods of the schedule's kind of group."""

    def __init__(self, group: RankGroup, faults: tuple[Fault, ...], kind: str) -> None:
        self._group = group
        self._before = {fault.at for fault in faults if fault.kind == "before" and fault.rank == group.rank}
        self._after = {fault.at for fault in faults if fault.kind == "after" and fault.rank == group.rank}
        self.rank, self.size = group.rank, group.meetings.ranks
        self.exchanges = 0
        self.program: RankProgram | None = None
        self.steps: list[int] = []
        if kind == "all_gather":
            self.all_gather = self._gather
        else:
            self.broadcast = self._broadcast

    def _gather(self, text: str) -> list[str]:
        number = self.exchanges
        if number in self._before:
            self._before.discard(number)
            raise RuntimeError("planted before the exchange")
        found = self._group.all_gather(text)
        self.exchanges += 1
        self.steps.append(len(self.program.values) if self.program else 0)
        if number in self._after:
            raise ConnectionResetError("planted after the exchange")
        return found

    def _broadcast(self, text: str, root: int) -> str:
        return self._gather(text)[root]


class FailingSearch(Sweep):
    """A sweep that raises once it is broken."""

    broken = False

    def ask(self) -> int | None:
        """Return the next configuration, or raise."""
        if self.broken:
            raise ArithmeticError("planted in the search")
        return super().ask()


class FailsOnce:
    """Makes the next message of a rank fail."""

    def __init__(self, program: RankProgram) -> None:
        self._program = program
        self._reason = program.receiver.stop_reason
        program.receiver.stop_reason = self._fail  # type: ignore[method-assign]

    def _fail(self, announced: str = "") -> str:  # noqa: ARG002  as `HintReceiver.stop_reason`
        self._program.receiver.stop_reason = self._reason  # type: ignore[method-assign]
        raise ArithmeticError("planted in our own code")


@dataclass
class Run:
    """One schedule as it runs.

    Attributes:
        findings: Sentences about what broke an invariant.
        killed: Ranks that are gone.
        kept: The kept configuration of each rank after each step.
        taken: Outcomes that exporters have taken from each rank.
    """

    schedule: Schedule
    seed: str
    findings: list[str] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    kept: list[list[str]] = field(default_factory=lambda: [[] for _ in range(RANKS)])
    taken: list[list[Outcome]] = field(default_factory=lambda: [[] for _ in range(RANKS)])

    def __post_init__(self) -> None:
        schedule = self.schedule
        self.ours, self.theirs = Meetings(RANKS), Meetings(RANKS)
        self.groups = [FaultyGroup(self.ours.of(rank), schedule.faults, schedule.group) for rank in range(RANKS)]
        self.programs = [RankProgram(rank, Terms(scope="collective", group=self.groups[rank])) for rank in range(RANKS)]

        for program, group in zip(self.programs, self.groups, strict=True):
            group.program = program

    def checked(self) -> list[str]:
        """Run it, and return the findings."""
        job = Job(self.programs)
        try:
            job.run(self._guarded)
        except BaseException as error:  # noqa: BLE001  every error of a rank is a finding
            self.findings.append(f"{type(error).__name__}: {error}")
            return self.findings
        self._check_values()
        self._check_outcomes()
        if self.schedule.searches:
            self._check_searches()
        return self.findings

    def _guarded(self, program: RankProgram) -> None:
        try:
            self._program(program)
        except KilledError:
            self.killed.add(program.rank)
            self.ours.leave()
            self.theirs.leave()
        except BrokenGroupError:
            program.receiver.close()  # the program's own communication broke, as it would without us

    def _program(self, program: RankProgram) -> None:
        schedule, rank = self.schedule, program.rank
        random = Random(f"{self.seed} {rank}")
        mine = [fault for fault in schedule.faults if fault.rank == rank]
        program.register()
        searches: list[FailingSearch] = []
        if schedule.searches:
            self._declare(program, searches)
        for step in range(STEPS):
            for fault in (one for one in mine if one.at == step):
                self._strike(program, fault)
                for search in searches if fault.kind == "search" else ():
                    search.broken = True
            self._bring_hints(program, step, random)
            ratio = {48: 1.0, 64: 0.5, 128: 1 - schedule.gain}[program.batch.value]
            if program.space is not None:
                ratio *= 1 - 0.05 * program.space.workers - 0.05 * program.space.prefetch
            program.step(schedule.step_seconds * ratio * random.lognormvariate(0, 0.02))
            if tunable := program.tunables.get("feed"):
                self.kept[rank].append(tunable.kept)
            if schedule.coupled:
                self.theirs.gather(rank, "")
        program.receiver.close()

    def _bring_hints(self, program: RankProgram, step: int, random: Random) -> None:
        schedule, rank = self.schedule, program.rank
        if schedule.services is not None:
            self._serve(program, schedule.services, step)
        elif step == schedule.hints[rank]:
            program.hear(hint_id=FOR_ALL[0], value=FOR_ALL[1], mode=HintMode.CANARY)
        elif rank in schedule.some and step == 200:
            program.hear(hint_id=FOR_SOME[0], value=FOR_SOME[1], mode=random.choice(list(HintMode)[1:]))

    def _serve(self, program: RankProgram, services: Services, step: int) -> None:
        """Deliver the messages of the services at a step, and let an exporter that runs take the outcomes."""
        for one in services.deliveries.get((program.rank, step), ()):
            if one.value:
                program.hear(hint_id=one.hint_id, value=one.value, mode=HintMode.CANARY)
            else:
                program.receiver.receive(withdrawal(KEY, source="/test", time_ns=1_000 * NANOSECONDS))
        while step not in services.away.get(program.rank, ()) and (event := program.outcomes.first()):
            self.taken[program.rank].append(outcome_from(event))
            program.outcomes.sent(event)

    def _declare(self, program: RankProgram, searches: list[FailingSearch]) -> None:
        def made(space: Space, *, seed: int, seeds: Sequence[int] = ()) -> FailingSearch:
            searches.append(FailingSearch(space, seed=seed, seeds=seeds))
            return searches[-1]

        group = self.groups[program.rank]
        terms = SpaceTerms("step", "collective", group, search=made)
        program.declare("feed", SPACE, SPACE_START, terms, share=1.0)

    def _strike(self, program: RankProgram, fault: Fault) -> None:
        if fault.kind == "kill":
            raise KilledError
        if fault.kind == "stop":
            program.orders.order = "an order"
        elif fault.kind == "resume":
            program.orders.order = ""
        elif fault.kind == "own":
            FailsOnce(program)
        elif fault.kind == "learn":
            failed = Experience("training", "feed", "NVIDIA A100", "v1", failed=(BANNED,))
            program.receiver.councils.searches.learn(failed)
        elif fault.kind == "withdraw":
            program.receiver.receive(withdrawal(KEY, source="/test", time_ns=1_000 * NANOSECONDS))

    def _survivors(self) -> list[RankProgram]:
        return [program for program in self.programs if program.rank not in self.killed]

    def _check_values(self) -> None:
        alive = self._survivors()
        if any(set(program.values) - ALLOWED for program in self.programs):
            self.findings.append("a value that is not allowed")
        apart = [step for step in _differing([program.values for program in alive]) if not self._explained(step)]
        if apart:
            self.findings.append(f"ranks had different values in {len(apart)} steps from {apart[0]} to {apart[-1]}")
        if len({program.batch.kept for program in alive}) > 1 and not self._missed_at_the_end():
            self.findings.append(f"kept values differ in the end: {[program.batch.kept for program in alive]}")
        served = self.schedule.services is not None
        partial = len(self.schedule.some) < RANKS and not served
        if partial and any(64 in program.values for program in self.programs):
            self.findings.append("a hint that reached some ranks only took effect")

    def _check_searches(self) -> None:
        alive = self._survivors()
        if any(set(program.configurations) - CONFIGURATIONS for program in self.programs):
            self.findings.append("a configuration that is not valid")
        apart = _differing([program.configurations for program in alive])
        apart = [step for step in apart if not self._explained(step)]
        if apart:
            self.findings.append(f"ranks had different configurations in {len(apart)} steps from {apart[0]}")
        kept = {program.configurations[-1] for program in alive}
        if len(kept) > 1 and not self._missed_at_the_end():
            self.findings.append(f"configurations differ in the end: {kept}")
        for program in alive:
            states = [one.state for one in program.outcomes.history if one.is_search]
            begun, ended = states[::2], states[1::2]
            if set(begun) - {OutcomeState.APPLIED} or OutcomeState.APPLIED in ended or len(begun) != len(ended):
                self.findings.append(f"rank {program.rank} has for its search: {[str(one) for one in states]}")
        for fault in self.schedule.faults:
            if fault.kind == "learn" and fault.rank not in self.killed:
                self._check_ban(fault, alive)

    def _check_ban(self, fault: Fault, alive: Sequence[RankProgram]) -> None:
        """Two meetings after a rank knows of a failure, no rank tries the configuration; a kept one may stay."""
        meetings = sorted({one for one in self.groups[fault.rank].steps if one > fault.at})
        missed = any(self.schedule.has(kind) for kind in ("after", "kill"))
        if missed or len(meetings) < 3 or self.kept[fault.rank][meetings[1] + 1] == BANNED:
            return
        late = [program.rank for program in alive if BANNED in program.configurations[meetings[1] + 1 :]]
        if late:
            self.findings.append(f"ranks {late} ran {BANNED} after rank {fault.rank} knew at {fault.at} that it fails")

    def _explained(self, step: int) -> bool:
        """Whether a rank missed a message at most two meetings before a step."""
        for fault in self.schedule.faults:
            steps = self.groups[fault.rank].steps
            if fault.kind == "after" and fault.at < len(steps) and steps[fault.at] <= step:
                meetings = {one for one in steps if steps[fault.at] < one <= step}
                if len(meetings) <= 2:
                    return True
        return False

    def _missed_at_the_end(self) -> bool:
        """Whether a rank missed a message less than two meetings before the end."""
        calls = {"all_gather": 1, "broadcast": RANKS}[self.schedule.group]
        faults = [fault for fault in self.schedule.faults if fault.kind == "after"]
        return any(fault.at >= self.groups[fault.rank].exchanges - 2 * calls for fault in faults)

    def _check_outcomes(self) -> None:
        for hint_id in sorted({one.hint_id for program in self.programs for one in program.outcomes.history}):
            if is_search(hint_id):
                continue
            decisions = set()
            for program in self._survivors():
                states = [one.state for one in program.outcomes_of(hint_id)]
                final = program.final(hint_id)
                tried = [one for one in program.outcomes_of(hint_id) if _begins_a_trial(one)]
                ended = [one for one in final if one.state in (OutcomeState.KEPT, OutcomeState.ROLLED_BACK)]
                if len(tried) != len(ended) or len(final) > 1 or len(tried) > 1:
                    self.findings.append(f"rank {program.rank} has for {hint_id}: {[str(one) for one in states]}")
                decisions |= {one.state for one in ended}
            if len(decisions) > 1 and not self.schedule.has("after", "kill"):
                self.findings.append(f"ranks reported different ends of {hint_id}: {decisions}")
        for program in self._survivors() if self.schedule.services else ():
            waiting = [outcome_from(event) for event in program.outcomes._waiting]
            if (*self.taken[program.rank], *waiting) != program.outcomes.history:
                self.findings.append(f"rank {program.rank} lost or repeated an outcome while an exporter was away")


def _differing(values: Sequence[Sequence[object]]) -> list[int]:
    """Return the steps in which ranks had different values."""
    steps = range(min(map(len, values), default=0))
    return [step for step in steps if len({one[step] for one in values}) > 1]


def _begins_a_trial(outcome: Outcome) -> bool:
    return outcome.state is OutcomeState.APPLIED and outcome.reason.startswith("tried")


def findings(seed: str, *, run: Callable[[Run], list[str]] = Run.checked) -> list[str]:
    """Draw and run one schedule; return the sentences about broken invariants."""
    return run(Run(Schedule.drawn(seed), seed))

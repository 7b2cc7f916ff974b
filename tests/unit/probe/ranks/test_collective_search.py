"""A collective space is searched on all ranks together: one search, one decision, no exchange at ordinary steps."""

import random
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.probe.ranks import Job, Meetings, RankProgram, same
from tests.unit.probe.test_probe_hints import Program

from kernelcast.probe.ranks.searched import SearchMember
from kernelcast.probe.tunables import Terms, Tunable
from kernelcast.probe.tuned.collective import CollectiveSpace
from kernelcast.probe.tuned.notes import CandidateNotes
from kernelcast.probe.tuned.space import SpaceTerms
from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import Journal, JournalProcess
from kernelcast.wire.events import SEARCH_PREFIX, Outcome
from kernelcast.wire.tuning.experience import Experience

PARAMETERS: dict[str, list[Any]] = {"workers": [0, 2, 4, 8], "prefetch": [2, 4]}
START = {"workers": 0, "prefetch": 2}
BEST = "workers=8 prefetch=4"


def seconds(c: Any) -> float:
    return float(0.02 + 0.1 / (1 + c.workers) + (0.002 if c.prefetch == 2 else 0.0))


class Ranks:
    """A job whose ranks share a collective space."""

    def __init__(self, count: int = 4, *, directories: Mapping[int, Path] | None = None, **terms: Any) -> None:
        self.meetings = Meetings(count)
        self.programs = [RankProgram(rank, Terms(), directory=(directories or {}).get(rank)) for rank in range(count)]
        self.terms = terms
        self.seconds: Callable[[Any], float] = seconds
        self.items = 1.0
        self.at: dict[tuple[int, int], Callable[[RankProgram], None]] = {}
        """Deeds of a rank at a step."""

    def register(self, program: RankProgram) -> None:
        group = self.terms.get("group", self.meetings.of)(program.rank)
        terms = SpaceTerms("step", "collective", group, search=self.terms.get("search", "own"))
        program.declare("feed", PARAMETERS, START, terms, share=self.terms.get("share", 1.0))

    def run(self, steps: int, *, noise: float = 0.01) -> None:
        def body(program: RankProgram) -> None:
            drawn = random.Random(f"steps {program.rank}")
            self.register(program)
            for step in range(steps):
                if (deed := self.at.get((program.rank, step))) is not None:
                    deed(program)
                program.step(
                    self.seconds(program.space.configuration) * drawn.lognormvariate(0, noise), items=self.items
                )
            program.receiver.close()

        Job(self.programs).run(body)

    @property
    def shown(self) -> list[list[str]]:
        return [program.configurations for program in self.programs]

    def searches(self, rank: int) -> list[Outcome]:
        return [one for one in self.programs[rank].outcomes.history if one.hint_id.startswith(SEARCH_PREFIX)]


def test_the_ranks_search_together_and_keep_the_proved_best() -> None:
    """Review: a collective space was proposed by hints only; nothing searched it."""
    ranks = Ranks()
    ranks.run(1500)
    assert same(ranks.shown), "every rank has the same configuration in every step"
    assert ranks.shown[0][-1] == BEST
    assert len(set(ranks.shown[0])) == 8, "the whole space was swept"
    for rank in range(4):
        begun, kept = ranks.searches(rank)
        assert (begun.state.value, kept.state.value, kept.decision) == ("applied", "kept", "kept")
        assert (kept.candidate, kept.value, kept.previous) == (BEST, BEST, "workers=0 prefetch=2")
        assert kept.measured_ratio == pytest.approx(0.0311 / 0.122, rel=0.02)
    assert len({one.hint_id for rank in range(4) for one in ranks.searches(rank)}) == 1


def test_ordinary_steps_do_not_communicate() -> None:
    ranks = Ranks()
    ranks.run(3000)
    spent = ranks.programs[0].step_ns / 1e9
    assert ranks.meetings.held < 20 + spent / 0.2
    assert ranks.meetings.held < 1000


def test_the_pooled_time_decides_and_not_that_of_one_rank() -> None:
    """Ranks 1 to 3 are faster with another configuration than rank 0."""
    ranks = Ranks()

    def run_alone(program: RankProgram) -> Callable[[Any], float]:
        return lambda c: 0.1 * ((1.3 if program.rank == 0 else 0.5) if c.workers == 2 else 1.0)

    def body(program: RankProgram) -> None:
        own = run_alone(program)
        ranks.register(program)
        for _ in range(1500):
            program.step(own(program.space.configuration))

    Job(ranks.programs).run(body)
    assert {program.space.workers for program in ranks.programs} == {2}


def test_only_the_first_ranks_search_is_asked() -> None:
    asked: Counter[int] = Counter()

    class Asks:
        def __init__(self, rank: int) -> None:
            self.rank, self.left = rank, [4, 8]

        def ask(self) -> Mapping[str, Any] | None:
            asked[self.rank] += 1
            return {"workers": self.left.pop(0), "prefetch": 4} if self.left else None

        def tell(self, configuration: Mapping[str, Any], cost: float | None) -> None:
            del configuration, cost

    ranks = Ranks()
    ranks.register = lambda program: program.declare(  # type: ignore[assignment, method-assign]
        "feed",
        PARAMETERS,
        START,
        SpaceTerms("step", "collective", ranks.meetings.of(program.rank), search=Asks(program.rank)),
        share=1.0,
    )
    ranks.run(1200)
    assert set(asked) == {0}
    assert set(ranks.shown[3]) == {"workers=0 prefetch=2", "workers=4 prefetch=4", BEST}
    assert ranks.shown[3][-1] == BEST


def test_a_search_that_fails_leaves_the_start_in_force_on_all_ranks() -> None:
    """An error in a meeting means no proposal."""

    class Fails:
        def ask(self) -> Mapping[str, Any] | None:
            raise OSError("the model is gone")

        def tell(self, configuration: Mapping[str, Any], cost: float | None) -> None:
            del configuration, cost

    ranks = Ranks(search=Fails())
    ranks.run(400)
    assert {value for values in ranks.shown for value in values} == {"workers=0 prefetch=2"}
    for rank in range(4):
        assert [one.state.value for one in ranks.searches(rank)] == ["applied", "rolled_back"]
        assert "the model is gone" in ranks.searches(rank)[-1].reason


@pytest.mark.parametrize("rank", [0, 2])
def test_a_configuration_that_failed_on_one_rank_is_run_on_none(rank: int, tmp_path: Path) -> None:
    ended = JournalProcess(socket.gethostname(), 1, "its start")
    journal = Journal(tmp_path, "training", ended)
    journal.end("feed", BEST, Decision.FAILED, "v1", reason="out of memory")
    journal.begin("feed", "workers=8 prefetch=2", "v1")  # and its process ended
    ranks = Ranks(directories={rank: tmp_path})
    ranks.run(1500)
    assert same(ranks.shown)
    seen = {value for values in ranks.shown for value in values}
    assert BEST not in seen
    assert "workers=8 prefetch=2" not in seen
    assert ranks.shown[0][-1] == "workers=4 prefetch=4"


@pytest.mark.slow
def test_a_remembered_configuration_is_checked_instead_of_a_search(tmp_path: Path) -> None:
    folders = {rank: tmp_path / str(rank) for rank in range(4)}
    first = Ranks(directories=folders)
    first.run(1500)
    assert Journal(folders[3], "training").kept("feed", "v1") == BEST
    again = Ranks(directories=folders)
    again.run(600)
    assert same(again.shown)
    assert again.shown[0][0] == again.shown[0][-1] == BEST
    assert set(again.shown[0]) == {BEST, "workers=0 prefetch=2"}
    assert [one.state.value for one in again.searches(2)] == ["applied", "kept"]
    assert again.searches(2)[-1].reason.startswith("checked again: ")

    worse = Ranks(directories=folders)
    worse.seconds = lambda c: 0.02 + 0.01 * c.workers
    worse.run(1500)
    assert same(worse.shown)
    assert worse.shown[0][0] == BEST
    assert worse.shown[0][-1].startswith("workers=0")


def test_a_stop_on_one_rank_rests_the_search_on_all_and_it_goes_on_afterwards() -> None:
    ranks = Ranks()
    ranks.at = {
        (3, 100): lambda program: setattr(program.orders, "order", "an order"),
        (3, 400): lambda program: setattr(program.orders, "order", ""),
    }
    ranks.run(2500)
    assert same(ranks.shown)
    assert len(set(ranks.shown[0][20:100])) > 1
    assert set(ranks.shown[0][130:400]) == {"workers=0 prefetch=2"}
    assert ranks.shown[0][-1] == BEST


@pytest.mark.slow
def test_a_hint_for_a_tunable_of_the_ranks_or_of_one_goes_first() -> None:
    ranks = Ranks()

    def register(program: RankProgram) -> None:
        group = ranks.meetings.of(program.rank)
        program.terms = Terms(scope="collective", group=group)
        program.register("batch")
        program.declare("feed", PARAMETERS, START, SpaceTerms("step", "collective", group), share=1.0)

    ranks.register = register  # type: ignore[method-assign]
    ranks.at = {(rank, 40 + rank): RankProgram.hear for rank in range(4)}
    ranks.run(3000)
    assert same([program.values for program in ranks.programs])
    for program in ranks.programs:
        assert [one.state.value for one in program.outcomes_of("h1")] == ["received", "applied", "rolled_back"]
        assert program.space.workers == 8
    assert same(ranks.shown)


def test_a_rank_that_misses_a_message_is_with_the_others_again() -> None:
    ranks = Ranks()
    missed: list[int] = []

    class Misses:
        def __init__(self, rank: int) -> None:
            self.group = ranks.meetings.of(rank)
            self.rank = rank

        def all_gather(self, text: str) -> list[str]:
            found = self.group.all_gather(text)
            if self.rank == 2 and ranks.meetings.held in (30, 60, 61):
                missed.append(ranks.meetings.held)
                raise ConnectionResetError("planted after the exchange")
            return found

    ranks.terms = {"group": Misses}
    ranks.run(1500)
    assert missed
    apart = [step for step in range(1500) if ranks.shown[2][step] != ranks.shown[0][step]]
    assert len(apart) < 120
    assert {values[-1] for values in ranks.shown} == {BEST}
    for rank in range(4):
        states = [one.state.value for one in ranks.searches(rank)]
        assert states[::2] == ["applied"] * (len(states) // 2), "each search has one end"
        assert "applied" not in states[1::2]


def test_a_search_that_cannot_be_made_is_not_made_again_at_each_meeting() -> None:
    made = []

    def search(*_arguments: Any, **_named: Any) -> Any:
        made.append(1)
        raise RuntimeError("no licence")

    ranks = Ranks(2, search=search)
    ranks.run(300)
    assert len(made) == 1
    assert {value for values in ranks.shown for value in values} == {"workers=0 prefetch=2"}


@pytest.mark.slow
@pytest.mark.parametrize("items", [1.0, 64.0])
def test_a_search_costs_the_share_of_time_that_it_may(items: float) -> None:
    """Times per item were compared with the seconds that the search may cost."""
    ranks = Ranks(share=0.01)
    ranks.items = items
    ranks.seconds = lambda c: 0.1 + (0.9 if c.workers else 0.0)
    ranks.run(3000, noise=0.0)
    assert ranks.programs[0].step_ns / 1e9 < 300 * 1.01 + 20 * 0.1 + 2.0


def test_a_program_that_ends_in_a_search_reports_its_end_and_bans_nothing(tmp_path: Path) -> None:
    folders = {rank: tmp_path / str(rank) for rank in range(4)}
    ranks = Ranks(directories=folders)
    ranks.run(60)
    for rank in range(4):
        assert [one.state.value for one in ranks.searches(rank)] == ["applied", "rolled_back"]
        assert ranks.searches(rank)[-1].reason == "the program ended"
        later = Journal(folders[rank], "training", JournalProcess("node", 2, "later"), running=lambda _: False)
        assert [value for value in set(ranks.shown[rank]) if later.banned("feed", value, "v1")] == []


def test_a_configuration_that_gave_way_to_a_hint_is_not_banned_if_the_hints_trial_ends_the_process(
    tmp_path: Path,
) -> None:
    folders = {rank: tmp_path / str(rank) for rank in range(2)}
    ranks = Ranks(2, directories=folders)

    def body(program: RankProgram) -> None:
        ranks.register(program)
        program.tunables.add(Tunable("block", [48, 64], 48, Terms()))
        for step in range(120):
            if step == 60:
                program.hear(tunable="block", value="64")
            program.step(seconds(program.space.configuration))

    Job(ranks.programs).run(body)  # and the processes are killed
    for rank in range(2):
        assert len(set(ranks.shown[rank][:60])) > 1, "the search had begun"
        assert [one.state.value for one in ranks.programs[rank].outcomes_of("h1")] == ["received", "applied"]
        later = Journal(folders[rank], "training", JournalProcess("node", 2, "later"), running=lambda _: False)
        assert [value for value in set(ranks.shown[rank]) if later.banned("feed", value, "v1")] == []


def test_findings_that_arrive_while_a_space_is_added_are_kept() -> None:
    """Another thread receives them: here they arrive while the journal is asked."""
    program = Program()
    tunable: Tunable[str] = Tunable("block", ["48", "64", "96"], "48", Terms(scope="collective"))
    found = Experience("train", "block", "", "", failed=("96",))

    class Learning:
        def banned(self, *_: str) -> str:
            member.learn(found)
            return ""

    member = SearchMember(CandidateNotes(cast("Journal", Learning()), "v1"), program.outcomes)
    member.add(CollectiveSpace("block", "48"), tunable)
    member.learn(found)
    assert member.bans(["block"]) == (("block", (2,)),)

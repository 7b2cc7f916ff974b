"""The experiment of all ranks: which launches are compared, and how long the first rank waits for their times."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from kernelcast.probe.conditions.checks import HintContext
from kernelcast.probe.ranks.leading import Leader
from kernelcast.probe.ranks.messages import Ended, Offer, Report, Work
from kernelcast.probe.ranks.pooled import PooledTrial
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.tunables import Terms, Tunable
from kernelcast.tuning.experiment import Rules

RANKS = range(2)
Seconds = Callable[[str], float | None]


def faster(value: str) -> float:
    return 0.8 if value == "128" else 1.0


@dataclass
class Run:
    """Meetings of two ranks. As in a job, the first rank plans the next launches before it gets the last reports.

    Device times come one meeting after the launch's time, because a later launch completes them.
    """

    trial: PooledTrial
    device: tuple[Seconds, Seconds]
    launches: int = 8
    missing: Collection[tuple[int, int]] = ()
    between_ns: int = 0
    now_ns: list[int] = field(default_factory=lambda: [0])

    def until_end(self, meetings: int = 600) -> Ended | None:
        """Hold meetings until the trial ends; a rank's message at `missing` (meeting, rank) is lost."""
        works: list[Work] = []
        for meeting in range(meetings):
            works.append(self.trial.plan(self.launches))
            self.trial.pool(
                [self._report(works, rank) if (meeting, rank) not in self.missing else None for rank in RANKS]
            )
            if (ended := self.trial.ended()) is not None:
                return ended
            self.now_ns[0] += self.between_ns
        return None

    def _report(self, works: list[Work], rank: int) -> Report:
        wall = [(number, 1.0, 1.0) for number, _ in _planned(works[-2:-1])]
        seconds = [(number, self.device[rank](value)) for number, value in _planned(works[-3:-2])]
        device = [(number, one, 1.0) for number, one in seconds if one is not None]
        return Report(trial=works[-1].trial, launches=tuple(wall), device=tuple(device))


def _planned(works: Sequence[Work]) -> list[tuple[int, str]]:
    return [one for work in works for one in enumerate((v for v, count in work.plan for _ in range(count)), work.first)]


def run(*device: Seconds, by_device_time: bool = True, **settings: object) -> Run:
    now_ns = [0]
    trial = PooledTrial(
        Work("h1", "batch", "128", "48"), Rules(), seed=1, by_device_time=by_device_time, clock=lambda: now_ns[0]
    )
    first, second = device
    return Run(trial, (first, second), now_ns=now_ns, **settings)  # type: ignore[arg-type]


def test_a_launch_counts_by_the_device_times_of_all_ranks_or_not_at_all() -> None:
    """The first times of the slow rank are lost: those of the fast rank alone are no measure for later sums."""
    ended = run(faster, lambda value: 3 * faster(value), launches=4, missing={(2, 1)}).until_end()
    assert ended is not None
    assert (ended.decision, round(ended.ratio or 0, 3)) == ("kept", 0.8)


def test_device_times_are_reported_only_as_sums_of_all_ranks_where_the_launch_time_decides() -> None:
    ended = run(faster, lambda _value: None, by_device_time=False).until_end()
    assert ended is not None
    assert ended.device_time_ratio is None


def test_a_rank_without_device_times_ends_the_trial_with_a_reason_that_names_it() -> None:
    trial = run(faster, lambda _value: None, between_ns=10**9)
    ended = trial.until_end()
    assert ended is not None
    assert ended.decision == "inconclusive"
    assert "rank 1 has reported no device time" in ended.reason
    assert 30 <= trial.now_ns[0] / 1e9 < 60


def test_launches_of_a_minute_are_compared_although_their_times_come_later_than_the_patience() -> None:
    """An epoch as a launch: its device time is known after the next one, longer than the 30 s of short launches."""
    ended = run(faster, faster, launches=1, between_ns=60 * 10**9).until_end()
    assert ended is not None
    assert (ended.decision, round(ended.ratio or 0, 3)) == ("kept", 0.8)


def test_a_trial_that_has_a_verdict_is_not_abandoned() -> None:
    trial = run(faster, faster)
    ended = trial.until_end()
    assert trial.trial.abandon("its ranks could not agree") == ended


class LedTrial:
    """The first rank's decisions on a hint, from the reports of two ranks whose candidate is faster."""

    def __init__(self, stopped_at: int = -1) -> None:
        self.stopped_at = stopped_at
        self.meeting = 0
        self.tunable: Tunable[int] = Tunable("batch", [48, 128], 48, Terms("collective"))
        self.leader = Leader(Recorder(), self._context())

    def _context(self) -> HintContext:
        return HintContext("p", "0", "", str, lambda: 0, Rules(), 1, step_clock=lambda: self.meeting * 10**9)

    def until_end(self, meetings: int = 200) -> Ended:
        works: list[Work | None] = [None]
        for self.meeting in range(meetings):
            state = self.leader.state({"batch": self.tunable}, 8)
            if state.ended:
                return state.ended[-1]
            works.append(state.work)
            self.leader.decide({"batch": self.tunable}, [self._report(works[-2])] * 2)
        raise AssertionError("the trial did not end")

    def _report(self, work: Work | None) -> Report:
        stop = "hints.stop exists" if self.meeting == self.stopped_at else ""
        if work is None:
            return Report((Offer("h1", "batch", "128", "canary"),), stop)
        launches = tuple((number, faster(value), 1.0) for number, value in _planned([work]))
        return Report(stop=stop, trial=work.trial, launches=launches)


def test_a_stop_at_the_meeting_of_the_verdict_keeps_the_old_value() -> None:
    kept = LedTrial()
    assert kept.until_end().decision == "kept"
    ended = LedTrial(stopped_at=kept.meeting - 1).until_end()
    assert (ended.decision, ended.reason, ended.outside) == ("inconclusive", "hints.stop exists", True)

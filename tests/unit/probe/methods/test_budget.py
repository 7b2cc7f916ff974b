"""The limits of the probe's overhead."""

from hypothesis import given
from hypothesis import strategies as st

from kernelcast.probe.methods.budget import Budget, BudgetPolicy, SamplingLevel

SECOND = 10**9


class Run:
    """Feeds a budget once a second with what each level costs."""

    def __init__(self, costs: dict[SamplingLevel, float], policy: BudgetPolicy | None = None) -> None:
        self.budget = Budget(policy)
        self.costs = costs
        self.now_ns = self.spent_ns = 0
        self.levels: list[SamplingLevel] = []
        self.budget.feed(0, 0)

    def seconds(self, count: int) -> SamplingLevel:
        for _ in range(count):
            self.now_ns += SECOND
            self.spent_ns += round(self.costs[self.budget.level] * SECOND)
            self.levels.append(self.budget.feed(self.now_ns, self.spent_ns))
        return self.budget.level


def costs(full: float) -> dict[SamplingLevel, float]:
    return {
        SamplingLevel.FULL: full,
        SamplingLevel.HALF: full / 2,
        SamplingLevel.QUARTER: full / 4,
        SamplingLevel.COUNTS: full / 20,
        SamplingLevel.OFF: 0,
    }


def test_cheap_kernels_are_measured_in_full() -> None:
    assert Run(costs(0.009)).seconds(1000) is SamplingLevel.FULL


def test_from_one_per_cent_on_less_is_measured_one_level_at_a_time() -> None:
    run = Run(costs(0.015))
    assert run.seconds(5) is SamplingLevel.HALF
    assert run.seconds(50) is SamplingLevel.HALF


def test_from_two_per_cent_on_nothing_is_and_later_it_is_tried_again_with_counts() -> None:
    run = Run(costs(0.05))
    assert run.seconds(5) is SamplingLevel.OFF
    assert run.budget.off_at == 0.05
    assert run.seconds(299) is SamplingLevel.OFF
    assert run.seconds(1) is SamplingLevel.COUNTS


def test_each_time_it_stays_off_for_longer_up_to_an_hour() -> None:
    run = Run(dict.fromkeys(SamplingLevel, 0.03) | {SamplingLevel.OFF: 0.0})
    run.seconds(30_000)
    rests, length = [], 0
    for level in run.levels:
        if level is SamplingLevel.OFF:
            length += 1
        elif length:
            rests.append(length)
            length = 0
    assert rests[:6] == [300, 600, 1200, 2400, 3600, 3600]


def test_going_up_needs_a_long_calm_so_levels_do_not_swing() -> None:
    run = Run(costs(0.015))
    run.seconds(10)
    run.costs = costs(0.002)
    assert run.seconds(60) is SamplingLevel.HALF
    assert run.seconds(10) is SamplingLevel.FULL


def test_one_expensive_moment_before_anything_is_settled_is_forgiven() -> None:
    run = Run(costs(0.0))
    run.spent_ns += SECOND // 50
    assert run.seconds(100) is SamplingLevel.FULL


@given(
    st.lists(st.tuples(st.integers(1, 40), st.floats(0, 0.2)), min_size=1, max_size=30),
    st.floats(0.2, 1.0),
    st.floats(0.0, 0.5),
)
def test_over_a_long_run_it_never_costs_two_per_cent(
    phases: list[tuple[int, float]], half: float, counts: float
) -> None:
    """Whatever a level costs and however the program changes, but for the seconds in which a level is first tried."""
    policy = BudgetPolicy()
    run = Run(costs(0))
    tried = 0
    for seconds, full in phases:
        run.costs = {
            SamplingLevel.FULL: full,
            SamplingLevel.HALF: full * half,
            SamplingLevel.QUARTER: full * half * half,
            SamplingLevel.COUNTS: full * counts,
            SamplingLevel.OFF: 0.0,
        }
        for _ in range(seconds):
            before = run.budget.level
            run.seconds(1)
            tried += run.budget.level is not before
    dearest = max(full for _, full in phases)
    allowance = policy.off_ratio * (run.now_ns / SECOND + policy.window_seconds)
    settling = (tried + 1) * policy.settle_seconds * dearest
    assert run.spent_ns / SECOND <= allowance + settling + dearest

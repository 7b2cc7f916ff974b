"""When kernels are measured: the ranks of a job in the same moments, and the promised share of the time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.probe.cupti.windows.levels import NANOSECONDS, Level
from kernelcast.probe.cupti.windows.schedule import Schedule, window_seconds

DAY_NS = 1_800_000_000 * NANOSECONDS


@pytest.mark.parametrize(
    ("level", "pauses", "share"),
    [
        (Level.FULL, False, 1.0),
        (Level.FULL, True, 0.95),
        (Level.NO_WAITS, True, 0.95),
        (Level.TENTH, True, 1 / 10),
        (Level.THIRTIETH, False, 1 / 30),
        (Level.HUNDREDTH, True, 1 / 100),
    ],
)
def test_the_share_of_measured_time_is_that_of_the_level(level: Level, share: float, *, pauses: bool) -> None:
    schedule = Schedule("run-1")
    moments = [schedule.at(level, DAY_NS + at * NANOSECONDS // 4, pauses=pauses) for at in range(4 * 3000)]
    assert sum(moment.measuring for moment in moments) / len(moments) == pytest.approx(share, abs=0.001)


@given(st.integers(0, 10**19), st.sampled_from(Level), st.booleans(), st.text(max_size=20), st.floats(0, 20))
def test_the_next_change_is_the_first_one(unix_ns: int, level: Level, pauses: bool, job: str, step: float) -> None:  # noqa: FBT001
    schedule = Schedule(job, window_seconds(step))
    measuring, next_ns = schedule.at(level, unix_ns, pauses=pauses)
    assert next_ns > 0
    if next_ns < 2**63 - 1:
        assert schedule.at(level, unix_ns + next_ns - 1, pauses=pauses).measuring == measuring
        assert schedule.at(level, unix_ns + next_ns, pauses=pauses).measuring != measuring


def test_ranks_of_a_job_agree_and_jobs_differ() -> None:
    moments = [DAY_NS + second * NANOSECONDS for second in range(300)]
    seen = {
        job: [Schedule(job).at(Level.TENTH, at, pauses=True).measuring for at in moments]
        for job in ("a", "b", "c", "d")
    }
    assert seen["a"] == [Schedule("a").at(Level.TENTH, at, pauses=True).measuring for at in moments]
    assert len({tuple(row) for row in seen.values()}) > 1


@given(st.floats(0, 1e6))
def test_a_window_is_as_long_as_needed_and_hardly_longer(needed: float) -> None:
    bounded = min(max(needed, 1), 64)
    assert bounded - 1e-6 <= window_seconds(needed) <= 1.051 * bounded


def test_ranks_whose_steps_last_about_as_long_have_the_same_windows() -> None:
    assert window_seconds(2.002) == window_seconds(2)

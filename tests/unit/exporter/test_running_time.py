"""Running time: it never falls, and a clock that nobody sets changes nothing."""

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from kernelcast.exporter.running_time import RunningTime


@given(st.integers(0, 2**62), st.lists(st.integers(0, 10**12)))
def test_it_is_the_clocks_time_while_nobody_sets_the_clock_back(first_ns: int, steps_ns: list[int]) -> None:
    time = RunningTime()
    for clock_ns in accumulate(steps_ns, initial=first_ns):
        assert (time.at(clock_ns), time.ahead_ns) == (clock_ns, 0)


@given(st.lists(st.integers(0, 2**62), min_size=1))
def test_it_never_falls_whatever_the_clock_shows(clocks_ns: list[int]) -> None:
    time = RunningTime()
    running_ns = [time.at(clock_ns) for clock_ns in clocks_ns]
    assert all(before <= after for before, after in pairwise(running_ns))
    assert time.ns - time.ahead_ns == clocks_ns[-1]


def test_an_interval_in_which_the_clock_is_set_back_is_as_long_as_the_one_before() -> None:
    time = RunningTime()
    assert [time.at(clock_ns) for clock_ns in (100, 110, 40, 40, 50)] == [100, 110, 120, 120, 130]

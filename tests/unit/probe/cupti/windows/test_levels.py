"""How much is measured: less above a limit, never nothing, and more again when it is calm."""

from collections.abc import Iterator
from itertools import pairwise

import pytest

from kernelcast.probe.cupti.windows.levels import NANOSECONDS, Level, LevelChoice, Spent


class Program:
    """A measured program under a virtual clock: costs per second of measuring, which tests change."""

    def __init__(self, *, held: float = 0.0, decoding: float = 0.0, slower: float = 0.0, waits: float = 1.5) -> None:
        self.held, self.decoding, self.slower, self._waits = held, decoding, slower, waits
        self.choice = LevelChoice()
        self._now_ns = 0
        self._measured = self._held = self._decoding = 0.0

    def run(self, seconds: float) -> Iterator[Level]:
        """Report once a second; windows are spread over the time."""
        for _ in range(round(seconds)):
            share = 1 / self.choice.level.windows_apart
            waits = self._waits if self.choice.level is Level.FULL else 1.0
            self._now_ns += NANOSECONDS
            self._measured += share
            self._held += share * self.held * waits
            self._decoding += share * self.decoding
            spent = Spent(*(round(value * NANOSECONDS) for value in (self._measured, self._held, self._decoding)))
            yield self.choice.feed(self._now_ns, spent, slower=self.slower)

    def after(self, seconds: float) -> Level:
        return list(self.run(seconds))[-1]


def test_a_program_that_measuring_hardly_holds_is_measured_in_full() -> None:
    assert set(Program(held=0.004, decoding=0.09).run(3600)) == {Level.FULL}


def test_decoding_on_a_core_of_its_own_is_not_charged_as_if_it_held_the_program() -> None:
    """97,000 records a second of 100 ns: 1 % of a core."""
    assert Program(decoding=0.0097).after(600) is Level.FULL


@pytest.mark.parametrize(
    ("held", "decoding", "slower", "level"),
    [
        (0.008, 0.0, 0.0, Level.NO_WAITS),
        (0.05, 0.0, 0.0, Level.TENTH),
        (0.2, 0.0, 0.0, Level.THIRTIETH),
        (0.6, 0.0, 0.0, Level.HUNDREDTH),
        (0.0, 0.5, 0.0, Level.TENTH),
        (0.0, 0.0, 0.1, Level.TENTH),
        (0.0, 0.0, 0.4, Level.THIRTIETH),
    ],
)
def test_each_cost_has_the_level_that_keeps_its_limit(
    held: float, decoding: float, slower: float, level: Level
) -> None:
    program = Program(held=held, decoding=decoding, slower=slower)
    assert program.after(300) is level
    assert program.choice.reason


def test_it_never_measures_nothing() -> None:
    assert Program(held=5.0).after(7200) is Level.HUNDREDTH


def test_seven_busy_seconds_do_not_end_measuring_for_good() -> None:
    program = Program(held=0.015)
    assert program.after(7) is not Level.FULL
    program.held = 0.0
    assert program.after(200) is Level.FULL
    assert program.choice.reason == ""
    assert program.after(2 * 3600) is Level.FULL


def test_a_level_that_fails_again_and_again_is_tried_ever_more_seldom() -> None:
    levels = list(Program(held=0.0045, waits=3).run(4 * 3600))
    tries = sum(before > after for before, after in pairwise(levels))
    assert 1 <= tries <= 12
    assert levels.count(Level.FULL) < 0.02 * len(levels)


def test_a_need_of_the_program_holds_whatever_the_cost_is() -> None:
    choice = LevelChoice()
    for second in range(1, 600):
        spent = Spent(second * NANOSECONDS // 10, 0, 0)
        choice.feed(second * NANOSECONDS, spent, least=Level.TENTH, why="it replays CUDA graphs and has no steps")
    assert (choice.level, choice.reason) == (Level.TENTH, "it replays CUDA graphs and has no steps")

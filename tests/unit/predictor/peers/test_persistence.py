"""The sequential test of slow members: slow steps in turn, and one slow member."""

import numpy as np
import pytest

from kernelcast.predictor.peers.groups import PeerGroups
from kernelcast.predictor.peers.persistence import Persistence

LIMIT = 0.1


def started(slow_members: list[int]) -> list[int]:
    """Members with a finding, where one of four is slow at each step."""
    test = Persistence(PeerGroups.of(np.zeros(4, np.int64), np.arange(4)))
    found: set[int] = set()
    for member in slow_members:
        excess = np.zeros(4)
        excess[member] = 10 * LIMIT
        found |= set(np.flatnonzero(test.update(excess, LIMIT)[1]).tolist())
    return sorted(found)


@pytest.mark.parametrize("slow_members", [[0, 1, 2, 1, 1, 1], [3, 2, 1, 1, 1], [0, 2, 3, 1, 1, 1, 1]])
def test_three_slow_steps_are_no_finding_where_others_were_slow_before(slow_members: list[int]) -> None:
    assert started(slow_members) == []


def test_three_slow_steps_are_a_finding_where_the_others_never_were() -> None:
    assert started([1, 1, 1]) == [1]


def test_four_members_alone_need_more_slow_steps_once_these_have_come_in_turn() -> None:
    in_turn = [0, 1, 2, 3] * 3
    assert started([*in_turn, *[1] * 7]) == []
    assert started([*in_turn, *[1] * 20]) == [1]


def test_a_finding_of_four_members_alone_ends_with_the_next_slow_step_of_another_member() -> None:
    test = Persistence(PeerGroups.of(np.zeros(4, np.int64), np.arange(4)))
    active = []
    for member in [1, 1, 1, 2, 3]:
        test.update(10 * LIMIT * (np.arange(4) == member), LIMIT)
        active.append(np.flatnonzero(test.active).tolist())
    assert active == [[], [], [1], [], []]


def test_one_slow_step_of_another_member_does_not_end_a_finding_of_ten_steps() -> None:
    test = Persistence(PeerGroups.of(np.zeros(4, np.int64), np.arange(4)))
    for member in [1] * 10 + [2] + [1] * 3:
        test.update(10 * LIMIT * (np.arange(4) == member), LIMIT)
    assert np.flatnonzero(test.active).tolist() == [1]


@pytest.mark.parametrize(("members", "named"), [(4, [1]), (8, [])])
def test_few_members_alone_have_a_lower_limit_over_more_steps(members: int, named: list[int]) -> None:
    test = Persistence(PeerGroups.of(np.zeros(members, np.int64), np.arange(members)))
    excess = 0.8 * LIMIT * (np.arange(members) == 1)
    started = [np.flatnonzero(test.update(excess, LIMIT)[1]).tolist() for _ in range(10)]
    assert [at for at, one in enumerate(started) if one] == [5] * len(named)
    assert np.flatnonzero(test.active).tolist() == named

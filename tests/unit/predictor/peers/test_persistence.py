"""The sequential test of slow members: slow steps in turn, and one slow member."""

import numpy as np
import pytest

from kernelcast.predictor.peers.groups import PeerGroups
from kernelcast.predictor.peers.persistence import Persistence

LIMIT = 0.1


def started(slow_members: list[int]) -> list[int]:
    """Members with a finding, where one of four is slow at each step."""
    test = Persistence(PeerGroups.of(np.zeros(4, np.int64)))
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


def test_one_slow_step_of_another_member_does_not_end_a_finding_of_ten_steps() -> None:
    test = Persistence(PeerGroups.of(np.zeros(4, np.int64)))
    for member in [1] * 10 + [2] + [1] * 3:
        test.update(10 * LIMIT * (np.arange(4) == member), LIMIT)
    assert np.flatnonzero(test.active).tolist() == [1]

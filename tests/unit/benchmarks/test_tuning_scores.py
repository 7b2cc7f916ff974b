import random
from itertools import permutations
from statistics import fmean

import pytest
from benchmarks.tuning.peers import PEERS, Peers
from benchmarks.tuning.scores import Truth, expected_minimum, interval, quantile, score

from kernelcast.tuning.formats.kernel_tuner import KernelTunerRecording, Recorded
from kernelcast.tuning.space import Space, Value


def recording() -> KernelTunerRecording:
    entries: dict[tuple[Value, ...], Recorded] = {
        (x, y): Recorded(times=(float(10 + abs(x - 3) + 2 * abs(y - 4)),)) for x in range(8) for y in range(8)
    }
    entries[0, 0] = Recorded(failed="compile")
    return KernelTunerRecording("k", "d", "ms", {"x": tuple(range(8)), "y": tuple(range(8))}, entries)


def test_the_expectation_of_random_search_is_that_of_all_orders() -> None:
    times, failing = [1.0, 2.0, 4.0], 2
    orders = list(permutations([*times, None, None]))
    for draws in range(1, 6):
        least = [min(found) for order in orders if (found := [one for one in order[:draws] if one is not None])]
        assert expected_minimum(times, failing, 5)[draws - 1] == pytest.approx(fmean(least))


def test_the_optimum_at_once_scores_one_and_random_search_scores_zero_on_average() -> None:
    recorded = recording()
    truth = Truth.of(recorded, 40)
    working = sorted(recorded.typical, key=recorded.typical.__getitem__)
    assert score(recorded, truth, working[:40], working[0], 40).performance == 1
    orders = [random.Random(seed).sample(list(recorded.entries), 40) for seed in range(300)]
    orders = [order for order in orders if recorded.typical.get(order[0])]
    drawn = [score(recorded, truth, order, working[0], 40).performance for order in orders]
    assert abs(fmean(drawn)) < 0.1


def test_excess_and_failures_count_configurations_once() -> None:
    recorded = recording()
    found = score(recorded, Truth.of(recorded, 4), [(3, 4), (0, 0), (3, 3)], (3, 4), 9)
    assert found.excess == pytest.approx(0.1)
    assert (found.failing, found.kept, found.launches) == (1 / 3, 1, 9)
    assert found.best == [1, 1, 1, 1]


@pytest.mark.parametrize("name", PEERS)
def test_peers_ask_for_valid_configurations_once(name: str) -> None:
    recorded = recording()
    space = Space.listed("s", recorded.parameters, start=(7, 7), valid=recorded.entries)
    peer = Peers(space, name, seed=1)
    asked = []
    while (ordinal := peer.ask()) is not None:
        asked.append(ordinal)
        peer.tell(ordinal, recorded.typical.get(space.values(ordinal)))
    assert asked[0] == space.start
    assert sorted(asked) == list(space.ordinals)


def test_statistics_of_scores() -> None:
    assert quantile([4, 1, 3, 2, 5], 0.9) == pytest.approx(4.6)
    mean, low, high = interval([1.0, 3.0])
    assert mean == 2
    assert high - mean == pytest.approx(1.96)
    assert low == pytest.approx(0.04)

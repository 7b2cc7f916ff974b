"""The worlds written from the metrics page alone hold what they promise."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
from benchmarks.predictor.worlds import more
from benchmarks.predictor.worlds.benchmark import worlds
from benchmarks.predictor.worlds.others import LEAST_WARNING_S, WORLDS
from benchmarks.predictor.worlds.others_fleet import fleet

if TYPE_CHECKING:
    from benchmarks.predictor.worlds.series import World, WorldSeries
    from numpy.typing import NDArray

DRAWS = 20
STEPS = {"deploy_slows_kernel"}


def assert_promise_is_held(world: World, series: WorldSeries) -> None:
    """Asserts that a healthy series never reaches its limit, and a faulty one at its breach and not before."""
    assert len(series.times) == len(series.values)
    assert np.all(np.diff(series.times) > 0.0)
    assert all(len(companion) == len(series.times) for companion in series.companions.values())
    assert np.mean(np.isfinite(series.values)) > 0.5
    reached = np.flatnonzero(series.values >= series.limit)
    if world.healthy:
        assert (series.onset, series.breach) == (None, None)
        assert len(reached) == 0
    else:
        assert series.onset is not None
        assert series.breach is not None
        assert series.times[0] < series.onset <= series.breach
        assert series.times[reached[0]] == series.breach


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_each_draw_of_a_world_holds_its_promise(world: World) -> None:
    drawn = set()
    for seed in range(DRAWS):
        series = world.make(np.random.default_rng([34, seed]), (3.0, 5.0, 8.0)[seed % 3])
        assert_promise_is_held(world, series)
        if series.onset is not None and series.breach is not None and world.name not in STEPS:
            assert series.breach - series.onset >= LEAST_WARNING_S
        drawn.add((series.times[0], float(np.nanmean(series.values))))
    assert len(drawn) == DRAWS


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_world_gives_the_same_series_for_the_same_seed(world: World) -> None:
    first, second = (world.make(np.random.default_rng(5), 4.0) for _ in range(2))
    np.testing.assert_array_equal(first.values, second.values)
    assert (first.limit, first.onset, first.breach) == (second.limit, second.onset, second.breach)


@pytest.mark.parametrize("world", more.WORLDS.values(), ids=lambda world: world.name)
def test_the_mean_of_five_minutes_reaches_the_limit_of_a_faulty_series_at_its_breach_and_of_a_healthy_one_never(
    world: World,
) -> None:
    for seed in range(6):
        series = world.make(np.random.default_rng([34, seed]), 15.0)
        again = world.make(np.random.default_rng([34, seed]), 15.0)
        np.testing.assert_array_equal(series.values, again.values)
        assert np.all(np.diff(series.times) > 0.0)
        assert all(len(companion) == len(series.times) for companion in series.companions.values())
        means = more.five_minutes(series.values, float(series.times[1] - series.times[0]))
        reached = np.flatnonzero(means >= series.limit)
        if world.healthy:
            assert (series.onset, series.breach, len(reached)) == (None, None, 0)
        else:
            assert series.onset is not None
            assert series.breach == series.times[reached[0]]
            assert series.times[0] <= series.onset < series.times[reached[0]]


def test_worlds_have_names_and_notes_of_their_own() -> None:
    assert len({world.name for world in worlds()}) == len(worlds())
    assert len({world.note for world in (*WORLDS, *more.WORLDS.values())}) == len(WORLDS) + len(more.WORLDS)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", world.name) for world in WORLDS)
    assert any(world.healthy for world in WORLDS)
    assert any(not world.healthy for world in WORLDS)


def test_too_few_days_are_refused() -> None:
    with pytest.raises(ValueError, match="3 days or more, not 2"):
        WORLDS[0].make(np.random.default_rng(1), 2.0)
    with pytest.raises(ValueError, match="3 days or more, not 2"):
        next(iter(more.WORLDS.values())).make(np.random.default_rng(1), 2.0)


def test_a_fleet_gives_two_or_three_series_of_each_gpu_and_its_share_of_faults() -> None:
    kinds: dict[tuple[str, str], int] = {}
    faults = 0
    for node, gpu, world, series in fleet(np.random.default_rng(34), 44, 4.0, 3.0):
        assert_promise_is_held(world, series)
        assert np.all(np.diff(series.times) == 300.0)
        kinds[node, gpu] = kinds.get((node, gpu), 0) + 1
        faults += not world.healthy
    assert len(kinds) == len({gpu for _, gpu in kinds}) == 44
    assert len({node for node, _ in kinds}) == 6
    assert set(kinds.values()) == {2, 3}
    assert 3 <= faults <= 30


def test_gpus_of_a_node_share_its_rhythm() -> None:
    powers: dict[str, list[NDArray[np.float64]]] = {}
    for node, _, _, series in fleet(np.random.default_rng(3), 32, 4.0, 0.0):
        if "DCGM_FI_DEV_POWER_USAGE" in series.companions:
            powers.setdefault(node, []).append(np.nan_to_num(series.companions["DCGM_FI_DEV_POWER_USAGE"]))
    alike = []
    for first, *others in powers.values():
        alike.append(float(np.mean([np.corrcoef(first, other)[0, 1] for other in others])))
    assert len(alike) == 4
    assert min(alike) > 0.5

import random
from collections.abc import Callable, Iterator
from math import log2, sin
from typing import Any

import pytest

from kernelcast.tuning.search import GuidedSearch, Search, Sweep, search_for
from kernelcast.tuning.search.failing import Failing
from kernelcast.tuning.search.settings import Settings
from kernelcast.tuning.search.similarity import Similarity, similarity_of
from kernelcast.tuning.search.surrogate import Surrogate, UnmeasuredConfiguration
from kernelcast.tuning.space import Configuration, Space

Cost = Callable[[Configuration], float | None]


def tiles(count: int = 12) -> Space:
    return Space.restricted(
        "tiles",
        {"x": [2**place for place in range(5, 11)], "y": list(range(1, count + 1)), "u": [1, 2, 4, 8], "p": ["a", "b"]},
        start={"x": 1024, "y": 1, "u": 1, "p": "a"},
        valid=lambda c: c.x * c.u <= 4096,
    )


def bowl(c: Configuration) -> float:
    slow = 1 + (c.x / 128 - 1) ** 2 / 8 + ((c.y - 7) / 6) ** 2 + 0.4 * (c.u != 4)
    return float(slow * (1.3 if c.p == "a" and c.u > 2 else 1.0) * (1 + 0.05 * sin(c.y * c.u)))


def visits(search: Search, space: Space, cost: Cost, count: int) -> Iterator[tuple[int, float | None]]:
    for _ in range(count):
        ordinal = search.ask()
        if ordinal is None:
            return
        value = cost(space.configuration(ordinal))
        search.tell(ordinal, value)
        yield ordinal, value


def test_every_suggestion_is_valid_and_new() -> None:
    space = tiles()
    found = [ordinal for ordinal, _ in visits(GuidedSearch(space, seed=1), space, bowl, 150)]
    assert len(found) == len(set(found)) == 150
    assert all(ordinal in space for ordinal in found)
    assert found[0] == space.start


def test_the_search_ends_when_every_configuration_was_measured() -> None:
    space = tiles(2)
    search = GuidedSearch(space, seed=1)
    assert {ordinal for ordinal, _ in visits(search, space, bowl, 10_000)} == set(space.ordinals)
    assert search.ask() is None


def test_the_same_seed_and_answers_give_the_same_questions() -> None:
    space = tiles()
    one, same, other = (
        [ordinal for ordinal, _ in visits(GuidedSearch(space, seed=seed), space, bowl, 60)] for seed in (3, 3, 4)
    )
    assert one == same != other


def test_a_model_finds_a_good_configuration_in_fewer_measurements_than_random_choice() -> None:
    space = tiles()
    best = min(bowl(space.configuration(ordinal)) for ordinal in space.ordinals)
    guided = [min(v for _, v in visits(GuidedSearch(space, seed=seed), space, bowl, 50) if v) for seed in range(5)]
    drawn = [
        min(bowl(space.configuration(one)) for one in random.Random(seed).sample(list(space.ordinals), 50))
        for seed in range(5)
    ]
    assert sum(guided) / 5 < 1.03 * best < sum(drawn) / 5


@pytest.mark.slow
@pytest.mark.parametrize("best_work", [10.0, 11.9])
def test_failing_configurations_cost_little_and_do_not_hide_a_good_region_beside_them(best_work: float) -> None:
    """Review: where the best configurations lie beside failing ones, the search was no better than random draws."""
    space = tiles()

    def fails(c: Configuration) -> float | None:
        work = log2(c.x * c.u * c.y)
        return None if work > 12 else 1 + (work - best_work) ** 2 / 8

    share = sum(fails(space.configuration(one)) is None for one in space.ordinals) / len(space)
    runs = [list(visits(GuidedSearch(space, seed=seed), space, fails, 80)) for seed in range(6)]
    assert all(min(cost for _, cost in run if cost) < 1.002 for run in runs)
    late = [cost for run in runs for _, cost in run[40:]]
    assert share > 0.35
    if best_work == 10.0:
        assert sum(cost is None for cost in late) / len(late) < share / 4


def test_all_configurations_may_fail() -> None:
    space = tiles()
    assert len(list(visits(GuidedSearch(space, seed=1), space, lambda _: None, 60))) == 60


@pytest.mark.parametrize("cost", [1.0, 1e-300, 1e300])
def test_a_flat_space_is_searched_to_the_end(cost: float) -> None:
    space = tiles(2)
    assert len(list(visits(GuidedSearch(space, seed=1), space, lambda _: cost, 10_000))) == len(space)


def test_a_space_of_one_configuration_has_one_suggestion() -> None:
    space = Space.restricted("one", {"x": [1]}, start={"x": 1})
    for search in (search_for(space, seed=1, budget=200), GuidedSearch(space, seed=1)):
        assert [ordinal for ordinal, _ in visits(search, space, lambda _: 1.0, 5)] == [0]


def test_results_of_configurations_that_were_not_asked_for_are_used() -> None:
    space = tiles()
    search = GuidedSearch(space, seed=1)
    known = random.Random(1).sample(list(space.ordinals), 100)
    for ordinal in known:
        search.tell(ordinal, bowl(space.configuration(ordinal)))
    assert not set(known) & {ordinal for ordinal, _ in visits(search, space, bowl, 20)}


def test_several_suggestions_may_be_open_at_once() -> None:
    space = tiles()
    search = GuidedSearch(space, seed=1)
    for _ in range(20):
        asked = [search.ask() for _ in range(5)]
        for ordinal in reversed(asked):
            assert ordinal is not None
            search.tell(ordinal, bowl(space.configuration(ordinal)))


def test_seeds_come_first_and_are_dropped_when_two_do_not_help() -> None:
    space = tiles()
    seeds = list(space.ordinals)[:5]
    helping = GuidedSearch(space, seed=1, seeds=seeds)
    falling = iter(range(100, 0, -1))
    assert [one for one, _ in visits(helping, space, lambda _: next(falling), 6)] == [space.start, *seeds]
    useless = GuidedSearch(space, seed=1, seeds=seeds)
    rising = iter(range(1, 100))
    asked = [one for one, _ in visits(useless, space, lambda _: next(rising), 6)]
    assert asked[:3] == [space.start, *seeds[:2]]
    assert not set(asked[3:]) & set(seeds[2:])


def test_seeds_of_another_device_do_not_change_the_search_that_follows() -> None:
    space = tiles()
    cold = [one for one, _ in visits(GuidedSearch(space, seed=1), space, bowl, 40)]
    seeds = [one for one in space.ordinals if one not in cold][:2]
    warm = [one for one, _ in visits(GuidedSearch(space, seed=1, seeds=seeds), space, bowl, 42)]
    assert warm == [space.start, *seeds, *cold[1:]]


def test_the_model_learns_the_seeds_results_later() -> None:
    space = tiles()
    best = min(space.ordinals, key=lambda one: bowl(space.configuration(one)))
    search = GuidedSearch(space, seed=1, seeds=[best])
    asked = [one for one, _ in visits(search, space, lambda c: bowl(c) ** 0.5, 130)]
    assert len(asked) == len(set(asked)) == 130
    assert asked[1] == best


def test_a_small_space_is_swept_and_a_larger_one_is_not() -> None:
    small, large = tiles(2), tiles()
    assert isinstance(search_for(small, seed=1, budget=200), Sweep)
    assert isinstance(search_for(small, seed=1, budget=len(small) - 1), GuidedSearch)
    assert isinstance(search_for(large, seed=1, budget=2000), GuidedSearch)
    swept = [one for one, _ in visits(search_for(small, seed=1, budget=200), small, bowl, 1000)]
    assert sorted(swept) == list(small.ordinals)
    assert swept[0] == small.start


def test_the_model_interpolates_and_agrees_with_itself() -> None:
    space = tiles()
    similarity = Similarity(space)
    surrogate = Surrogate(similarity)
    chosen = random.Random(2).sample(list(space.ordinals), 41)
    places = [similarity.project(space.places(ordinal)) for ordinal in chosen]
    waiting = UnmeasuredConfiguration(chosen[40], places[40])
    for point, ordinal in zip(places[:40], chosen, strict=False):
        surrogate.add(point, bowl(space.configuration(ordinal)), candidates=[waiting])
    late = UnmeasuredConfiguration(chosen[40], places[40])
    surrogate.update(late)
    assert late.solved == pytest.approx(waiting.solved)
    assert (late.times_product, late.squared_norm) == pytest.approx((waiting.times_product, waiting.squared_norm))
    again = UnmeasuredConfiguration(chosen[0], places[0])
    surrogate.update(again)
    mean, _ = surrogate.level()
    assert mean + again.times_product - mean * again.ones_product == pytest.approx(
        bowl(space.configuration(chosen[0])), rel=0.02
    )


def test_predictions_for_neighbours_are_those_of_the_model() -> None:
    space = tiles()
    similarity = Similarity(space)
    surrogate = Surrogate(similarity)
    for ordinal in random.Random(2).sample(list(space.ordinals), 40):
        surrogate.add(similarity.project(space.places(ordinal)), bowl(space.configuration(ordinal)), candidates=[])
    places = similarity.project(space.places(space.start))
    table = surrogate.neighbours(places, surrogate.coefficients())
    mean, _ = surrogate.level()
    for column, values in enumerate(table):
        for place, value in enumerate(values):
            near = UnmeasuredConfiguration(0, (*places[:column], place, *places[column + 1 :]))
            surrogate.update(near)
            assert value == pytest.approx(near.times_product - mean * near.ones_product, abs=1e-9)


def test_similarity_falls_with_distance_and_a_power_of_two_is_near_another() -> None:
    values: dict[str, list[Any]] = {"x": list(range(16, 272, 16)), "flag": [False, True], "kind": ["a", "b", "c"]}
    similarity = Similarity(Space.restricted("s", values, start={"x": 16, "flag": False, "kind": "a"}))
    tables = similarity.tables()
    assert similarity_of(tables, (7, 0, 0), (7, 0, 0)) == 1
    assert similarity_of(tables, (7, 0, 0), (15, 0, 0)) > similarity_of(tables, (7, 0, 0), (14, 0, 0))
    assert similarity_of(tables, (0, 0, 0), (2, 0, 0)) > similarity_of(tables, (0, 0, 0), (14, 0, 0))
    assert similarity_of(tables, (0, 0, 0), (0, 0, 1)) == similarity_of(tables, (0, 0, 0), (0, 0, 2)) < 1


def test_the_chance_of_failing_is_learnt_from_few_failures() -> None:
    space = tiles()
    failing = Failing(space, range(4), seed=1)
    every = [space.places(ordinal) for ordinal in space.ordinals]
    limit = [(places[0] + places[1] / 2 + 2 * places[2]) > 12 for places in every]
    for place in random.Random(1).sample(range(len(every)), 80):
        failing.add(every[place], failed=limit[place])
    chances = [failing.probability(places) for places in every]
    works = [chance for chance, fails in zip(chances, limit, strict=True) if not fails]
    breaks = [chance for chance, fails in zip(chances, limit, strict=True) if fails]
    assert sum(works) / len(works) < 0.15
    assert sum(breaks) / len(breaks) > 0.5


def test_a_model_of_few_points_still_searches() -> None:
    space = tiles()
    settings = Settings(points=20, pool=20)
    found = [value for _, value in visits(GuidedSearch(space, seed=1, settings=settings), space, bowl, 120) if value]
    assert min(found) < 1.1 * min(bowl(space.configuration(ordinal)) for ordinal in space.ordinals)


@pytest.mark.parametrize(
    ("values", "is_guided"),
    [
        ({"x": list(range(250))}, True),
        ({f"p{number}": list(range(40)) for number in range(3)}, True),
        ({"x": list(range(300))}, False),
        ({"x": [f"config {number}" for number in range(4096)]}, False),
        ({"x": list(range(200)), "y": list(range(200))}, False),
    ],
)
def test_a_space_whose_model_would_stop_the_program_is_searched_at_random(
    values: dict[str, Any], *, is_guided: bool
) -> None:
    """With 1,000 values a suggestion took a second, with 4,096 the first call also took a gigabyte."""
    start = {name: listed[0] for name, listed in values.items()}
    space = Space.restricted("s", values, start=start)
    search = search_for(space, seed=1, budget=200, seeds=[7])
    assert isinstance(search, GuidedSearch) is is_guided
    asked = []
    for _ in range(5):
        asked.append(search.ask())
        search.tell(asked[-1] or 0, 1.0)
    assert asked[:2] == [space.start, 7]
    assert len(set(asked)) == 5

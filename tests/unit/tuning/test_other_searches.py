"""Searches of other packages: Optuna and Kernel Tuner where they are installed, others by entry point."""

from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any

import pytest

from kernelcast.tuning.campaign import Campaign
from kernelcast.tuning.search import Sweep, named_search, search_maker
from kernelcast.tuning.search.kernel_tuner_search import KernelTunerSearch
from kernelcast.tuning.space import Space
from kernelcast.wire.errors import ConfigurationError

PARAMETERS: dict[str, Any] = {
    "x": list(range(16)),
    "y": [2**power for power in range(12)],
    "layout": ["rows", "columns", "tiles"],
    "unroll": [False, True],
}
START: dict[str, Any] = {"x": 0, "y": 1, "layout": "rows", "unroll": False}


def space() -> Space:
    return Space.restricted("k", PARAMETERS, start=START, valid=lambda c: c.x + c.y.bit_length() < 22)


def cost(one: Space, ordinal: int) -> float | None:
    c = one.configuration(ordinal)
    if c.x == 13 and c.unroll:
        return None
    return float(1 + abs(c.x - 9) / 4 + abs(c.y.bit_length() - 7) / 3 + (c.layout != "tiles") + (not c.unroll) / 2)


def test_optuna_proposes_each_valid_configuration_once_and_learns() -> None:
    pytest.importorskip("optuna", reason="Optuna is not installed: pip install 'kernelcast[optuna]'")
    found = []
    for seed in range(3):
        one = space()
        search = named_search("optuna", one, seed=seed, budget=100, seeds=[one.ordinals[5]])
        asked = []
        for _ in range(100):
            ordinal = search.ask()
            assert ordinal is not None
            assert ordinal in one
            asked.append(ordinal)
            search.tell(ordinal, cost(one, ordinal))
        assert len(set(asked)) == 100
        assert asked[:2] == [one.start, one.ordinals[5]]
        found.append(min(value for ordinal in asked if (value := cost(one, ordinal)) is not None))
    assert max(found) < 2, f"random search reaches {found}"


@pytest.mark.parametrize("strategy", ["genetic_algorithm", "greedy_ils", "random_sample", "hybrid_vndx"])
def test_a_strategy_of_kernel_tuner_proposes_each_valid_configuration_once(strategy: str) -> None:
    reason = "Kernel Tuner is not installed: pip install 'kernelcast[kernel-tuner]'"
    pytest.importorskip("kernel_tuner", reason=reason)
    one = space()
    search = KernelTunerSearch(one, seed=1, seeds=[one.ordinals[5]], strategy=strategy)
    asked: list[int] = []
    while len(asked) < len(one) and (ordinal := search.ask()) is not None:
        assert ordinal in one
        asked.append(ordinal)
        if len(asked) % 7:  # others are refused, and get no result
            search.tell(ordinal, cost(one, ordinal))
    assert len(set(asked)) == len(asked) == len(one)
    assert asked[:2] == [one.start, one.ordinals[5]]
    search.close()


def test_a_strategy_that_kernel_tuner_lacks_is_named_with_those_it_has() -> None:
    pytest.importorskip("kernel_tuner", reason="Kernel Tuner is not installed: pip install 'kernelcast[kernel-tuner]'")
    with pytest.raises(ConfigurationError, match=r"no strategy 'tabu'; it has .*hybrid_vndx"):
        KernelTunerSearch(space(), seed=1, strategy="tabu")


def test_optuna_exhausts_a_small_space_and_ends() -> None:
    pytest.importorskip("optuna", reason="Optuna is not installed: pip install 'kernelcast[optuna]'")
    one = Space.restricted(
        "k", {"x": [1, 2, 3], "y": [True, False]}, start={"x": 1, "y": True}, valid=lambda c: c.x < 3
    )
    campaign = Campaign(one, seed=1, budget=50, search=named_search("optuna", one, seed=1, budget=50))
    while (request := campaign.next()) is not None:
        campaign.measured([1.0 + request.ordinal / 10] * request.launches)
    assert campaign.evaluations == len(one)


def test_a_search_that_is_missing_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"no search 'tpe'; there are own, optuna, kernel-tuner; install"):
        named_search("tpe", space(), seed=1, budget=10)
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'kernelcast\[optuna\]'"):
        named_search("optuna", space(), seed=1, budget=10)


def test_another_packages_search_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        raise ImportError("libcuda.so.1 is missing")

    monkeypatch.setattr(
        "kernelcast.tuning.search.choice.entry_points", lambda group: [SimpleNamespace(name="theirs", load=load)]
    )
    with pytest.raises(ConfigurationError, match=r"search 'theirs' cannot be imported: libcuda\.so\.1 is missing"):
        search_maker("theirs", budget=9)


def test_another_packages_search_is_found_by_its_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("swept", "kernelcast.tuning.search.sweep:Sweep", "kernelcast.searches")
    monkeypatch.setattr("kernelcast.tuning.search.choice.entry_points", lambda group: [point] if group else [])
    assert isinstance(named_search("swept", space(), seed=1, budget=10), Sweep)

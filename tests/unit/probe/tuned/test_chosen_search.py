"""A space with another search than the project's own: by name, by an object, or by a function that makes one."""

import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.probe.tuned.test_space import START, Device

from kernelcast import probe as kp
from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.tuned.space import ProgramSpace, SpaceTerms
from kernelcast.tuning.search import Sweep
from kernelcast.wire.errors import ConfigurationError, SpaceError

PARAMETERS = {"bx": [16, 32, 64, 128], "by": [1, 2, 4, 8], "tile": [1, 2, 4]}


class Listed:
    """Proposes configurations of a list, and notes their costs."""

    def __init__(self, *listed: Any) -> None:
        self.left = list(listed)
        self.costs: list[tuple[dict[str, Any], float | None]] = []

    def ask(self) -> Any:
        return self.left.pop(0) if self.left else None

    def tell(self, configuration: Mapping[str, Any], cost: float | None) -> None:
        self.costs.append((dict(configuration), cost))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def started(directory: Path) -> Probe:
    return Probe(ProbeSettings("hpc", socket_path=str(directory / "none")), {})


def space(probe: Probe, search: Any, start: Mapping[str, Any] = START) -> ProgramSpace:
    return probe.space(
        "conv", PARAMETERS, start=start, valid=lambda c: c.bx * c.by <= 512, terms=SpaceTerms(search=search)
    )


def tuned(conv: ProgramSpace, device: Device) -> Callable[[], list[float]]:
    @conv.tuned(share=1e9)  # type: ignore[untyped-decorator]
    def run(c: Any) -> list[float]:
        return device.run(c)

    return run  # type: ignore[no-any-return]


def config(bx: int, by: int, tile: int) -> dict[str, int]:
    return {"bx": bx, "by": by, "tile": tile}


def test_an_object_with_ask_and_tell_proposes_what_is_measured_and_learns_its_costs(
    tmp_path: Path, device: Device
) -> None:
    probe = started(tmp_path)
    search = Listed(config(64, 2, 4), config(128, 1, 4), config(16, 1, 1))
    conv = space(probe, search)
    run = tuned(conv, device)
    for _ in range(1500):
        run()
    assert set(device.ran) == {(32, 4, 1), (64, 2, 4), (128, 1, 4), (16, 1, 1)}
    assert (conv.bx, conv.by, conv.tile) == (64, 2, 4)
    costs = {tuple(one.values()): cost for one, cost in search.costs}
    assert costs[32, 4, 1] == pytest.approx(1.0, rel=0.03), "costs are times over the start's"
    assert costs[64, 2, 4] == pytest.approx(1 / (1.5 * 1.5 * 1.2), rel=0.05)
    assert costs[128, 1, 4] is None, "it failed"
    probe.abandon()


def test_proposals_that_are_known_or_not_valid_are_answered_without_running_them(
    tmp_path: Path, device: Device
) -> None:
    probe = started(tmp_path)
    search = Listed(
        config(128, 8, 1), config(64, 2, 1), config(64, 2, 1), config(32, 4, 1), config(7, 1, 1), config(64, 1, 1)
    )
    run = tuned(space(probe, search), device)
    for _ in range(1500):
        run()
    assert set(device.ran) == {(32, 4, 1), (64, 2, 1), (64, 1, 1)}
    answered = [(tuple(one.values()), cost) for one, cost in search.costs]
    assert ((128, 8, 1), None) in answered
    assert ((7, 1, 1), None) in answered
    assert len({cost for one, cost in answered if one == (64, 2, 1)}) == 1
    probe.abandon()


def test_an_object_that_proposes_the_same_for_ever_does_not_keep_the_program_busy(
    tmp_path: Path, device: Device
) -> None:
    class Stuck(Listed):
        def ask(self) -> Any:
            return config(64, 2, 4)

    probe = started(tmp_path)
    conv = space(probe, Stuck())
    run = tuned(conv, device)
    for _ in range(1500):
        run()
    assert (conv.bx, conv.by, conv.tile) == (64, 2, 4), "the configuration that it found is proved"
    before = len(device.ran)
    run()
    assert device.ran[before:] == [(64, 2, 4)]
    probe.abandon()


@pytest.mark.parametrize("proposed", [7, "bx=64", [64, 2, 4]])
def test_an_error_of_the_object_ends_the_search_and_not_the_program(
    tmp_path: Path, device: Device, proposed: object
) -> None:
    """The start stays in force, and the outcome says why."""
    probe = started(tmp_path)
    conv = space(probe, Listed(proposed))
    run = tuned(conv, device)
    for _ in range(50):
        run()
    assert set(device.ran) == {(32, 4, 1)}
    last = probe.outcomes[-1]
    assert (last.state.value, last.decision) == ("rolled_back", "inconclusive")
    assert "the search had an error" in last.reason
    assert "return a mapping" in last.reason
    probe.abandon()


def test_a_function_makes_a_search_for_each_shape(tmp_path: Path, device: Device) -> None:
    probe = started(tmp_path)
    made: list[Sweep] = []

    def make(one: Any, *, seed: int, seeds: Any = ()) -> Sweep:
        made.append(Sweep(one, seed=seed, seeds=seeds))
        return made[-1]

    @space(probe, make).tuned(shape=lambda size: size, share=1e9)  # type: ignore[untyped-decorator]
    def run(c: Any, _size: int) -> list[float]:
        return device.run(c)

    for size in (1, 2, 1):
        run(size)
    assert len(made) == 2
    probe.abandon()


def test_a_search_that_cannot_be_made_leaves_the_start_in_force(tmp_path: Path, device: Device) -> None:
    """The start is not the space's first configuration, which need not be valid."""
    probe = started(tmp_path)

    def make(one: Any, *, seed: int, seeds: Any = ()) -> Sweep:
        raise OSError(f"no model of {one.name} for {seed} and {seeds}")

    run = tuned(space(probe, make), device)
    for _ in range(5):
        run()
    assert set(device.ran) == {(32, 4, 1)}
    assert "no model of conv" in probe.outcomes[-1].reason
    probe.abandon()


def test_the_time_of_a_search_counts_as_time_of_trials(tmp_path: Path, device: Device) -> None:
    """A search of seconds a suggestion must not slow the program by more than its share."""

    class Slow(Listed):
        def ask(self) -> Any:
            device.now += 5.0
            return super().ask()

    probe = started(tmp_path)
    search = Slow(*(config(bx, by, tile) for bx in (16, 64) for by in (1, 2) for tile in (1, 2, 4)))

    @space(probe, search).tuned(share=0.01)  # type: ignore[untyped-decorator]
    def run(c: Any) -> list[float]:
        return device.run(c)

    calls = 5000
    for _ in range(calls):
        run()
    usual_seconds = calls * 2.7e-3
    assert device.now < 5.0 + 1.02 * usual_seconds, "one suggestion, and then the share is spent"
    probe.abandon()


def test_what_an_object_cannot_do_is_refused_with_a_remedy(tmp_path: Path) -> None:
    probe = started(tmp_path)
    with pytest.raises(SpaceError, match="the search 7; it must be a name, an object with ask and tell, or"):
        space(probe, 7)
    conv = space(probe, Listed())
    with pytest.raises(SpaceError, match=r"one search.*pass a function that makes one"):
        conv.tuned(lambda _c: None, shape=lambda: 1)
    conv.tuned(lambda _c: None)
    with pytest.raises(SpaceError, match=r"one search.*pass a function that makes one"):
        conv.tuned(lambda _c: None)
    probe.abandon()


def test_a_name_that_is_unknown_or_not_installed_is_refused_where_a_probe_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = started(tmp_path)
    with pytest.raises(ConfigurationError, match=r"no search 'tpe'; there are own, optuna, kernel-tuner"):
        space(probe, "tpe")
    for name in ("optuna", "kernel-tuner"):
        monkeypatch.setitem(sys.modules, name.replace("-", "_"), None)
        with pytest.raises(ConfigurationError, match=rf"pip install 'kernelcast\[{name}\]'"):
            space(probe, name)
    probe.abandon()


def test_without_a_probe_no_search_is_made() -> None:
    conv = kp.space("conv", PARAMETERS, start=START, search="optuna")
    assert (conv.bx, conv.by, conv.tile) == (32, 4, 1)


@pytest.mark.parametrize(("name", "package"), [("optuna", "optuna"), ("kernel-tuner", "kernel_tuner")])
def test_another_packages_search_finds_a_good_configuration(
    tmp_path: Path, device: Device, name: str, package: str
) -> None:
    pytest.importorskip(package, reason=f"it is not installed: pip install 'kernelcast[{name}]'")
    probe = started(tmp_path)
    conv = space(probe, name)
    run = tuned(conv, device)
    random.seed(5)
    expected, random_numbers = random.Random(5), []
    for _ in range(1500):
        run()
        random_numbers.append(random.random())
    assert (conv.bx, conv.by) == (64, 2)
    assert random_numbers == [expected.random() for _ in range(1500)], "the program's own random numbers stay"
    probe.abandon()

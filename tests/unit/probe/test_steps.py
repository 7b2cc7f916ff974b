"""`Probe.step`: whatever a program passes as units of work, its step raises nothing."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelcast.probe.hints import HintReceiver
from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.tuned.space import SpaceTerms


@pytest.mark.parametrize("items", [np.array([3, 4]), "many", float("nan"), float("inf"), -5, None, object()])
def test_a_number_of_items_that_is_none_counts_as_no_number(tmp_path: Path, items: Any) -> None:
    probe = Probe(ProbeSettings("train", socket_path=str(tmp_path / "none")), {})
    space = probe.space("block", {"size": [48, 64]}, start={"size": 48}, terms=SpaceTerms("step"))
    steps = probe.tunable("block_size", [48, 64], 48)
    for _ in range(3):
        probe.step(items=items)
    assert (probe.steps, probe.recorder.progress.items, steps.value) == (3, 0, 48)
    assert space.size in {48, 64}
    probe.abandon()


@pytest.mark.parametrize("items", [32, 32.0, np.int64(32), True])
def test_numbers_of_every_type_are_counted(tmp_path: Path, items: Any) -> None:
    probe = Probe(ProbeSettings("train", socket_path=str(tmp_path / "none")), {})
    for _ in range(3):
        probe.step(items=items)
    assert probe.recorder.progress.items == 3 * int(items)
    probe.abandon()


def test_parts_of_an_item_add_up(tmp_path: Path) -> None:
    probe = Probe(ProbeSettings("train", socket_path=str(tmp_path / "none")), {})
    for items in (1.5, 1.5, 7, 0.25, 0.5):
        probe.step(items=items)
    assert probe.recorder.progress.items == 10
    probe.step(items=0.25)
    assert probe.recorder.progress.items == 11
    probe.abandon()


def test_operations_of_steps_add_up_and_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    probe = Probe(ProbeSettings("train", socket_path=str(tmp_path / "none")), {})
    flops: list[Any] = [3e15, 2.5e6, np.array([3, 4]), "many", float("nan"), -5, None, 0, 1e30]
    for each in flops:
        probe.step(flops=each)
    assert (probe.steps, probe.recorder.progress.megaflops) == (9, 3_000_000_002)
    probe.abandon()


def test_an_error_of_a_trial_reaches_the_probes_count_and_not_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_self: object, **_named: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(HintReceiver, "at_boundary", broken)
    probe = Probe(ProbeSettings("train", socket_path=str(tmp_path / "none")), {})
    for _ in range(3):
        probe.step()
    assert (probe.steps, probe._sender.failures) == (3, 3)
    probe.abandon()

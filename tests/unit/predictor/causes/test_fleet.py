"""Comparison of GPUs with the baselines of the other nodes."""

import numpy as np
import pytest

from kernelcast.predictor.causes.features import features
from kernelcast.predictor.causes.find import find
from kernelcast.predictor.causes.fleet import Member, node_part, reference, references, slow_from_birth
from kernelcast.predictor.causes.observed import Around, Observed
from kernelcast.wire.baselines import KernelBaseline, NodeBaseline
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import Cause

LENGTH = 120


def shared(*medians: float, versions: tuple[str, ...] = ()) -> KernelBaseline:
    names = versions or ("",) * len(medians)
    parts = [NodeBaseline(f"node{at}", one, 0.01, 100, name)
             for at, (one, name) in enumerate(zip(medians, names, strict=True))]  # fmt: skip
    return KernelBaseline("k", "", "H100", tuple(parts))


def test_a_node_is_compared_with_the_others_and_one_slow_node_does_not_move_them() -> None:
    found = reference(shared(9.0, 1.0, 1.02, 0.98, 3.0), without="node0")

    assert found is not None
    assert found.median_seconds == pytest.approx(1.01)
    assert found.nodes == 4


def test_fewer_than_three_other_nodes_are_no_reference() -> None:
    assert reference(shared(1.0, 1.0, 1.0), without="node0") is None
    assert reference(shared(1.0, 1.0, 1.0), without="another") is not None


def test_nodes_with_the_same_version_count_where_there_are_enough() -> None:
    baseline = shared(1.0, 1.0, 1.0, 2.0, 2.0, 2.0, versions=("old", "old", "old", "new", "new", "new"))
    found = [reference(baseline, without="x", code_version=name) for name in ("old", "new", "newest")]

    assert [one.median_seconds for one in found if one is not None] == [1.0, 2.0, 1.5]


def test_slow_means_a_tenth_and_four_spreads() -> None:
    own, usual = np.array([1.05, 1.12, 1.12, 1.3, np.nan]), np.ones(5)
    spread = np.array([0.001, 0.01, 0.05, 0.05, 0.01])
    assert slow_from_birth(own, usual, spread).tolist() == [False, True, False, True, False]


def test_a_node_shares_the_median_of_its_healthy_gpus() -> None:
    noise = 1 + 0.02 * np.random.default_rng(1).standard_normal((4, LENGTH))
    durations = np.array([[1e-3], [1.01e-3], [0.99e-3], [2e-3]]) * noise
    healthy = np.array([True, True, True, False])
    part = node_part(durations, healthy, hostname="a", code_version="v1", time_ns=5)

    assert part is not None
    assert part.median_seconds == pytest.approx(1e-3, rel=0.01)
    assert part.spread_ratio == pytest.approx(0.02, rel=0.2)
    assert part.count == 3 * LENGTH
    assert node_part(durations[:, :14], healthy, hostname="a", code_version="", time_ns=5) is None
    assert node_part(durations, np.zeros(4, np.bool_), hostname="a", code_version="", time_ns=5) is None


def test_a_gpu_without_peers_that_was_always_slow_is_found_by_the_fleet() -> None:
    durations = np.full((2, LENGTH), 1e-3) * np.array([[1.0], [1.3]])
    medians, spreads = references([Member("a", "x"), Member("a", "y")], {"a": shared(1e-3, 1e-3, 1e-3)})
    seen = Observed(
        {kernel.DURATION.prometheus_name: durations, device.SM_CLOCK.prometheus_name: np.full((2, LENGTH), 1980.0)},
        60.0,
        [(("UUID", "x"),), (("UUID", "y"),)],
        [10**18, 10**18],
        Around(fleet=medians, programs=np.ones((2, LENGTH))),
    )
    found = find(features(seen))

    assert slow_from_birth(durations[:, -1], medians, spreads).tolist() == [False, True]
    assert [[one.cause for one in row.causes] for row in found] == [[], [Cause.AGEING]]
    fact = next(one for one in found[1].causes[0].evidence if one.against == "peers")
    assert fact.value == pytest.approx(1.3e-3)
    assert fact.reference == pytest.approx(1e-3)


def test_a_kernel_that_no_node_has_shared_has_no_reference() -> None:
    medians, spreads = references([Member("a", "x")], {})
    assert np.isnan(medians).all()
    assert np.isnan(spreads).all()

"""Comparison of GPUs with the baselines of the other nodes."""

import numpy as np
import pytest

from kernelcast.predictor.causes.features import features
from kernelcast.predictor.causes.find import find
from kernelcast.predictor.causes.fleet import (
    NodeKernel,
    Reference,
    changed,
    reference,
    references,
    slow_from_birth,
    usual_durations,
)
from kernelcast.predictor.causes.observed import Around, Observed
from kernelcast.wire.baselines import KernelBaseline, NodeBaseline
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import Cause

LENGTH = 120


def part(node: int, median: float, version: str = "", program: str = "train", clock: float = 0.0) -> NodeBaseline:
    return NodeBaseline(f"node{node}", median, 0.01, 100, version, 10, program, clock)


def shared(*parts: NodeBaseline) -> KernelBaseline:
    return KernelBaseline("k", "", "H100", parts)


def member(host: str, version: str = "", program: str = "train") -> NodeKernel:
    return NodeKernel("k||H100", host, program, version)


def of(*medians: float) -> KernelBaseline:
    return shared(*(part(node, one) for node, one in enumerate(medians)))


def test_a_node_is_compared_with_the_others_and_one_slow_node_does_not_move_them() -> None:
    found = reference(of(9.0, 1.0, 1.02, 0.98, 3.0), member("node0"))

    assert found is not None
    assert found.median_seconds == pytest.approx(1.01)
    assert found.nodes == 4


def test_fewer_than_three_other_nodes_are_no_reference() -> None:
    assert reference(of(1.0, 1.0, 1.0), member("node0")) is None
    assert reference(of(1.0, 1.0, 1.0), member("another")) is not None


def test_parts_that_are_too_old_are_no_reference() -> None:
    assert reference(of(1.0, 1.0, 1.0), member("another"), oldest_ns=10) is not None
    assert reference(of(1.0, 1.0, 1.0), member("another"), oldest_ns=11) is None


def test_a_release_is_compared_with_the_nodes_that_run_it_and_no_other() -> None:
    baseline = shared(*(part(at, 1.0, "old") for at in range(3)), *(part(at, 2.0, "new") for at in range(3, 6)))
    found = [reference(baseline, member("x", name)) for name in ("old", "new", "newest")]

    assert [one.median_seconds if one else None for one in found] == [1.0, 2.0, None]


def test_other_programs_count_where_too_few_nodes_run_the_same_one() -> None:
    baseline = shared(*(part(at, 1.0, "v7", "serve") for at in range(3)), part(3, 2.0, "v1"), part(4, 2.0, "v1"))
    found = reference(baseline, member("x", "v1"))

    assert found is not None
    assert (found.median_seconds, found.nodes) == (1.0, 5)


def test_nodes_that_differ_raise_the_bar() -> None:
    alike, different = reference(of(1.0, 1.001, 0.999, 1.0), member("x")), reference(of(1, 1.1, 0.9, 1.05), member("x"))

    assert alike is not None
    assert different is not None
    assert alike.bar_seconds == pytest.approx(1.07)
    assert different.bar_seconds > 1.3 * different.median_seconds
    assert slow_from_birth(np.array([1.06, 1.08, np.nan, 2.0]), np.array([1.07, 1.07, 1.07, np.nan])).tolist() == [
        False, True, False, False
    ]  # fmt: skip


def test_the_clock_of_the_fleet_is_known_from_three_nodes_on() -> None:
    few = reference(shared(part(0, 1.0, clock=1900.0), part(1, 1.0), part(2, 1.0)), member("x"))
    enough = reference(shared(*(part(at, 1.0, clock=1900.0 + at) for at in range(3))), member("x"))

    assert few is not None
    assert enough is not None
    assert np.isnan(few.sm_clock_mhz)
    assert enough.sm_clock_mhz == 1901.0


def test_a_usual_duration_needs_nine_blocks() -> None:
    noise = 1 + 0.02 * np.random.default_rng(1).standard_normal((2, 36))
    values = np.array([[1e-3], [2e-3]]) * noise
    values[1, :28] = np.nan
    usual, spread = usual_durations(values)

    assert usual[0] == pytest.approx(1e-3, rel=0.01)
    assert spread[0] == pytest.approx(0.02, rel=0.4)
    assert np.isnan(usual[1])


def test_noise_is_no_change_and_another_release_is_one() -> None:
    assert not changed(part(0, 1.0), part(0, 1.015))
    assert changed(part(0, 1.0), part(0, 1.03))
    assert changed(part(0, 1.0), part(0, 1.0, "v2"))
    assert changed(part(0, 1.0), part(0, 1.0, program="serve"))


def seen(durations: np.ndarray, clock: float, fleet_clock: float, reasons: float = 0.0, programs: int = 1) -> Observed:
    rows = len(durations)
    return Observed(
        {
            kernel.DURATION.prometheus_name: durations,
            device.SM_CLOCK.prometheus_name: np.full((rows, LENGTH), clock),
            device.CLOCK_EVENT_REASONS.prometheus_name: np.full((rows, LENGTH), reasons),
        },
        60.0,
        [(("UUID", str(row)),) for row in range(rows)],
        [10**18] * rows,
        Around(
            fleet=np.full(rows, 1e-3),
            clock=np.full(rows, clock),
            fleet_clock=np.full(rows, fleet_clock),
            programs=np.full((rows, LENGTH), programs),
        ),
    )


def test_a_gpu_that_was_always_slow_is_found_by_the_fleet() -> None:
    durations = np.full((2, LENGTH), 1e-3) * np.array([[1.0], [1.3]])
    found = find(features(seen(durations, 1980.0, 1980.0)))

    assert [[one.cause for one in row.causes] for row in found] == [[], [Cause.AGEING]]
    fact = next(one for one in found[1].causes[0].evidence if one.against == "peers")
    assert fact.value == pytest.approx(1.3e-3)
    assert fact.reference == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("clock", "reasons", "programs", "cause"),
    [
        (1400.0, 0.0, 1, Cause.CLOCK_LOW),
        (1400.0, 0x4, 1, None),
        (1400.0, 0x20, 1, Cause.THERMAL),
        (1400.0, 0x80, 1, Cause.POWER_BRAKE),
        (1980.0, 0x4, 1, Cause.AGEING),
        (1980.0, 0.0, 2, None),
    ],
)
def test_a_clock_below_that_of_the_fleet_explains_a_slow_gpu(
    clock: float, reasons: float, programs: int, cause: Cause | None
) -> None:
    durations = np.full((1, LENGTH), 1.3e-3)
    (found,) = find(features(seen(durations, clock, 1980.0, reasons, programs)))

    assert [one.cause for one in found.causes] == ([] if cause is None else [cause])


def test_a_kernel_that_no_node_has_shared_has_no_reference() -> None:
    baselines = {"k||H100": of(1.0, 1.0, 1.0)}
    found = references([member("x"), NodeKernel("other", "x")], baselines)
    assert isinstance(found[0], Reference)
    assert found[1] is None

"""Declared queries of which the ring changes while they are evaluated."""

from dataclasses import dataclass

import numpy as np
import pytest
from tests.support.bridge.pages_ring import FakeStore

from kernelcast.bridge.browser.queries import Join, Last, SeenRate, Vector
from kernelcast.bridge.browser.ring import SampleRing
from kernelcast.wire.catalogue import kernel


@dataclass(frozen=True)
class Fixed:
    """A query with a given result."""

    vector: Vector
    promql: str = "fixed"
    names: frozenset[str] = frozenset()

    def evaluate(self, _ring: SampleRing) -> Vector:
        return self.vector


def fixed(times: list[float], values: list[float]) -> Fixed:
    return Fixed(Vector(np.array(times), {(("gpu", "0"),): np.array(values)}))


def test_a_reading_between_two_queries_shifts_none_of_their_values() -> None:
    before, after = fixed([0, 5, 10], [1, 2, 3]), fixed([5, 10, 15], [20, 30, 40])
    joined = Join(before, "-", after).evaluate(SampleRing(frozenset(), 5.0, 1))
    assert joined.times.tolist() == [5, 10]
    assert joined.series[("gpu", "0"),].tolist() == [2 - 20, 3 - 30]


def test_a_rate_of_what_was_seen_in_windows_is_one_of_wall_time() -> None:
    names = [row.prometheus_name for row in (kernel.LAUNCHES, kernel.PROBE_RUNNING, kernel.PROBE_MEASURED)]
    ring, store = SampleRing(frozenset(names), 5.0, 100), FakeStore()
    for step in range(25):
        launches = {"always": 500, "windows": 50, "uncounted": 500, "unseen": 0}
        times = {"always": (5, 5), "windows": (5, 0.5), "unseen": (5, 0)}
        store.values = {(names[0], (("program", one),)): 7 + step * n for one, n in launches.items()}
        for one, seconds in times.items():
            store.values |= {
                (name, (("program", one),)): 3 + step * value for name, value in zip(names[1:], seconds, strict=True)
            }
        ring.read(store, 100.0 + 5 * step)
    found = SeenRate(Last(names[0], "sum", ("program",))).evaluate(ring)
    assert {dict(labels)["program"]: values[-1] for labels, values in found.series.items()} == {
        "always": pytest.approx(100),
        "windows": pytest.approx(100),
        "uncounted": pytest.approx(100),
    }, "a program of which nothing was seen has no rate, not a rate of 0"

"""Declared queries of which the ring changes while they are evaluated."""

from dataclasses import dataclass

import numpy as np

from kernelcast.bridge.browser.queries import Join, Vector
from kernelcast.bridge.browser.ring import SampleRing


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

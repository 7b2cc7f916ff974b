"""Compile what adds deltas up before the first message."""

from kernelcast.bridge.delta.accumulate import Accumulator
from kernelcast.bridge.delta.persistence.freeze import freeze, thaw
from kernelcast.bridge.delta.sequence import Order
from kernelcast.bridge.example_points import ExampleSource, example_points
from kernelcast.columnar import Temporality


def warm_up() -> None:
    """Take sums and histograms with a gap through an accumulator, a snapshot and back."""
    order = Order(0, 1, 1)
    totals, again = Accumulator(order, max_series=5), Accumulator(order, max_series=5)
    decoded, messages = example_points(times=(2, 4))
    totals.accumulate(decoded, messages, ExampleSource(Temporality.DELTA))
    thaw(again.rows, freeze(totals.rows, totals.rows.in_use(), {0: 0}), {0: 0})
    again.free(again.rows.in_use())

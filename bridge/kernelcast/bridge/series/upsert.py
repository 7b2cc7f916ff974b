"""The compiled functions that store points: made of the parts in `numbers`, `histograms` and `judgement`."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from kernelcast.bridge.machine import bare_kernel, digest_of
from kernelcast.bridge.series import columns, exponential, judgement, points
from kernelcast.bridge.series import histograms as of_histograms
from kernelcast.bridge.series import numbers as of_numbers
from kernelcast.bridge.series.columns import FloatArray, Int64Array, MessageColumns, Rules
from kernelcast.bridge.series.judgement import Tables
from kernelcast.bridge.series.points import HistogramPoints, NumberPoints


class Kernels(NamedTuple):
    """The compiled functions.

    Attributes:
        numbers: Store points of gauges and sums, in order; what became of them is added to the counts, of shape
            (COUNTS,).
        histograms: Store histogram points from an index on, with the bounds of all schemas and all blocks; returns the
            number of points when all are stored, else the index of one whose series needs other bounds or a longer
            block first.
    """

    numbers: Callable[[Tables, NumberPoints, MessageColumns, Rules, Int64Array], None]
    histograms: Callable[
        [
            Tables,
            HistogramPoints,
            MessageColumns,
            Rules,
            tuple[Int64Array, FloatArray],
            Int64Array,
            int,
            Int64Array,
        ],
        int,
    ]


@cache
def kernels() -> Kernels:
    """The compiled functions, not yet compiled; what they close over makes a changed part compile anew."""
    digest = digest_of(columns, points, exponential, judgement, of_numbers, of_histograms)

    @bare_kernel
    def numbers(
        tables: Tables, points: NumberPoints, messages: MessageColumns, rules: Rules, counts: Int64Array
    ) -> None:
        _ = digest
        of_numbers.store_numbers(tables, points, messages, rules, counts)

    @bare_kernel
    def histograms(  # noqa: PLR0913, PLR0917  arrays in, arrays out
        tables: Tables,
        points: HistogramPoints,
        messages: MessageColumns,
        rules: Rules,
        schemas: tuple[Int64Array, FloatArray],
        blocks: Int64Array,
        begin: int,
        counts: Int64Array,
    ) -> int:
        _ = digest
        return of_histograms.store_histograms(tables, points, messages, rules, schemas, blocks, begin, counts)

    return Kernels(numbers, histograms)

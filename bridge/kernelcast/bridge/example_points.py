"""A few points of each kind as columns: with them `example_run` calls compiled functions, which compiles them."""

from typing import Final

import numpy as np

from kernelcast.bridge.inputs.rows import BatchRows, HistogramPoint
from kernelcast.bridge.tables.columns import Int32Array, MessageColumns
from kernelcast.columnar import Decoded, DecoderLimits, PointType, SeriesIdentity, Temporality

_RESOURCE: Final = (("service.instance.id", ""), ("service.name", ""))
GAUGE, SUM, EXPLICIT, SUM_AND_COUNT, EXPONENTIAL = range(5)
_TYPES: Final = (
    PointType.GAUGE,
    PointType.SUM,
    PointType.HISTOGRAM,
    PointType.HISTOGRAM,
    PointType.EXPONENTIAL_HISTOGRAM,
)


class ExampleSource:
    """Identities of the five example series, in place of a decoder. Series i has the type `_TYPES[i]`."""

    def identity(self, number: int) -> SeriesIdentity:
        """The identity of one of the five series."""
        kind = _TYPES[number]
        temporality = Temporality.UNSPECIFIED if kind == PointType.GAUGE else Temporality.CUMULATIVE
        name, attributes = f"example.{number}", (("kernel", "k"),)
        return SeriesIdentity(
            _RESOURCE, "", "", name, "s", kind, temporality, monotonic=kind == PointType.SUM, attributes=attributes
        )

    def forget(self, numbers: Int32Array) -> None:
        """Do nothing, because the numbers are fixed."""


def example_points(times: tuple[int, ...] = (2,)) -> tuple[Decoded, MessageColumns]:
    """One message with points of all five series.

    Args:
        times: Of the points of each series; each point's interval begins 1 ns before.
    """
    rows = BatchRows()
    rows.begin_message()
    for time_ns in times:
        for series, value in ((GAUGE, 0.5), (SUM, 1)):
            rows.start_ns[len(rows.series)] = time_ns - 1
            rows.series.append(series)
            rows.time_ns.append(time_ns)
            rows.value.append(value)
        rows.histograms += [
            HistogramPoint(EXPLICIT, time_ns, 1, 1.0, time_ns - 1, bounds=(1.0,), buckets=(0, 1)),
            HistogramPoint(SUM_AND_COUNT, time_ns, 1, 1.0, time_ns - 1),
            HistogramPoint(EXPONENTIAL, time_ns, 2, 1.0, time_ns - 1, zero_count=1, positive=(1,), explicit=False),
        ]
    rows.end_message(0, DecoderLimits())
    return rows.columns(()), MessageColumns(np.zeros(1, np.int32), *(np.ones(1, np.int64) for _ in range(3)))

"""Maintenance (`predictor.calendar`): times in which a series is neither learnt nor alarmed.

`SeriesAttributes` and the backtest's grid ask it.
"""

from collections.abc import Sequence

import numpy as np

from kernelcast.predictor.arrays import Bools, Ints
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND, CalendarSettings


def overlaps(periods: Sequence[CalendarSettings], begin_ns: Ints, length_ns: int) -> Bools:
    """Whether spans of time overlap a period.

    Args:
        periods: Periods; one with `every_seconds` recurs.
        begin_ns: Shape (k,), begins of the spans, Unix time.
        length_ns: Length of each span, above 0.
    """
    overlapping = np.zeros(len(begin_ns), np.bool_)
    for one in periods:
        since = begin_ns - round(one.begin.timestamp()) * NANOSECONDS_PER_SECOND
        lasting = round((one.end - one.begin).total_seconds()) * NANOSECONDS_PER_SECOND
        if one.every_seconds is None:
            overlapping |= (since < lasting) & (since + length_ns > 0)
        else:
            every = round(one.every_seconds * NANOSECONDS_PER_SECOND)
            phase = since % every
            overlapping |= (since + length_ns > 0) & ((phase < lasting) | (phase + length_ns > every))
    return overlapping

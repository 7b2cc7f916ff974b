"""Learns how many launches after a change of configuration differ from later ones; `comparison` leaves them out.

Example: after each change, three launches fill a cache and take half as long again. In each stay of ten launches on one
configuration the second to fourth differ from the last five, so the fifth is the first that is compared.
"""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, median
from typing import Final, NamedTuple

from kernelcast.tuning.experiment.arms import Arm
from kernelcast.tuning.experiment.evidence import SCALE_OF_MEDIAN
from kernelcast.tuning.experiment.noise import MEDIAN_ERROR

BEGINNINGS: Final = (2, 3, 5, 9, 17, 33)
"""The launches of a stay before these positions, without the first, are compared with the later half of the stay."""
SMALLEST: Final = 0.01
"""Difference of log times below which launches count as settled."""
ERRORS: Final = 4.0
"""Standard errors of a difference, for many stays; more for few, whose standard error is itself uncertain."""
FEW_STAYS: Final = 10.0
MIN_STAYS: Final = 4
TREND_ERRORS: Final = 4.0
"""Standard errors from which on the level changes steadily, for many stays."""


Times = Sequence[float | None]


class Stay(NamedTuple):
    """Log times of launches in a row on one configuration; None where a time is missing."""

    arm: Arm
    times: list[float | None]


def settled_after(stays: Sequence[Stay], noise: float, least: int) -> int:
    """Return the number of launches of a stay that differ from its later ones.

    Args:
        stays: All stays.
        noise: Standard deviation of log times.
        least: The number to return at least.
    """
    found, trend = least, _trend(stays, noise)
    for end in BEGINNINGS:
        long = [stay for stay in stays if len(stay.times) >= 2 * end]
        for arm in Arm:
            differences = [
                one for stay in long if stay.arm is arm and (one := _difference(stay.times, end, trend)) is not None
            ]
            if len(differences) < MIN_STAYS:
                continue
            error = max(_deviation(differences), noise * sqrt(1 / (end - 1))) / sqrt(len(differences))
            limit = max(SMALLEST, (ERRORS + FEW_STAYS / len(differences)) * error)
            if abs(median(differences)) > limit:
                found = max(found, end)
    return found


def _difference(times: Times, end: int, trend: float) -> float | None:
    """Return the median of the first log times minus that of the later half of the stay, and minus the trend."""
    half = len(times) // 2
    first, later = _median(times[1:end]), _median(times[half:])
    if first is None or later is None:
        return None
    return first - later - trend * ((1 + end) / 2 - (half + len(times)) / 2)


def _trend(stays: Sequence[Stay], noise: float) -> float:
    """Return the change of log times a launch within the later halves of stays; 0 where noise explains it.

    It is the median of the longest stays, because the level can jump in one of them, as where the clock is throttled.
    """
    longest = max((len(times) for _, times in stays), default=0)
    longer = [times for _, times in stays if 2 * len(times) > longest]
    slopes = [slope for times in longer if (slope := _slope(times)) is not None]
    if len(slopes) < MIN_STAYS:
        return 0.0
    trend = median(slopes)
    # `_slope` takes the difference of two medians, each of a quarter of a stay and a quarter apart.
    quarter = max(1, min(map(len, longer)) // 4)
    noise_spread = MEDIAN_ERROR * noise * sqrt(2 / quarter) / quarter
    spread = max(noise_spread, SCALE_OF_MEDIAN * median([abs(slope - trend) for slope in slopes]))
    limit = (TREND_ERRORS + FEW_STAYS / len(slopes)) * spread / sqrt(len(slopes))
    return trend if abs(trend) > limit else 0.0


def _slope(times: Times) -> float | None:
    half, quarter = len(times) // 2, len(times) // 4
    before, after = _median(times[half : half + quarter]), _median(times[len(times) - quarter :])
    if before is None or after is None:
        return None
    return (after - before) / (len(times) - half - quarter)


def _median(times: Times) -> float | None:
    known = [time for time in times if time is not None]
    return median(known) if known else None


def _deviation(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))

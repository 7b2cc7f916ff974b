"""Trend of each series: robust lines over two and eight hours, after the last step, with their uncertainty.

Theil and Sen: Gilbert, Statistical Methods for Environmental Pollution Monitoring (1987), section 16.5.

`detector` estimates it from blocks; `causes.device_features` does so for temperature and memory.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.passage.noise import block_noise
from kernelcast.predictor.passage.series import DAY_BLOCKS
from kernelcast.predictor.robust import row_medians, theil_sen

POINTS: Final = 24
"""Points of a line."""
STRIDES: Final = (1, 4)
"""Blocks in each point of a line: 24 points cover two and eight hours."""
SLOW_STRIDES: Final = (24,)
"""The same for drifts that are too slow for them: two days."""
LEAST_POINTS: Final = 8
"""Points that a line over eight hours needs."""
_LEAST_SHORT: Final = 5
"""Points that a line over two hours needs."""
_STEP_EDGE: Final = 2
"""Points that must lie before a step."""
_STEP_SIZE: Final = 3.5
"""Least size of a step, in standard deviations of a point."""
_STEP_GAIN: Final = 0.8
"""A step explains a row if its residual is below this share of the line's."""
_HINGE_EDGE: Final = 3
"""Points that must lie after a hinge."""
_HINGE_GAIN: Final = 0.6
"""A hinge explains a row if the line's residual exceeds its own by this share."""
_HINGE_NOISE: Final = 3.0
"""The residual must fall by the square of this number of standard deviations, too: chance alone gains a little."""
_ENDS: Final = 6
"""Blocks at both ends of a line that say by how much a series has risen, at most; a third of the line at most."""
_AGREE: Final = 2.0
"""Standard errors by which both lines may differ and still agree."""
_ALIKE: Final = 0.1
"""Share of the slope by which both may differ and still agree, however small their errors are."""
_RESOLUTION_ERROR: Final = 0.4
"""Error of a rounded value in steps of its gauge; 0.29 is that of uniform rounding."""
_AGREE_EASED: Final = 4.0
"""As `_AGREE`, for a long line whose slope falls off."""
_EASES: Final = 0.5
"""Probability from which a slope counts as falling off."""
_EASING_AT: Final = 3.0
"""Errors of half a line; the halves of a straight line differ by 1.4 of them, one standard deviation."""
_EASING_STEEPNESS: Final = 2.0
"""Steepness of the logistic weight, per error: it grows from 0.1 to 0.9 within 2.2 errors."""
CERTAIN_ERRORS: Final = 8.0
"""Standard errors of a slope that is no noise; it takes the place of history where blocks are short, and for kernels.

A line through the noise of a few blocks reaches any limit that is far enough: with 18 blocks, 15 of 1,000 healthy
series had a probability above 0.4 to reach a limit 20 standard deviations away within 150 blocks.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Trend:
    """Trends, shape (n,), slopes per block.

    Attributes:
        level: Present value of the line.
        slope: Slope now, as expected; 0 where too few points have passed since a step.
        straight: Slope of a straight line.
        eased: Slope now of a line whose slope falls off.
        easing: Probability that the slope falls off.
        error: Standard error of the slope.
        time_constant: Blocks after which a slope that falls off is at 1/e; infinite where none is seen to fall off.
        noise: Standard deviation of a block around the line.
        correlation: Of one block's noise with the next one's.
        reversal: Slope in the opposite direction that the series has shown within a day, as by day and night.
        age: Blocks since the trend began: since a bend, a step or a regime, at most the length of its line.
    """

    level: Floats
    slope: Floats
    straight: Floats
    eased: Floats
    easing: Floats
    error: Floats
    time_constant: Floats
    noise: Floats
    correlation: Floats
    reversal: Floats
    age: Ints

    @classmethod
    def line(cls, *, level: Floats, slope: Floats, error: Floats, noise: Floats, age: Ints) -> "Trend":
        """A straight line whose noise has no memory and that nothing takes back."""
        none = np.zeros(len(level))
        return cls(level, slope, slope, slope, none, error, none + np.inf, noise, none, none, age)

    def rows(self, chosen: slice | Bools) -> "Trend":
        """Some of the series."""
        return Trend(*(getattr(self, name)[chosen] for name in Trend.__slots__))

    def flat(self, which: Bools) -> "Trend":
        """The same without the slopes of some series, shape (n,)."""
        slopes = {name: np.where(which, 0.0, getattr(self, name)) for name in ("slope", "straight", "eased")}
        return replace(self, **slopes, error=np.where(which, np.inf, self.error))


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """A line through the newest points.

    `begin` and `step` are blocks since its start and since a step, 0 for none; `span` is the length of its window.
    """

    straight: Floats
    eased: Floats
    easing: Floats
    error: Floats
    time_constant: Floats
    begin: Ints
    step: Ints
    span: Ints

    @property
    def slope(self) -> Floats:
        """Slope now, as expected."""
        return self.straight + self.easing * (self.eased - self.straight)

    def without(self, which: Bools) -> "_Line":
        """The same without the slopes of some rows."""
        return replace(
            self,
            straight=np.where(which, np.nan, self.straight),
            error=np.where(which, np.inf, self.error),
            time_constant=np.where(which, np.inf, self.time_constant),
        )


def estimate(  # noqa: PLR0913  what a line depends on
    values: Floats,
    since: Ints,
    *,
    resolution: Floats,
    settling: Ints,
    begins: Ints | int = 0,
    usual: Floats | None = None,
    strides: tuple[int, ...] = STRIDES,
) -> Trend:
    """Estimate trends.

    Args:
        values: Shape (n, b), a value for each block.
        since: Shape (n,), first block of the present regime.
        resolution: Shape (n,), step of the gauge.
        settling: Shape (n,), blocks after a step during which a slope says nothing.
        begins: Shape (n,), first block of each series, at most `since`.
        usual: Shape (n, b), what the season explains of each block, NaN for blocks that say nothing; None for nothing.
            No slope is steeper than the series itself rises, whatever the season explains.
        strides: Blocks in a point of the shorter and of the longer line, or of the only one.
    """
    length = values.shape[1]
    noise, correlation, memory = block_noise(values, resolution)
    rest = values if usual is None else values - usual
    here = np.arange(length) >= since[:, None]
    masked = np.where(here, rest, np.nan)
    lines = [_line(masked, stride, noise, memory, resolution) for stride in strides]
    short, long = lines[0], lines[-1]
    start = np.maximum(since, _last_step(short, long, settling, POINTS * strides[0], length))
    least = np.maximum(settling, _LEAST_SHORT)
    ages = [np.minimum(np.where(line.begin > 0, line.begin, length), length - since) for line in (short, long)]
    # The long line holds while a bend in the short one is too young to judge, unless the bend is a step.
    crossed = (short.step > 0) & (np.where(long.begin > 0, long.begin, length - begins) > short.step + strides[-1])
    chosen = _choose(short.without(ages[0] < least), long.without((ages[1] < least) | crossed))
    known = np.isfinite(chosen.slope)
    own = np.where(known, np.where(chosen.begin > 0, chosen.begin, chosen.span), length)
    age = np.minimum(own, length - start).astype(np.int64)
    most = np.inf if usual is None else _own_rise(values, age, noise)
    slope, straight, eased = (
        np.minimum(np.where(known, estimated, 0.0), most) for estimated in (chosen.slope, chosen.straight, chosen.eased)
    )
    recent: Floats = np.where(here, values, np.nan)[:, -6:] - slope[:, None] * (np.arange(6.0) - 5.0)
    recent = np.where(np.arange(length)[-6:] >= start[:, None], recent, np.nan)
    level = row_medians(recent)
    return Trend(
        level=np.where(np.isfinite(level), level, row_medians(values[:, -12:])),
        slope=slope,
        straight=straight,
        eased=eased,
        easing=chosen.easing,
        error=np.where(np.isfinite(chosen.error), chosen.error, np.inf),
        time_constant=chosen.time_constant,
        noise=noise,
        correlation=correlation,
        reversal=_reversal(rest, np.sign(slope)),
        age=age,
    )


def last_jump(values: Floats, noise: Floats) -> Ints:
    """Block after the newest jump of each series within two and eight hours, shape (n,); 0 where there is none.

    Args:
        values: Shape (n, b).
        noise: Shape (n,), standard deviation of a block.
    """
    length = values.shape[1]
    steps = [(_step(_points(values, stride), noise), stride) for stride in STRIDES]
    last: Ints = np.maximum.reduce([np.where(step > 0, length - (POINTS - step) * stride, 0) for step, stride in steps])
    return np.maximum(last, 0)


def _last_step(short: _Line, long: _Line, settling: Ints, short_blocks: int, length: int) -> Ints:
    """First block after the last step of each series, shape (n,); 0 where there is none.

    A steep rise of an hour is a step between points of the long line; the short one, over `short_blocks`, tells them
    apart. Where a series settles for longer than the rise, both begin a regime.
    """
    is_rise = (settling <= _LEAST_SHORT) & (long.step <= short_blocks)
    back = np.stack([short.step, np.where(is_rise, short.step, long.step)])
    first: Ints = np.where(back > 0, length - back, 0).max(axis=0)
    return first


def _own_rise(values: Floats, age: Ints, noise: Floats) -> Floats:
    """Slope by which each series itself may have risen since its trend began; infinite where it began with a gap.

    The usual range falls to a job that goes on longer than on other days, which is no rise of the series.
    """
    length = values.shape[1]
    ends = np.clip(age // 3, 1, _ENDS)
    place = np.arange(_ENDS)
    first = np.minimum(np.maximum(length - age[:, None], 0) + place, length - 1)
    before = np.where(place < ends[:, None], np.take_along_axis(values, first, 1), np.nan)
    now = np.where(place >= _ENDS - ends[:, None], values[:, -_ENDS:], np.nan)
    risen = row_medians(now) - row_medians(before) + noise
    rise: Floats = np.maximum(np.nan_to_num(risen, nan=np.inf), 0.0) / np.maximum(age - ends, 1)
    return rise


def _line(masked: Floats, stride: int, noise: Floats, correlation: Floats, resolution: Floats) -> _Line:
    """A line through the newest points, after the last step among them."""
    points = _points(masked, stride)
    inflation = np.sqrt((1 + correlation) / (1 - correlation))
    sigma = noise * inflation / np.sqrt(stride) if stride > 1 else noise * inflation
    step = _step(points, noise * np.sqrt(inflation))
    kept = np.where(np.arange(POINTS) >= step[:, None], points, np.nan)
    begin = np.maximum(step, _hinge(kept, noise))
    kept = np.where(np.arange(POINTS) >= begin[:, None], points, np.nan)
    count = np.isfinite(kept).sum(axis=1)
    slope = theil_sen(kept)
    error = sigma * np.sqrt(12.0 / np.maximum(count.astype(np.float64), 1.0) ** 3)
    # A gauge that rounds hides a slope until it has risen by a step.
    error = np.hypot(error, _RESOLUTION_ERROR * resolution / np.maximum(count, 1))
    enough = count >= (_LEAST_SHORT if stride == 1 else LEAST_POINTS)
    slope, error = np.where(enough, slope, np.nan), np.where(enough, error, np.inf)
    eased, time_constant, easing = _eased(kept, slope, error, count)
    ages = [np.where(first > 0, (POINTS - first) * stride, 0).astype(np.int64) for first in (begin, step)]
    span = np.full(len(points), POINTS * stride, np.int64)
    lines = (slope / stride, eased / stride, easing, error / stride, time_constant * stride)
    return _Line(*lines, begin=ages[0], step=ages[1], span=span)


def _points(values: Floats, stride: int) -> Floats:
    """Medians of as many blocks as a point has, of the newest points, shape (n, POINTS)."""
    needed = POINTS * stride
    window = values[:, -needed:]
    if window.shape[1] < needed:
        window = np.pad(window, ((0, 0), (needed - window.shape[1], 0)), constant_values=np.nan)
    return row_medians(window.reshape(-1, stride)).reshape(len(window), POINTS) if stride > 1 else window


def _step(points: Floats, noise: Floats) -> Ints:
    """First point after the step that explains each row better than a line does; 0 where there is none."""
    known = np.isfinite(points)
    count = known.sum(axis=1).astype(np.float64)
    place = np.arange(POINTS, dtype=np.float64)
    filled = np.where(known, points, 0.0)
    mean = filled.sum(axis=1) / np.maximum(count, 1)
    centred = np.where(known, points - mean[:, None], 0.0)
    total = (centred**2).sum(axis=1)
    times = np.where(known, place, 0.0)
    times = np.where(known, place - (times.sum(axis=1) / np.maximum(count, 1))[:, None], 0.0)
    by_line = (centred * times).sum(axis=1) ** 2 / np.maximum((times**2).sum(axis=1), 1e-12)
    left, before = np.cumsum(centred, axis=1)[:, :-1], np.cumsum(known, axis=1)[:, :-1]
    after = count[:, None] - before
    possible = (before >= _STEP_EDGE) & (after >= 1)
    explained = np.where(possible, left**2 * (1 / np.maximum(before, 1) + 1 / np.maximum(after, 1)), -1.0)
    best = np.argmax(explained, axis=1)
    rows = np.arange(len(points))
    size = np.abs(left[rows, best]) * (1 / np.maximum(before, 1) + 1 / np.maximum(after, 1))[rows, best]
    better = total - explained[rows, best] < _STEP_GAIN * (total - by_line)
    # A step is complete within three points, as a ramp of minutes; a slow rise is not.
    early, late = np.maximum(best - 1, 0), np.minimum(best + 2, POINTS - 1)
    jump = np.abs(points[rows, late] - points[rows, early])
    sudden = jump > 0.8 * size
    is_step = better & sudden & (size > _STEP_SIZE * noise) & (explained[rows, best] > 0)
    found: Ints = np.where(is_step, late, 0).astype(np.int64)
    return found


def _hinge(points: Floats, noise: Floats) -> Ints:
    """First point of the slope where each row is level and then rises or falls; 0 where a line explains it as well."""
    known = np.isfinite(points)
    weight = known.astype(np.float64)
    count = np.maximum(weight.sum(axis=1), 1.0)[:, None]
    filled = np.where(known, points, 0.0)
    filled = np.where(known, filled - filled.sum(axis=1, keepdims=True) / count, 0.0)
    knots = np.arange(POINTS - _HINGE_EDGE, dtype=np.float64)
    bases = np.maximum(np.arange(POINTS)[:, None] - knots, 0.0)
    centred = weight @ bases**2 - (weight @ bases) ** 2 / count
    explained = (filled @ bases) ** 2 / np.maximum(centred, 1e-9)
    best = np.argmax(explained, axis=1)
    rows = np.arange(len(points))
    first = np.argmax(known, axis=1)
    total = (filled**2).sum(axis=1)
    rest = np.maximum(total - explained[rows, best], 0.0)
    # A knot before the first point is a line.
    by_line = np.maximum(total - explained[rows, np.minimum(first, len(knots) - 1)], 0.0)
    # By chance alone the best of all knots explains a little more; noise of that size is no hinge.
    clear = by_line - rest > _HINGE_GAIN * rest + (_HINGE_NOISE * noise) ** 2
    found: Ints = np.where(clear & (best > first + 1), best, 0).astype(np.int64)
    return found


def _eased(points: Floats, slope: Floats, error: Floats, count: Ints) -> tuple[Floats, Floats, Floats]:
    """Slope now and its time constant in points if the slope falls off, and the probability that it does.

    It falls off where the later half of a line is flatter than the earlier one. Halves of a straight line differ too,
    by noise, so their difference counts relative to its error.
    """
    first = POINTS - count
    middle = (first + POINTS) // 2
    place = np.arange(POINTS)
    early = slope_of(points, (place >= first[:, None]) & (place < middle[:, None]))
    late = slope_of(points, place >= middle[:, None])
    length = np.maximum(count / 2.0, 1.0)
    half_error = error * 2.0**1.5
    falls = slope * (early - late) > 0
    errors = np.where(falls, np.abs(early - late) / np.maximum(half_error, 1e-30), 0.0)
    easing = np.where(falls, 1.0 / (1.0 + np.exp(np.clip(-_EASING_STEEPNESS * (errors - _EASING_AT), -60, 60))), 0.0)
    ratio = np.clip(np.where(falls, late / np.where(early == 0, 1.0, early), 1.0), 0.02, 0.98)
    constant = np.where(falls, length / -np.log(ratio), np.inf)
    now = np.where(falls, late * ratio**0.5, slope)
    now = np.where(falls & (late * slope <= 0), 0.0, now)
    return now, constant, easing


def easing_since(values: Floats, age: Ints, noise: Floats) -> tuple[Floats, Floats, Floats]:
    """Estimate whether a rise falls off, from its newest blocks, at most two hours of them.

    Args:
        values: Shape (n, b), a value for each block.
        age: Shape (n,), blocks since the rise began; 0 for none.
        noise: Shape (n,), standard deviation of a block.

    Returns:
        `eased`, `time_constant` and `easing` of `Trend`, shape (n,) each.
    """
    points = _points(values, 1)
    kept = np.where(np.arange(POINTS) >= POINTS - age[:, None], points, np.nan)
    count = np.isfinite(kept).sum(axis=1)
    error = noise * np.sqrt(12.0 / np.maximum(count.astype(np.float64), 1.0) ** 3)
    return _eased(kept, slope_of(kept, np.isfinite(kept)), error, np.minimum(age, POINTS))


def slope_of(points: Floats, inside: Bools) -> Floats:
    """Slopes of least squares through the chosen points of each row, shape (n,)."""
    known = inside & np.isfinite(points)
    count = np.maximum(known.sum(axis=1), 1)
    place = np.arange(points.shape[1], dtype=np.float64)
    middle = np.where(known, place, 0.0).sum(axis=1) / count
    times = np.where(known, place - middle[:, None], 0.0)
    slope: Floats = (times * np.where(known, points, 0.0)).sum(axis=1) / np.maximum((times**2).sum(axis=1), 1e-12)
    return slope


def _choose(short: _Line, long: _Line) -> _Line:
    """The long line where both agree within their errors, else the short one."""
    # A slope that falls off is seen in the long line first; the short one alone would take it for straight.
    eases = long.easing > _EASES
    tolerance = np.where(eases, _AGREE_EASED, _AGREE)
    errors = np.hypot(short.error, long.error)
    apart = np.abs(short.slope - long.slope) > np.maximum(tolerance * errors, _ALIKE * np.abs(long.slope))
    use_short = ~np.isfinite(long.slope) | (np.isfinite(short.slope) & (apart | ((short.error < long.error) & ~eases)))
    chosen = {
        name: np.where(use_short, getattr(short, name), getattr(long, name))
        for name in ("straight", "eased", "easing", "error", "time_constant")
    }
    # Where both agree the trend is as old as the long line, whichever has the smaller error.
    young = use_short & (apart | ~np.isfinite(long.slope))
    chosen |= {name: np.where(young, getattr(short, name), getattr(long, name)) for name in ("begin", "span")}
    return _Line(**chosen, step=np.maximum(short.step, long.step))


def _reversal(values: Floats, direction: Floats) -> Floats:
    """The slope against the present direction that was usual within a day: a share of .85 was smaller."""
    day = values[:, -DAY_BLOCKS:]
    whole = day.shape[1] // 12 * 12
    parts = day[:, -whole:].reshape(len(day), -1, 12)
    # Means: the median of a gauge with whole numbers hides slopes of less than one in two hours.
    known = np.isfinite(parts)
    hourly = np.where(known, parts, 0.0).sum(axis=2) / np.where(known.any(axis=2), known.sum(axis=2), np.nan)
    if hourly.shape[1] < 6:
        return np.zeros(len(values))
    falls = np.maximum(-direction[:, None] * (hourly[:, 2:] - hourly[:, :-2]), 0.0) / 24.0
    falls = np.nan_to_num(falls)
    ordered = np.sort(falls, axis=1)
    usual: Floats = ordered[:, int(0.85 * (ordered.shape[1] - 1))]
    return usual

"""Features of a GPU: clocks and their event reasons, temperature, memory, error counters, links, telemetry.

`causes.features` calls each function with the observed metrics; it returns no feature where a metric is missing.
"""

from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.causes.find import FeatureColumn
from kernelcast.predictor.causes.observed import HOUR_SECONDS, Observed, changed_at, filled, usual_high
from kernelcast.predictor.passage.series import BLOCK_SECONDS
from kernelcast.predictor.passage.trend import LEAST_POINTS, Trend, estimate
from kernelcast.predictor.robust import row_last, row_medians, shrunk_gain
from kernelcast.wire.catalogue.devices import device, gpu, nvlink
from kernelcast.wire.catalogue.features import THERMAL_MARGIN, Feature
from kernelcast.wire.catalogue.model import Metric

Columns = dict[Feature, FeatureColumn]

REASON_BITS: Final = {
    Feature.POWER_CAP_SHARE: 0x4,
    Feature.HARDWARE_SLOWDOWN_SHARE: 0x8,
    Feature.SOFTWARE_THERMAL_SHARE: 0x20,
    Feature.HARDWARE_THERMAL_SHARE: 0x40,
    Feature.POWER_BRAKE_SHARE: 0x80,
}
"""Source: NVML API reference, nvmlClocksEventReasons."""
MATCHED_POINTS: Final = 10.0
"""Utilisation may differ by that many points at matched load."""
LEAST_MATCHED: Final = 10
"""Intervals at matched load that a usual clock needs."""
_POWER_RIDGE_W: Final = 2.0
"""Ridge of the fit of temperature on power, watts."""
LEAST_BLOCKS: Final = 24
"""Blocks that a slope needs: two hours."""

_COUNTERS: Final[tuple[tuple[Feature, Metric, Feature | None], ...]] = (
    (Feature.DOUBLE_BIT_ERRORS, device.ECC_DBE_VOLATILE, None),
    (Feature.SINGLE_BIT_ERRORS, device.ECC_SBE_VOLATILE, Feature.SINGLE_BIT_RATIO),
    (Feature.UNCORRECTABLE_REMAPS, device.UNCORRECTABLE_REMAPPED_ROWS, None),
    (Feature.CORRECTABLE_REMAPS, device.CORRECTABLE_REMAPPED_ROWS, None),
    (Feature.NVLINK_ERRORS, nvlink.ERRORS, None),
    (Feature.PCIE_REPLAYS, device.PCIE_REPLAY, Feature.PCIE_REPLAY_RATIO),
    (Feature.XID_COUNT, gpu.XID_ERRORS, None),
)
_LEVELS: Final[tuple[tuple[Feature, Metric], ...]] = (
    (Feature.GPU_UP, gpu.GPU_UP),
    (Feature.RECOVERY_ACTION, device.RECOVERY_ACTION),
    (Feature.REMAP_FAILURE, device.ROW_REMAP_FAILURE),
    (Feature.PENDING_RETIREMENTS, device.RETIRED_PENDING),
    (Feature.UTILIZATION, device.GPU_UTIL),
    (Feature.THERMAL_MARGIN, THERMAL_MARGIN),
)


def levels(seen: Observed) -> Columns:
    """Metrics that are features as they are."""
    known = {feature: seen.get(metric) for feature, metric in _LEVELS}
    return {feature: FeatureColumn.plain(seen.now(values)) for feature, values in known.items() if values is not None}


def counters(seen: Observed) -> Columns:
    """Increase of each counter within the last hour, and its ratio to the usual one; a reset counts as no fall."""
    columns: Columns = {}
    width = seen.intervals(HOUR_SECONDS)
    for feature, metric, ratio in _COUNTERS:
        values = seen.get(metric)
        if values is None or values.shape[1] < 2:
            continue
        steps = np.maximum(np.diff(filled(values), axis=1), 0.0)
        known = np.isfinite(values).sum(axis=1) > 1
        recent = np.where(known, np.nansum(steps[:, -width:], axis=1), np.nan)
        hours = max(steps.shape[1] - width, 0) * seen.interval_seconds / HOUR_SECONDS
        usual = np.nansum(steps[:, :-width], axis=1) / hours if hours >= 1 else np.full(len(seen), np.nan)
        columns[feature] = FeatureColumn(recent, recent, usual, HOUR_SECONDS)
        if ratio is not None:
            # Without an hour before, the usual rate is not known: that is no reason to be silent.
            by_usual = recent / np.maximum(np.nan_to_num(usual), 1.0)
            columns[ratio] = FeatureColumn(by_usual, recent, usual, HOUR_SECONDS)
    return columns


def xid(seen: Observed) -> Columns:
    """Number of the XID that occurred within the last hour; 0 for none. The gauge keeps an old one for ever."""
    values = seen.get(device.XID_ERRORS)
    if values is None:
        return {}
    recent = filled(values)[:, -seen.intervals(HOUR_SECONDS) - 1 :]
    occurred = (recent != recent[:, :1]).any(axis=1)
    count = seen.get(gpu.XID_ERRORS)
    if count is not None:
        steps = np.diff(filled(count)[:, -seen.intervals(HOUR_SECONDS) - 1 :], axis=1)
        occurred |= (steps > 0).any(axis=1)
    code = np.where(np.isnan(recent[:, -1]), np.nan, np.where(occurred, recent[:, -1], 0.0))
    return {Feature.XID_CODE: FeatureColumn.plain(code, HOUR_SECONDS)}


def clock_reasons(seen: Observed) -> Columns:
    """Share of the last 5 minutes in which each reason to lower the clocks was active."""
    values = seen.get(device.CLOCK_EVENT_REASONS)
    if values is None:
        return {}
    recent = values[:, -seen.intervals(BLOCK_SECONDS) :]
    known = np.isfinite(recent)
    mask: Ints = np.where(known, recent, 0).astype(np.int64)
    count = known.sum(axis=1)
    newest = row_last(values)
    columns: Columns = {}
    for feature, bit in REASON_BITS.items():
        active = ((mask & bit) != 0).sum(axis=1)
        share = np.where(count > 0, active / np.maximum(count, 1), np.nan)
        columns[feature] = FeatureColumn(share, newest, np.full(len(seen), np.nan))
    return columns


def clock(seen: Observed) -> Columns:
    """SM clock relative to the usual one at the same utilisation; not known without a similar load in the past."""
    values, load = seen.get(device.SM_CLOCK), seen.get(device.GPU_UTIL)
    if values is None:
        return {}
    width = seen.intervals(BLOCK_SECONDS)
    before = values[:, :-width]
    if load is not None:
        matched: Bools = np.abs(load[:, :-width] - seen.now(load)[:, None]) <= MATCHED_POINTS
        has_load = np.isfinite(load).any(axis=1).reshape(-1, 1)
        before = np.where(matched | ~has_load, before, np.nan)
    usual = usual_high(before)
    usual[np.isfinite(before).sum(axis=1) < LEAST_MATCHED] = np.nan
    present = seen.now(values)
    return {Feature.CLOCK_RATIO: FeatureColumn(present / np.where(usual > 0, usual, np.nan), present, usual)}


def power(seen: Observed) -> Columns:
    """Power relative to its limit, and to the power 2 hours before."""
    values = seen.get(device.POWER_USAGE)
    if values is None:
        return {}
    present, limit = seen.now(values), seen.limit(device.POWER_USAGE, device.POWER_LIMIT)
    columns: Columns = {}
    if limit is not None:
        columns[Feature.POWER_CAP_RATIO] = FeatureColumn(present / np.where(limit > 0, limit, np.nan), present, limit)
    blocks = seen.blocks(values)
    if blocks.shape[1] > LEAST_BLOCKS:
        before = row_medians(blocks[:, -LEAST_BLOCKS - 6 : -LEAST_BLOCKS + 6])
        ratio = present / np.where(before > 0, before, np.nan)
        columns[Feature.POWER_RATIO] = FeatureColumn(ratio, present, before, 2 * HOUR_SECONDS)
    return columns


def utilization(seen: Observed) -> Columns:
    """Utilisation relative to its median over all intervals."""
    values = seen.get(device.GPU_UTIL)
    if values is None:
        return {}
    present, usual = seen.now(values), row_medians(values)
    ratio = present / np.where(usual > 0, usual, np.nan)
    return {Feature.UTILIZATION_RATIO: FeatureColumn(ratio, present, usual, _span(seen))}


def heat(seen: Observed) -> Columns:
    """Margin to the slowdown temperature, and hours until it is reached at the slope that power does not explain."""
    values = seen.get(device.GPU_TEMP)
    limit = None if values is None else seen.limit(device.GPU_TEMP, device.SLOWDOWN_TEMP)
    if values is None or limit is None:
        return {}
    present = seen.mean_now(values)
    columns = {Feature.LIMIT_MARGIN: FeatureColumn(limit - present, present, limit)}
    watts = seen.get(device.POWER_USAGE)
    blocks = seen.blocks(values)
    if blocks.shape[1] < LEAST_BLOCKS:
        return columns
    if watts is not None:
        blocks = blocks - _power_effect(blocks, seen.blocks(watts))
    trend = trend_of(blocks, resolution=1.0)
    return columns | _passage(seen, trend, present, limit, Feature.HEAT_CERTAINTY, Feature.HOURS_TO_LIMIT)


def memory(seen: Observed) -> Columns:
    """Hours until memory is full at its present slope, and the largest fall of memory in use."""
    used = seen.get(device.FB_USED)
    if used is None:
        return {}
    free = seen.get(device.FB_FREE)
    total = seen.around.limits.get(device.FB_USED.prometheus_name)
    if total is None and free is not None:
        total = row_last(used) + row_last(free)
    blocks = seen.blocks(used)
    if total is None or blocks.shape[1] < LEAST_BLOCKS:
        return {}
    present = seen.mean_now(used)
    trend = trend_of(blocks, resolution=2.0)
    fall = _largest_fall(seen, used)
    columns = {Feature.MEMORY_FALL: FeatureColumn(fall, present, np.full(len(seen), np.nan), _span(seen))}
    return columns | _passage(seen, trend, present, total, Feature.LEAK_CERTAINTY, Feature.HOURS_TO_FULL)


def links(seen: Observed) -> Columns:
    """PCIe link width and generation relative to the highest possible, and NVLinks that went down."""
    columns: Columns = {}
    for feature, metric, most in (
        (Feature.PCIE_WIDTH_RATIO, device.PCIE_LINK_WIDTH, device.PCIE_MAX_LINK_WIDTH),
        (Feature.PCIE_GENERATION_RATIO, device.PCIE_LINK_GEN, device.PCIE_MAX_LINK_GEN),
    ):
        values, limit = seen.get(metric), seen.limit(metric, most)
        if values is not None and limit is not None:
            present = seen.now(values)
            columns[feature] = FeatureColumn(present / np.where(limit > 0, limit, np.nan), present, limit)
    up = seen.get(nvlink.UP)
    if up is not None:
        present, most_up = row_last(up), np.nan_to_num(up, nan=-np.inf).max(axis=1, initial=-np.inf)
        columns[Feature.NVLINKS_DOWN] = FeatureColumn(most_up - present, present, most_up, _span(seen))
    return columns


def telemetry(seen: Observed) -> Columns:
    """Intervals since the last sample of the GPU and of its node's others, and metrics that only this GPU lost."""
    node = seen.around.node
    if node is None or not seen.values:
        return {}
    silent = np.stack([_silent(values) for values in seen.values.values()])
    own = silent.min(axis=0)
    nothing = np.full(len(seen), np.nan)
    lost = np.zeros(len(seen))
    for intervals in silent:
        stalled = np.isfinite(intervals) & (intervals >= _STALLED) & (own < _STALLED)
        lost += stalled & (_least_of_others(intervals, node) <= 2)
    others = _least_of_others(own, node)
    return {
        Feature.SILENT_INTERVALS: FeatureColumn(np.where(np.isfinite(own), own, np.nan), own, others, _span(seen)),
        Feature.NODE_SILENT_INTERVALS: FeatureColumn(np.where(np.isfinite(others), others, np.nan), others, nothing),
        Feature.METRICS_LOST: FeatureColumn(lost, lost, nothing, _span(seen)),
    }


_STALLED: Final = 5
"""Intervals without a value after which a metric is lost."""


def _silent(values: Floats) -> Floats:
    """Intervals since the last known value of each row; infinite where there never was one."""
    known = np.isfinite(values)
    return np.where(known.any(axis=1), np.argmax(known[:, ::-1], axis=1).astype(np.float64), np.inf)


def _least_of_others(values: Floats, node: Ints) -> Floats:
    """Least value of the other rows of the same node; infinite where there is none."""
    result = np.full(len(values), np.inf)
    order = np.lexsort((values, node))
    ranked = node[order]
    first = np.searchsorted(ranked, ranked)
    place = np.arange(len(order))
    second = np.minimum(first + 1, len(order) - 1)
    other = np.where(place == first, second, first)
    same = (ranked[other] == ranked) & (other != place)
    result[order] = np.where(same, values[order[other]], np.inf)
    return result


def _span(seen: Observed) -> float:
    length: int = next(iter(seen.values.values())).shape[1]
    return length * seen.interval_seconds


def _power_effect(blocks: Floats, watts: Floats) -> Floats:
    """Part of the temperature that power explains, relative to the present power; 0 where no power is known.

    Least squares on time and power together, so that a drift beside a change of load is not taken for its effect.
    The ridge of a few watts keeps the gain of a constant power at 0.
    """
    both = np.isfinite(blocks) & np.isfinite(watts)
    count = np.maximum(both.sum(axis=1, keepdims=True), 1)
    time = np.broadcast_to(np.arange(blocks.shape[1], dtype=np.float64), blocks.shape)
    heat, load, time = (
        np.where(both, series - np.where(both, series, 0.0).sum(axis=1, keepdims=True) / count, 0.0)
        for series in (blocks, watts, time)
    )
    own = (time**2).sum(axis=1, keepdims=True)
    heat, load = (
        series - time * (series * time).sum(axis=1, keepdims=True) / np.maximum(own, 1e-9) for series in (heat, load)
    )
    ridge = _POWER_RIDGE_W**2 * count[:, 0]
    gain = shrunk_gain(heat, load, usual=0.0, weight=ridge)
    present = row_medians(watts[:, -12:])
    effect: Floats = np.nan_to_num(gain[:, None] * (watts - present[:, None]))
    return effect


def trend_of(blocks: Floats, *, resolution: float) -> Trend:
    """Trends of rows of at least 24 blocks, shape (n, b), since the last step of each."""
    rows = len(blocks)
    settling = np.full(rows, LEAST_POINTS, dtype=np.int64)
    return estimate(blocks, np.zeros(rows, np.int64), resolution=np.full(rows, resolution), settling=settling)


def certainty_of(trend: Trend) -> Floats:
    """Slope in standard errors, shape (n,); 0 where no slope is known."""
    return np.where(np.isfinite(trend.error), trend.slope / np.maximum(trend.error, 1e-12), 0.0)


def _passage(
    seen: Observed, trend: Trend, present: Floats, limit: Floats, certainty: Feature, hours: Feature
) -> Columns:
    """Certainty of a rise and hours to the limit; the hours are not known without a rise."""
    block_seconds = seen.intervals(BLOCK_SECONDS) * seen.interval_seconds
    slope = trend.slope * (HOUR_SECONDS / block_seconds)
    rises = slope > 0
    margin = np.maximum(limit - present, 0.0)
    soon = np.where(rises, margin / np.where(rises, slope, 1.0), np.nan)
    before = present - 2 * slope
    return {
        certainty: FeatureColumn(certainty_of(trend), present, before, 2 * HOUR_SECONDS),
        hours: FeatureColumn(soon, present, limit, 2 * HOUR_SECONDS),
    }


def _largest_fall(seen: Observed, used: Floats) -> Floats:
    """Largest fall below the highest value before it, as a share of that, since the process began."""
    values = filled(used)
    if seen.around.process is not None:
        began = changed_at(seen.around.process)[:, None]
        values = np.where(np.arange(values.shape[1]) >= began, values, np.nan)
    known = np.nan_to_num(values, nan=0.0)
    highest = np.maximum.accumulate(known, axis=1)
    falls = np.where(np.isnan(values), 0.0, (highest - known) / np.maximum(highest, 1e-9))
    largest: Floats = falls.max(axis=1, initial=0.0)
    return largest

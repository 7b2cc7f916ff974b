"""Alert rules that people write today, on the same fleet: how many pages a day they would send."""

from typing import Any, Final

import numpy as np
from benchmarks.predictor.breaches.rules_of_thumb import AHEAD_SECONDS, lasting, predict_linear
from benchmarks.predictor.fleet.layout import DAY_STEPS, HOUR_STEPS, STEP_SECONDS
from benchmarks.predictor.fleet.recording import Recording

from kernelcast.exporter.simulate.physics import MEMORY_TOTAL_MIB, SLOWDOWN_TEMP_C
from kernelcast.predictor.arrays import Bools, Floats
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device

_WARNING_RATIO: Final = 0.95
_KERNEL_RATIO: Final = 1.2
_SIX_HOURS: Final = 6 * 3600.0
FIXED: Final = "fixed thresholds, 95 % of the limit"
LINEAR: Final = "predict_linear[6h], 4 h, for 30m"


def pages_per_day(recording: Recording) -> dict[str, float]:
    """Pages a day of each rule, one for each series and episode, after the first day."""
    usual = np.nanmedian(recording.values[kernel.DURATION.prometheus_name][:, :DAY_STEPS], axis=1)
    series: tuple[tuple[Floats, Any], ...] = (
        (recording.values[device.GPU_TEMP.prometheus_name], SLOWDOWN_TEMP_C),
        (recording.values[device.FB_USED.prometheus_name], 0.97 * MEMORY_TOTAL_MIB),
        (recording.values[kernel.DURATION.prometheus_name], (_KERNEL_RATIO * usual)[:, None]),
    )
    days = recording.size.days - 1
    fixed = sum(_episodes(np.nan_to_num(values) >= _WARNING_RATIO * limit) for values, limit in series)
    linear = sum(_episodes(_linear(values, limit)) for values, limit in series)
    return {FIXED: round(fixed / days, 2), LINEAR: round(linear / days, 2)}


def _linear(values: Floats, limit: Any) -> Bools:
    ahead = predict_linear(np.nan_to_num(values), STEP_SECONDS, _SIX_HOURS, AHEAD_SECONDS)
    return lasting(np.isfinite(values) & (ahead >= limit), HOUR_STEPS // 2)


def _episodes(firing: Bools) -> int:
    begins = firing[:, 1:] & ~firing[:, :-1]
    return int(begins[:, DAY_STEPS - 1 :].sum())

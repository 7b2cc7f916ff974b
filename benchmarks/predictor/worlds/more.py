"""A third set of worlds, written from the metrics page alone after the detector, without a look at it.

A series is simulated every 10, 30 or 60 s and has a value at that interval or, at 300 s, means or spot values. Load
drives power and, through first-order lags, temperature. A fault is laid over a healthy series; what does not reach its
limit in the time that its world allows is drawn again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from benchmarks.predictor.worlds.series import World, WorldSeries
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rng = np.random.Generator

GPU_TEMP, MEMORY_TEMP = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEMORY_TEMP"
POWER, POWER_LIMIT = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_POWER_MGMT_LIMIT"
FAN, CLOCK, MEMORY = "DCGM_FI_DEV_FAN_SPEED", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_FB_USED"
KV, REQUESTS = "kernelcast_inference_kv_cache_ratio", "kernelcast_inference_requests"
KERNEL, STEP = "cuda_kernel_duration_seconds", "kernelcast_program_step_duration_seconds"
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0
LEAST_DAYS = 3.0
FIRST, LAST = 1735689600.0, 1798675200.0  # 2025-01-01 and 2026-12-31, UTC
TIME_CHANGES = ((1743296400.0, 1.0), (1761440400.0, -1.0), (1774746000.0, 1.0), (1792890000.0, -1.0))
CHRISTMAS = (1766534400.0, 1798070400.0)  # 24 December


@dataclass(slots=True)
class _Clock:
    """Grid of the simulation, with the hours that people see."""

    t: Array
    step: float
    out: float
    spot: bool
    wall: Array
    hour: Array
    weekday: NDArray[np.int64]
    day: NDArray[np.int64]


@dataclass(slots=True)
class _Base:
    """A healthy simulation; limit None stands for 1.2 times the median of the healthy part."""

    clock: _Clock
    metric: str
    values: Array
    limit: float | None
    load: Array
    warm: Array  # degrees that the load causes; a higher thermal resistance multiplies them
    companions: dict[str, Array] = field(default_factory=dict)
    digits: int | None = None
    total: float = 1.0  # MiB of the framebuffer; watts of the board
    absent: NDArray[np.bool_] | None = None


def _clock(rng: Rng, days: float, around: float | None = None, change: tuple[float, float] | None = None) -> _Clock:
    if days < LEAST_DAYS:
        raise ValueError(f"{LEAST_DAYS:g} days or more, not {days:g}")
    out = float(rng.choice([300, 60, 30, 10], p=[0.5, 0.36, 0.1, 0.04]))
    step = min(out, 60.0)
    start = rng.uniform(FIRST, LAST - days * DAY) if around is None else around - rng.uniform(0.2, 0.7) * days * DAY
    t = np.floor(start / out) * out + step * np.arange(1, int(days * DAY / out) * int(out / step) + 1)
    wall = t if change is None else t + change[1] * HOUR * (t >= change[0])
    date = np.floor(wall / DAY).astype(np.int64)
    return _Clock(t, step, out, bool(rng.random() < 0.3), wall, wall / HOUR % 24, (date + 3) % 7, date - date[0])


def _recursion(x: Array, keep: float) -> Array:
    """y[i] = keep * y[i - 1] + x[i], by doubling."""
    y: Array = x.copy()
    shift = 1
    while shift < len(y) and keep**shift > 1e-7:
        y[shift:] += keep**shift * y[:-shift].copy()
        shift *= 2
    return y


def _lag(x: Array, step: float, tau: float) -> Array:
    keep = float(np.exp(-step / tau))
    lagged: Array = x[0] + _recursion((1 - keep) * (x - x[0]), keep)
    return lagged


def _noise(rng: Rng, n: int, step: float, tau: float, sd: float) -> Array:
    keep = float(np.exp(-step / tau))
    x = rng.normal(0, sd * np.sqrt(1 - keep**2), n)
    x[0] = rng.normal(0, sd)
    return _recursion(x, keep)


def five_minutes(values: Array, step: float) -> Array:
    """Trailing means of five minutes; NaN where fewer than half of the samples are there."""
    n = max(round(300 / step), 1)
    there = np.isfinite(values)
    total = np.concatenate([[0.0], np.cumsum(np.where(there, values, 0.0))])
    count = np.concatenate([[0], np.cumsum(there)])
    means = np.full(len(values), np.nan)
    k = count[n:] - count[:-n]
    means[n - 1 :] = np.where(2 * k >= n, (total[n:] - total[:-n]) / np.maximum(k, 1), np.nan)
    return means


def _per_day(clock: _Clock, draws: Array) -> Array:
    """One draw for each day; draws has more than there are days."""
    return draws[np.minimum(clock.day, len(draws) - 1)]


def _between(hour: Array, begin: float | Array, length: float | Array, soft: float) -> Array:
    """1 for some hours of each day, with ramps of `soft` hours."""
    distance = np.abs((hour - begin - length / 2 + 12) % 24 - 12)
    return np.clip((length / 2 - distance) / max(soft, 1e-3) + 0.5, 0, 1)


def _somewhere(rng: Rng, clock: _Clock, lo: float = 0.02, hi: float = 0.95) -> float:
    return float(clock.t[0] + rng.uniform(lo, hi) * (clock.t[-1] - clock.t[0]))


# Rhythms: load from 0 to 1


def _from(c: _Clock, begin: float) -> _Clock:
    """The clock with days that start three hours before `begin`, so that work past midnight is one day's."""
    wall = c.wall - (begin - 3) * HOUR
    date = np.floor(wall / DAY).astype(np.int64)
    return replace(c, hour=wall / HOUR % 24 - 3, weekday=(date + 3) % 7, day=date - date[0])


def _plateau(rng: Rng, c: _Clock, free: tuple[int, ...] = ()) -> Array:
    c = _from(c, rng.uniform(0, 24))
    begin = _per_day(c, rng.normal(0, rng.uniform(0, 0.4), 400))
    length = rng.uniform(5, 14) + _per_day(c, rng.normal(0, rng.uniform(0, 0.5), 400))
    shape = _between(c.hour, begin, length, rng.choice([0.02, rng.uniform(0.3, 3)]))
    idle, weekend = rng.uniform(0.03, 0.35), rng.choice([0.0, rng.uniform(0.1, 0.7), 1.0])
    away = (c.weekday >= 5) | np.isin(c.day, free)
    level = rng.uniform(0.8, 1) * (1 - np.abs(_per_day(c, rng.normal(0, 0.04, 400))))
    return idle + (level - idle) * shape * np.where(away, weekend, 1.0)


def _shifts(rng: Rng, c: _Clock) -> Array:
    a, b, idle, late = rng.uniform(0.75, 1), rng.uniform(0.55, 1), rng.uniform(0.03, 0.25), rng.uniform(-0.3, 0.5)
    early, evening = _between(c.hour, 6 + late, 7.8, 0.2), _between(c.hour, 14 + late, 7.8, 0.2)
    early = early * np.where(c.weekday < 5 + rng.integers(0, 2), 1, 0)
    evening = evening * np.where(c.weekday < 5, 1, 0)
    pause = _between(c.hour, 10 + late, 0.5, 0.15) + _between(c.hour, 18 + late, 0.5, 0.15)
    return idle + (np.maximum(a * early, b * evening) - idle).clip(0) * (1 - rng.uniform(0.2, 0.8) * pause)


def _nightly(rng: Rng, c: _Clock) -> Array:
    idle, long = rng.uniform(0.03, 0.25), ((c.weekday == 5) & (c.hour > 9)) | ((c.weekday == 6) & (c.hour < 20))
    c = _from(c, rng.uniform(18, 24))
    length = rng.uniform(5, 10) + _per_day(c, rng.normal(0, rng.uniform(0.1, 1), 400))
    ran = _per_day(c, (rng.random(400) > 0.06).astype(float))
    shape = _between(c.hour, 0, length, 0.02) * ran
    if rng.random() < 0.4:  # the long run of the weekend
        shape = np.maximum(shape, long)
    return idle + (rng.uniform(0.85, 1) - idle) * shape


def _cron(rng: Rng, c: _Clock) -> Array:
    period, at = float(rng.choice([2, 3, 4, 4, 4, 6, 8])), rng.uniform(0, 2)
    run = np.floor((c.t / HOUR - at) / period).astype(np.int64)
    run -= run[0]
    length = rng.uniform(0.3, 1.2) * np.exp(rng.normal(0, 0.25, run[-1] + 1))
    level = rng.uniform(0.7, 1) * (1 - np.abs(rng.normal(0, 0.06, run[-1] + 1)))
    load = np.where((c.t / HOUR - at) % period < length[run], level[run], rng.uniform(0.03, 0.3))
    return np.maximum(
        load, rng.uniform(0.8, 1) * _between(c.hour, rng.uniform(0, 5), rng.uniform(1, 3), 0.02) * rng.integers(0, 2)
    )


def _web(rng: Rng, c: _Clock) -> Array:
    day = _between(c.hour, rng.uniform(6.5, 9), rng.uniform(8.5, 11), rng.uniform(1, 3))
    day -= (
        rng.uniform(0.12, 0.4)
        * np.exp(-(((c.hour - rng.uniform(11.8, 13)) / rng.uniform(0.4, 0.8)) ** 2))
        * (day > 0.5)
    )
    evening = rng.uniform(0, 0.9) * np.exp(-(((c.hour - rng.uniform(19.5, 21)) / rng.uniform(1, 2)) ** 2))
    weekend = np.where(c.weekday >= 5, rng.uniform(0.35, 1.05), 1.0)
    level = _per_day(c, np.exp(rng.normal(0, 0.04, 400))) * rng.uniform(0.7, 0.85)
    return rng.uniform(0.05, 0.2) + level * weekend * np.maximum(day, evening)


def _jobs(rng: Rng, c: _Clock, busy: Array | None = None) -> Array:
    """Jobs of 10 minutes to 6 hours of a few kinds; `busy` is the share of time with a job."""
    if busy is None:
        busy = rng.uniform(0.35, 0.9) * (1 - rng.uniform(0, 0.5) * (1 - _between(c.hour, 8, 12, 3)))
    load, kinds = np.full(len(c.t), rng.uniform(0.03, 0.15)), rng.uniform(0.35, 1, 5)
    kinds[0] = rng.uniform(0.9, 1)
    at = 0
    while at < len(c.t):
        share = float(np.clip(busy[at], 0.03, 0.97))
        length = np.exp(rng.uniform(np.log(10 * MINUTE), np.log(6 * HOUR)))
        if rng.random() < share or share > 0.5:
            load[at : at + int(length / c.step)] = rng.choice(kinds) * (1 - abs(rng.normal(0, 0.03)))
            at += int(length / c.step)
        at += int(min(rng.exponential(length * (1 - share) / share), 2 * HOUR) / c.step) + 1
    return load


def _students(rng: Rng, c: _Clock) -> Array:
    due = rng.choice([7, 14]) * DAY
    left = (rng.uniform(0, due) - c.t) % due
    busy = 0.08 + 0.85 * np.exp(-left / rng.uniform(0.8, 2.5) / DAY)
    return _jobs(rng, c, busy * (0.35 + 0.65 * _between(c.hour, rng.uniform(9, 13), rng.uniform(10, 14), 3)))


def _training(rng: Rng, c: _Clock) -> Array:
    """One long run: checkpoints every one to three hours, a pause of a few minutes to hours now and then."""
    period, pause = rng.uniform(1, 3) * HOUR, rng.uniform(2, 8) * MINUTE
    load = np.where(c.t % period < pause, rng.uniform(0.2, 0.6), rng.uniform(0.85, 1))
    for _ in range(rng.poisson(0.3 * c.day[-1])):
        at = _somewhere(rng, c, 0, 1)
        load[(c.t > at) & (c.t < at + rng.uniform(0.1, 3) * HOUR)] = rng.uniform(0.05, 0.2)
    return load


RHYTHMS: tuple[Callable[[Rng, _Clock], Array], ...] = (
    _plateau,
    _shifts,
    _nightly,
    _cron,
    _web,
    _jobs,
    _students,
    _training,
)


def _any_rhythm(rng: Rng, c: _Clock) -> Array:
    return RHYTHMS[rng.integers(len(RHYTHMS))](rng, c)


# Rooms: degrees around the usual inlet


def _weather(rng: Rng, c: _Clock) -> Array:
    slow = _lag(_noise(rng, len(c.t), c.step, rng.uniform(1.5, 4) * DAY, 1.0), c.step, 5 * HOUR)
    slow *= rng.uniform(2, 4) / max(float(np.ptp(slow)), 1e-6)
    return slow + rng.uniform(0.2, 1.2) * np.cos((c.hour - rng.uniform(14, 17)) / 24 * 2 * np.pi)


def _chiller(rng: Rng, c: _Clock) -> Array:
    period = rng.uniform(20, 40) * MINUTE * np.exp(_noise(rng, len(c.t), c.step, 3 * HOUR, 0.08))
    phase = np.cumsum(c.step / period) % 1
    on = rng.uniform(0.25, 0.6)
    saw = np.where(phase < on, 1 - phase / on, (phase - on) / (1 - on))
    return _lag(rng.uniform(1, 3.5) * saw, c.step, rng.uniform(1, 4) * MINUTE)


def _still(rng: Rng, c: _Clock) -> Array:
    return _noise(rng, len(c.t), c.step, rng.uniform(3, 20) * HOUR, rng.uniform(0.05, 0.6))


# Bases


def _thin(c: _Clock, x: Array) -> Array:
    """What is handed out of a simulation."""
    k = int(c.out / c.step)
    return x.reshape(-1, k)[:, -1] if c.spot else x.reshape(-1, k).mean(axis=1)


def _top(c: _Clock, values: Array) -> float:
    simulated, thinned = five_minutes(values, c.step), five_minutes(_thin(c, values), c.out)
    return max(float(np.nanmax(simulated)), float(np.nanmax(thinned)))


def _calibrated(rng: Rng, values: Array, c: _Clock, limit: float) -> Array:
    return values + limit - (4.5 + 10.5 * rng.beta(1.1, 1.8)) - _top(c, values)


def _thermal(
    rng: Rng,
    days: float,
    rhythm: Callable[[Rng, _Clock], Array] = _any_rhythm,
    room: Callable[[Rng, _Clock], Array] = _still,
    *,
    liquid: bool = False,
    clock: _Clock | None = None,
) -> _Base:
    """Temperature of a GPU or of its memory, with its power."""
    c = _clock(rng, days) if clock is None else clock
    n = len(c.t)
    load = rhythm(rng, c) * (1 + _noise(rng, n, c.step, rng.uniform(1, 20) * MINUTE, rng.uniform(0.005, 0.04)))
    memory = rng.random() < 0.2
    limit = float(rng.choice([95, 100, 105] if memory else [83, 85, 87, 88, 90, 92, 93, 95]))
    idle = rng.uniform(24, 34) if liquid else rng.uniform(28, 42) + 6 * memory
    sink = rng.uniform(0.3, 0.8)
    warm = sink * _lag(load, c.step, (rng.uniform(12, 40) if liquid else rng.uniform(3, 8)) * MINUTE)
    warm += (1 - sink) * _lag(load, c.step, rng.uniform(15, 60))
    warm *= (limit - rng.uniform(6, 14) - idle) / max(float(np.quantile(warm, 0.999)), 0.05)
    sd = np.exp(rng.uniform(np.log(0.3), np.log(2.0)))
    part = rng.uniform(0.3, 0.9)
    values = warm + room(rng, c) + rng.normal(0, sd * np.sqrt(1 - part**2), n)
    values += _noise(rng, n, c.step, rng.uniform(1, 30) * MINUTE, sd * part)
    tdp, base = float(rng.choice([70, 250, 300, 350, 400, 700, 1000])), rng.uniform(0.08, 0.2)
    power = tdp * (base + (1 - base) * load * rng.uniform(0.85, 1)) + rng.normal(0, 0.01 * tdp, n)
    return _Base(
        c,
        MEMORY_TEMP if memory else GPU_TEMP,
        _calibrated(rng, values, c, limit),
        limit,
        load,
        warm,
        {POWER: power} if rng.random() < 0.85 else {},
        0 if rng.random() < 0.7 else 1,
        tdp,
    )


def _memory(rng: Rng, days: float, *, serving: bool = False) -> _Base:
    """Framebuffer in use, in MiB; an engine that serves fills it by design within half an hour of each start."""
    c = _clock(rng, days)
    total = float(rng.choice([24564, 40960, 46068, 81559, 143771, 183359]))
    limit = 0.98 if serving else float(rng.choice([0.9, 0.95, 0.98]))
    load = _web(rng, c)
    if serving:
        share = np.full(len(c.t), rng.uniform(0.9, 0.968)) + _noise(rng, len(c.t), c.step, HOUR, rng.uniform(0, 0.001))
        if rng.random() < 0.5:  # adapters and graphs are loaded in the first days, one by one
            share += np.minimum(np.floor((c.t - c.t[0]) / rng.uniform(3, 30) / HOUR), rng.integers(1, 4)) * 0.0005
        for start in [c.t[0], *(_somewhere(rng, c) for _ in range(rng.integers(0, 4)))]:
            age = (c.t - start) / rng.uniform(2, 28) / MINUTE
            rise = np.interp(age, [0, 0.08, 0.6, 0.65, 0.95, 1], [0.01, 0.02, 0.45, 0.45, 0.93, 1])
            share = np.where(age >= 0, share * rise, share)
    else:
        share = rng.uniform(0.3, 0.82) + rng.uniform(0, 0.04) * _jobs(rng, c) - 0.04
        share += _noise(rng, len(c.t), c.step, 20 * MINUTE, rng.uniform(0.0002, 0.003))
    values = total * np.minimum(share, limit - 0.005)
    return _Base(c, MEMORY, 2 * np.round(values / 2), limit * total, load, np.zeros_like(values), {}, 0, total)


def _kv(rng: Rng, days: float) -> _Base:
    c = _clock(rng, days)
    load = _web(rng, c)
    share = load ** rng.uniform(0.9, 1.6) * np.exp(
        _noise(rng, len(c.t), c.step, rng.uniform(1, 20) * MINUTE, rng.uniform(0.03, 0.15))
    )
    limit = float(rng.choice([0.9, 0.95, 0.98]))
    share *= (limit - rng.uniform(0.06, 0.35)) / _top(c, share)
    requests = np.round(rng.uniform(20, 300) * share * np.exp(rng.normal(0, 0.05, len(c.t))))
    return _Base(c, KV, share, limit, load, np.zeros_like(share), {REQUESTS: requests} if rng.random() < 0.6 else {}, 4)


def _kernel(rng: Rng, days: float, metric: str = KERNEL) -> _Base:
    c = _clock(rng, days)
    low, high = (2e-5, 5e-2) if metric == KERNEL else (0.1, 20)
    mean = np.exp(rng.uniform(np.log(low), np.log(high)))
    wobble = _noise(rng, len(c.t), c.step, rng.uniform(2, 60) * MINUTE, rng.uniform(0.002, 0.012))
    wobble += rng.normal(0, rng.uniform(0.001, 0.012), len(c.t))
    load = _any_rhythm(rng, c)
    share = rng.uniform(0, 0.03)  # warm chips clock a little lower
    return _Base(c, metric, mean * (1 + wobble + share * load), None, load, np.zeros_like(load))


# From a simulation to a series


def _series(
    rng: Rng, base: _Base, onset: float | None = None, within: tuple[float, float] = (0, 0)
) -> WorldSeries | None:
    """The series of a base; None if it is not what its world promises."""
    c = base.clock
    k = int(c.out / c.step)
    values = _thin(c, base.values if base.digits is None else np.round(base.values, base.digits))
    times = c.t[k - 1 :: k].copy()
    missing = rng.random(len(times)) < rng.choice([0, 0, 0.002, 0.01])
    for _ in range(rng.integers(0, 3)):
        at = _somewhere(rng, c)
        missing |= (times >= at) & (times < at + rng.uniform(3, 40) * MINUTE)
    if base.absent is not None:
        missing |= base.absent[k - 1 :: k]
    values[missing] = np.nan
    companions = {name: np.where(missing, np.nan, _thin(c, x)) for name, x in base.companions.items()}
    healthy = values[times < onset] if onset is not None else values
    limit = base.limit if base.limit is not None else 1.2 * float(np.nanmedian(healthy))
    means = five_minutes(values, c.out)
    if onset is None:
        fine = np.nanmax(means) < (limit if base.limit is not None else limit * 1.148 / 1.2)
        return WorldSeries(base.metric, times, values, limit, companions=companions) if fine else None
    over = np.flatnonzero(means >= limit)
    after = over[0] + int(300 / c.out) if len(over) else len(times)
    if after >= len(times) or not means[after] >= limit or not np.isfinite(healthy).any():
        return None  # never, or it does not stay
    breach, end = float(times[over[0]]), int(np.searchsorted(times, times[over[0]] + 2 * HOUR, side="right"))
    if not (breach - c.t[0] >= 6 * HOUR and breach + 2 * HOUR <= times[-1]):
        return None
    if not within[0] <= (breach - onset) / HOUR <= within[1]:
        return None
    companions = {name: x[:end] for name, x in companions.items()}
    return WorldSeries(base.metric, times[:end], values[:end], limit, onset, breach, companions)


WORLDS: dict[str, World] = {}


def _note(function: Callable[..., object]) -> str:
    return " ".join((function.__doc__ or "").split())


def _healthy(build: Callable[[Rng, float], _Base]) -> Callable[[Rng, float], _Base]:
    """Registers a world of healthy series; its docstring is the note."""

    def make(rng: Rng, days: float) -> WorldSeries:
        for _ in range(200):
            series = _series(rng, build(rng, days))
            if series is not None:
                return series
        raise RuntimeError(f"no healthy series of {build.__name__}")

    WORLDS[build.__name__] = World(build.__name__, True, make, _note(build))
    return build


Fault = Callable[[Rng, _Base, float, float], _Base | None]


def _visible(base: _Base, broken: _Base, series: WorldSeries) -> bool:
    """Whether 20 minutes before the breach a third of the lacking heat had been there for 30 minutes, in all.

    Without load a dead fan does not show: such draws, known to nobody before the next job, are left out.
    """
    if (
        not base.warm.any()
        or series.onset is None
        or series.breach is None
        or series.breach - series.onset < 40 * MINUTE
    ):
        return True
    before = (base.clock.t > series.onset) & (base.clock.t < series.breach - 20 * MINUTE)
    third = (series.limit - np.quantile(base.values, 0.97)) / 3
    return bool(np.sum((broken.values - base.values)[before] > third) * base.clock.step >= 30 * MINUTE)


def _faulty(setup: Callable[[Rng, float], _Base], lo: float, hi: float) -> Callable[[Fault], Fault]:
    """Registers a fault that takes lo to hi hours from onset to breach, over a base that setup builds."""

    def register(fault: Fault) -> Fault:
        def make(rng: Rng, days: float) -> WorldSeries:
            for attempt in range(2000):
                if attempt % 6 == 0:
                    base = setup(rng, days)
                least = min(lo, 12 * days)
                target = rng.uniform(max(6, least + 1), days * 24 - 2.2)  # hour of the breach, about
                span = np.exp(rng.uniform(np.log(least), np.log(min(hi, target - 1))))
                onset = float(base.clock.t[0] + (target - span) * HOUR)
                broken = fault(rng, base, onset, float(span * HOUR))
                series = None if broken is None else _series(rng, broken, onset, (least * 0.8, hi * 1.3))
                if broken is not None and series is not None and _visible(base, broken, series):
                    return series
            raise RuntimeError(f"no breach of {fault.__name__}")

        WORLDS[fault.__name__] = World(fault.__name__, False, make, _note(fault))
        return fault

    return register


# Healthy worlds


@_healthy
def set_hours(rng: Rng, days: float) -> _Base:
    """Work at set hours, with soft or hard edges; weekends, a holiday in midweek or a change of summer time."""
    change = TIME_CHANGES[rng.integers(4)] if rng.random() < 0.35 else None
    c = _clock(rng, days, change[0], change) if change else _clock(rng, days)
    free = tuple(rng.integers(0, c.day[-1] + 1, rng.integers(0, 3)))
    return _thermal(rng, days, lambda r, k: _plateau(r, k, free), clock=c)


@_healthy
def two_shifts(rng: Rng, days: float) -> _Base:
    """Two shifts from 6 to 14 and 14 to 22 with pauses, a shorter Saturday, nothing on Sunday."""
    return _thermal(rng, days, _shifts)


@_healthy
def full_power_by_night(rng: Rng, days: float) -> _Base:
    """Training each night at full power for 5 to 10 hours; some nights fail, some weekends run through."""
    return _thermal(rng, days, _nightly)


@_healthy
def cron_batches(rng: Rng, days: float) -> _Base:
    """Batches by cron every 2 to 8 hours, of differing length, on a GPU that is idle otherwise."""
    return _thermal(rng, days, _cron)


@_healthy
def campaign_day(rng: Rng, days: float) -> _Base:
    """Serving with a dip at lunch; on one day a campaign brings more traffic than on any day before."""

    def rhythm(r: Rng, c: _Clock) -> Array:
        day = r.choice(np.unique(c.day[(c.weekday < 5) | (c.day < 2)]))
        return _web(r, c) * np.where(c.day == day, r.uniform(1.15, 1.4), 1)

    return _thermal(rng, days, rhythm)


@_healthy
def quiet_then_busy(rng: Rng, days: float) -> _Base:
    """The first busy week after quiet ones, or a week of winter holiday and the return from it."""
    holiday = rng.random() < 0.5
    c = _clock(rng, days, float(rng.choice(CHRISTMAS)) if holiday else None)
    begin = CHRISTMAS[int(c.t[-1] > CHRISTMAS[1])] if holiday else c.t[0]
    length = rng.uniform(7, 9) if holiday else rng.uniform(0.15, 0.6) * days
    quiet = (c.t >= begin) & (c.t < begin + length * DAY)
    kind, low = RHYTHMS[rng.choice([0, 1, 2, 4, 5])], rng.uniform(0.05, 0.4)
    return _thermal(rng, days, lambda r, k: kind(r, k) * np.where(quiet, low, 1.0), clock=c)


@_healthy
def mixed_jobs(rng: Rng, days: float) -> _Base:
    """Batch jobs of 10 minutes to 6 hours that differ in power, one after another."""
    return _thermal(rng, days, _jobs)


@_healthy
def student_deadlines(rng: Rng, days: float) -> _Base:
    """A cluster for students: nearly idle after a deadline, full in the days and nights before the next."""
    return _thermal(rng, days, _students)


@_healthy
def allocator_restarts(rng: Rng, days: float) -> _Base:
    """A caching allocator grows in blocks towards its working set, and a restart of the program frees it all."""
    base = _memory(rng, days)
    c, (low, top) = base.clock, (rng.uniform(0.1, 0.5), float(base.limit or 0) / base.total - rng.uniform(0.03, 0.15))
    block = float(rng.choice([2, 20, 512, 1024]))
    starts = np.cumsum(np.concatenate([[c.t[0] - rng.uniform(0, 2) * DAY], rng.uniform(0.4, 6, 60) * DAY]))
    age = c.t - starts[np.searchsorted(starts, c.t, side="right") - 1]
    grown = low + (top - low) * (1 - np.exp(-age / np.exp(rng.uniform(np.log(HOUR), np.log(1.5 * DAY)))))
    values = np.floor(grown * base.total / block) * block
    return replace(base, values=np.where(age < 4 * MINUTE, rng.uniform(0.01, 0.1) * base.total, values))


@_healthy
def serving_memory(rng: Rng, days: float) -> _Base:
    """An engine that serves takes 0.90 to 0.97 of the memory by design within half an hour of each start."""
    return _memory(rng, days, serving=True)


@_healthy
def kv_by_day(rng: Rng, days: float) -> _Base:
    """A KV cache in use by day, with bursts, and nearly empty by night."""
    return _kv(rng, days)


@_healthy
def kernel_rollout(rng: Rng, days: float) -> _Base:
    """A rollout makes a kernel 5 to 12 % slower or faster at once; now and then it is rolled back."""
    base = _kernel(rng, days)
    at, c = _somewhere(rng, base.clock), base.clock
    back = at + rng.uniform(0.5, 48) * HOUR if rng.random() < 0.3 else np.inf
    factor = 1 + rng.choice([-1, 1]) * rng.uniform(0.05, 0.12)
    values = base.values * np.where((c.t >= at) & (c.t < back), factor, 1.0)
    return replace(base, values=values, absent=(c.t >= at) & (c.t < at + rng.uniform(0, 15) * MINUTE))


@_healthy
def kernel_neighbour(rng: Rng, days: float) -> _Base:
    """A neighbour on the same GPU slows a kernel by 3 to 9 % in the hours in which it works."""
    base = _kernel(rng, days)
    kind = (_plateau, _shifts, _web, _cron)[rng.integers(4)](rng, base.clock)
    return replace(base, values=base.values * (1 + rng.uniform(0.03, 0.09) * kind / kind.max()))


@_healthy
def reboots(rng: Rng, days: float) -> _Base:
    """Reboots, gaps: no samples for up to an hour, then a start from cold; several in two weeks."""
    c = _clock(rng, days)
    away, off = np.zeros(len(c.t), bool), np.zeros(len(c.t), bool)
    for _ in range(max(1, round(rng.uniform(3, 14) * days / 15))):
        at, length = _somewhere(rng, c, 0), rng.uniform(3, 60) * MINUTE
        away |= (c.t >= at) & (c.t < at + length)
        off |= (c.t >= at) & (c.t < at + length + rng.uniform(2, 20) * MINUTE)
    return replace(_thermal(rng, days, lambda r, k: _any_rhythm(r, k) * ~off, clock=c), absent=away)


@_healthy
def service_return(rng: Rng, days: float) -> _Base:
    """About gaps: a node is taken out of service for about three days and returns cold, often to a heavier load."""
    c = _clock(rng, days)
    at, length = _somewhere(rng, c, 0.05, 0.7), min(rng.uniform(2.5, 3.5), 0.25 * days) * DAY
    away = (c.t >= at) & (c.t < at + length)
    later = np.where(c.t >= at, rng.uniform(0.9, 1.25), 1.0) * ~away
    return replace(_thermal(rng, days, lambda r, k: _any_rhythm(r, k) * later, clock=c), absent=away)


@_healthy
def weather_room(rng: Rng, days: float) -> _Base:
    """A room without enough cooling of its own follows the weather by 2 to 4 degrees over days."""
    return _thermal(rng, days, room=_weather)


@_healthy
def chiller_cycles(rng: Rng, days: float) -> _Base:
    """Chillers that switch on and off every 20 to 40 minutes move the inlet by 1 to 3 degrees."""
    return _thermal(rng, days, room=_chiller)


@_healthy
def burn_in(rng: Rng, days: float) -> _Base:
    """A burn-in of about six hours at full power, hotter than usual, once or twice, also on the first day."""

    def rhythm(r: Rng, c: _Clock) -> Array:
        load, at_first = r.uniform(0.55, 0.92) * _any_rhythm(r, c), r.random() < 0.3
        for at in [_somewhere(r, c, 0, 0.9) for _ in range(r.integers(1, 3))] + [c.t[0] + HOUR] * int(at_first):
            load[(c.t >= at) & (c.t < at + r.uniform(5, 7) * HOUR)] = 1.0
        return load

    return _thermal(rng, days, rhythm)


@_healthy
def power_caps(rng: Rng, days: float) -> _Base:
    """The power limit of the GPU is lowered or raised on a few dates, and full load follows it."""
    c = _clock(rng, days)
    dates = np.sort([_somewhere(rng, c) for _ in range(rng.integers(1, 5))])
    cap = rng.choice([0.6, 0.7, 0.8, 0.9, 1.0], len(dates) + 1)[np.searchsorted(dates, c.t, side="right")]
    base = _thermal(rng, days, lambda r, k: np.minimum(_any_rhythm(r, k), cap), clock=c)
    capped = {name: np.minimum(x, base.total * cap) for name, x in base.companions.items()}
    return replace(base, companions=capped | {POWER_LIMIT: base.total * cap})


@_healthy
def fan_hysteresis(rng: Rng, days: float) -> _Base:
    """Fans that change between steps with hysteresis make the temperature saw at steady load."""
    base = _thermal(rng, days)
    c, warm = base.clock, base.warm.tolist()
    top, steps, dead = max(warm), int(rng.integers(2, 5)), rng.uniform(3, 7)
    edges = np.linspace(rng.uniform(0.35, 0.55), rng.uniform(0.8, 0.95), steps) * top
    speed, relief = np.linspace(rng.uniform(25, 40), rng.uniform(80, 100), steps + 1), rng.uniform(0.12, 0.3)
    keep, hot, stage = float(np.exp(-c.step / rng.uniform(90, 300))), warm[0], 0
    course, fans = np.empty(len(warm)), np.empty(len(warm))
    for i, wanted in enumerate(warm):
        hot = keep * hot + (1 - keep) * wanted * (1 + relief * (0.6 - stage / steps))
        if stage < steps and hot > edges[stage]:
            stage += 1
        elif stage and hot < edges[stage - 1] - dead:
            stage -= 1
        course[i], fans[i] = hot, speed[stage]
    values = _calibrated(rng, base.values - base.warm + course, c, float(base.limit or 0))
    return replace(base, values=values, companions=base.companions | {FAN: fans})


def _slow_loop(rng: Rng, c: _Clock) -> Array:
    period = rng.uniform(1, 4) * HOUR
    return rng.uniform(0.2, 1.2) * np.sin(2 * np.pi * c.t / period) + 0.5 * _weather(rng, c)


def _liquid(rng: Rng, days: float) -> _Base:
    return _thermal(rng, days, room=_slow_loop, liquid=True)


@_healthy
def liquid_loop(rng: Rng, days: float) -> _Base:
    """Cooling by a liquid: a loop that takes 12 to 40 minutes to follow, and a valve that hunts over hours."""
    return _liquid(rng, days)


# Faults


def _progress(rng: Rng, x: Array, kinds: str = "linear late early stages") -> Array:
    """Course of a fault: 0 until x = 0, about 1 at x = 1, and somewhat on."""
    x = np.maximum(x, 0.0)
    kind = rng.choice(kinds.split())
    if kind == "late":
        x = x ** rng.uniform(1.4, 2.6)
    elif kind == "early":
        x = 1.5 * (1 - np.exp(-1.1 * x))
    elif kind == "stages":
        n, soft = int(rng.integers(3, 9)), rng.uniform(0.2, 0.9)
        x = (np.floor(x * n) + np.clip((x * n % 1) / soft, 0, 1)) / n
    return np.minimum(x, rng.uniform(1.3, 2.2))


def _throttled(base: _Base, values: Array) -> _Base:
    """Beyond its limit a GPU slows down and gets little hotter."""
    over = np.maximum(values - float(base.limit or 0), 0.0)
    return replace(base, values=values - over + 4 * np.tanh(over / 4))


def _resisting(rng: Rng, base: _Base, share: Array) -> _Base:
    """Thermal resistance that has risen, by share 1 as far as busy hours need for the limit."""
    need = float(base.limit or 0) - np.quantile(base.values, 0.97)
    return _throttled(base, base.values + base.warm * share * need / np.quantile(base.warm, 0.97) * rng.uniform(1, 1.2))


def _heated(base: _Base, rise: Array) -> _Base:
    return _throttled(base, base.values + rise)


@_faulty(_thermal, 1, 10)
def fan_dies(rng: Rng, base: _Base, onset: float, span: float) -> _Base:
    """A fan's bearing fails: it slows over 1 to 10 hours and stands still; the busy GPU overheats."""
    x = np.clip((base.clock.t - onset) / span, 0, rng.uniform(1.05, 1.3))
    left = 1 - rng.uniform(0.4, 0.7) * x
    broken = _resisting(rng, base, (left**-0.8 - 1) / ((1 - (1 - left.min()) / x.max()) ** -0.8 - 1) if x.max() else x)
    if rng.random() < 0.6:
        hot = _lag(broken.values, base.clock.step, 2 * MINUTE)
        fan: Array = np.round(np.clip(30 + (hot - 40) * rng.uniform(1, 1.6), 30, 100)).astype(np.float64)
        broken.companions = base.companions | {FAN: fan}
    return broken


@_faulty(lambda r, d: _thermal(r, d, room=_weather), 30, 280)
def filter_clogs(rng: Rng, base: _Base, onset: float, span: float) -> _Base:
    """A dust filter clogs over 1 to 12 days while load and weather go on."""
    return _resisting(rng, base, _progress(rng, (base.clock.t - onset) / span, "linear late"))


@_faulty(lambda r, d: _thermal(r, d, (_jobs, _students, _cron, _web)[r.integers(4)]), 72, 260)
def paste_dries(rng: Rng, base: _Base, onset: float, span: float) -> _Base:
    """Thermal paste dries out or pumps out over 3 to 11 days, at loads that change all the time."""
    return _resisting(rng, base, _progress(rng, (base.clock.t - onset) / span))


@_faulty(_liquid, 5, 110)
def pump_wears(rng: Rng, base: _Base, onset: float, span: float) -> _Base:
    """The pump of a liquid loop wears: its flow falls in slips over hours to days."""
    t, n = base.clock.t, int(rng.integers(4, 40))
    slips = np.cumsum(rng.gamma(0.6, 1, 3 * n))
    at = onset + span * np.sort(rng.uniform(0, 3, 3 * n))
    share = np.concatenate([[0], slips / slips[n]])[np.searchsorted(at, t)]
    share = np.where(t > onset, 0.5 * share + 0.5 * np.maximum(t - onset, 0) / span, 0.0)
    return _resisting(rng, base, _lag(np.minimum(share, rng.uniform(1.3, 2)), base.clock.step, 10 * MINUTE))


@_faulty(_liquid, 0.15, 0.65)
def pump_stops(rng: Rng, base: _Base, onset: float, span: float) -> _Base | None:
    """SHORT, onset to breach is 7 to 50 minutes: the pump of a liquid loop stops under load."""
    age = np.maximum(base.clock.t - onset, 0.0)
    i = int(np.searchsorted(base.clock.t, onset))
    need = float(base.limit or 0) - base.values[max(i - 10, 0) : i + 10].mean()
    if base.warm[i] < 0.5 * base.warm.max():
        return None
    end = need * rng.uniform(1.2, 2)
    return _heated(base, end * (1 - np.exp(age / span * np.log(1 - need / end))))


@_faulty(_thermal, 2, 6)
def room_fails(rng: Rng, base: _Base, onset: float, span: float) -> _Base | None:
    """Cooling of the room fails: its air warms for hours towards a new balance, and all GPUs with it."""
    t = base.clock.t
    need = float(base.limit or 0) - np.median(base.values[np.abs(t - onset - span) < 20 * MINUTE])
    if need > 30:
        return None
    end, slow = need * rng.uniform(1.15, 2.2), rng.uniform(2, 15) * MINUTE
    rise = end * (1 - np.exp(np.maximum(t - onset, 0) / span * np.log(1 - need / end)))
    return _heated(base, _lag(rise, base.clock.step, slow))


@_faulty(_thermal, 1, 60)
def recirculation(rng: Rng, base: _Base, onset: float, span: float) -> _Base:
    """Hot air recirculates since a panel was left out: warmer at once or in stages, over the limit only when busy."""
    t, stages = base.clock.t, int(rng.integers(1, 4))
    need = (float(base.limit or 0) - np.quantile(base.values, 0.97)) * rng.uniform(1.0, 1.4)
    rise = sum((need / stages) * (t >= onset + i * span * rng.uniform(0.2, 0.35)) for i in range(stages))
    return _heated(base, _lag(np.asarray(rise, float), base.clock.step, rng.uniform(5, 25) * MINUTE))


def _leaking(rng: Rng, base: _Base, onset: float, leak: Array, block: float = 2.0) -> _Base:
    """Memory with a leak; often it came with a release, that is, with a restart at the onset."""
    t = base.clock.t
    values = base.values + np.floor(leak / block) * block
    if rng.random() < 0.4:
        start = np.clip((t - onset) / rng.uniform(3, 12) / MINUTE, 0, 1)
        values = np.where(t >= onset, values * (0.03 + 0.97 * start), values)
    return replace(base, values=np.minimum(values, 0.998 * base.total))


def _room_left(base: _Base) -> float:
    return float(base.limit or 0) - float(np.quantile(base.values, 0.8))


@_faulty(_memory, 1.5, 14)
def leak_of_hours(rng: Rng, base: _Base, onset: float, span: float) -> _Base:
    """A program leaks memory at an even rate, or ever faster, for 2 to 14 hours."""
    return _leaking(
        rng, base, onset, _room_left(base) * _progress(rng, (base.clock.t - onset) / span, "linear linear late")
    )


@_faulty(_memory, 24, 240)
def leak_of_days(rng: Rng, base: _Base, onset: float, span: float) -> _Base:
    """A program leaks for 1 to 10 days under a saw of caches that are filled and freed again."""
    t = base.clock.t
    saw = rng.uniform(0, 0.1) * _room_left(base) * (t / rng.uniform(1, 9) / HOUR % 1 - 1)
    leak = _room_left(base) * _progress(rng, (t - onset) / span, "linear")
    return _leaking(rng, replace(base, values=base.values + saw), onset, leak)


@_faulty(_memory, 8, 200)
def leak_per_request(rng: Rng, base: _Base, onset: float, span: float) -> _Base:
    """Each request leaks a little: memory grows with traffic, fast by day and hardly at night."""
    t = base.clock.t
    served = np.cumsum(np.where(t >= onset, base.load, 0.0))
    return _leaking(rng, base, onset, _room_left(base) * served / served[np.searchsorted(t, onset + span)])


@_faulty(_memory, 3, 200)
def leak_in_blocks(rng: Rng, base: _Base, onset: float, span: float) -> _Base | None:
    """An allocator that fragments takes a further block of 2 MiB, 20 MiB or 1 GiB at random times."""
    c, room = base.clock, _room_left(base)
    block = float(rng.choice([2, 20, 1024]))
    if room < 4 * block:
        return None
    blocks = np.cumsum(np.where(c.t >= onset, rng.poisson(room / block * c.step / span, len(c.t)), 0))
    return _leaking(rng, base, onset, block * blocks, block)


@_faulty(_kv, 40, 280)
def kv_users_grow(rng: Rng, base: _Base, onset: float, span: float) -> _Base:
    """More users each day: the peaks of the KV cache grow by a share each day, until it is full at one of them."""
    need = float(base.limit or 0) / np.quantile(base.values, 0.985)
    growth = need ** _progress(rng, (base.clock.t - onset) / span, "linear linear early")
    busy = {name: np.round(x * growth) for name, x in base.companions.items()}
    return replace(base, values=np.minimum(base.values * growth, 0.996), companions=busy)


@_faulty(_kernel, 3, 160)
def clocks_creep(rng: Rng, base: _Base, onset: float, span: float) -> _Base:
    """The clock creeps down (its power supply or its heat sink ages), and a kernel slows with it."""
    c, top, bound = base.clock, rng.uniform(1300, 2000), rng.uniform(0.7, 1)
    slower = _progress(rng, (c.t - onset) / span) * 0.2 / bound
    clock = 15 * np.round(top / (1 + slower) * (1 + _noise(rng, len(c.t), c.step, 10 * MINUTE, 0.004)) / 15)
    return replace(base, values=base.values * (1 + bound * (top / clock - 1)), companions={CLOCK: clock})


@_faulty(lambda r, d: _kernel(r, d, STEP), 6, 160)
def loader_slows(rng: Rng, base: _Base, onset: float, span: float) -> _Base:
    """A data loader slows as its storage fills: at first hidden behind the GPU's work, then steps take longer."""
    share, sharp = rng.uniform(0.5, 0.8), rng.uniform(6, 14)
    load = share + (1.19 - share) * _progress(rng, (base.clock.t - onset) / span, "linear late")
    return replace(base, values=base.values * ((1 + load**sharp) / (1 + share**sharp)) ** (1 / sharp))

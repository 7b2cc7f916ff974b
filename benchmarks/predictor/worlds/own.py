"""Worlds of rhythms that people have: office hours, traffic, jobs, caches, engines that reserve memory."""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
from benchmarks.predictor.worlds.series import Make, World, WorldSeries
from numpy.typing import NDArray

from kernelcast.predictor.local_time import LocalTime
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device

Array = NDArray[np.float64]
Rng = np.random.Generator

HOUR: Final = 3600.0
DAY: Final = 86_400.0
MONDAY: Final = 1_771_200_000.0
"""Monday 2026-02-16, 00:00 UTC."""
STEP: Final = 300.0
SITE: Final = ZoneInfo("Europe/Berlin")
CHANGE: Final = 1_774_742_400.0
"""Sunday 2026-03-29, 00:00 UTC; an hour later its clock changes."""
SLOWDOWN_C: Final = 87.0
MEMORY_MIB: Final = 81_559.0
FULL_MIB: Final = 0.97 * MEMORY_MIB
SLOWER: Final = 1.2
_PATIENCE: Final = 200
"""Draws of a fault after which a world gives up."""


def _grid(rng: Rng, days: float, step: float = STEP) -> Array:
    """Times from the midnight before a random day of the week on."""
    return MONDAY + DAY * int(rng.integers(0, 7)) + np.arange(0.0, days * DAY, step)


def _over_change(rng: Rng, days: float, step: float = STEP) -> Array:
    """Times from a midnight 3 days or more before the clock of `SITE` goes to summer time, and 2 or more after it."""
    return CHANGE - DAY * int(rng.integers(3, max(int(days) - 2, 4))) + np.arange(0.0, days * DAY, step)


def _smoothed(values: Array, step: float, constant: float) -> Array:
    """First-order lag of a body that warms up."""
    share = -np.expm1(-step / constant) if constant > 0 else 1.0
    found, now = np.empty_like(values), values[0]
    for place, value in enumerate(values.tolist()):
        now += share * (value - now)
        found[place] = now
    return found


def _wander(rng: Rng, length: int, step: float, hours: float, size: float) -> Array:
    """Noise with a memory of some hours."""
    found: Array = size * _normed(_smoothed(rng.standard_normal(length), step, hours * HOUR))
    return found


def _normed(values: Array) -> Array:
    found: Array = (values - values.mean()) / max(float(values.std()), 1e-12)
    return found


def _workdays(rng: Rng, times: Array, *, weekend: float = 0.0) -> Array:
    """Share of full work at each time: weekdays at any hours, soft edges, some hours early or late, a holiday."""
    begin, length = rng.uniform(5.0, 11.0), rng.uniform(8.0, 12.0)
    edge, jitter = float(np.exp(rng.uniform(np.log(0.05), np.log(1.5)))), rng.uniform(0.0, 0.4)
    first = times[0] - (times[0] - MONDAY) % DAY
    share = np.zeros(len(times))
    holiday = int(rng.integers(3, 14))
    for day in range(-1, int((times[-1] - first) / DAY) + 1):
        weekday = int((first + day * DAY - MONDAY) // DAY) % 7
        height = weekend if weekday >= 5 or day == holiday else rng.uniform(0.9, 1.0)
        start = first + day * DAY + (begin + rng.normal(0, jitter)) * HOUR
        end = start + (length + rng.normal(0, jitter)) * HOUR
        up = np.clip((times - start) / (edge * HOUR), 0.0, 1.0)
        down = np.clip((end - times) / (edge * HOUR), 0.0, 1.0)
        share = np.maximum(share, height * np.minimum(up, down))
    return share


def _site_days(rng: Rng, times: Array) -> tuple[Array, LocalTime]:
    """Share of full work by the clock of `SITE`, with holidays and a busy Saturday; its settings."""
    local = times + np.array([_offset_seconds(time) for time in times.tolist()])
    numbers = np.arange(local[0] // DAY, local[-1] // DAY + 1)
    weekdays = (numbers - MONDAY // DAY) % 7
    work = weekdays < 5
    begin = rng.choice(numbers[2:][work[2:]])
    off = np.isin(numbers, begin + np.arange(7) if rng.random() < 0.3 else [begin, rng.choice(numbers[2:][work[2:]])])
    work &= ~off
    saturdays = np.flatnonzero(weekdays == 5)
    if len(saturdays) and rng.random() < 0.7:
        work[rng.choice(saturdays)] = True
    first, length = rng.uniform(5.0, 11.0), rng.uniform(8.0, 12.0)
    edge, jitter = float(np.exp(rng.uniform(np.log(0.05), np.log(1.5)))), rng.uniform(0.0, 0.4)
    share = np.zeros(len(times))
    for day in numbers[work].tolist():
        start = day * DAY + (first + rng.normal(0, jitter)) * HOUR
        end = start + (length + rng.normal(0, jitter)) * HOUR
        up, down = (np.clip(hours / (edge * HOUR), 0.0, 1.0) for hours in (local - start, end - local))
        share = np.maximum(share, rng.uniform(0.9, 1.0) * np.minimum(up, down))
    holidays = frozenset(date.fromordinal(date(1970, 1, 1).toordinal() + int(day)) for day in numbers[off & ~work])
    return share, LocalTime(SITE, holidays)


def _offset_seconds(time: float) -> float:
    offset = datetime.fromtimestamp(time, SITE).utcoffset()
    return 0.0 if offset is None else offset.total_seconds()


def _jobs(rng: Rng, times: Array, *, shortest: float, longest: float) -> Array:
    """Load of jobs that come and go; 0 between them."""
    load, now = np.zeros(len(times)), times[0] - rng.uniform(0, longest) * HOUR
    while now < times[-1]:
        length = np.exp(rng.uniform(np.log(shortest), np.log(longest))) * HOUR
        load[(times >= now) & (times < now + length)] = rng.uniform(0.75, 1.0)
        now += length + np.exp(rng.uniform(np.log(0.15), np.log(3.0))) * HOUR
    return load


def _temperature(
    rng: Rng, times: Array, load: Array, *, top: float, wear: Array | float = 0.0, air: Array | float = 0.0
) -> WorldSeries:
    """A GPU with a chassis that warms up for an hour, in whole degrees.

    Args:
        rng: Random generator.
        times: Unix times.
        load: Share of the full load at each time.
        top: Temperature at full load.
        wear: Added thermal resistance, as a share.
        air: Added temperature of the inlet, at any load.
    """
    step = float(times[1] - times[0])
    idle, watts = rng.uniform(32.0, 42.0), 60.0 + 560.0 * load + 6.0 * rng.standard_normal(len(times)) * (load > 0)
    fast = rng.uniform(0.4, 0.7)
    heat = fast * _smoothed(watts, step, 180.0) + (1 - fast) * _smoothed(watts, step, rng.uniform(0.5, 1.2) * HOUR)
    room = rng.uniform(0.0, 0.8) * np.sin(2 * np.pi * (times / DAY + rng.random())) + _wander(
        rng, len(times), step, 8.0, 0.3
    )
    shown = idle + room + air + (top - idle) * (1.0 + wear) * heat / 620.0 + 0.3 * rng.standard_normal(len(times))
    companions = {device.POWER_USAGE.prometheus_name: watts}
    return WorldSeries(device.GPU_TEMP.prometheus_name, times, np.round(shown), SLOWDOWN_C, companions=companions)


def _without(series: WorldSeries) -> WorldSeries:
    return replace(series, companions={})


def breach_of(values: Array, limit: float, step: float, onset: float, times: Array) -> float | None:
    """When the mean of five minutes first reaches the limit; None where it does so before the onset or never."""
    width = max(round(300.0 / step), 1)
    filled = np.where(
        np.isfinite(values), values, np.interp(times, times[np.isfinite(values)], values[np.isfinite(values)])
    )
    mean = np.convolve(filled, np.ones(width) / width, mode="valid")
    over = np.flatnonzero(mean >= limit)
    if not len(over) or times[over[0] + width - 1] < onset:
        return None
    return float(times[over[0] + width - 1])


def _faulty(
    draw: Callable[[Rng, Array, Array], WorldSeries],
    *,
    shortest: float,
    longest: float,
    step: float = STEP,
    grid: Callable[[Rng, float, float], Array] = _grid,
) -> Make:
    """Series whose fault grows linearly from an onset to a share 1 at some hours, and breaches in that time.

    Args:
        draw: Makes a series from times and the size of the fault: hours since the onset, 0 before it.
        shortest: Least hours from onset to breach.
        longest: Most hours.
        step: Seconds between samples.
        grid: Draws times, of some days.
    """

    def make(rng: Rng, days: float) -> WorldSeries:
        for _ in range(_PATIENCE):
            times = grid(rng, days, step)
            onset = float(rng.uniform(times[0] + max(0.4, days - 4) * DAY, times[-1] - 0.7 * longest * HOUR))
            series = draw(rng, times, np.maximum(times - onset, 0.0) / HOUR)
            breach = breach_of(series.values, series.limit, step, onset, times)
            if breach is not None and shortest <= (breach - onset) / HOUR <= longest:
                kept = times <= breach + 2 * HOUR
                companions = {name: values[kept] for name, values in series.companions.items()}
                values = series.values[kept]
                return replace(
                    series, times=times[kept], values=values, onset=onset, breach=breach, companions=companions
                )
        raise RuntimeError("no draw of this world breaches in time")

    return make


def _healthy(
    draw: Callable[[Rng, Array, Array], WorldSeries],
    *,
    step: float = STEP,
    grid: Callable[[Rng, float, float], Array] = _grid,
) -> Make:
    def make(rng: Rng, days: float) -> WorldSeries:
        times = grid(rng, days, step)
        return draw(rng, times, np.zeros(len(times)))

    return make


def office(rng: Rng, times: Array, grown: Array) -> WorldSeries:
    """A workstation's temperature under office work; its inlet gets warmer by degrees an hour."""
    return _without(office_power(rng, times, grown))


def office_power(rng: Rng, times: Array, grown: Array) -> WorldSeries:
    """The same, with its power."""
    air = rng.uniform(0.5, 5.0) * grown
    return _temperature(rng, times, _workdays(rng, times), top=rng.uniform(72, 82), air=air)


def site(rng: Rng, times: Array, grown: Array) -> WorldSeries:
    """Office work over a change of the clock, with holidays and a busy Saturday, all of them in the settings."""
    work, local_time = _site_days(rng, times)
    air = rng.uniform(0.5, 5.0) * grown
    found = _temperature(rng, times, work, top=rng.uniform(72, 82), air=air)
    return replace(found, companions={}, local_time=local_time)


def site_unset(rng: Rng, times: Array, grown: Array) -> WorldSeries:
    """The same without these settings."""
    return replace(site(rng, times, grown), local_time=LocalTime())


def plateau(rng: Rng, times: Array, grown: Array) -> WorldSeries:
    """Any gauge: two levels by the hour, flat nights, white noise."""
    low, rise, noise = rng.uniform(60, 72), rng.uniform(6, 14), rng.choice([1.0, 2.0])
    values = low + rise * _workdays(rng, times, weekend=float(rng.choice([0.0, 1.0])))
    return WorldSeries("", times, values + noise * rng.standard_normal(len(times)) + rng.uniform(1, 4) * grown, 95.0)


def traffic(rng: Rng, times: Array, grown: Array) -> WorldSeries:
    """An inference server's KV cache: daily traffic with a lunch dip, less on weekends."""
    peak, low = rng.uniform(0.70, 0.82), rng.uniform(0.25, 0.45)
    hour, noon = times % DAY / HOUR, rng.uniform(11, 15)
    day = np.exp(-0.5 * ((hour - noon) / rng.uniform(2.5, 4.0)) ** 2)
    day -= rng.uniform(0, 0.3) * np.exp(-0.5 * ((hour - noon) / 0.6) ** 2)
    weekend = np.where((times - MONDAY) // DAY % 7 >= 5, rng.uniform(0.3, 0.8), 1.0)
    busy = day / day.max() * weekend * (1.0 + _wander(rng, len(times), STEP, 12.0, 0.04))
    used = low + (peak - low) * np.clip(busy, 0, 1.06) + 0.006 * rng.standard_normal(len(times))
    leaked = rng.uniform(0.01, 0.06) * grown
    return WorldSeries(device.FB_USED.prometheus_name, times, MEMORY_MIB * np.minimum(used + leaked, 1.0), FULL_MIB)


def neighbour(rng: Rng, times: Array, grown: Array) -> WorldSeries:
    """A kernel that is slower while a neighbour works in office hours; it ages by per cent an hour."""
    slow = rng.uniform(0.08, 0.15) * _workdays(rng, times)
    noise = float(np.exp(rng.uniform(np.log(0.004), np.log(0.02))))
    ageing = rng.uniform(0.01, 0.06) * grown
    usual = rng.uniform(1e-4, 1e-2)
    values = usual * (1 + slow + ageing) * (1 + noise * rng.standard_normal(len(times)))
    return WorldSeries(kernel.DURATION.prometheus_name, times, values, SLOWER * usual)


def short_jobs(rng: Rng, times: Array, grown: Array) -> WorldSeries:
    """A node of a cluster: jobs of ten minutes to six hours; its fan clogs."""
    load = _jobs(rng, times, shortest=1 / 6, longest=6.0)
    return _without(_temperature(rng, times, load, top=rng.uniform(74, 83), wear=rng.uniform(0.5, 2.5) / 45.0 * grown))


def clogged_fan(rng: Rng, times: Array, grown: Array) -> WorldSeries:
    """Jobs of one to six hours, with the power."""
    load = _jobs(rng, times, shortest=1.0, longest=6.0)
    return _temperature(rng, times, load, top=rng.uniform(74, 83), wear=rng.uniform(0.5, 2.5) / 45.0 * grown)


def clogged_fan_alone(rng: Rng, times: Array, grown: Array) -> WorldSeries:
    """The same without the power."""
    return _without(clogged_fan(rng, times, grown))


def allocator(rng: Rng, times: Array, grown: Array) -> WorldSeries:
    """A caching allocator: grows in steps of 512 MiB to its working set within hours, is emptied now and then."""
    values, now = np.zeros(len(times)), times[0] - rng.uniform(0, 12) * HOUR
    base, top = rng.uniform(8_000, 20_000), rng.uniform(0.45, 0.85) * FULL_MIB
    while now < times[-1]:
        length, constant = rng.uniform(8, 60) * HOUR, np.exp(rng.uniform(np.log(0.3), np.log(4.0))) * HOUR
        since = times - now
        inside = (since >= 0) & (since < length)
        values[inside] = base + (top * rng.uniform(0.93, 1.0) - base) * -np.expm1(-since[inside] / constant)
        now += length
    values += rng.uniform(1_500, 6_000) * grown
    return WorldSeries(device.FB_USED.prometheus_name, times, np.floor(values / 512) * 512, FULL_MIB)


def reserving(rng: Rng, times: Array, _grown: Array) -> WorldSeries:
    """A serving engine: memory flat at .90 to .985 of the GPU within minutes of each start."""
    held = rng.uniform(0.90, 0.985) * MEMORY_MIB
    values = held + rng.uniform(0, 40) * rng.standard_normal(len(times))
    for restart in rng.uniform(times[0], times[-1], int(rng.integers(1, 5))):
        since = times - restart
        values = np.where(
            (since >= 0) & (since < 1200), 600 + (held - 600) * np.clip(since - 600, 0, 600) / 600, values
        )
    return WorldSeries(device.FB_USED.prometheus_name, times, values, FULL_MIB)


def nightly(rng: Rng, times: Array, grown: Array) -> WorldSeries:
    """Training every night, and evaluation for an hour now and then."""
    hour = (times - rng.uniform(18, 24) * HOUR) % DAY / HOUR
    length, ramp = rng.uniform(6, 9), rng.uniform(0.1, 0.6)
    load = np.clip(np.minimum(hour / ramp, (length - hour) / ramp), 0, 1)
    return _without(_temperature(rng, times, load, top=rng.uniform(74, 82), air=rng.uniform(0.5, 5.0) * grown))


def saturday(rng: Rng, times: Array, _grown: Array) -> WorldSeries:
    """A batch once a week, for half a day."""
    begin = (5 * 24 + rng.uniform(0, 20)) * HOUR
    hour = (times - MONDAY - begin) % (7 * DAY) / HOUR
    load = np.clip(np.minimum(hour / 1.0, (rng.uniform(8, 14) - hour) / 0.3), 0, 1)
    return _without(_temperature(rng, times, load, top=rng.uniform(74, 82)))


def gaps(rng: Rng, times: Array, grown: Array) -> WorldSeries:
    """Office work with a third of the samples lost, and reboots with hours of silence."""
    found = office(rng, times, grown)
    values = found.values.copy()
    values[rng.random(len(values)) < 0.3] = np.nan
    for reboot in rng.uniform(times[0] + 0.3 * DAY, times[-1], 2):
        values[(times >= reboot) & (times < reboot + rng.uniform(0.2, 4) * HOUR)] = np.nan
    return WorldSeries(found.metric, times, values, found.limit)


def flat(rng: Rng, times: Array, grown: Array) -> WorldSeries:
    """Steady work at any level below the limit."""
    load = np.full(len(times), 1.0)
    return _without(_temperature(rng, times, load, top=rng.uniform(60, 82), wear=rng.uniform(0.5, 6.0) / 40.0 * grown))


WORLDS: Final = (
    World("office", True, _healthy(office), "temperature on weekdays at any hours, holidays, chassis of an hour"),
    World("office-power", True, _healthy(office_power), "the same with power"),
    World("site", True, _healthy(site, grid=_over_change), "the clock changes, holidays, a busy Saturday; settings"),
    World("site-unset", True, _healthy(site_unset, grid=_over_change), "the same without the settings"),
    World("plateau", True, _healthy(plateau), "two levels, flat nights, noise 1 or 2, limit 95"),
    World("traffic", True, _healthy(traffic), "KV cache with a lunch dip, peak .70 to .82 of memory"),
    World("neighbour", True, _healthy(neighbour), "kernel 8 to 15 % slower in office hours"),
    World("short-jobs", True, _healthy(short_jobs), "jobs of 10 min to 6 h"),
    World("jobs-power", True, _healthy(clogged_fan), "jobs of 1 to 6 h, with power"),
    World("allocator", True, _healthy(allocator), "caching allocator in steps of 512 MiB"),
    World("reserving", True, _healthy(reserving), "engine that reserves .90 to .985 of memory"),
    World("nightly", True, _healthy(nightly), "training every night"),
    World("saturday", True, _healthy(saturday), "a batch once a week"),
    World("gaps", True, _healthy(gaps), "office with 30 % of the samples lost, and reboots"),
    World("office-wear", False, _faulty(office, shortest=2, longest=24), "office, cooling gets worse"),
    World("office-power-wear", False, _faulty(office_power, shortest=2, longest=24), "the same with power"),
    World("site-wear", False, _faulty(site, shortest=2, longest=24, grid=_over_change), "site, cooling gets worse"),
    World("plateau-drift", False, _faulty(plateau, shortest=2, longest=24), "plateau with a drift"),
    World("traffic-leak", False, _faulty(traffic, shortest=2, longest=24), "KV cache with a leak"),
    World("neighbour-ageing", False, _faulty(neighbour, shortest=2, longest=24), "the kernel ages"),
    World("clogged-fan", False, _faulty(clogged_fan_alone, shortest=5, longest=24), "jobs of 1 to 6 h, fan clogs"),
    World("clogged-fan-power", False, _faulty(clogged_fan, shortest=5, longest=24), "the same with power"),
    World("allocator-leak", False, _faulty(allocator, shortest=4, longest=24), "leak under a caching allocator"),
    World("nightly-wear", False, _faulty(nightly, shortest=2, longest=24), "nightly training, fan clogs"),
    World("gaps-wear", False, _faulty(gaps, shortest=2, longest=24), "office with gaps, cooling gets worse"),
    World("flat-wear", False, _faulty(flat, shortest=2, longest=24), "steady work, cooling gets worse"),
)

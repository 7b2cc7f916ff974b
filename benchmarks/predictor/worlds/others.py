"""Worlds written from the metrics page and public sources alone, by someone who had not seen the predictor.

Each world draws its own hours, levels, noise, grid and dates. Times are Unix seconds, temperatures are in degrees
Celsius, power in watts, memory in MiB (the allocator's in bytes) and durations in seconds. Three days or more are asked
of a draw. Slow faults take a share of the days asked for, so over few days they run faster than real ones.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np
from benchmarks.predictor.worlds.series import World, WorldSeries
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rng = np.random.Generator

TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
POWER = "DCGM_FI_DEV_POWER_USAGE"
UTILISATION = "DCGM_FI_DEV_GPU_UTIL"
MEMORY = "DCGM_FI_DEV_FB_USED"
ALLOCATED = "kernelcast_program_allocator_bytes"
KERNEL = "cuda_kernel_duration_seconds"
STEP = "kernelcast_program_step_duration_seconds"

HOUR = 3600.0
DAY = 86400.0
MIB = 2.0**20
LEAST_WARNING_S = 1200.0
LEAST_DAYS = 3.0
MOST_SAMPLES = 150_000
GRIDS_S = (10.0, 30.0, 60.0, 300.0)
TOTALS_MIB = (15360.0, 24564.0, 40960.0, 46068.0, 81559.0, 143771.0)
ZONES = (
    "America/Los_Angeles",
    "America/New_York",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Australia/Sydney",
    "Europe/Berlin",
    "Europe/London",
    "UTC",
)
ZONES_WITH_CLOCK_CHANGE = ("America/New_York", "Europe/Berlin", "Europe/London")
WORKDAYS = frozenset(range(5))
EVERY_DAY = frozenset(range(7))
CLOCK_CHANGES = (
    dt.date(2024, 3, 31),
    dt.date(2024, 10, 27),
    dt.date(2025, 3, 30),
    dt.date(2025, 10, 26),
    dt.date(2026, 3, 29),
    dt.date(2026, 10, 25),
)
AMERICAN_CLOCK_CHANGES = (
    dt.date(2024, 3, 10),
    dt.date(2024, 11, 3),
    dt.date(2025, 3, 9),
    dt.date(2025, 11, 2),
    dt.date(2026, 3, 8),
)
# Good Friday and Easter Monday, 1 May, and others that fall on working days in many places.
HOLIDAYS = (
    dt.date(2024, 4, 1),
    dt.date(2024, 5, 1),
    dt.date(2024, 12, 25),
    dt.date(2025, 4, 21),
    dt.date(2025, 5, 1),
    dt.date(2025, 7, 4),
    dt.date(2026, 1, 1),
    dt.date(2026, 4, 6),
    dt.date(2026, 5, 1),
    dt.date(2026, 5, 25),
)


# --- Time ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clock:
    """The times of a series, in Unix seconds, and the site's local time in seconds since 1970-01-01 local midnight."""

    times: Floats
    local: Floats
    grid: float

    @property
    def size(self) -> int:
        """How many samples there are."""
        return len(self.times)

    @property
    def days(self) -> range:
        """Local days that the series touches, and the one before, as days since 1970-01-01."""
        return range(int(self.local.min() // DAY) - 1, int(self.local.max() // DAY) + 1)

    @property
    def hours(self) -> Floats:
        """Hour of the local day, 0 to 24."""
        hours: Floats = np.mod(self.local, DAY) / HOUR
        return hours

    @property
    def elapsed(self) -> Floats:
        """Seconds since the first sample."""
        elapsed: Floats = self.times - self.times[0]
        return elapsed

    @property
    def span(self) -> float:
        """Seconds from the first to the last sample."""
        return float(self.times[-1] - self.times[0])

    def at(self, share: float) -> float:
        """Unix time at a share of the range."""
        return float(self.times[0] + share * self.span)


def weekday(day: int) -> int:
    """Day of the week of a day since 1970-01-01, Monday 0."""
    return (day + 3) % 7


def day_number(date: dt.date) -> int:
    """Days from 1970-01-01 to a date."""
    return (date - dt.date(1970, 1, 1)).days


def clock_from(start: float, days: float, grid: float, zone: str) -> Clock:
    """A clock from a start in Unix seconds, over some days, on a grid in seconds, with a zone's local time."""
    times = start + grid * np.arange(max(2, round(days * DAY / grid)), dtype=np.float64)
    zoned = ZoneInfo(zone)
    # Offsets change on the hour, or on the half hour: ask at each half hour alone.
    halves, where = np.unique(times // 1800.0, return_inverse=True)
    offsets = [zoned.utcoffset(dt.datetime.fromtimestamp(half * 1800.0, zoned)) for half in halves.tolist()]
    seconds = np.array([0.0 if offset is None else offset.total_seconds() for offset in offsets])
    return Clock(times, times + seconds[where], grid)


def draw_clock(
    rng: Rng,
    days: float,
    *,
    around: dt.date | None = None,
    zones: Sequence[str] = ZONES,
    grids: Sequence[float] = GRIDS_S,
) -> Clock:
    """A clock of real dates in 2024 to 2026; with `around`, that date lies in the second half of the range."""
    if days < LEAST_DAYS:
        raise ValueError(f"a world needs {LEAST_DAYS:g} days or more, not {days:g}")
    possible = [grid for grid in grids if days * DAY / grid <= MOST_SAMPLES] or [max(grids)]
    grid = float(rng.choice(possible))
    if around is None:
        first = dt.date(2024, 1, 1) + dt.timedelta(days=int(rng.integers(0, 1000)))
        start = day_number(first) * DAY + rng.uniform(0.0, DAY)
    else:
        start = (day_number(around) + 0.25 - days * rng.uniform(0.5, 0.75)) * DAY
    return clock_from(float(np.floor(start)), days, grid, str(rng.choice(list(zones))))


# --- Rhythms: load from 0 to 1 ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shift:
    """A plateau of each working day: local hours (an end past 24 is on the next day), their spread, and its edges."""

    start: float
    end: float
    spread: float
    edge: float
    weekdays: frozenset[int] = WORKDAYS
    off: frozenset[int] = frozenset()


def plateau(rng: Rng, clock: Clock, shift: Shift) -> Floats:
    """Load of a shift: 1 within it, 0 outside; edges of `edge` hours, as sharp as one sample if that is 0."""
    load = np.zeros(clock.size)
    hours = clock.local / HOUR
    width = max(shift.edge, 1e-6)
    for day in clock.days:
        begins, ends = rng.normal(0.0, shift.spread, 2)
        if weekday(day) not in shift.weekdays or day in shift.off:
            continue
        first = day * 24 + shift.start + begins
        last = max(first + 1.0, day * 24 + shift.end + ends)
        ramp = np.clip((hours - first) / width, 0.0, 1.0) * np.clip((last - hours) / width, 0.0, 1.0)
        height = rng.uniform(0.93, 1.0)
        load = np.maximum(load, height * ramp * ramp * (3.0 - 2.0 * ramp))
    return load


def office_shift(rng: Rng, **changes: frozenset[int]) -> Shift:
    """Office hours of a site: 7 to 11 hours from a start at 6 to 10, soft or hard edges."""
    start = rng.uniform(6.0, 10.0)
    edge = float(rng.choice([0.0, rng.uniform(0.1, 0.4), rng.uniform(0.5, 2.0)]))
    return Shift(start, start + rng.uniform(7.0, 11.0), rng.uniform(0.02, 0.5), edge, **changes)


def traffic(rng: Rng, clock: Clock) -> Floats:
    """Requests of people over the day: trough at night, morning rise, dip at lunch, evening peak; at most 1."""
    hours = clock.hours
    lunch, evening = rng.uniform(12.0, 14.0), rng.uniform(18.5, 21.5)
    day = 1.0 / (1.0 + np.exp(-(hours - rng.uniform(7.0, 9.5)) / rng.uniform(0.4, 1.2)))
    night = 1.0 / (1.0 + np.exp((hours - rng.uniform(22.0, 23.5)) / rng.uniform(0.3, 0.9)))
    shape = rng.uniform(0.45, 0.65) * day * night
    shape -= rng.uniform(0.06, 0.2) * np.exp(-0.5 * ((hours - lunch) / rng.uniform(0.5, 0.9)) ** 2)
    shape += rng.uniform(0.15, 0.35) * np.exp(-0.5 * ((hours - evening) / rng.uniform(0.9, 1.8)) ** 2)
    weekend = rng.uniform(0.6, 1.15)
    levels = {day: rng.uniform(0.92, 1.05) * (weekend if weekday(day) >= 5 else 1.0) for day in clock.days}
    numbers = (clock.local // DAY).astype(np.int64)
    # One day's level runs into the next over an hour, for no traffic jumps at midnight.
    scale = follow(np.array([levels[int(day)] for day in numbers.tolist()]), HOUR, clock.grid)
    load = (rng.uniform(0.1, 0.25) + np.clip(shape, 0.0, None)) * scale
    load *= 1.0 + wander(rng, clock, 600.0, rng.uniform(0.01, 0.05))
    return np.asarray(load / load.max(), dtype=np.float64)


def jobs(rng: Rng, clock: Clock, shortest: float, longest: float) -> Floats:
    """Jobs of a shared card that come and go, from `shortest` to `longest` seconds, with waits between them."""
    load = np.zeros(clock.size)
    busy = rng.uniform(0.45, 0.85)
    at = -rng.uniform(0.0, longest)
    while at < clock.span:
        length = math.exp(rng.uniform(math.log(shortest), math.log(longest)))
        first, last = np.searchsorted(clock.elapsed, [at, at + length])
        load[first:last] = rng.choice([1.0, rng.uniform(0.4, 1.0)])
        at += length + rng.exponential(length * (1.0 - busy) / busy) + rng.uniform(0.0, 120.0)
    return load


def training(rng: Rng, clock: Clock) -> Floats:
    """A long training run: steady, with short dips at checkpoints and longer ones while it evaluates."""
    every, pause = rng.uniform(0.4, 2.5) * HOUR, rng.uniform(20.0, 240.0)
    inside = (clock.elapsed + rng.uniform(0.0, every)) % every < pause
    evaluates = (clock.elapsed + rng.uniform(0.0, 8 * every)) % (8 * every) < rng.uniform(2.0, 8.0) * 60.0
    load = np.where(inside, rng.uniform(0.1, 0.5), 1.0)
    return np.where(evaluates, np.minimum(load, rng.uniform(0.4, 0.8)), load)


def busy_rhythm(rng: Rng, clock: Clock) -> Floats:
    """Load of a card that is never idle for long: a training run, or traffic."""
    return training(rng, clock) if rng.random() < 0.5 else traffic(rng, clock)


def any_rhythm(rng: Rng, clock: Clock) -> Floats:
    """Load of a training run, of traffic or of office hours."""
    return plateau(rng, clock, office_shift(rng)) if rng.random() < 0.35 else busy_rhythm(rng, clock)


# --- Noise, filters, gaps -----------------------------------------------------------------------------------------


def follow(driven: Floats, tau: float, grid: float) -> Floats:
    """What lags behind a series with a time constant of `tau` seconds, from its first value on."""
    gain = 1.0 - math.exp(-grid / tau)
    state = float(driven[0])
    states = []
    for value in driven.tolist():
        state += gain * (value - state)
        states.append(state)
    return np.array(states)


def wander(rng: Rng, clock: Clock, tau: float, deviation: float) -> Floats:
    """Noise with a memory of `tau` seconds and a standard deviation, about 0."""
    keep = math.exp(-clock.grid / tau)
    state = rng.normal(0.0, deviation)
    states = []
    for value in rng.normal(0.0, deviation * math.sqrt(1.0 - keep * keep), clock.size).tolist():
        state = keep * state + value
        states.append(state)
    return np.array(states)


def gaps(rng: Rng, clock: Clock, share: float, mean_s: float) -> Flags:
    """Which samples are missing: a share of them, in runs of exponential length with a mean in seconds."""
    missing = np.zeros(clock.size, dtype=np.bool_)
    if share <= 0.0:
        return missing
    at = rng.exponential(mean_s * (1.0 - share) / share)
    while at < clock.span:
        length = rng.exponential(mean_s)
        first, last = np.searchsorted(clock.elapsed, [at, at + length])
        missing[first:last] = True
        at += length + rng.exponential(mean_s * (1.0 - share) / share)
    return missing


def scrape_losses(rng: Rng, clock: Clock) -> Flags:
    """A few scrapes that failed, in about half of all series."""
    return gaps(rng, clock, float(rng.choice([0.0, 0.0, 0.002, 0.01])), 3.0 * clock.grid)


def utilisation(rng: Rng, clock: Clock, load: Floats) -> Floats:
    """GPU utilisation under a load, in whole per cent."""
    busy: Floats = np.clip(rng.uniform(85.0, 100.0) * load**0.8 + wander(rng, clock, 60.0, 3.0), 0.0, 100.0)
    return np.asarray(np.round(busy), dtype=np.float64)


def log_uniform(rng: Rng, low: float, high: float) -> float:
    """A number between two, even in its logarithm."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


# --- Results ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Draft:
    """A healthy series before its fault, if it gets one: its values reach at most somewhat less than the limit."""

    metric: str
    clock: Clock
    values: Floats
    limit: float
    companions: dict[str, Floats]
    missing: Flags

    def series(self, values: Floats | None = None, onset: float | None = None) -> WorldSeries:
        """The finished series, and with an onset its breach: the first sample from then on that is at the limit."""
        kept = np.where(self.missing, np.nan, self.values if values is None else values)
        breach = None
        if onset is not None:
            reached = np.flatnonzero((kept >= self.limit) & (self.clock.times >= onset))
            breach = float(self.clock.times[reached[0]]) if len(reached) else None
        companions = {name: np.where(self.missing, np.nan, series) for name, series in self.companions.items()}
        return WorldSeries(self.metric, self.clock.times, kept, self.limit, onset, breach, companions)


def worsened(draft: Draft, shape: Floats, onset: float, until: float) -> Floats:
    """The draft's values plus a multiple of a fault's shape, the least that brings it to its limit by `until`."""
    times = draft.clock.times
    within = (times > onset) & (times <= until) & (shape > 1e-12) & ~draft.missing
    if not within.any():
        return draft.values
    factor = float(((draft.limit - draft.values[within]) / shape[within]).min()) * 1.002
    return np.asarray(draft.values + factor * np.where(times > onset, shape, 0.0), dtype=np.float64)


def growth(clock: Clock, onset: float, scale: float, power: float = 1.0) -> Floats:
    """Severity of a fault: 0 up to its onset, then (time since / scale) to a power."""
    since: Floats = np.clip((clock.times - onset) / scale, 0.0, None)
    return np.asarray(since**power, dtype=np.float64)


def loaded_moment(rng: Rng, clock: Clock, load: Floats, low: float, high: float) -> float:
    """A random time between two at which the load is at least half of its most, else any time between them."""
    within = (clock.times >= low) & (clock.times <= high)
    busy = np.flatnonzero(within & (load >= 0.5 * load.max()))
    if len(busy):
        return float(clock.times[rng.choice(busy)])
    return float(min(high, clock.times[-1]))


def window(rng: Rng, clock: Clock, load: Floats, slowest: float = math.inf) -> tuple[float, float]:
    """Onset and latest breach of a slow fault: after a third of the days or so, near the end; under load."""
    onset = clock.at(rng.uniform(0.25, 0.5))
    low, high = clock.at(rng.uniform(0.68, 0.8)), clock.at(0.985)
    if high - onset > slowest:
        low, high = onset + 0.5 * slowest, onset + slowest
    return onset, loaded_moment(rng, clock, load, low, high)


def quick_window(rng: Rng, clock: Clock, load: Floats, shortest: float, longest: float) -> tuple[float, float]:
    """Onset and latest breach of a quick fault, `shortest` to `longest` seconds apart, both under load if it can be."""
    onset = loaded_moment(rng, clock, load, clock.at(0.3), clock.at(0.985) - longest)
    length = log_uniform(rng, shortest, longest)
    return onset, loaded_moment(rng, clock, load, onset + 0.7 * length, onset + length)


def sound(series: WorldSeries, least: float) -> bool:
    """Whether a series is what its world promises: a limit not reached without the fault, and time before it is."""
    reached = series.values >= series.limit
    if series.onset is None:
        return not bool(reached.any())
    if series.breach is None or bool(reached[series.times < series.onset].any()):
        return False
    return series.breach - series.onset >= least


def world(
    draw: Callable[[Rng, float], WorldSeries], note: str, *, healthy: bool, least: float = LEAST_WARNING_S
) -> World:
    """A world from its function, which is asked again where a draw does not hold what the world promises."""

    def make(rng: Rng, days: float) -> WorldSeries:
        for _ in range(100):
            series = draw(rng, days)
            if sound(series, least):
                return series
        raise RuntimeError(f"{draw.__name__}: no sound draw in 100 over {days:g} days")

    return World(draw.__name__, healthy, make, note)


# --- Temperature --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Card:
    """A card: watts idle and at full load, kelvins per watt, its heat sink's seconds, the instant part, its limit."""

    idle: float
    full: float
    resistance: float
    sink_s: float
    instant: float
    limit: float

    def heat(self, watts: Floats, grid: float) -> Floats:
        """Kelvins above the inlet air: the die follows within seconds, the heat sink within minutes."""
        sink = follow(watts, self.sink_s, grid)
        die = follow(watts, 8.0, grid)
        return self.resistance * (self.instant * die + (1.0 - self.instant) * sink)

    def watts(self, rng: Rng, clock: Clock, load: Floats) -> Floats:
        """Power draw under a load, unsteady by some per cent."""
        unsteady = load * (1.0 + wander(rng, clock, rng.uniform(30.0, 900.0), rng.uniform(0.005, 0.04)))
        draw: Floats = self.idle + (self.full - self.idle) * unsteady + rng.normal(0.0, 1.0, clock.size)
        return np.clip(draw, 0.8 * self.idle, 1.03 * self.full)


def draw_card(rng: Rng) -> Card:
    """A data-centre card of 70 to 1000 W whose full load makes 20 to 38 kelvins more than its idling does."""
    full = float(rng.choice([70.0, 150.0, 300.0, 400.0, 700.0, 1000.0])) * rng.uniform(0.75, 1.0)
    idle = full * rng.uniform(0.1, 0.2)
    resistance = rng.uniform(20.0, 38.0) / (full - idle)
    limit = float(rng.choice([80.0, 83.0, 85.0, 87.0, 89.0, 92.0]))
    return Card(idle, full, resistance, rng.uniform(120.0, 500.0), rng.uniform(0.3, 0.6), limit)


def room(rng: Rng, clock: Clock) -> Floats:
    """Inlet air in degrees about its mean: warmer in the afternoon, restless by some tenths of a degree."""
    afternoon = np.cos(2.0 * np.pi * (clock.hours - rng.uniform(14.0, 17.0)) / 24.0)
    return rng.uniform(0.0, 0.8) * afternoon + wander(rng, clock, rng.uniform(0.5, 6.0) * HOUR, rng.uniform(0.05, 0.4))


@dataclass(frozen=True, slots=True)
class Heat:
    """A temperature draft with what its faults need: the load, the card's heat in kelvins, and whole degrees or not."""

    draft: Draft
    load: Floats
    heat: Floats
    whole: bool

    def healthy(self) -> WorldSeries:
        """The series without a fault."""
        return self.draft.series(self.read(self.draft.values))

    def faulty(self, shape: Floats, onset: float, until: float) -> WorldSeries:
        """The series with a fault's shape; the card lowers its power once it is at its limit."""
        hot = worsened(self.draft, shape, onset, until)
        over = hot - self.draft.limit
        held = np.where(over > 0.0, self.draft.limit + np.minimum(0.15 * over, 3.0), hot)
        power = self.draft.companions[POWER]
        power[:] = np.where(over > 0.0, power * np.clip(1.0 - 0.02 * over, 0.5, 1.0), power)
        return self.draft.series(self.read(held), onset)

    def read(self, degrees: Floats) -> Floats:
        """What the sensor says."""
        return np.round(degrees) if self.whole else degrees


def warm(
    rng: Rng,
    clock: Clock,
    load: Floats,
    *,
    air: Floats | None = None,
    margin: float | None = None,
    card: Card | None = None,
) -> Heat:
    """A card's temperature under a load, in air that wanders, its highest value a margin of degrees below its limit.

    NVML reads whole degrees; only averages over five minutes have parts of them.
    """
    card = card or draw_card(rng)
    watts = card.watts(rng, clock, load)
    heat = card.heat(watts, clock.grid)
    values = heat + (room(rng, clock) if air is None else air)
    values = values + rng.normal(0.0, rng.uniform(0.02, 0.3), clock.size)
    values = values + card.limit - (rng.uniform(2.5, 15.0) if margin is None else margin) - values.max()
    draft = Draft(TEMPERATURE, clock, values, card.limit, {POWER: watts}, scrape_losses(rng, clock))
    return Heat(draft, load, heat, whole=clock.grid < 300.0 or bool(rng.random() < 0.3))


# --- Healthy: rhythms of the calendar -----------------------------------------------------------------------------


def plateau_days(rng: Rng, days: float) -> WorldSeries:
    """Office hours, one shift at any hours, or two shifts with a change of crew between them."""
    clock = draw_clock(rng, days)
    kind = rng.integers(0, 3)
    if kind == 0:
        load = plateau(rng, clock, office_shift(rng))
    elif kind == 1:
        start = rng.uniform(0.0, 24.0)
        edge = float(rng.choice([0.0, 0.2, 1.0]))
        load = plateau(rng, clock, Shift(start, start + rng.uniform(5.0, 14.0), rng.uniform(0.0, 0.4), edge, EVERY_DAY))
    else:
        start, change = rng.uniform(5.0, 7.0), rng.uniform(0.1, 0.7)
        edge = float(rng.choice([0.0, 0.15]))
        early = Shift(start, start + 8.0 - change, rng.uniform(0.02, 0.15), edge, frozenset(range(6)))
        late = Shift(start + 8.0, start + 16.0, rng.uniform(0.02, 0.15), edge)
        load = np.maximum(plateau(rng, clock, early), rng.uniform(0.7, 1.0) * plateau(rng, clock, late))
    return warm(rng, clock, load).healthy()


def public_holiday(rng: Rng, days: float) -> WorldSeries:
    """Office hours with a holiday on a working day, and in some draws the bridge day to the weekend."""
    holiday = HOLIDAYS[rng.integers(0, len(HOLIDAYS))]
    clock = draw_clock(rng, days, around=holiday)
    number = day_number(holiday)
    off = {number}
    if rng.random() < 0.4:
        off.add(number + 1 if weekday(number) == 3 else number - 1)
    load = plateau(rng, clock, office_shift(rng, off=frozenset(off)))
    return warm(rng, clock, load).healthy()


def clock_change(rng: Rng, days: float) -> WorldSeries:
    """Days by the local clock over the change to or from summer time: all edges move by an hour of UTC."""
    zone = str(rng.choice(list(ZONES_WITH_CLOCK_CHANGE)))
    dates = AMERICAN_CLOCK_CHANGES if zone.startswith("America") else CLOCK_CHANGES
    clock = draw_clock(rng, days, around=dates[rng.integers(0, len(dates))], zones=(zone,))
    shift = office_shift(rng, weekdays=EVERY_DAY if rng.random() < 0.5 else WORKDAYS)
    tight = Shift(shift.start, shift.end, rng.uniform(0.0, 0.1), min(shift.edge, 0.3), shift.weekdays)
    return warm(rng, clock, plateau(rng, clock, tight)).healthy()


def nightly_training(rng: Rng, days: float) -> WorldSeries:
    """A training job that a timer starts each night and that ends when it is done, its length different each night."""
    clock = draw_clock(rng, days)
    start = rng.uniform(19.0, 26.0)
    shift = Shift(start, start + rng.uniform(3.0, 8.0), rng.uniform(0.0, 0.7), 0.0, EVERY_DAY)
    load = plateau(rng, clock, shift) * training(rng, clock)
    return warm(rng, clock, np.maximum(load, rng.uniform(0.0, 0.2) * traffic(rng, clock))).healthy()


def lunch_dip_evening_peak(rng: Rng, days: float) -> WorldSeries:
    """An inference service for people: dip at lunch, peak in the evening, on temperature or on power."""
    clock = draw_clock(rng, days)
    hot = warm(rng, clock, traffic(rng, clock))
    if rng.random() < 0.6:
        return hot.healthy()
    watts = hot.draft.companions[POWER]
    limit = float(watts.max() * rng.uniform(1.04, 1.3))
    return Draft(POWER, clock, watts, limit, {TEMPERATURE: hot.read(hot.draft.values)}, hot.draft.missing).series()


# --- Healthy: jobs and neighbours ---------------------------------------------------------------------------------


def neighbour_slows_kernel(rng: Rng, days: float) -> WorldSeries:
    """A batch neighbour on the same card slows a kernel by 5 to 15 % for hours, some days, and ends."""
    clock = draw_clock(rng, days)
    slow = np.zeros(clock.size)
    fixed = rng.random() < 0.4  # a timer's job, against one that a person starts
    usual = rng.uniform(0.0, 24.0)
    for day in clock.days:
        if rng.random() < 0.25:
            continue
        start = usual + rng.normal(0.0, 0.2) if fixed else rng.uniform(0.0, 24.0)
        first = (day * 24.0 + start) * HOUR
        inside = (clock.local >= first) & (clock.local < first + rng.uniform(1.5, 9.0) * HOUR)
        slow = np.maximum(slow, inside * rng.uniform(0.05, 0.15))
    draft = kernel(rng, clock, slow)
    busy = np.clip(rng.uniform(40.0, 60.0) + 250.0 * slow + wander(rng, clock, 300.0, 4.0), 0.0, 100.0)
    draft.companions[UTILISATION] = np.round(busy)
    return draft.series()


def jobs_come_and_go(rng: Rng, days: float) -> WorldSeries:
    """A shared card with jobs of 10 minutes to 6 hours, on temperature, power or memory."""
    clock = draw_clock(rng, days)
    load = jobs(rng, clock, 600.0, 6.0 * HOUR)
    hot = warm(rng, clock, load)
    kind = rng.integers(0, 3)
    if kind == 0:
        return hot.healthy()
    watts = hot.draft.companions[POWER]
    if kind == 1:
        limit = float(watts.max() * rng.uniform(1.03, 1.25))
        return Draft(POWER, clock, watts, limit, {}, hot.draft.missing).series()
    total = float(rng.choice(TOTALS_MIB))
    limit = np.floor(total * rng.uniform(0.9, 0.98))
    # Each job takes its own memory within a minute and gives it all back.
    began = np.flatnonzero(np.diff(load, prepend=0.0) != 0.0)
    sizes = np.zeros(clock.size)
    for first, last in zip(began, [*began[1:], clock.size], strict=True):
        sizes[first:last] = rng.uniform(0.15, 0.95) if load[first] > 0.0 else 0.0
    used = rng.uniform(300.0, 900.0) + follow(sizes, 40.0, clock.grid) * limit * 0.93
    return Draft(MEMORY, clock, np.floor(used), float(limit), {POWER: watts}, hot.draft.missing).series()


# --- Memory -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory draft with the card's memory, both in MiB, and the size of the blocks that a leak takes."""

    draft: Draft
    total: float
    idle: float
    block: float

    def faulty(self, rng: Rng, shape: Floats, onset: float, until: float) -> WorldSeries:
        """The series with a leak; a process that has filled the card dies, starts again, and leaks again."""
        leak = worsened(self.draft, shape, onset, until) - self.draft.values
        leak = np.ceil(leak / self.block) * self.block
        used = self.draft.values + leak
        full = np.flatnonzero(used >= self.total)
        while len(full):
            died = int(full[0]) + max(1, round(rng.uniform(0.0, HOUR) / self.draft.clock.grid))
            back = died + max(2, round(rng.uniform(180.0, 1500.0) / self.draft.clock.grid))
            used[full[0] : died] = self.total
            used[died:back] = self.idle
            if back >= len(used):
                break
            used[back:] = self.draft.values[back:] + leak[back:] - leak[back]
            rest = np.flatnonzero(used[back:] >= self.total)
            full = rest + back
        return self.draft.series(np.minimum(used, self.total), onset)


def epochs(rng: Rng, clock: Clock, shortest: float, longest: float) -> list[int]:
    """Indices at which the epochs of a job begin, with the series' end as the last; one job, so near even lengths."""
    length = log_uniform(rng, shortest, longest)
    edges = [0]
    at = rng.uniform(0.2, 1.0) * length
    while at < clock.span:
        edges.append(int(np.searchsorted(clock.elapsed, at)))
        at += max(2.0 * clock.grid, length * rng.normal(1.0, 0.04))
    return [*edges, clock.size]


def allocator(rng: Rng, clock: Clock, total: float | None = None) -> Memory:
    """A caching allocator: its reserve grows in steps within an epoch, slower and slower, and is emptied after it."""
    total = total or float(rng.choice(TOTALS_MIB))
    limit = math.floor(total * rng.uniform(0.9, 0.97))
    top = limit * rng.uniform(0.65, 0.93)
    low = top * rng.uniform(0.35, 0.75)
    edges = epochs(rng, clock, 0.7 * HOUR, 9.0 * HOUR)
    values = np.full(clock.size, low)
    for first, last in itertools.pairwise(edges):
        count = int(rng.integers(3, 10))
        share = np.sort(rng.beta(0.7, 1.6, count))
        sizes = rng.dirichlet(np.full(count, 1.5)) * (top - low) * rng.uniform(0.85, 1.0)
        for start, size in zip(share, sizes, strict=True):
            values[first + int(start * (last - first)) : last] += math.floor(size / 2.0) * 2.0
    values = np.floor(values) + np.round(np.abs(wander(rng, clock, 120.0, 3.0)))
    draft = Draft(MEMORY, clock, values, float(limit), {}, scrape_losses(rng, clock))
    return Memory(draft, total, rng.uniform(4.0, 700.0), float(rng.choice([2.0, 20.0, 64.0])))


def serving(rng: Rng, clock: Clock, least_room: float = 0.008, total: float | None = None) -> Memory:
    """A serving engine: it loads weights, then reserves a fixed share of the card within its first half hour.

    The limit lies between that share and all memory: 0.8 to 4 % above it.
    """
    total = total or float(rng.choice(TOTALS_MIB[2:]))
    level = total * rng.uniform(0.86, 0.95)
    limit = math.floor(min(level + total * rng.uniform(least_room, 0.04), 0.985 * total))
    loaded, ready = rng.uniform(60.0, 500.0), rng.uniform(520.0, 1700.0)
    weights = level * rng.uniform(0.2, 0.7)
    elapsed = clock.elapsed
    values = np.where(elapsed < loaded, weights * elapsed / loaded, np.where(elapsed < ready, weights, level))
    # CUDA graphs and work space come with the first large batches, within the first half hour; then nothing moves.
    extra = rng.integers(0, 5) * 0.001 * total
    values = np.where(elapsed > 1750.0, values + min(float(extra), 0.3 * (limit - level)), values)
    values = values + np.round(2.0 * (rng.random(clock.size) < rng.uniform(0.0, 0.05)))
    draft = Draft(MEMORY, clock, np.floor(values), float(limit), {}, scrape_losses(rng, clock))
    return Memory(draft, total, rng.uniform(4.0, 700.0), float(rng.choice([2.0, 2.0, 20.0])))


def cache_of(rng: Rng, clock: Clock, load: Floats) -> Draft:
    """Bytes of an engine that allocates its KV cache as requests need it: weights plus a share of the load."""
    total = float(rng.choice(TOTALS_MIB[1:])) * MIB
    limit = total * rng.uniform(0.88, 0.97)
    weights = total * rng.uniform(0.2, 0.45)
    peak = weights + (limit - weights) * rng.uniform(0.6, 0.93)
    lag = follow(load, rng.uniform(20.0, 400.0), clock.grid)
    noise = 1.0 + wander(rng, clock, rng.uniform(30.0, 240.0), rng.uniform(0.01, 0.04))
    cache = np.clip(lag * noise, 0.0, None)
    block = 2.0 * MIB
    values = np.floor((weights + (peak - weights) * cache / cache.max()) / block) * block
    return Draft(
        ALLOCATED, clock, values, limit, {UTILISATION: utilisation(rng, clock, load)}, scrape_losses(rng, clock)
    )


def allocator_steps_emptied(rng: Rng, days: float) -> WorldSeries:
    """A training job's caching allocator, which looks like a leak within each epoch."""
    return allocator(rng, draw_clock(rng, days)).draft.series()


def serving_flat_near_limit(rng: Rng, days: float) -> WorldSeries:
    """A serving engine that holds 86 to 95 % of the card by design from its first half hour on."""
    return serving(rng, draw_clock(rng, days)).draft.series()


def kv_cache_follows_traffic(rng: Rng, days: float) -> WorldSeries:
    """A KV cache that grows and shrinks with the day's requests."""
    clock = draw_clock(rng, days)
    return cache_of(rng, clock, traffic(rng, clock)).series()


# --- Kernels and steps --------------------------------------------------------------------------------------------


def kernel(rng: Rng, clock: Clock, slow: Floats) -> Draft:
    """A kernel's mean duration, slowed by shares of itself; its limit leaves 4 to 30 % above all of that."""
    base = log_uniform(rng, 2e-5, 2e-2)
    noise = wander(rng, clock, rng.uniform(0.2, 3.0) * HOUR, rng.uniform(0.001, 0.01))
    # A mean over few launches is less steady, and launches wait now and then: the upper side is longer.
    noise = noise + rng.normal(0.0, rng.uniform(0.001, 0.008), clock.size)
    noise = noise + rng.exponential(1.0, clock.size) * rng.uniform(0.0, 0.004)
    values = base * (1.0 + slow) * (1.0 + noise)
    limit = float(values.max() * rng.uniform(1.04, 1.3))
    return Draft(KERNEL, clock, values, limit, {}, scrape_losses(rng, clock))


def rollouts(rng: Rng, clock: Clock) -> Floats:
    """Shares by which releases change a kernel's level: every one to four days in working hours, some per cent."""
    level = np.zeros(clock.size)
    at = clock.times[0] + rng.uniform(0.3, 3.0) * DAY
    height = 0.0
    while at < clock.times[-1]:
        first = int(np.searchsorted(clock.times, at))
        hour = clock.hours[min(first, clock.size - 1)]
        first += max(0, round((rng.uniform(9.0, 17.0) - hour) * HOUR / clock.grid))
        height = float(np.clip(height + rng.choice([-1.0, 1.0]) * rng.uniform(0.01, 0.06), -0.08, 0.08))
        level[first:] = height
        at += rng.uniform(1.0, 4.0) * DAY
    return level


def rollouts_change_level(rng: Rng, days: float) -> WorldSeries:
    """Releases that make a kernel some per cent slower or faster, each for good."""
    clock = draw_clock(rng, days)
    return kernel(rng, clock, rollouts(rng, clock)).series()


# --- Healthy: hardware and room -----------------------------------------------------------------------------------


def reboots_with_gaps(rng: Rng, days: float) -> WorldSeries:
    """A node that is restarted some times: no samples for 4 minutes to 3 hours, then a cold card that warms up."""
    clock = draw_clock(rng, days)
    load = training(rng, clock) if rng.random() < 0.5 else traffic(rng, clock)
    missing = np.zeros(clock.size, dtype=np.bool_)
    for at in rng.uniform(0.05, 0.98, int(rng.integers(2, 6))) * clock.span:
        away, idle = log_uniform(rng, 240.0, 3.0 * HOUR), log_uniform(rng, 60.0, 2.0 * HOUR)
        elapsed = clock.elapsed
        missing |= (elapsed >= at) & (elapsed < at + away)
        load = np.where((elapsed >= at) & (elapsed < at + away + idle), 0.0, load)
    hot = warm(rng, clock, load)
    hot.draft.missing[:] |= missing
    return hot.healthy()


def room_cooling_cycle(rng: Rng, days: float) -> WorldSeries:
    """A room whose cooling turns on and off: a saw of 1 to 4 degrees in 8 to 60 minutes, read in whole degrees."""
    clock = draw_clock(rng, days)
    period = log_uniform(rng, 480.0, 3600.0)
    uneven = period * 0.05 * np.cumsum(rng.normal(0.0, 1.0, clock.size)) * math.sqrt(clock.grid / period)
    phase = ((clock.elapsed + uneven) / period + rng.random()) % 1.0
    up = rng.uniform(0.35, 0.8)
    saw = np.where(phase < up, phase / up, (1.0 - phase) / (1.0 - up))
    saw = follow(saw * rng.uniform(1.0, 4.0), 60.0, clock.grid)
    load = any_rhythm(rng, clock)
    hot = warm(rng, clock, load, air=saw + room(rng, clock))
    return Heat(hot.draft, hot.load, hot.heat, whole=True).healthy()


def cold_night_warm_up(rng: Rng, days: float) -> WorldSeries:
    """A small room, cold at night: after the morning's load it and its air warm for hours up to a plateau."""
    clock = draw_clock(rng, days)
    load = plateau(rng, clock, office_shift(rng))
    rise = follow(load, rng.uniform(1.0, 3.0) * HOUR, clock.grid) * rng.uniform(3.0, 9.0)
    cold = rng.uniform(0.5, 3.0) * np.cos(2.0 * np.pi * (clock.hours - rng.uniform(15.0, 18.0)) / 24.0)
    return warm(rng, clock, load, air=rise + cold + room(rng, clock)).healthy()


def seasonal_drift_stops(rng: Rng, days: float) -> WorldSeries:
    """Outside air that warms the room by 1 to 2 degrees over weeks, and then no more."""
    clock = draw_clock(rng, days)
    first, last = rng.uniform(0.0, 0.3), rng.uniform(0.55, 0.85)
    share = np.clip((clock.elapsed / clock.span - first) / (last - first), 0.0, 1.0)
    load = any_rhythm(rng, clock)
    return warm(rng, clock, load, air=rng.uniform(1.0, 2.0) * share + room(rng, clock)).healthy()


def first_day_grows(rng: Rng, days: float) -> WorldSeries:
    """A new service: on its first day users are moved to it bit by bit, then its days are like each other."""
    clock = draw_clock(rng, days)
    lasts = rng.uniform(6.0, 24.0) * HOUR
    share = clock.elapsed / lasts
    if rng.random() < 0.5:
        steps = rng.integers(4, 12)
        share = np.ceil(share * steps) / steps
    low = rng.uniform(0.02, 0.3)
    load = np.clip(low + (1.0 - low) * share, 0.0, 1.0) * traffic(rng, clock)
    if rng.random() < 0.5:
        return warm(rng, clock, load).healthy()
    return cache_of(rng, clock, load).series()


# --- Faulty: heat -------------------------------------------------------------------------------------------------


def fan_clogs_office_hours(rng: Rng, days: float) -> WorldSeries:
    """Dust: less air each day, seen in office hours alone, over days to weeks."""
    clock = draw_clock(rng, days)
    load = plateau(rng, clock, office_shift(rng))
    hot = warm(rng, clock, load, margin=rng.uniform(4.0, 13.0))
    onset, until = window(rng, clock, load)
    return hot.faulty(hot.heat * growth(clock, onset, DAY, rng.uniform(0.8, 1.6)), onset, until)


def fan_dies_within_hours(rng: Rng, days: float) -> WorldSeries:
    """A fan whose bearing fails within 1 to 10 hours, steadily or with recoveries."""
    clock = draw_clock(rng, days)
    load = busy_rhythm(rng, clock)
    hot = warm(rng, clock, load, margin=rng.uniform(4.0, 15.0))
    onset, until = quick_window(rng, clock, load, HOUR, 10.0 * HOUR)
    severity = growth(clock, onset, HOUR, rng.uniform(0.7, 2.2))
    if rng.random() < 0.4:
        severity = severity * np.clip(1.0 + wander(rng, clock, rng.uniform(300.0, 1500.0), 0.2), 0.3, 1.7)
    severity = np.minimum(severity, 1.6 * float(severity[np.searchsorted(clock.times, until)]))
    return hot.faulty(follow(hot.heat * severity, 120.0, clock.grid), onset, until)


def paste_ages_under_jobs(rng: Rng, days: float) -> WorldSeries:
    """Thermal paste that pumps out: kelvins per watt rise over the days, seen only in jobs of 1 to 6 hours."""
    clock = draw_clock(rng, days)
    load = jobs(rng, clock, HOUR, 6.0 * HOUR)
    hot = warm(rng, clock, load, margin=rng.uniform(4.0, 13.0))
    onset, until = window(rng, clock, load)
    above = np.clip(hot.heat - np.percentile(hot.heat, 2.0), 0.0, None)
    return hot.faulty(above * growth(clock, onset, DAY, rng.uniform(0.7, 1.3)), onset, until)


def crac_fails(rng: Rng, days: float) -> WorldSeries:
    """A room's cooling fails: its air warms fast at first, then slower, by an exponential law, until it is repaired."""
    clock = draw_clock(rng, days)
    load = busy_rhythm(rng, clock)
    hot = warm(rng, clock, load, margin=rng.uniform(5.0, 14.0))
    onset, until = quick_window(rng, clock, load, 0.7 * HOUR, 1.6 * HOUR)
    tau, repaired = rng.uniform(0.3, 0.9) * HOUR, until + rng.uniform(0.3, 3.0) * HOUR
    failed = np.where((clock.times > onset) & (clock.times < repaired), 1.0, 0.0)
    return hot.faulty(follow(failed, tau, clock.grid), onset, until)


def monday_edge_fault(rng: Rng, days: float) -> WorldSeries:
    """Fans that do not speed up again on Monday: the morning's edge is as always, but the warming goes on."""
    monday = dt.date(2024, 1, 8) + dt.timedelta(weeks=int(rng.integers(0, 140)))
    clock = draw_clock(rng, days, around=monday, grids=(10.0, 30.0, 60.0))
    shift = office_shift(rng)
    load = plateau(rng, clock, shift)
    hot = warm(rng, clock, load, margin=rng.uniform(4.0, 12.0))
    day = day_number(monday) * DAY
    edge = int(np.flatnonzero((clock.local >= day + 3.0 * HOUR) & (load > 0.1))[0])
    onset = float(clock.times[edge]) + rng.uniform(-300.0, 900.0)
    until = onset + rng.uniform(0.7, 3.5) * HOUR
    lag = rng.uniform(0.4, 2.0) * HOUR
    lost = np.where((clock.times > onset) & (clock.times < onset + 9.0 * HOUR), 1.0, 0.0)
    return hot.faulty(follow(hot.heat * lost, lag, clock.grid), onset, until)


def whole_degree_drift(rng: Rng, days: float) -> WorldSeries:
    """A sensor of whole degrees on a steady card that warms by a fraction of a degree a day."""
    clock = draw_clock(rng, days)
    load = training(rng, clock)
    hot = warm(rng, clock, load, margin=rng.uniform(3.0, 8.0))
    onset, until = window(rng, clock, load)
    shape = growth(clock, onset, DAY, rng.uniform(0.8, 1.4))
    return Heat(hot.draft, hot.load, hot.heat, whole=True).faulty(shape, onset, until)


def night_fault_on_office_series(rng: Rng, days: float) -> WorldSeries:
    """A series with office hours whose fault comes at night: air is lost at idle, or a forgotten job leaks memory."""
    clock = draw_clock(rng, days)
    shift = office_shift(rng)
    load = plateau(rng, clock, shift)
    night = np.flatnonzero(
        (clock.hours < 2.5) & (clock.times > clock.at(0.3)) & (clock.times < clock.at(0.98) - 5 * HOUR)
    )
    onset = float(clock.times[rng.choice(night)]) if len(night) else clock.at(0.5)
    until = onset + rng.uniform(0.7, 3.8) * HOUR
    severity = growth(clock, onset, HOUR, rng.uniform(0.6, 1.2))
    if rng.random() < 0.6:
        hot = warm(rng, clock, load)
        severity = np.where(clock.times < until + rng.uniform(0.2, 6.0) * HOUR, severity, 0.0)
        return hot.faulty(follow(severity, 300.0, clock.grid), onset, until)
    total = float(rng.choice(TOTALS_MIB))
    limit = math.floor(total * rng.uniform(0.9, 0.97))
    idle = rng.uniform(300.0, 900.0)
    held = follow(load, 60.0, clock.grid) * (1.0 + wander(rng, clock, 1800.0, 0.03))
    used = np.floor(idle + held / max(float(held.max()), 1e-9) * (limit * rng.uniform(0.5, 0.92) - idle))
    draft = Draft(MEMORY, clock, used, float(limit), {}, scrape_losses(rng, clock))
    return Memory(draft, total, idle, 2.0).faulty(rng, severity, onset, until)


# --- Faulty: memory, kernels, steps -------------------------------------------------------------------------------


def leak_under_allocator(rng: Rng, days: float) -> WorldSeries:
    """Tensors kept alive under a caching allocator: the floor after each emptying rises, and so does the top."""
    clock = draw_clock(rng, days)
    memory = allocator(rng, clock)
    onset, until = window(rng, clock, np.ones(clock.size), slowest=float(rng.choice([0.6, 2.0, 30.0])) * DAY)
    return memory.faulty(rng, growth(clock, onset, DAY), onset, until)


def leak_in_serving_engine(rng: Rng, days: float) -> WorldSeries:
    """A serving engine that keeps some memory of each request: it leaks with traffic, so faster by day."""
    clock = draw_clock(rng, days)
    load = traffic(rng, clock)
    memory = serving(rng, clock, least_room=0.015)
    memory.draft.companions[UTILISATION] = utilisation(rng, clock, load)
    onset, until = window(rng, clock, load, slowest=float(rng.choice([1.0, 3.0, 30.0])) * DAY)
    shape = np.cumsum(np.where(clock.times > onset, load, 0.0)) / clock.size
    return memory.faulty(rng, shape, onset, until)


def kv_cache_outgrows(rng: Rng, days: float) -> WorldSeries:
    """A service with more users, or longer requests, each day: its peaks rise until one needs more than there is."""
    clock = draw_clock(rng, days)
    load = traffic(rng, clock)
    draft = cache_of(rng, clock, load)
    onset, until = window(rng, clock, load)
    shape = (draft.values - draft.values.min()) * growth(clock, onset, DAY, rng.uniform(0.9, 1.3))
    grown = worsened(draft, shape, onset, until)
    return draft.series(np.minimum(grown, draft.limit * 1.02), onset)


def loader_slower_each_epoch(rng: Rng, days: float) -> WorldSeries:
    """A data loader that reads a growing list each epoch: mean step time rises from epoch to epoch, not within one."""
    clock = draw_clock(rng, days)
    edges = epochs(rng, clock, 0.5 * HOUR, 4.0 * HOUR)
    number = np.zeros(clock.size)
    cold = np.zeros(clock.size)
    for count, (first, last) in enumerate(itertools.pairwise(edges)):
        number[first:last] = count
        cold[first:last] = np.exp(-(clock.times[first:last] - clock.times[first]) / rng.uniform(120.0, 900.0))
    base = log_uniform(rng, 0.05, 4.0)
    noise = wander(rng, clock, 1800.0, rng.uniform(0.003, 0.015)) + rng.normal(
        0.0, rng.uniform(0.002, 0.02), clock.size
    )
    values = base * (1.0 + noise + rng.uniform(0.0, 0.08) * cold)  # each epoch starts with a cold page cache
    limit = float(values.max() * rng.uniform(1.1, 1.6))
    draft = Draft(STEP, clock, values, limit, {}, scrape_losses(rng, clock))
    begin = int(rng.integers(len(edges) // 4, max(len(edges) // 2, len(edges) // 4 + 1)))
    onset = float(clock.times[edges[begin]])
    until = clock.at(rng.uniform(0.7, 0.985))
    since = np.clip(number - begin, 0.0, None) ** rng.uniform(0.9, 1.2)
    return draft.series(worsened(draft, since * (1.0 + noise), onset, until), onset)


def deploy_slows_kernel(rng: Rng, days: float) -> WorldSeries:
    """A release that makes a kernel slower than its limit: at once, or for a share of the launches after another."""
    clock = draw_clock(rng, days)
    draft = kernel(rng, clock, rollouts(rng, clock))
    onset = clock.at(rng.uniform(0.3, 0.95))
    since = clock.times - onset
    if rng.random() < 0.5:
        stage = rng.uniform(900.0, 3600.0)
        share = np.select([since < 0.0, since < stage, since < 2.0 * stage], [0.0, 0.1, 0.5], 1.0)
    else:
        share = np.where(since < 0.0, 0.0, 1.0)
    # Slower than the limit by a clear step, for the level is one of many: not the least that reaches it.
    need = (draft.limit - float(np.median(draft.values))) * rng.uniform(1.1, 2.0)
    return draft.series(draft.values + share * need, onset)


def first_day_fault(rng: Rng, days: float) -> WorldSeries:
    """A new series whose fault begins 30 minutes to 6 hours after its first sample: a leak, or air that is lost."""
    clock = draw_clock(rng, days, grids=(10.0, 30.0, 60.0))
    onset = float(clock.times[0]) + log_uniform(rng, 0.5, 6.0) * HOUR
    until = onset + log_uniform(rng, 0.8, 14.0) * HOUR
    severity = growth(clock, onset, HOUR, rng.uniform(0.8, 1.5))
    kind = rng.integers(0, 3)
    if kind == 0:
        load = busy_rhythm(rng, clock)
        hot = warm(rng, clock, load, margin=rng.uniform(4.0, 14.0))
        return hot.faulty(hot.heat * np.minimum(severity, 24.0), onset, until)
    if kind == 1:
        return allocator(rng, clock).faulty(rng, growth(clock, onset, DAY), onset, until)
    return serving(rng, clock, least_room=0.015).faulty(rng, growth(clock, onset, DAY), onset, until)


def slow_leak_with_gaps(rng: Rng, days: float) -> WorldSeries:
    """A slow leak of a job of many days, seen through a scrape that loses 30 % of the samples in runs."""
    clock = draw_clock(rng, days)
    memory = allocator(rng, clock) if rng.random() < 0.5 else serving(rng, clock, least_room=0.015)
    memory.draft.missing[:] |= gaps(rng, clock, 0.3, log_uniform(rng, 120.0, 2.0 * HOUR))
    onset, until = window(rng, clock, np.ones(clock.size))
    return memory.faulty(rng, growth(clock, onset, DAY, rng.uniform(0.8, 1.2)), onset, until)


WORLDS: tuple[World, ...] = (
    world(plateau_days, "Office hours, shifts at any hours, two shifts: cards that people use at work.", healthy=True),
    world(public_holiday, "A holiday in a working week, and the return after it.", healthy=True),
    world(clock_change, "Local days over the change of the clocks in March, October or November.", healthy=True),
    world(nightly_training, "A timer's training job each night beside a little traffic by day.", healthy=True),
    world(
        lunch_dip_evening_peak,
        "Inference for people: day and night of submissions as in SenseTime's clusters (arXiv 2109.01313).",
        healthy=True,
    ),
    world(neighbour_slows_kernel, "A batch job on the same card takes 5 to 15 % of a kernel's speed.", healthy=True),
    world(
        jobs_come_and_go,
        "Shared cards with jobs of 10 minutes to 6 hours, as in Microsoft's Philly trace (ATC '19).",
        healthy=True,
    ),
    world(
        allocator_steps_emptied,
        "PyTorch's allocator keeps what it freed until empty_cache (pytorch/pytorch issue 5812).",
        healthy=True,
    ),
    world(
        serving_flat_near_limit,
        "vLLM reserves gpu_memory_utilization of the card at its start and holds it.",
        healthy=True,
    ),
    world(kv_cache_follows_traffic, "An engine that allocates its KV cache as requests need it.", healthy=True),
    world(rollouts_change_level, "Releases that change a kernel by some per cent, up or down.", healthy=True),
    world(reboots_with_gaps, "Restarts of a node for drivers and kernels: no samples, then a cold card.", healthy=True),
    world(
        room_cooling_cycle,
        "Cooling by return air turns on and off about its set point (datacenterfrontier.com).",
        healthy=True,
    ),
    world(cold_night_warm_up, "A small room that is cold at night and warms for hours under load.", healthy=True),
    world(seasonal_drift_stops, "Spring: 1 to 2 degrees more over weeks, then no more.", healthy=True),
    world(first_day_grows, "A service that takes over its users on its first day.", healthy=True),
    world(fan_clogs_office_hours, "Dust on fans or filters of a node that works in office hours.", healthy=False),
    world(
        fan_dies_within_hours,
        "A bearing that fails; heat constants are those of an H100's recording at 1 Hz.",
        healthy=False,
    ),
    world(paste_ages_under_jobs, "Thermal paste that pumps out, seen in jobs of 1 to 6 hours.", healthy=False),
    world(
        leak_under_allocator,
        "Memory kept from epoch to epoch under a caching allocator (rwth-i6/returnn issue 1478).",
        healthy=False,
    ),
    world(
        leak_in_serving_engine,
        "A serving engine whose memory grows with its requests (vllm-project/vllm issues 12610, 17243).",
        healthy=False,
    ),
    world(kv_cache_outgrows, "Traffic that grows day by day until the cache no longer fits.", healthy=False),
    world(loader_slower_each_epoch, "A data loader that takes longer each epoch.", healthy=False),
    world(deploy_slows_kernel, "A release with a slow kernel, at once or in stages.", healthy=False, least=0.0),
    world(
        crac_fails,
        "Loss of a room's cooling: exponential rise of its air (Khankari, ASHRAE Transactions 117-1, 2011).",
        healthy=False,
    ),
    world(first_day_fault, "A fault on a series that is 30 minutes to 6 hours old.", healthy=False),
    world(night_fault_on_office_series, "A fault in the small hours on a series that is quiet then.", healthy=False),
    world(monday_edge_fault, "Fans that stay slow after the weekend.", healthy=False),
    world(slow_leak_with_gaps, "A slow leak with 30 % of its samples lost.", healthy=False),
    world(whole_degree_drift, "A slow drift read by NVML in whole degrees.", healthy=False),
)

"""Attributes of the series in the windows, as arrays by row, so that a cycle works on arrays only.

`Cycle.sync` describes a row once, when a series gets it. A cycle then looks up the meaning of a metric, the limits
of a user, and companions (other metrics of the same GPU) without a Python object per series.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Bools, Floats, Ints, extended
from kernelcast.predictor.series.calendar import overlaps
from kernelcast.predictor.series.subjects import DURATION, DeviceKey, Subject
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.settings import CalendarSettings, LimitSettings, PredictorSettings, SeriesMatcher
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.features import FEATURES
from kernelcast.wire.catalogue.meanings import MEANINGS, OTHER, Meaning

COMPANIONS: Final = tuple(
    row.prometheus_name
    for row in (
        device.SLOWDOWN_TEMP,
        device.POWER_USAGE,
        device.FB_USED,
        device.FB_FREE,
        device.FB_RESERVED,
        device.SM_CLOCK,
    )
)
"""Metrics of a GPU that explain or limit its other series."""
DEVICE_METRICS: Final = tuple(
    dict.fromkeys(
        row.prometheus_name
        for row in (
            *(source.metric for source in FEATURES.values()),
            device.POWER_LIMIT,
            device.SLOWDOWN_TEMP,
            device.FB_FREE,
            device.PCIE_MAX_LINK_WIDTH,
            device.PCIE_MAX_LINK_GEN,
        )
        if row.prometheus_name != DURATION
    )
)
"""Metrics of GPUs that the rules about causes read."""
_METRIC_PLACES: Final = {name: place for place, name in enumerate(DEVICE_METRICS)}
NONE: Final = -1
"""Number of a row, program or metric that does not exist."""
BLOCK_SECONDS: Final = 300.0
"""Length of a block for which the settling times of meanings are given."""
MAX_NAMES: Final = 100_000
"""Number of names above which those without a series are removed: a name with a job's number never returns."""


class SeriesMatch:
    """A compiled matcher."""

    def __init__(self, settings: SeriesMatcher) -> None:
        self._metric = re.compile(settings.metric)
        self._labels = {name: re.compile(pattern) for name, pattern in settings.labels.items()}

    def matches(self, subject: Subject) -> bool:
        """Whether a series is selected; a variant of a kernel counts as the kernel."""
        shown = subject.without_variant
        return self.fits(shown.metric, shown.label)

    def fits(self, metric: str, label: Callable[[str], str]) -> bool:
        """Whether a metric with labels is selected; a label that is absent is empty."""
        return self._metric.fullmatch(metric) is not None and all(
            pattern.fullmatch(label(name)) is not None for name, pattern in self._labels.items()
        )


class SeriesAttributes:
    """Attributes of all rows, indexed by the row. Only the thread that runs cycles uses it; `sync` needs the lock.

    Attributes:
        settings: Of the predictor, as they are now.
        generation: Of the row when it was described; 0 for a row that never was.
        meaning: Place in `meanings`.
        judged: Whether it has a limit, so that the detector evaluates it.
        kernel: Whether it is a kernel whose limit follows from its own usual duration.
        device: Number of its GPU.
        host: Number of its host.
        metric: Place in `DEVICE_METRICS`; NONE for others.
        numbering: How often devices, hosts and programs have been numbered again: earlier numbers mean nothing then.
        program: Number of its program.
        threshold: Limit that the user set; NaN for none.
        below: Whether low values are bad.
        horizons: Place in `horizon_sets`.
        calendar: Place in `calendars`.
        selected: Whether it is published although nothing is wrong.
        meanings: Distinct meanings.
        horizon_sets: Distinct horizons, seconds; the predictor's own first.
        calendars: Distinct sets of periods of the calendar; none of them first.
    """

    def __init__(self, settings: PredictorSettings) -> None:
        self.generation: Ints = np.zeros(0, np.int64)
        self.meaning: Ints = np.zeros(0, np.int64)
        self.judged: Bools = np.zeros(0, np.bool_)
        self.kernel: Bools = np.zeros(0, np.bool_)
        self.device: Ints = np.zeros(0, np.int64)
        self.host: Ints = np.zeros(0, np.int64)
        self.metric: Ints = np.zeros(0, np.int64)
        self.numbering = 0
        self.program: Ints = np.zeros(0, np.int64)
        self.threshold: Floats = np.zeros(0)
        self.below: Bools = np.zeros(0, np.bool_)
        self.horizons: Ints = np.zeros(0, np.int64)
        self.calendar: Ints = np.zeros(0, np.int64)
        self.selected: Bools = np.zeros(0, np.bool_)
        self.meanings: list[Meaning] = []
        self._devices: dict[DeviceKey, int] = {}
        self._hosts: dict[str, int] = {}
        self._programs: dict[str, int] = {}
        self._with_variants: set[Subject] = set()
        self._companions: dict[str, Ints] = {name: np.zeros(0, np.int64) for name in COMPANIONS}
        self.change(settings)

    def change(self, settings: PredictorSettings) -> None:
        """Apply other settings; all rows are described again at the next `sync`."""
        self.settings = settings
        self._limits = [(one, SeriesMatch(one)) for one in settings.limits]
        self._selected = [SeriesMatch(one) for one in settings.publish]
        self._periods = [(one, SeriesMatch(one)) for one in settings.calendar]
        self.calendars: list[tuple[CalendarSettings, ...]] = [()]
        own = [one.horizons_seconds for one in settings.limits if one.horizons_seconds is not None]
        self.horizon_sets: list[tuple[float, ...]] = list(dict.fromkeys((settings.horizons_seconds, *own)))
        self.generation[:] = 0
        # Silent series are described again once they report.
        self.horizons[:] = self.calendar[:] = 0

    @property
    def all_horizons_seconds(self) -> tuple[float, ...]:
        """Every horizon that some series has, ascending."""
        return tuple(sorted({horizon for each in self.horizon_sets for horizon in each}))

    def asked(self, rows: Ints, horizons_seconds: tuple[float, ...]) -> Bools:
        """Whether each row has each of some horizons, shape (n, h)."""
        sets: Bools = np.array([np.isin(horizons_seconds, one) for one in self.horizon_sets])
        return sets[self.horizons[rows]]

    @property
    def programs(self) -> Sequence[str]:
        """Names of the programs, by number."""
        return list(self._programs)

    @property
    def devices(self) -> Sequence[DeviceKey]:
        """Names of the GPUs, by number."""
        return list(self._devices)

    def program_number(self, name: str) -> int:
        """Number of a program; NONE where no series has it."""
        return self._programs.get(name, NONE)

    def sync(self, rows: Ints, windows: Windows) -> Ints:
        """Describe rows that another series has got since the last call; returns them. Call it under the lock."""
        for name, fill in _COLUMNS.items():
            setattr(self, name, extended(getattr(self, name), int(rows.max(initial=-1)) + 1, fill))
        fresh: Ints = rows[self.generation[rows] != windows.generation[rows]]
        for row in fresh.tolist():
            subject = windows.subject(row)
            if subject is not None:
                self._describe(row, subject, windows)
        self.generation[fresh] = windows.generation[fresh]
        return fresh

    def describe_again(self, row: int) -> None:
        """Describe a row at the next `sync`: its labels have changed. Call it under the lock."""
        self.generation[row : row + 1] = 0

    def companion(self, metric: str, rows: Ints, windows: Windows) -> Ints:
        """Rows of another metric of the same GPUs; NONE where there is none. Shape (n,)."""
        table = self._companions[metric]
        numbers = self.device[rows]
        if not len(table):
            return np.full(len(rows), NONE, np.int64)
        listed = np.where(numbers < len(table), table[np.minimum(numbers, len(table) - 1)], NONE)
        # A dropped row may have gone to another series that is not described yet.
        is_described = (windows.generation[listed] == self.generation[listed]) & (windows.owner[listed] >= 0)
        companions: Ints = np.where((listed != NONE) & is_described, listed, NONE)
        return companions

    def node_metric(self, rows: Ints) -> Ints:
        """Number of each row's host and metric, shape (n,); NONE without a host, a limit or a metric of GPUs."""
        is_gauge = self.judged[rows] & (self.metric[rows] != NONE) & (self.host[rows] != self._hosts.get("", NONE))
        numbers: Ints = np.where(is_gauge, self.host[rows] * len(DEVICE_METRICS) + self.metric[rows], NONE)
        return numbers

    def of_same_nodes(self, rows: Ints, windows: Windows) -> Ints:
        """Further rows of the same metrics on the same nodes, ascending. Call it under the lock."""
        count = min(len(self.generation), len(windows.generation))
        admitted = (windows.generation[:count] == self.generation[:count]) & (windows.owner[:count] >= 0)
        numbers = np.where(admitted, self.node_metric(np.arange(count)), NONE)
        others = np.isin(numbers, self.node_metric(rows)) & (numbers != NONE)
        others[rows] = False
        return np.flatnonzero(others)

    def own_ratio(self, rows: Ints) -> Floats:
        """Limit as a multiple of the own baseline; NaN where there is none."""
        ratio = 1.0 + self.settings.judge.kernel_slowdown_ratio
        return np.where(self.kernel[rows], ratio, np.nan)

    def column(self, name: str, rows: Ints) -> NDArray[np.float64]:
        """A number of the meaning of each row, shape (n,)."""
        values = np.array([float(getattr(meaning, name)) for meaning in self.meanings] or [0.0])
        column: Floats = values[self.meaning[rows]]
        return column

    def settling_blocks(self, rows: Ints) -> Ints:
        """Blocks after a change of load in which a slope has no meaning, shape (n,)."""
        return np.round(self.column("settling_seconds", rows) / BLOCK_SECONDS).astype(np.int64)

    def excused(self, rows: Ints, begin_ns: Ints, length_ns: int) -> Bools | None:
        """Whether a period of the calendar overlaps spans of time of each row, shape (n, k); None where none does.

        Args:
            rows: Shape (n,).
            begin_ns: Shape (k,), begins of the spans.
            length_ns: Length of each.
        """
        if not self._periods:
            return None
        # A companion may lie in a row that is not described yet.
        places = np.where(rows < len(self.calendar), self.calendar[np.minimum(rows, len(self.calendar) - 1)], 0)
        is_excused: Bools = np.stack([overlaps(periods, begin_ns, length_ns) for periods in self.calendars])[places]
        return is_excused if is_excused.any() else None

    def excused_now(self, rows: Ints, time_ns: Ints) -> Bools:
        """Whether a period of the calendar covers the time of each row; both of shape (n,)."""
        is_excused = np.zeros(len(rows), np.bool_)
        for place in np.unique(self.calendar[rows]).tolist() if self._periods else ():
            mine = self.calendar[rows] == place
            is_excused[mine] = overlaps(self.calendars[place], time_ns[mine], 1)
        return is_excused

    def excuses(self, metric: str, labels: Mapping[str, str], time_ns: int) -> bool:
        """Whether a period of the calendar covers a time of a metric with labels."""
        return any(
            match.fits(metric, lambda name: labels.get(name, "")) and overlaps([one], np.array([time_ns]), 1).any()
            for one, match in self._periods
        )

    def _describe(self, row: int, subject: Subject, windows: Windows) -> None:
        shown = subject.without_variant
        meaning = MEANINGS.get(shown.metric, OTHER)
        if meaning not in self.meanings:
            self.meanings.append(meaning)
        limit = self._limit_of(subject)
        threshold = self.settings.judge.thresholds.get(shown.metric, np.nan)
        if limit is not None and limit.threshold is not None:
            threshold = limit.threshold
        own = limit.horizons_seconds if limit is not None else None
        self.meaning[row] = self.meanings.index(meaning)
        self.kernel[row] = subject.is_judged_kernel and meaning.own_ratio > 0
        self.judged[row] = self.kernel[row] or (not subject.is_kernel_time and self._has_limit(meaning, threshold))
        self.device[row] = self._devices.setdefault(subject.device, len(self._devices))
        self.host[row] = self._hosts.setdefault(subject.device[0], len(self._hosts))
        self.metric[row] = _METRIC_PLACES.get(subject.metric, NONE)
        self.program[row] = self._programs.setdefault(subject.program, len(self._programs))
        self.threshold[row] = threshold
        self.below[row] = meaning.below if limit is None or limit.threshold is None else limit.below
        self.horizons[row] = self.horizon_sets.index(own) if own is not None else 0
        self.calendar[row] = self._calendar_of(subject)
        self.selected[row] = any(match.matches(subject) for match in self._selected)
        self._link(row, subject, windows)

    def _has_limit(self, meaning: Meaning, threshold: float) -> bool:
        is_memory = meaning is MEANINGS[device.FB_USED.prometheus_name]
        return meaning.limit is not None or is_memory or not np.isnan(threshold)

    def _limit_of(self, subject: Subject) -> LimitSettings | None:
        return next((settings for settings, match in self._limits if match.matches(subject)), None)

    def _calendar_of(self, subject: Subject) -> int:
        mine = tuple(one for one, match in self._periods if match.matches(subject))
        if mine not in self.calendars:
            self.calendars.append(mine)
        return self.calendars.index(mine)

    def _link(self, row: int, subject: Subject, windows: Windows) -> None:
        """Record a companion of a GPU; a kernel with variants mixes them, so its own mean follows the mixture."""
        table = self._companions.get(subject.metric)
        if table is not None:
            number = int(self.device[row])
            if number >= len(table):
                table = np.concatenate([table, np.full(number + 1, NONE, np.int64)])
                self._companions[subject.metric] = table
            table[number] = row
        if not subject.is_kernel_time:
            return
        whole = subject.without_variant
        if whole is not subject:
            self._with_variants.add(whole)
            mixed = windows.row(whole)
            if mixed is not None and mixed < len(self.judged):
                self.kernel[mixed] = self.judged[mixed] = False
        elif whole in self._with_variants:
            self.kernel[row] = self.judged[row] = False
        if len(self._with_variants) > MAX_NAMES:
            self._with_variants = {one for one in self._with_variants if windows.row(one) is not None}

    def forget_names(self) -> bool:
        """Number devices and programs from 0 again if there are too many; every row is described again.

        Call it before the rows of a cycle are described: no two of them may have numbers of different numberings.

        Returns:
            Whether it did, so that silent rows must be described too.
        """
        if len(self._programs) <= MAX_NAMES and len(self._devices) <= MAX_NAMES:
            return False
        self.numbering += 1
        self._devices.clear()
        self._hosts.clear()
        self._programs.clear()
        self._companions = {name: np.zeros(0, np.int64) for name in COMPANIONS}
        self.generation[:] = 0
        return True


_COLUMNS: Final[dict[str, float]] = {
    "generation": 0,
    "meaning": 0,
    "judged": False,
    "kernel": False,
    "device": 0,
    "host": 0,
    "metric": NONE,
    "program": 0,
    "threshold": np.nan,
    "below": False,
    "horizons": 0,
    "calendar": 0,
    "selected": False,
}

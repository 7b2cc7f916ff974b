"""Writes decoded points into windows: finds the row of each and converts its value.

`Engine.take` calls it for each batch, under the lock. The decoder numbers series identities; the role and the row of
each number are looked up once. Points about tunables and versions go to `tuning`.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from kernelcast.columnar import NO_RECORDED_VALUE, Attributes, Decoded, SeriesIdentity, Temporality
from kernelcast.predictor.arrays import Floats, Ints, extended
from kernelcast.predictor.series.measured import TIMES, MeasuredShares
from kernelcast.predictor.series.pairs import Pairs
from kernelcast.predictor.series.points import Points
from kernelcast.predictor.series.subjects import VARIANT, Form, Subject
from kernelcast.predictor.series.windows import NOT_ADMITTED, Windows
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND
from kernelcast.wire.catalogue import BY_OTLP_NAME, Kind, own_name
from kernelcast.wire.catalogue.kernel import (
    PROGRAM_INFO,
    TUNABLE_INFO,
    VARIANT_LAUNCHES,
    VARIANT_SECONDS,
    VARIANT_SQUARES,
)
from kernelcast.wire.catalogue.windows import WINDOWED


class PointRole(IntEnum):
    """Use of the points of one series identity: ignored, a level, part of a rate or mean, or a report of a program.

    SEEN is a rate of what was seen in the measured time; the window gets its estimate for wall time.
    """

    UNKNOWN = -3
    REFUSED = -2
    IGNORED = -1
    LEVEL = 0
    RATE = 1
    MEAN = 2
    NUMERATOR = 3
    DENOMINATOR = 4
    TUNABLE = 5
    VERSIONS = 6
    SEEN = 7


class IdentityLookup(Protocol):
    """The decoder's table of series identities and their numbers."""

    def identity(self, number: int) -> SeriesIdentity:
        """The series identity that has this number."""
        ...

    def forget(self, numbers: NDArray[np.int32]) -> None:
        """Release numbers; the decoder may assign them to other series."""
        ...


class TunableListener(Protocol):
    """Receives the points that report tunables and versions of programs."""

    def observe(self, attributes: Attributes, *, time_ns: int, owner: int, now_ns: int) -> None:
        """Record one report of a tunable."""
        ...

    def observe_versions(self, attributes: Attributes, *, time_ns: int, now_ns: int) -> None:
        """Record one report of a program's versions."""


MOST_AHEAD_SECONDS: Final = 60.0
"""Clocks of hosts that are right may be ahead of this process's by as much."""
_SKIPPED: Final = frozenset({Kind.INFO})
_FORMS: Final = {Kind.GAUGE: Form.LEVEL, Kind.COUNTER: Form.RATE, Kind.HISTOGRAM: Form.MEAN}


def not_ahead(time_ns: NDArray[Any], now_seconds: float) -> Ints:
    """Times of points, Unix nanoseconds: a later one than `MOST_AHEAD_SECONDS` from now is taken as now.

    The clock of its host is ahead. No other module needs to know: the series goes on as before once it is set back.
    """
    times: Ints = time_ns.astype(np.int64)
    latest_ns = round((now_seconds + MOST_AHEAD_SECONDS) * NANOSECONDS_PER_SECOND)
    return np.where(times > latest_ns, round(now_seconds * NANOSECONDS_PER_SECOND), times)


class WindowFeed:
    """Feeds one `Windows` from one decoder. Not safe for several threads: the caller holds the lock.

    Attributes:
        ignored: Points of series that are not watched: foreign metrics, deltas, and those beyond the limit.
    """

    def __init__(self, windows: Windows, identities: IdentityLookup, tunables: TunableListener) -> None:
        self._windows = windows
        self._identities = identities
        self._tunables = tunables
        self._pairs = Pairs()
        self._measured = MeasuredShares(windows)
        self._role: Ints = np.full(0, PointRole.UNKNOWN, np.int64)
        self._row: Ints = np.full(0, NOT_ADMITTED, np.int64)
        self._last_seen_seconds: Floats = np.zeros(0)  # infinity for a number that is not in use
        self.ignored = 0

    def take(self, decoded: Decoded, owners: Sequence[int], *, now_seconds: float) -> int:
        """Write a batch into the windows.

        Args:
            decoded: The batch.
            owners: Number of the partition of each message.
            now_seconds: This process's clock, for expiry.

        Returns:
            Number of points in the batch.
        """
        numbers, histograms = decoded.numbers, decoded.histograms
        owner = np.asarray(owners, np.int64)
        self._resolve(numbers.series, owner[numbers.message], now_seconds)
        self._resolve(histograms.series, owner[histograms.message], now_seconds)
        self._observe_tunables(decoded, owner, now_seconds)
        nothing = np.zeros(len(numbers.series))
        times = not_ahead(numbers.time_ns, now_seconds)
        columns = (numbers.series, numbers.flags, times, numbers.start_ns, numbers.value, nothing)
        self._take_numbers(columns, now_seconds)
        columns = (
            histograms.series,
            histograms.flags,
            not_ahead(histograms.time_ns, now_seconds),
            histograms.start_ns,
            histograms.total,
            histograms.count.astype(np.float64),
        )
        for points in self._rounds(columns, PointRole.MEAN):
            self._windows.put_totals(
                points.rows, points.time_ns, points.start_ns, (points.value, points.count), now_seconds=now_seconds
            )
        return len(numbers.series) + len(histograms.series)

    def forget_rows(self, rows: Ints) -> None:
        """Look up the identities of dropped rows and of refused series again at their next point."""
        if not len(rows):
            return
        dropped = np.flatnonzero(np.isin(self._row, rows) | (self._role == PointRole.REFUSED))
        self._role[dropped] = PointRole.UNKNOWN
        self._row[dropped] = NOT_ADMITTED
        self._pairs.drop(rows)
        self._measured.forget(rows)

    def forget_silent(self, before_seconds: float) -> None:
        """Release identities without a point since then; the decoder may use their numbers again."""
        silent = np.flatnonzero(self._last_seen_seconds < before_seconds)
        if len(silent):
            self._role[silent] = PointRole.UNKNOWN
            self._row[silent] = NOT_ADMITTED
            self._last_seen_seconds[silent] = np.inf
            self._identities.forget(silent.astype(np.int32))

    def _take_numbers(self, columns: "Columns", now_seconds: float) -> None:
        for points in self._rounds(columns, PointRole.LEVEL):
            self._windows.put_levels(points.rows, points.time_ns, points.value, now_seconds=now_seconds)
        for role in (PointRole.RATE, PointRole.SEEN):  # measured times first
            for points in self._rounds(columns, role):
                seen = self._measured.of(points.rows, points.time_ns) if role is PointRole.SEEN else None
                totals = (points.value, None)
                self._windows.put_totals(
                    points.rows, points.time_ns, points.start_ns, totals, now_seconds=now_seconds, measured_share=seen
                )
        sums = self._rounds(columns, PointRole.NUMERATOR)
        counts = self._rounds(columns, PointRole.DENOMINATOR)
        for joined in self._pairs.join(sums, counts):
            self._windows.put_totals(*joined, now_seconds=now_seconds)

    def _resolve(self, series: NDArray[np.int32], owners: Ints, now_seconds: float) -> None:
        if not len(series):
            return
        self._grow(int(series.max()) + 1)
        self._last_seen_seconds[series] = now_seconds
        unknown = self._role[series] == PointRole.UNKNOWN
        numbers, first = np.unique(series[unknown], return_index=True)
        for number, owner in zip(numbers.tolist(), owners[unknown][first].tolist(), strict=True):
            self._role[number], self._row[number] = self._place(self._identities.identity(number), owner)

    def _place(self, identity: SeriesIdentity, owner: int) -> tuple[PointRole, int]:
        metric = BY_OTLP_NAME.get(own_name(identity.name))
        if metric is None or metric is VARIANT_SQUARES or identity.temporality is Temporality.DELTA:
            return PointRole.IGNORED, NOT_ADMITTED
        if metric is TUNABLE_INFO:
            return PointRole.TUNABLE, NOT_ADMITTED
        if metric is PROGRAM_INFO:
            return PointRole.VERSIONS, NOT_ADMITTED
        if metric.kind in _SKIPPED:
            return PointRole.IGNORED, NOT_ADMITTED
        if metric in (VARIANT_SECONDS, VARIANT_LAUNCHES):
            role = PointRole.NUMERATOR if metric is VARIANT_SECONDS else PointRole.DENOMINATOR
            subject = Subject(VARIANT, Form.MEAN, identity.attributes)
        else:
            form = _FORMS[metric.kind]
            role, subject = PointRole(form), Subject(metric.prometheus_name, form, identity.attributes)
        row = self._windows.admit(subject, owner=owner)
        if role is PointRole.RATE and metric in WINDOWED:
            role = PointRole.SEEN
        if row != NOT_ADMITTED and (role is PointRole.SEEN or metric in TIMES):
            self._measured.place(metric, identity.attributes, row)
        return (PointRole.REFUSED if row == NOT_ADMITTED else role), row

    def _observe_tunables(self, decoded: Decoded, owner: Ints, now_seconds: float) -> None:
        numbers = decoded.numbers
        for columns in (numbers, decoded.histograms):
            self.ignored += int(np.isin(self._role[columns.series], (PointRole.IGNORED, PointRole.REFUSED)).sum())
        now_ns, times = round(now_seconds * NANOSECONDS_PER_SECOND), not_ahead(numbers.time_ns, now_seconds)
        reported = np.isin(self._role[numbers.series], (PointRole.TUNABLE, PointRole.VERSIONS))
        # A point without a value withdraws a state that has ended.
        for point in np.flatnonzero(reported & (numbers.flags & NO_RECORDED_VALUE == 0)).tolist():
            series, time_ns = int(numbers.series[point]), int(times[point])
            attributes = self._identities.identity(series).attributes
            if self._role[series] == PointRole.TUNABLE:
                owned = int(owner[numbers.message[point]])
                self._tunables.observe(attributes, time_ns=time_ns, owner=owned, now_ns=now_ns)
            else:
                self._tunables.observe_versions(attributes, time_ns=time_ns, now_ns=now_ns)

    def _rounds(self, columns: "Columns", role: PointRole) -> Iterator[Points]:
        """The points of a role in rounds: each row's oldest points first, none twice in a round."""
        series, flags, time_ns, start_ns, value, count = columns
        chosen = np.flatnonzero((self._role[series] == role) & (flags & NO_RECORDED_VALUE == 0))
        rows = self._row[series[chosen]]
        order = np.lexsort((time_ns[chosen], rows))
        chosen, rows = chosen[order], rows[order]
        round_number = _occurrence(rows)
        by_round = np.argsort(round_number, kind="stable")
        bounds = np.searchsorted(round_number[by_round], np.arange(int(round_number.max(initial=-1)) + 2))
        for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            part = by_round[begin:end]
            points = chosen[part]
            yield Points(
                rows[part],
                time_ns[points],
                start_ns[points].astype(np.int64),
                value[points],
                count[points],
            )

    def _grow(self, size: int) -> None:
        self._role = extended(self._role, size, PointRole.UNKNOWN)
        self._row = extended(self._row, size, NOT_ADMITTED)
        self._last_seen_seconds = extended(self._last_seen_seconds, size, np.inf)


Columns = tuple[
    NDArray[np.int32],
    NDArray[np.uint8],
    Ints,
    NDArray[np.uint64],
    Floats,
    Floats,
]


def _occurrence(rows: Ints) -> Ints:
    """For each of the sorted rows, the number of equal rows before it: [3, 3, 5] gives [0, 1, 0]."""
    places = np.arange(len(rows))
    starts = np.concatenate([[True], rows[1:] != rows[:-1]]) if len(rows) else np.zeros(0, bool)
    return places - np.maximum.accumulate(np.where(starts, places, 0)) if len(rows) else places

"""Converts messages to remote write's rows: decodes, names, and converts histograms to the receiver's kind.

`PushMember` makes one `Conversion`; `Pusher` calls `payloads`, and `WriteSender` sends the result. Numbers of a series:
an input has its own (`wire`), the directory has one for all inputs, and `KnownSeries` maps the first to the second.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.inputs import Input, Selection, timed
from kernelcast.bridge.push.instruments import BatchCounts, DestinationMetrics
from kernelcast.bridge.push.reading import ReaderSettings
from kernelcast.bridge.push.remote_write.classic import PointTimes, classic_rows
from kernelcast.bridge.push.remote_write.directory import Directory
from kernelcast.bridge.push.remote_write.histograms import arrays_of
from kernelcast.bridge.push.remote_write.known import UNSEEN, KnownSeries
from kernelcast.bridge.push.remote_write.native import MALFORMED, TOO_COARSE, examine
from kernelcast.bridge.push.remote_write.rows import STALE_BITS, SampleRows, WritePayload
from kernelcast.bridge.push.remote_write.targets import TargetInfoProducers
from kernelcast.bridge.push.settings import PushSettings
from kernelcast.bridge.tables.columns import DISCARD_CAUSES, Int32Array, Int64Array
from kernelcast.columnar import (
    EXPLICIT,
    HAS_SUM,
    NO_RECORDED_VALUE,
    Decoded,
    Decoder,
    HistogramColumns,
    NumberColumns,
)
from kernelcast.runtime.kafka.clients import StampedMessage

NS_PER_MS: Final = 1_000_000


class Conversion:
    """Turns messages of every format into payloads; remembers every series. For one thread."""

    def __init__(self, settings: PushSettings, metrics: DestinationMetrics, reading: ReaderSettings) -> None:
        """Begin without any series.

        Args:
            settings: The destination's.
            metrics: Counts left-out points.
            reading: How messages are read and series are named.
        """
        self._settings, self._reading = settings, reading
        self._counts = BatchCounts(metrics)
        self._forget_series()

    def payloads(self, messages: Sequence[StampedMessage]) -> Iterator[tuple[list[int], list[WritePayload]]]:
        """Yield, by part of a batch, the indices of its messages and their requests, to be sent in order."""
        if sum(known.count for known in self._known.values()) > self._settings.max_series:
            self._forget_series()
        for group in self._selection.groups(messages):
            self._counts.begin()
            for failure in group.failures:
                self._counts.undecodable(type(failure).__name__)
            requests: list[WritePayload] = []
            if group.input is not None:
                append_ms = np.array([max(0, messages[index].timestamp()[1]) for index in group.indices], np.int64)
                requests += self._converted(group.input, group.bodies, append_ms)
            group.bodies.clear()
            self._counts.commit()
            yield group.indices, requests

    def _forget_series(self) -> None:
        """Forget every series: simpler than to age them, and bounded as well."""
        max_identities = 2 * self._settings.max_series
        decoder = Decoder(max_identities=max_identities)
        self._selection = Selection(decoder, self._reading.formats, max_identities=max_identities)
        self._directory = Directory()
        self._targets = TargetInfoProducers(self._directory)
        self._known: dict[int, KnownSeries] = {}

    def _converted(self, source: Input, bodies: Sequence[bytes], append_ms: Int64Array) -> list[WritePayload]:
        decoded = timed(source.decode(bodies), append_ms)
        for _, failure in decoded.failures:
            self._counts.undecodable(type(failure).__name__)
        self._counts.discarded("unsupported", decoded.unsupported)
        known = self._known.get(id(source))
        if known is None:
            known = KnownSeries(source, self._directory, self._targets, self._reading.translator)
            self._known[id(source)] = known
        known.learn(decoded, native=self._settings.native_histograms)
        return self._payload(decoded, known).requests(self._settings.max_points)

    def _payload(self, decoded: Decoded, known: KnownSeries) -> WritePayload:
        columns = decoded.histograms
        usable = self._sendable_histograms(columns, known)
        natives, classics = self._by_kind(columns, usable, known)
        samples, owners = self._numbers(decoded.numbers, known)
        indexes = np.arange(len(usable), dtype=np.int64)
        rows_of_natives = _rows(columns, natives, indexes, known.native, known)
        parts, owned = [samples], [(owners, samples), (known.target[columns.series[natives]], rows_of_natives)]
        for rows, explicit in classics:
            if len(rows):
                points = _rows(columns, rows, indexes, known.number, known)
                times = PointTimes(points.time_ms, points.start_ms)
                parts.append(classic_rows(columns, rows, times, known, explicit=explicit))
                owned.append((known.target[columns.series[rows]], points))
        # Together: a producer's numbers and histograms often have one time, at which it has one `target_info`.
        parts.append(
            self._targets.rows(np.concatenate([of for of, _ in owned]), SampleRows.of([points for _, points in owned]))
        )
        return WritePayload(
            self._directory, self._in_order(SampleRows.of(parts)), self._in_order(rows_of_natives), arrays_of(columns)
        )

    def _by_kind(
        self, columns: HistogramColumns, usable: NDArray[np.bool_], known: KnownSeries
    ) -> tuple[NDArray[np.intp], list[tuple[NDArray[np.intp], bool]]]:
        """Return rows sent as native histograms, and rows sent as classic ones (rows, whether they are explicit).

        The end of a series goes to all kinds that were sent of it.
        """
        explicit = (columns.flags & EXPLICIT) != 0
        if not self._settings.native_histograms:
            classics = [(np.flatnonzero(usable & explicit), True), (np.flatnonzero(usable & ~explicit), False)]
            return np.zeros(0, np.intp), classics
        ends = (columns.flags & NO_RECORDED_VALUE) != 0
        native = np.where(ends, known.native[columns.series] != UNSEEN, ~explicit)
        classic = np.where(ends, known.classic[columns.series], explicit)
        natives = self._with_sum(columns, np.flatnonzero(usable & native))
        return natives, [(np.flatnonzero(usable & classic), True)]

    def _in_order(self, rows: SampleRows) -> SampleRows:
        kept = rows.sorted()
        self._counts.discarded("same_time", len(rows) - len(kept))
        return kept

    def _sendable(self, columns: NumberColumns | HistogramColumns, known: KnownSeries) -> NDArray[np.bool_]:
        """Return a mask of the points whose series and time can be sent; the others are counted."""
        number = known.number[columns.series]
        for code, cause in DISCARD_CAUSES.items():
            self._counts.discarded(cause, int((number == UNSEEN - code).sum()))
        timely = (columns.time_ns > 0) & (columns.time_ns < np.uint64(2**63))
        self._counts.discarded("bad_time", int((~timely & (number >= 0)).sum()))
        return timely & (number >= 0)

    def _numbers(self, columns: NumberColumns, known: KnownSeries) -> tuple[SampleRows, Int32Array]:
        """The samples of plain series, and the producer of each."""
        rows = np.flatnonzero(self._sendable(columns, known))
        bits = columns.value.view(np.int64).copy()
        bits[(columns.flags & NO_RECORDED_VALUE) != 0] = STALE_BITS
        return _rows(columns, rows, bits, known.number, known), known.target[columns.series[rows]]

    def _sendable_histograms(self, columns: HistogramColumns, known: KnownSeries) -> NDArray[np.bool_]:
        """Return a mask of the histograms that can be sent; the others are counted."""
        stale = (columns.flags & NO_RECORDED_VALUE) != 0
        findings = np.zeros(len(stale), np.uint8)
        examine(arrays_of(columns), stale.view(np.uint8), findings)
        placed = self._sendable(columns, known)
        self._counts.discarded("malformed_histogram", int((placed & (findings == MALFORMED)).sum()))
        too_coarse = (findings == TOO_COARSE) & self._settings.native_histograms
        self._counts.discarded("unsupported", int((placed & too_coarse).sum()))
        usable: NDArray[np.bool_] = placed & (findings != MALFORMED) & ~too_coarse
        return usable

    def _with_sum(self, columns: HistogramColumns, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the rows with a sum, which native histograms need, or without any value; the others are counted."""
        with_sum: NDArray[np.bool_] = (columns.flags[rows] & (HAS_SUM | NO_RECORDED_VALUE)) != 0
        self._counts.discarded("histogram_without_sum", int((~with_sum).sum()))
        summed: NDArray[np.intp] = rows[with_sum]
        return summed


def _rows(
    columns: NumberColumns | HistogramColumns,
    rows: NDArray[np.intp],
    value: Int64Array,
    number: Int32Array,
    known: KnownSeries,
) -> SampleRows:
    times = _times(columns, rows, known)
    return SampleRows(number[columns.series[rows]], columns.message[rows], times.time_ms, times.start_ms, value[rows])


def _times(columns: NumberColumns | HistogramColumns, rows: NDArray[np.intp], known: KnownSeries) -> PointTimes:
    """Return times of points in ms, and their start times: 0 for gauges, and if later than the point."""
    time_ms = columns.time_ns[rows].astype(np.int64) // NS_PER_MS
    start_ms = (columns.start_ns[rows] // np.uint64(NS_PER_MS)).astype(np.int64)
    start_ms *= known.cumulative[columns.series[rows]]
    start_ms[start_ms > time_ms] = 0
    return PointTimes(time_ms, start_ms)

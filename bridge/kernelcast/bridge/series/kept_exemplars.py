"""The newest exemplars of every series, stored undecoded until a scrape needs them; the store's lock protects them."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, overload

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.layouts.exemplars import Exemplar
from kernelcast.bridge.tables.columns import LIVE, NOT_A_HISTOGRAM, FloatArray, MessageColumns, WireColumns
from kernelcast.bridge.tables.slots import Slots
from kernelcast.bridge.translation.attributes import joined
from kernelcast.columnar import EXPLICIT, Decoded, PointExemplar, PointType, exemplars_of
from kernelcast.wire.catalogue import Kind

MAX_SERIES: Final = 100_000
"""Limit for the number of series that have exemplars."""
MAX_BYTES: Final = 64 * 1024 * 1024
"""Limit for all series together. Beyond either limit, the series without a new exemplar for longest loses its own."""
MAX_BYTES_PER_POINT: Final = 16 * 1024
"""A point with more is not kept: OpenMetrics allows 128 characters of labels for each exemplar."""
MAX_PER_BATCH: Final = 20_000
"""Points with exemplars in one batch; storing one takes a microsecond or two."""
MAX_PER_SERIES: Final = 10
"""Buckets of a histogram that have an exemplar, the newest ones: OpenMetrics lets consumers drop any beyond."""
UNREAD_POINTS: Final = 4
"""Points whose exemplars are kept undecoded; beyond that they are decoded, and the newest of each bucket is kept."""
DECODED_BYTES: Final = 400
"""Approximate size of a decoded exemplar."""


class SeriesExemplars(Sequence[Exemplar]):
    """The newest exemplar of each bucket of one series, or the newest one of a counter. Decoded at first access.

    Attributes:
        size: Approximate size in bytes.
    """

    __slots__ = ("_bounds", "_known", "_raw", "_read", "_type", "size")

    def __init__(self, type: PointType, bounds: FloatArray, known: Sequence[Exemplar], raw: tuple[bytes, ...]) -> None:  # noqa: A002  the field's name
        """Keep exemplars.

        Args:
            type: Type of their points: SUM, HISTOGRAM or EXPONENTIAL_HISTOGRAM.
            bounds: Upper bounds of the buckets, rising; empty for a counter.
            known: Decoded exemplars, oldest first.
            raw: Undecoded exemplars of the newest points, oldest first.
        """
        self._type, self._bounds, self._known, self._raw = type, bounds, known, raw
        self._read: tuple[Exemplar, ...] | None = None
        self.size = sum(map(len, raw)) + DECODED_BYTES * len(known)

    def with_point(self, type: PointType, bounds: FloatArray, raw: bytes) -> "SeriesExemplars":  # noqa: A002  as above
        """Return a copy with the exemplars of a newer point added."""
        if type is PointType.SUM:
            return SeriesExemplars(type, bounds, (), (raw,))
        if type is self._type and len(self._raw) < UNREAD_POINTS:
            return SeriesExemplars(type, bounds, self._known, (*self._raw, raw))
        return SeriesExemplars(type, bounds, self._all(), (raw,))

    @overload
    def __getitem__(self, index: int) -> Exemplar: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Exemplar, ...]: ...

    def __getitem__(self, index: int | slice) -> Exemplar | tuple[Exemplar, ...]:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> tuple[Exemplar, ...]:
        if self._read is None:  # two scrapes may do it at once, with the same result
            self._read = tuple(self._newest())
        return self._read

    def _newest(self) -> list[Exemplar]:
        newest: dict[int, Exemplar] = {}
        bounds = self._bounds.tolist()
        for exemplar in self._in_order():
            bucket = bisect_left(bounds, exemplar.value)
            if bucket not in newest or newest[bucket].time_ns <= exemplar.time_ns:
                newest[bucket] = exemplar
        return sorted(newest.values(), key=lambda one: one.time_ns)[-MAX_PER_SERIES:]

    def _in_order(self) -> Iterator[Exemplar]:
        yield from self._known
        for raw in self._raw:
            for found in exemplars_of(self._type, raw):
                exemplar = _labelled(found)
                if exemplar.fits:
                    yield exemplar


def _labelled(found: PointExemplar) -> Exemplar:
    """Convert an exemplar; its labels are trace and span id, and its attributes if they fit."""
    ids = {name: text for name, text in (("trace_id", found.trace_id), ("span_id", found.span_id)) if text}
    labels = ids | joined(found.attributes, reserved=tuple(ids))
    whole = Exemplar(tuple(labels.items()), found.value, found.time_ns)
    return whole if whole.fits else Exemplar(tuple(ids.items()), found.value, found.time_ns)


class KeptExemplars:
    """Exemplars by slot; not thread-safe, but a mapping that `by_slot` has returned never changes.

    Attributes:
        dropped: Points whose exemplars were dropped because of a limit.
    """

    def __init__(self) -> None:
        self._kept: dict[int, SeriesExemplars] = {}
        self._copy: Mapping[int, SeriesExemplars] | None = None
        self._bytes = 0
        self.dropped = 0

    def by_slot(self) -> Mapping[int, SeriesExemplars]:
        """Return the exemplars by slot; copied only if they have changed since the last call."""
        if self._copy is None:
            self._copy = dict(self._kept)
        return self._copy

    def note(self, decoded: Decoded, messages: MessageColumns, wires: WireColumns, slots: Slots) -> None:
        """Keep the exemplars of a batch whose points have been stored.

        Exemplars from a partition that a series has left, and that is read again, are ignored.

        Args:
            decoded: The batch.
            messages: Origin of each message.
            wires: Slots of the input's series numbers.
            slots: The slots.
        """
        noted = decoded.exemplars
        self.dropped += max(0, len(noted.raw) - MAX_PER_BATCH)
        chosen = slice(max(0, len(noted.raw) - MAX_PER_BATCH), None)
        rows = zip(noted.row[chosen].tolist(), noted.histogram[chosen].tolist(), noted.raw[chosen], strict=True)
        for row, histogram, raw in rows:
            columns = decoded.histograms if histogram else decoded.numbers
            wire = int(columns.series[row])
            slot = int(wires.slot[wire])
            if slot < 0 or not _takes(slots, slot, int(wires.writer[wire])):
                continue
            if messages.partition[columns.message[row]] != slots.series.partition[slot]:
                continue
            if len(raw) > MAX_BYTES_PER_POINT:
                self.dropped += 1
                continue
            if not histogram:
                self._keep(slot, PointType.SUM, np.empty(0), raw)
            else:
                explicit = int(decoded.histograms.flags[row]) & EXPLICIT
                kind = PointType.HISTOGRAM if explicit else PointType.EXPONENTIAL_HISTOGRAM
                self._keep(slot, kind, _bounds(slots, slot), raw)
        self._make_room()

    def forget(self, slots: NDArray[np.intp]) -> None:
        """Forget the exemplars of freed slots."""
        if self._kept:
            gone: Iterable[int] = slots.tolist()
            for slot in self._kept.keys() & set(gone):
                self._pop(slot)

    def _keep(self, slot: int, type: PointType, bounds: FloatArray, raw: bytes) -> None:  # noqa: A002  as above
        if slot in self._kept:
            kept = self._pop(slot).with_point(type, bounds, raw)
        else:
            kept = SeriesExemplars(type, bounds, (), (raw,))
        self._copy = None
        self._kept[slot] = kept  # moved to the end: the first one has had no new exemplar for longest
        self._bytes += kept.size

    def _make_room(self) -> None:
        while self._kept and (len(self._kept) > MAX_SERIES or self._bytes > MAX_BYTES):
            self._pop(next(iter(self._kept)))
            self.dropped += 1

    def _pop(self, slot: int) -> SeriesExemplars:
        self._copy = None
        kept = self._kept.pop(slot)
        self._bytes -= kept.size
        return kept


def _takes(slots: Slots, slot: int, writer: int) -> bool:
    """Whether a series can have exemplars and its newest point is of this writer."""
    series = slots.series
    family = slots.families.by_number[int(series.family[slot])]
    counts = family is not None and family.kind in (Kind.COUNTER, Kind.HISTOGRAM)
    return counts and series.state[slot] == LIVE and series.writer[slot] == writer


def _bounds(slots: Slots, slot: int) -> FloatArray:
    schema = int(slots.series.schema[slot])
    if schema == NOT_A_HISTOGRAM:
        return np.empty(0)
    indptr, bounds = slots.schemas.arrays
    return bounds[indptr[schema] : indptr[schema + 1]]

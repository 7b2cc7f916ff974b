"""Restores the saved state of one partition: each page at its newest whole snapshot.

`SnapshotStore` collects the messages at the assignment of a partition; `States.restore` then restores them. Each
page is read first, then the additions that follow it without a gap.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Ints
from kernelcast.predictor.series.saved.parts import Array, StatePart, order_of, unpack
from kernelcast.predictor.series.saved.rows import SavedRows
from kernelcast.predictor.series.saved.slots import RowSlots
from kernelcast.predictor.series.saved.writer import ADDED, HEAD, KEY, PAGE
from kernelcast.predictor.series.subjects import Form, Subject
from kernelcast.predictor.series.windows import NOT_ADMITTED
from kernelcast.wire.errors import WireError

_UNKNOWN: Final = -1


@dataclass
class Restored:
    """Result of a restoration.

    Attributes:
        series: Number of series restored.
        offset: The next message to be read; None where series may be missing, so that the past is read again.
        epoch, sequence: The largest on Kafka.
        reasons: Why messages were not used.
        other_grid: Whether there were series on another grid.
        slots: Places of the series in the pages.
    """

    series: int = 0
    offset: int | None = None
    epoch: int = 0
    sequence: int = 0
    reasons: list[str] = field(default_factory=list)
    other_grid: bool = False
    slots: RowSlots = field(default_factory=RowSlots)


@dataclass
class _Page:
    """A restored page: its slots' rows, and how far additions have been made.

    Attributes:
        stripe: Number of the stripe whose additions it takes.
        first: First slot.
        rows: Row of each slot from there on.
        sequence: Snapshot that it is at.
        offset: The next message to be read after it.
    """

    stripe: str
    first: int
    rows: Ints
    sequence: int
    offset: int


class StateReader:
    """Collects the messages of one partition's state, then restores them; a message is released once it is used.

    The thread that reads Kafka uses it; restoring takes the lock for a page at a time.
    """

    def __init__(self) -> None:
        self._parts: dict[str, bytes] = {}

    @property
    def keys(self) -> set[str]:
        """All keys on Kafka."""
        return set(self._parts)

    def put(self, key: str, value: bytes | None) -> None:
        """Add a message; a later one replaces one of the same key. Keys that a state does not have are ignored."""
        if KEY.fullmatch(key) is None:
            return
        self._parts.pop(key, None)
        if value is not None:
            self._parts[key] = value

    def restore(self, target: SavedRows, owner: int, *, now_seconds: float) -> Restored:
        """Restore series and columns.

        Args:
            target: Where to.
            owner: Number of the partition.
            now_seconds: This process's clock, for expiry.
        """
        return _Restoration(target, owner, now_seconds).run(self._parts)


class _Restoration:
    """One restoration: its target, and the result so far."""

    def __init__(self, target: SavedRows, owner: int, now_seconds: float) -> None:
        self._target = target
        self._owner = owner
        self._now_seconds = now_seconds
        self._result = Restored()
        self._offsets: list[int] = []
        self._seen: set[int] = set()
        self._texts: dict[str, str] = {}
        self._pairs: dict[tuple[str, str], tuple[str, str]] = {}

    def run(self, parts: dict[str, bytes]) -> Restored:
        head = self._opened(parts.pop(HEAD, b"")) if HEAD in parts else None
        by_epoch: dict[int, list[tuple[int, str]]] = defaultdict(list)
        for key, value in list(parts.items()):
            try:
                epoch, sequence = order_of(value)
            except WireError as error:
                self._refuse(error)
                continue
            self._record_order(epoch, sequence)
            if head is None or not _has_ended(key, epoch, sequence, head):
                by_epoch[epoch].append((sequence, key))
        # A later writer may have written some of the pages again: its state replaces that of the earlier one.
        for epoch in sorted(by_epoch):
            self._restore_epoch(parts, sorted(by_epoch[epoch]))
        if head is not None:
            self._record_order(head.epoch, head.sequence)
            self._restore_tables(head)
        whole = head is not None and head.text.get("covered") is True and not self._result.reasons
        self._result.offset = min(self._offsets) if whole and self._offsets else None
        self._result.series = len(self._seen)
        return self._result

    def _restore_epoch(self, parts: dict[str, bytes], keys: list[tuple[int, str]]) -> None:
        pages = [page for _, key in keys if key.startswith(PAGE) and (page := self._page(parts.pop(key))) is not None]
        additions: dict[str, list[str]] = defaultdict(list)
        for _, key in keys:
            if key.startswith(ADDED):
                additions[key.split("|")[1]].append(key)
        for stripe, of_stripe in additions.items():
            self._add_all(parts, of_stripe, [page for page in pages if page.stripe == stripe])
        self._offsets += [page.offset for page in pages]

    def _page(self, value: bytes) -> _Page | None:
        part = self._opened(value)
        if part is None or not self._has_this_grid(part):
            return None
        try:
            return self._restore_page(part)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            self._refuse_shape(error)
            return None

    def _restore_page(self, part: StatePart) -> _Page:
        subjects = [self._subject(*described) for described in part.text["series"]]
        first, slots = int(part.text["first"]), part.arrays["slots"]
        if any(len(array) != len(subjects) for array in part.arrays.values()):
            raise ValueError(f"{len(subjects)} series in {len(slots)} slots")
        windows = self._target.windows
        with self._target.lock:
            admitted = np.array([windows.admit(one, owner=self._owner) for one in subjects], np.int64)
            here = np.flatnonzero(admitted != NOT_ADMITTED)
            rows = admitted[here]
            self._target.prepare(rows)
            for name, spans in self._target.spans.items():
                if f"{name}.values" in part.arrays:
                    values = _fitted(part.arrays[f"{name}.values"][here], spans.length)
                    spans.fill(rows, part.arrays[f"{name}.newest"][here], values)
            for name, column in self._target.columns.items():
                if f"column.{name}" in part.arrays:
                    column.restore(rows, part.arrays[f"column.{name}"][here])
            windows.touched[rows] = self._now_seconds
        self._seen.update(rows.tolist())
        self._result.slots.put(slots[here], rows, windows.generation[rows])
        by_slot = np.full(int(slots.max(initial=first - 1)) - first + 1, _UNKNOWN)
        by_slot[slots[here] - first] = rows
        return _Page(str(part.text["stripe"]), first, by_slot, part.sequence, int(part.text["offset"]))

    def _subject(self, metric: str, form: int, labels: list[list[str]]) -> Subject:
        """Series share the text of their labels: most of them have the same ones."""
        pairs = (tuple(self._texts.setdefault(text, text) for text in pair) for pair in labels)
        shared = tuple(self._pairs.setdefault((key, value), (key, value)) for key, value in pairs)
        return Subject(self._texts.setdefault(metric, metric), Form(form), shared)

    def _add_all(self, parts: dict[str, bytes], keys: list[str], pages: list[_Page]) -> None:
        """Make additions in their order, each to the pages that are at the snapshot before it."""
        for key in keys:
            value = parts.pop(key)
            sequence = order_of(value)[1]
            if not any(page.sequence == sequence - 1 for page in pages):
                continue
            part = self._opened(value)
            try:
                if part is not None:
                    self._add(part, pages)
            except (KeyError, ValueError, TypeError, IndexError) as error:
                self._refuse_shape(error)

    def _add(self, part: StatePart, pages: list[_Page]) -> None:
        base, without = int(part.text["base"]), set(part.text["without"])
        end = base + int(part.text["slots"])
        # A page that ended in this snapshot lies behind them until it is deleted.
        pages = [page for page in pages if base <= page.first < end and page.first not in without]
        mine = [page for page in pages if page.sequence == part.sequence - 1]
        rows = np.full(end - base, _UNKNOWN)
        for page in mine:
            rows[page.first - base : page.first - base + len(page.rows)] = page.rows
            page.sequence, page.offset = part.sequence, int(part.text["offset"])
        with self._target.lock:
            for name, values in part.arrays.items():
                if name.endswith(".values"):
                    self._extend(name.removesuffix(".values"), part, rows, values)
            for name, column in self._target.columns.items():
                if f"column.{name}" in part.arrays:
                    target_rows = rows[part.arrays[f"column.{name}.slots"].astype(np.int64)]
                    known = target_rows != _UNKNOWN
                    column.restore(target_rows[known], part.arrays[f"column.{name}"][known])

    def _extend(self, prefix: str, part: StatePart, rows: Ints, values: Array) -> None:
        spans = self._target.spans.get(prefix.partition(".")[0])
        if spans is None:
            return
        target_rows = rows[part.arrays[f"{prefix}.slots"].astype(np.int64)]
        known = target_rows != _UNKNOWN
        spans.extend(target_rows[known], part.arrays[f"{prefix}.newest"][known], values[known])

    def _restore_tables(self, head: StatePart) -> None:
        with self._target.lock:
            for name, table in self._target.tables.items():
                try:
                    if name in head.arrays:
                        table.restore(head.arrays[name])
                except (KeyError, ValueError, TypeError, IndexError) as error:
                    self._refuse_shape(error)

    def _opened(self, value: bytes) -> StatePart | None:
        try:
            return unpack(value)
        except WireError as error:
            self._refuse(error)
            return None

    def _has_this_grid(self, part: StatePart) -> bool:
        windows = self._target.windows
        own = {"interval_ns": windows.interval_ns, "points": windows.points}
        if "block_intervals" in part.text:
            own["block_intervals"] = self._target.block_intervals
        fits = all(part.text.get(name) == value for name, value in own.items())
        self._result.other_grid |= not fits
        return fits

    def _record_order(self, epoch: int, sequence: int) -> None:
        self._result.epoch = max(self._result.epoch, epoch)
        self._result.sequence = max(self._result.sequence, sequence)

    def _refuse_shape(self, error: Exception) -> None:
        self._refuse(WireError(f"state part has another shape: {error!r}; its series are read again from Kafka"))

    def _refuse(self, error: WireError) -> None:
        self._result.reasons.append(str(error))


def _has_ended(key: str, epoch: int, sequence: int, head: StatePart) -> bool:
    """Whether all series of a page were gone at the head's snapshot, so that it only waits for its deletion."""
    kind, _, number = key.partition("|")
    pages = head.text.get("pages")
    if kind != PAGE or not isinstance(pages, int) or int(number) < pages:
        return False
    # Another writer's page may have series that this one has not written yet.
    comparable = epoch == head.epoch or head.text.get("covered") is True
    return comparable and (epoch, sequence) <= (head.epoch, head.sequence)


def _fitted(values: Array, length: int) -> Array:
    """The newest values, with NaN before them where a ring is longer now."""
    if values.shape[1] >= length:
        return values[:, values.shape[1] - length :]
    missing = np.full((len(values), length - values.shape[1]), np.nan, values.dtype)
    return np.concatenate([missing, values], axis=1)

"""Makes the messages of one partition's saved state, a part of it at each snapshot.

`States.save` calls it every `snapshot_every_seconds`; `SnapshotStore` sends the messages to `kernelcast.state`.
Each series has a slot in a page of some dozen series. A snapshot has one message of additions for each stripe of pages:
the new values of all series since the last snapshot. Besides, it writes some of the pages whole, so that each page is
written at least once in `ROTATION_SECONDS`. Each message is complete in itself: after a crash between two messages, a
page is at the last snapshot or at the one before, and Kafka is read from the earliest of their offsets. Messages of
additions have a fixed number of keys, which are used in turn; a page is written again before an addition that it needs
is replaced.
"""

import re
from collections.abc import Iterable, Iterator
from threading import Lock
from typing import Any, Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Ints
from kernelcast.predictor.series.saved.changed import SavedContent
from kernelcast.predictor.series.saved.parts import StatePart, pack
from kernelcast.predictor.series.saved.rows import SavedRows
from kernelcast.predictor.series.saved.slots import FREE, RowSlots

HEAD: Final = "0"
"""Key of the head."""
PAGE: Final = "page"
ADDED: Final = "added"
KEY: Final = re.compile(rf"{HEAD}|{PAGE}\|[0-9]{{1,9}}|{ADDED}\|[0-9]{{1,9}}\|[0-9]{{1,9}}")
"""Keys of a saved state."""

ROTATION_SECONDS: Final = 7200.0
"""Time within which each page is written whole at least once: two hours."""
SPARE_SNAPSHOTS: Final = 30
"""Keys of additions beyond those of one rotation: a page may be late by half of them."""
PAGE_BYTES: Final = 320 * 1024
"""Size of a page before compression, well below the limit of a Kafka message (1 MiB)."""
MOST_PAGE_ROWS: Final = 48
"""Series of a page at most."""
STRIPE_ROWS: Final = 2048
"""Series whose additions are in one message."""
LEAST_PAGES: Final = 8
PAGES_SHARE: Final = 20
"""A snapshot writes at most a twentieth of the pages, or these few: the producer's queue takes 64 MiB."""

Message = tuple[str, bytes | None]
"""Key within the partition's state, and value; None deletes."""


class StateWriter:
    """Writes one partition; for one thread, except `undelivered`."""

    def __init__(
        self,
        source: SavedRows,
        *,
        epoch: int,
        sequence: int,
        every_seconds: float,
        known: Iterable[str] = (),
        slots: RowSlots | None = None,
    ) -> None:
        """Begin without anything written.

        Args:
            source: The series.
            epoch: Larger than that of every writer before.
            sequence: That of the last snapshot on Kafka; it goes on from there.
            every_seconds: Time between snapshots.
            known: Keys on Kafka, deleted once they are of no more use.
            slots: Places of the series on Kafka: a page replaces one with the same series, so none is lost before all
                pages are written.
        """
        self._source = source
        self._epoch = epoch
        self._sequence = sequence
        self._known = set(known)
        self._rotation = max(round(ROTATION_SECONDS / every_seconds), 1)
        self._keys = self._rotation + SPARE_SNAPSHOTS
        self._page_rows = int(np.clip(PAGE_BYTES // source.row_bytes, 1, MOST_PAGE_ROWS))
        self._stripe_pages = max(STRIPE_ROWS // self._page_rows, 1)
        self._slots = slots if slots is not None else RowSlots()
        self._saved = SavedContent(source)
        self._written: Ints = np.zeros(0, np.int64)  # of each page, the snapshot that wrote it; -1: never
        self._due: Bools = np.zeros(0, np.bool_)
        self._credit = 0.0
        self._lost: set[str] = set()
        self._lost_lock = Lock()

    def undelivered(self, key: str) -> None:
        """Write a message again that Kafka did not accept; callable from any thread."""
        with self._lost_lock:
            self._lost.add(key)

    def save(self, rows: Ints, offset: int) -> Iterator[Message]:
        """The messages of one snapshot; the lock is held for each by itself.

        Args:
            rows: Ascending, all rows of the partition; the caller holds the lock since it found them.
            offset: The next message to be read after what these rows contain at least.
        """
        return self._messages(rows, self._source.windows.generation[rows], offset)

    def _messages(self, rows: Ints, generations: Ints, offset: int) -> Iterator[Message]:
        self._sequence += 1
        self._assign(rows, generations)
        self._write_lost_again()
        for page in self._choose().tolist():
            yield self._message(f"{PAGE}|{page}", *self._page(page, offset))
            self._written[page], self._due[page] = self._sequence, False
        for stripe in range(-(-len(self._written) // self._stripe_pages)):
            key = f"{ADDED}|{stripe}|{self._sequence % self._keys}"
            yield self._message(key, *self._added(stripe, offset))
        covered = not self._due.any()
        text = {"offset": offset, "covered": covered, "pages": len(self._written), **self._grid()}
        yield self._message(HEAD, text, self._tables())
        if covered:
            yield from self._delete_unused()

    def _message(self, key: str, text: dict[str, Any], arrays: dict[str, Any]) -> Message:
        self._known.add(key)
        return key, pack(StatePart(self._epoch, self._sequence, text, arrays))

    def _tables(self) -> dict[str, Any]:
        with self._source.lock:
            return {name: table.save() for name, table in self._source.tables.items()}

    def _grid(self) -> dict[str, int]:
        windows = self._source.windows
        block_intervals = self._source.block_intervals
        return {"interval_ns": windows.interval_ns, "points": windows.points, "block_intervals": block_intervals}

    def _assign(self, rows: Ints, generations: Ints) -> None:
        for begin in range(0, len(rows), STRIPE_ROWS):
            with self._source.lock:
                self._source.prepare(rows[begin : begin + STRIPE_ROWS])
        changed = self._slots.assign(rows, generations)
        pages = -(-len(self._slots) // self._page_rows)
        more = max(pages - len(self._due), 0)
        self._due = np.concatenate([self._due[:pages], np.ones(more, np.bool_)])
        self._written = np.concatenate([self._written[:pages], np.full(more, -1, np.int64)])
        self._due[np.unique(changed // self._page_rows)] = True
        self._saved.resize(len(self._slots))
        with self._source.lock:
            slots, kept = self._present(0, len(self._slots))
            self._due[self._saved.turned_back(slots, kept) // self._page_rows] = True
            rewritten = np.isin(self._slots.row, self._source.take_rewritten(rows))
            self._due[np.flatnonzero(rewritten) // self._page_rows] = True

    def _write_lost_again(self) -> None:
        with self._lost_lock:
            lost, self._lost = self._lost, set()
        self._known |= lost  # a deletion may be lost, too
        for key in lost:
            kind, _, rest = key.partition("|")
            number = int(rest.partition("|")[0] or 0)
            if kind == PAGE:
                self._due[number : number + 1] = True
            elif kind == ADDED:
                self._due[number * self._stripe_pages : (number + 1) * self._stripe_pages] = True

    def _choose(self) -> Ints:
        """Pages to be written whole: those that must be, and those that were written longest ago."""
        pages = len(self._due)
        self._due |= self._written <= self._sequence - self._rotation - SPARE_SNAPSHOTS // 2
        self._credit = min(self._credit + pages / self._rotation, float(max(pages, 1)))
        due = np.flatnonzero(self._due)[: max(LEAST_PAGES, pages // PAGES_SHARE)]
        turn = np.argsort(np.where(self._due, self._sequence, self._written), kind="stable")[: int(self._credit)]
        self._credit -= len(turn)
        return np.union1d(due, turn)

    def _page(self, page: int, offset: int) -> tuple[dict[str, Any], dict[str, Any]]:
        first = page * self._page_rows
        with self._source.lock:
            slots, rows = self._present(first, first + self._page_rows)
            arrays = self._saved.whole(slots, rows)
            subjects = [self._source.windows.subject(row) for row in rows.tolist()]
        described = [(one.metric, int(one.form), one.labels) for one in subjects if one is not None]
        text = {
            "stripe": page // self._stripe_pages,
            "first": first,
            "offset": offset,
            "series": described,
            **self._grid(),
        }
        return text, {**arrays, "slots": slots}

    def _added(self, stripe: int, offset: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """The additions of a stripe's pages, except pages of this snapshot and pages that must be written whole."""
        pages = np.arange(stripe * self._stripe_pages, min((stripe + 1) * self._stripe_pages, len(self._written)))
        base = stripe * self._stripe_pages * self._page_rows
        with self._source.lock:
            slots, rows = self._present(base, (int(pages[-1]) + 1) * self._page_rows)
            page = slots // self._page_rows
            kept = (self._written[page] >= 0) & (self._written[page] < self._sequence) & ~self._due[page]
            arrays = self._saved.added(slots[kept], rows[kept], base)
        missing = pages[self._due[pages] | (self._written[pages] == self._sequence)]
        text = {"offset": offset, "base": base, "slots": len(pages) * self._page_rows}
        text["without"] = (missing * self._page_rows).tolist()
        return text, arrays

    def _present(self, begin: int, end: int) -> tuple[Ints, Ints]:
        """Slots with a series that is still there, and its row; under the lock.

        A row keeps its generation when its series is dropped, and has no owner then.
        """
        rows, generation = self._slots.row[begin:end], self._slots.generation[begin:end]
        windows = self._source.windows
        used = np.flatnonzero((rows != FREE) & (windows.generation[rows] == generation) & (windows.owner[rows] >= 0))
        return used + begin, rows[used]

    def _delete_unused(self) -> Iterator[Message]:
        """Delete pages and additions beyond the present ones."""
        stripes = -(-len(self._written) // self._stripe_pages)
        for key in sorted(self._known):
            kind, _, rest = key.partition("|")
            number = int(rest.partition("|")[0] or 0)
            limit = {PAGE: len(self._written), ADDED: stripes}.get(kind, 0)
            if key != HEAD and number >= limit:
                self._known.discard(key)
                yield key, None

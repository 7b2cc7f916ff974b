"""Table of running totals, which `Accumulator` owns: assigns, finds and frees rows, their gaps and bucket blocks."""

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelcast.bridge.delta.columns import (
    EXPLICIT,
    EXPONENTIAL,
    FREE,
    MONOTONIC,
    NOTHING,
    NUMBER,
    DeltaColumns,
    empty_columns,
    empty_gaps,
    longer_columns,
    longer_gaps,
)
from kernelcast.bridge.delta.gaps import release
from kernelcast.bridge.tables.columns import Int64Array
from kernelcast.bridge.tables.schemas import BucketBlocks
from kernelcast.columnar import PointType, SeriesIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

DIGEST_BYTES: Final = 16
"""128 bits: among a million series a collision is as likely as 1 in 10**26."""
MAX_GAPS: Final = 1_000_000
"""Largest number of gaps of all series together, 20 MB; further gaps are dropped and counted."""

_KINDS: Final = {
    PointType.SUM: NUMBER,
    PointType.HISTOGRAM: EXPLICIT,
    PointType.EXPONENTIAL_HISTOGRAM: EXPONENTIAL,
}


class TotalRows:
    """Table of running totals; only the consuming thread uses it.

    Attributes:
        columns: The rows.
        used: Number of rows that were ever used; rows from here on are unused.
        most: Largest number of series.
        gaps: Missing intervals of the series.
        blocks: Buckets of histograms.
        freed: Rows that were taken back since their user last cleared it: each may belong to another series by now.
        reserved: By identity, a former total that may be added later, as columns of a snapshot; see `adoption`.
    """

    def __init__(self, most: int, room: int = 64) -> None:
        """Make an empty table.

        Args:
            most: Largest number of series.
            room: Rows that are allocated now.
        """
        self.most = most
        self._by_digest: dict[bytes, int] = {}
        self._free: list[int] = []
        self.freed: set[int] = set()
        self.reserved: dict[bytes, Mapping[str, NDArray[Any]]] = {}
        self.columns: DeltaColumns = empty_columns(room)
        self.used = 0
        self.gaps = empty_gaps(64)
        self.blocks = BucketBlocks()

    def __len__(self) -> int:
        return len(self._by_digest)

    def find(self, digest: bytes) -> int:
        """Return the row of an identity, or NOTHING."""
        return self._by_digest.get(digest, NOTHING)

    def admit(self, digest: bytes, identity: SeriesIdentity) -> int:
        """Return the row of a series, a new one if needed; NOTHING if the table is full."""
        known = self.find(digest)
        return known if known != NOTHING else self.new(digest, _KINDS[identity.type], monotonic=identity.monotonic)

    def new(self, digest: bytes, kind: int, *, monotonic: bool) -> int:
        """Return a new row for an identity that has none; NOTHING if the table is full."""
        if len(self._by_digest) >= self.most:
            return NOTHING
        row = self._free.pop() if self._free else self.used
        if row == self.used:
            self.used += 1
            if row == len(self.columns.kind):
                self.columns = longer_columns(self.columns, row + 1)
        columns = self.columns
        columns.kind[row] = kind
        columns.flags[row] = MONOTONIC if monotonic else 0
        columns.digest[row] = np.frombuffer(digest, np.uint8)
        for column in (columns.partition, columns.last_ns, columns.gap, columns.block):
            column[row] = NOTHING
        for cleared in (
            columns.key_hash,
            columns.moved_ms,
            columns.append_ms,
            columns.start_ns,
            columns.begin_ns,
            columns.right_ns,
            columns.shown_ns,
            columns.gaps,
            columns.capacity,
            columns.total,
            columns.integer,
        ):
            cleared[row] = 0
        self._by_digest[digest] = row
        return row

    def free(self, rows: Int64Array) -> None:
        """Free rows, with their gaps and blocks."""
        columns = self.columns
        release(columns, self.gaps, rows)
        for row in rows.tolist():
            del self._by_digest[columns.digest[row].tobytes()]
            if columns.block[row] != NOTHING:
                self.blocks.give_back(int(columns.block[row]), int(columns.capacity[row]))
        columns.kind[rows] = FREE
        self._free.extend(rows.tolist())
        self.freed.update(rows.tolist())

    def make_room_for_gaps(self, points: int) -> None:
        """Enlarge the gap table for one gap per point, up to MAX_GAPS."""
        needed = min(int(self.gaps.control[1]) + points, MAX_GAPS)
        if needed > len(self.gaps.next):
            self.gaps = longer_gaps(self.gaps, min(max(needed, 2 * len(self.gaps.next)), MAX_GAPS))

    def enlarge_block(self, row: int, words: int) -> None:
        """Move a histogram to a block of at least `words` words, with its content."""
        columns = self.columns
        before, capacity = int(columns.block[row]), int(columns.capacity[row])
        larger = 1 << max(words - 1, 3).bit_length()
        block = self.blocks.take(larger)
        if before != NOTHING:
            self.words[block : block + capacity] = self.words[before : before + capacity]
            self.blocks.give_back(before, capacity)
        columns.block[row], columns.capacity[row] = block, larger

    @property
    def words(self) -> Int64Array:
        """Words of all blocks; `columns.block` indexes them."""
        return self.blocks.counts

    def in_use(self) -> Int64Array:
        """Return the rows that are not free."""
        return np.flatnonzero(self.columns.kind[: self.used] != FREE)

    def of_partition(self, partition: int) -> Int64Array:
        """Return the rows whose newest message came from a partition."""
        columns, used = self.columns, self.used
        return np.flatnonzero((columns.kind[:used] != FREE) & (columns.partition[:used] == partition))

    def seen_under(self, keys: Int64Array) -> Int64Array:
        """Return the rows whose newest message had one of some keys, given as hashes."""
        columns, used = self.columns, self.used
        return np.flatnonzero((columns.kind[:used] != FREE) & np.isin(columns.key_hash[:used], keys))

    def with_total(self, rows: Int64Array) -> Int64Array:
        """Return those of some rows that have a total."""
        held: Int64Array = rows[self.columns.last_ns[rows] != NOTHING]
        return held


def digest(identity: SeriesIdentity) -> bytes:
    """Hash everything that distinguishes two series, the same in every process; collisions can be neglected.

    The description is left out, because it may change during a series' life. A snapshot keeps digests instead of
    attributes: after a restart, and on another replica with other series numbers, totals are found by their digest.
    """
    text = json.dumps(
        [
            identity.resource,
            [identity.scope_name, identity.scope_version, identity.scope_attributes, identity.schema_url],
            [identity.name, identity.unit, int(identity.type), identity.monotonic],
            identity.attributes,
        ],
        ensure_ascii=False,
        separators=(",", ":"),
    )
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()

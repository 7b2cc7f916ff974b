"""Converts rows of totals to the columns of a snapshot (`freeze`) and back (`thaw`).

`Deltas` and `joining` call both. A snapshot has the gaps and blocks of all its rows end to end.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.delta.addition.merging import NO_BUCKETS
from kernelcast.bridge.delta.columns import (
    EXPLICIT,
    EXPONENTIAL,
    MONOTONIC,
    NOTHING,
    NUMBER,
    PENDING,
    DeltaColumns,
    Gaps,
)
from kernelcast.bridge.delta.gaps import remember_all
from kernelcast.bridge.delta.persistence.snapshot import TOTALS_RESTART
from kernelcast.bridge.delta.rows import TotalRows
from kernelcast.bridge.tables.columns import Int64Array, UInt8Array
from kernelcast.bridge.tables.exponential import HEADER_WORDS, NEGATIVE_LENGTH_WORD, POSITIVE_LENGTH_WORD
from kernelcast.columnar.compiled import allocating_kernel
from kernelcast.wire.errors import WireError

Columns = Mapping[str, NDArray[Any]]
"""Columns by name. Those of `snapshot.COLUMNS` have one item per total; those of `snapshot.TAILS` have any number."""
# Columns that a snapshot copies unchanged; partition numbers, gaps and blocks are converted.
PLAIN = (
    "kind",
    "flags",
    "digest",
    "key_hash",
    "moved_ms",
    "append_ms",
    "start_ns",
    "begin_ns",
    "last_ns",
    "right_ns",
    "total",
    "integer",
)

TAIL_COUNTS: Final = {"gap_begin_ns": "gaps", "gap_end_ns": "gaps", "blocks": "words"}
"""By column of `snapshot.TAILS`, the column with the number of items that each total has in it."""


def reserved_totals(rows: TotalRows, number_of: Mapping[int, int]) -> list[Columns]:
    """Return reserved totals of some partitions whose series are in other partitions, each as columns of length one.

    Those of dropped series are left out: `Adoption` forgets them at its next step.

    Args:
        rows: All totals.
        number_of: By partition number here, its number in the snapshot.
    """
    return [
        {**one, "partition": np.array([number_of[number]], np.int32)}
        for digest, one in rows.reserved.items()
        if (number := int(one["partition"][0])) in number_of
        and (row := rows.find(digest)) != NOTHING
        and rows.columns.partition[row] not in number_of
    ]


def freeze(
    rows: TotalRows, chosen: Int64Array, number_of: Mapping[int, int], reserved: Iterable[Columns] = ()
) -> dict[str, NDArray[Any]]:
    """Return the columns of a snapshot.

    Args:
        rows: All totals.
        chosen: The rows to include.
        number_of: By partition number here, its number in the snapshot.
        reserved: Further totals, as columns of the snapshot.
    """
    columns = rows.columns
    frozen: dict[str, NDArray[Any]] = {name: getattr(columns, name)[chosen] for name in (*PLAIN, "gaps")}
    lookup = np.zeros(max(number_of, default=0) + 2, np.int32)
    for here, there in number_of.items():
        lookup[here] = there
    frozen["partition"] = lookup[columns.partition[chosen]]
    frozen["gap_begin_ns"], frozen["gap_end_ns"] = gather_gaps(columns, rows.gaps, chosen)
    frozen["words"] = used_words(columns, rows.words, chosen).astype(np.int32)
    frozen["blocks"] = gather_blocks(columns, rows.words, chosen, frozen["words"])
    return concatenated([frozen, *reserved])


def concatenated(totals: Sequence[Columns]) -> dict[str, NDArray[Any]]:
    """Return the totals of one or more snapshots as one."""
    return {name: np.concatenate([one[name] for one in totals]) for name in totals[0]}


def chosen_totals(columns: Columns, chosen: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    """Return those totals of a snapshot for which a mask is True, in its order."""
    tails = {name: np.repeat(chosen, columns[count]) for name, count in TAIL_COUNTS.items()}
    return {name: column[tails.get(name, chosen)] for name, column in columns.items()}


def one_by_one(columns: Columns) -> list[Columns]:
    """Return each of some totals as columns of length one."""
    ends = {name: np.cumsum(columns[count]).tolist() for name, count in TAIL_COUNTS.items()}
    return [
        {
            name: column[(ends[name][i - 1] if i else 0) : ends[name][i]] if name in ends else column[i : i + 1]
            for name, column in columns.items()
        }
        for i in range(len(columns["kind"]))
    ]


def as_table(columns: Columns) -> TotalRows:
    """Return totals of a snapshot as the rows of a new table, in their order. It finds no row by its identity.

    Raises:
        WireError: The snapshot has content that no writer produces.
    """
    check(columns)
    count = len(columns["kind"])
    rows = TotalRows(count, room=count)
    rows.used = count
    for name in (*PLAIN, "partition", "gaps"):
        getattr(rows.columns, name)[:] = columns[name]
    gaps, words = (columns[name].astype(np.int64) for name in ("gaps", "words"))
    rows.columns.gap[:] = np.where(gaps > 0, np.cumsum(gaps) - 1, NOTHING)
    rows.columns.block[:] = np.where(words > 0, np.cumsum(words) - words, NOTHING)
    rows.columns.capacity[:] = words
    begins, ends = (columns[name].astype(np.int64) for name in ("gap_begin_ns", "gap_end_ns"))
    older = np.arange(-1, len(begins) - 1, dtype=np.int32)
    older[(np.cumsum(gaps) - gaps)[gaps > 0]] = NOTHING
    rows.gaps = Gaps(begins, ends, older, np.array([NOTHING, len(begins), 0], np.int64))
    rows.blocks.counts, rows.blocks.used = columns["blocks"].astype(np.int64), len(columns["blocks"])
    return rows


def thaw(rows: TotalRows, columns: Mapping[str, NDArray[Any]], number_of: Mapping[int, int]) -> int:
    """Restore a snapshot's totals.

    If a series has a total already, because it was seen in two partitions, the newer one is kept, see `is_newer`.

    Args:
        rows: Receives the totals.
        columns: Columns of the snapshot.
        number_of: By partition number in the snapshot, its number here; rows of other partitions are left out.

    Returns:
        The number of restored totals.

    Raises:
        WireError: The snapshot has content that no writer produces.
    """
    check(columns)
    found = np.full(len(columns["kind"]), NOTHING, np.int64)
    for i in range(len(found)):
        if int(columns["partition"][i]) in number_of:
            found[i] = _row_for(rows, columns, i)
    kept = np.flatnonzero(found != NOTHING)
    for name in PLAIN[1:]:
        getattr(rows.columns, name)[found[kept]] = columns[name][kept]
    rows.columns.partition[found[kept]] = [number_of[number] for number in columns["partition"][kept].tolist()]
    _thaw_blocks(rows, columns, found)
    _thaw_gaps(rows, columns, found)
    return len(kept)


def is_newer(columns: Columns, i: int, others: Columns, other: int) -> bool:
    """Return whether a total has newer points than another total of its series.

    A total that began on its replica after the last message of the other one is newer, also if its producer's clock has
    been set back since then. Otherwise the times of their newest points decide. Example: one replica counts 20 points
    until 12:00, the topic grows, and the clock is set back by an hour. The second replica counts 18 points until 11:01.
    Its total is the newer one: it began after the last of the 20, and Prometheus has seen its 18.

    The times alone decide for a PENDING total, because it is added to the other one, and for a row without a total.

    Args:
        columns: Columns of a table or of a snapshot.
        i: Index of the total in them.
        others: Columns with the other total.
        other: Its index.
    """
    whole = others["last_ns"][other] != NOTHING and not (columns["flags"][i] | others["flags"][other]) & PENDING
    if whole:
        if columns["moved_ms"][i] > others["append_ms"][other]:
            return True
        if others["moved_ms"][other] > columns["append_ms"][i]:
            return False
    return bool(columns["last_ns"][i] > others["last_ns"][other])


def _thaw_blocks(rows: TotalRows, columns: Mapping[str, NDArray[Any]], found: Int64Array) -> None:
    ends = np.cumsum(columns["words"])
    for i in np.flatnonzero((found != NOTHING) & (columns["words"] > 0)).tolist():
        words = columns["blocks"][ends[i] - columns["words"][i] : ends[i]]
        rows.enlarge_block(int(found[i]), len(words))
        block = int(rows.columns.block[found[i]])
        rows.words[block : block + len(words)] = words


def _thaw_gaps(rows: TotalRows, columns: Mapping[str, NDArray[Any]], found: Int64Array) -> None:
    ends = np.cumsum(columns["gaps"])
    for i in np.flatnonzero((found != NOTHING) & (columns["gaps"] > 0)).tolist():
        missing = slice(ends[i] - columns["gaps"][i], ends[i])
        rows.make_room_for_gaps(missing.stop - missing.start)
        begins, stops = columns["gap_begin_ns"][missing], columns["gap_end_ns"][missing]
        remember_all(rows.columns, rows.gaps, int(found[i]), begins.astype(np.int64), stops.astype(np.int64))


def _row_for(rows: TotalRows, columns: Mapping[str, NDArray[Any]], i: int) -> int:
    """Return a new row for a total of a snapshot; NOTHING if the series has a newer total already."""
    digest = columns["digest"][i].tobytes()
    known = rows.find(digest)
    if known != NOTHING:
        if not is_newer(columns, i, rows.columns._asdict(), known):
            return NOTHING
        rows.free(np.array([known]))
    monotonic = bool(columns["flags"][i] & MONOTONIC)
    return rows.new(digest, int(columns["kind"][i]), monotonic=monotonic)


def check(columns: Mapping[str, NDArray[Any]]) -> None:
    """Refuse columns that would make a compiled function read or write beyond a block.

    Raises:
        WireError: A total has an unknown kind, or gaps and words that do not fit to it.
    """
    kind, words, gaps = columns["kind"], columns["words"], columns["gaps"]
    fits = (kind >= NUMBER) & (kind <= EXPONENTIAL) & (words >= 0) & (gaps >= 0) & ((kind == NUMBER) == (words == 0))
    fits &= (kind != EXPONENTIAL) | (words >= HEADER_WORDS)
    fits &= words.sum() == len(columns["blocks"])
    fits &= gaps.sum() == len(columns["gap_begin_ns"]) == len(columns["gap_end_ns"])
    if fits.all():
        fits = _words_fit(kind, words.astype(np.int64), columns["blocks"])
    if not fits.all():
        raise WireError(f"snapshot has {int(np.count_nonzero(~fits))} malformed totals; {TOTALS_RESTART}")


def _words_fit(kind: UInt8Array, words: Int64Array, blocks: Int64Array) -> NDArray[np.bool_]:
    """Return for which totals the lengths in their blocks give the number of their words."""
    fits, starts = np.ones(len(kind), np.bool_), np.cumsum(words) - words
    at, length = starts[kind == EXPLICIT], words[kind == EXPLICIT]
    bounds = blocks[at]
    fits[kind == EXPLICIT] = (bounds >= NO_BUCKETS) & (bounds < length) & (np.maximum(2 * bounds + 2, 1) == length)
    at, length = starts[kind == EXPONENTIAL], words[kind == EXPONENTIAL]
    positive, negative = blocks[at + POSITIVE_LENGTH_WORD], blocks[at + NEGATIVE_LENGTH_WORD]
    fits[kind == EXPONENTIAL] = (
        (positive >= 0)
        & (negative >= 0)
        & (np.maximum(positive, negative) < length)
        & (HEADER_WORDS + positive + negative == length)
    )
    return fits


@allocating_kernel
def gather_gaps(columns: DeltaColumns, gaps: Gaps, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Concatenate the gaps of rows, oldest first within a row; returns begins and ends."""
    total = 0
    for row in rows:
        total += columns.gaps[row]
    begins, ends = np.empty(total, np.int64), np.empty(total, np.int64)
    stop = 0
    for row in rows:
        stop += columns.gaps[row]
        at, found = stop, columns.gap[row]
        while found != NOTHING:
            at -= 1
            begins[at], ends[at] = gaps.begin_ns[found], gaps.end_ns[found]
            found = gaps.next[found]
    return begins, ends


@allocating_kernel
def used_words(columns: DeltaColumns, words: Int64Array, rows: Int64Array) -> Int64Array:
    """Return the number of words that each row uses of its block."""
    used = np.zeros(len(rows), np.int64)
    for i in range(len(rows)):
        row = rows[i]
        block = columns.block[row]
        if columns.kind[row] == EXPLICIT:
            used[i] = max(2 * words[block] + 2, 1)
        elif columns.kind[row] == EXPONENTIAL:
            used[i] = HEADER_WORDS + words[block + POSITIVE_LENGTH_WORD] + words[block + NEGATIVE_LENGTH_WORD]
    return used


@allocating_kernel
def gather_blocks(columns: DeltaColumns, words: Int64Array, rows: Int64Array, lengths: Int64Array) -> Int64Array:
    """Concatenate the used words of rows."""
    total = 0
    for length in lengths:
        total += length
    gathered = np.empty(total, np.int64)
    at = 0
    for i in range(len(rows)):
        block, length = columns.block[rows[i]], lengths[i]
        for j in range(length):
            gathered[at + j] = words[block + j]
        at += length
    return gathered

"""Records in CUPTI's buffers, found from their bytes alone: no call of CUPTI, so nothing here can end a process.

A buffer is a sequence of records of known kinds, each kind with one length. `walk` looks for the lengths with which the
records fill the buffers exactly.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

CONCURRENT_KERNEL: Final = 10
GRAPH_TRACE: Final = 51
LENGTHS: Final[Mapping[int, Sequence[int]]] = {
    # Lengths that were seen, or that NVIDIA's headers have, come first.
    CONCURRENT_KERNEL: (216, 208, 248, 224, 232, 240, 256, 200, 192, 184, 176, 168, 160),
    GRAPH_TRACE: (56, 48, 64, 72, 40, 80),
}
"""Possible lengths in bytes by kind; a record's length is a multiple of 8."""
SHOWN_WORDS: Final = 16


@dataclass(frozen=True, slots=True)
class Record:
    """The fields of a record that this day reads.

    Attributes:
        kind: CUpti_ActivityKind.
        start_ns: Its begin on CUPTI's clock.
        end_ns: Its end.
    """

    kind: int
    start_ns: int
    end_ns: int


_START: Final = {CONCURRENT_KERNEL: 16, GRAPH_TRACE: 8}
"""Offset of the begin by kind; the end follows it."""


def number(buffer: bytes, at: int, size: int) -> int:
    """Return an unsigned number of a buffer."""
    return int.from_bytes(buffer[at : at + size], "little")


def first_words(buffers: Sequence[bytes]) -> list[str]:
    """Return the first bytes as 32-bit words in hexadecimal, for a person who compares them with a header."""
    first = next((buffer for buffer in buffers if buffer), b"")
    return [f"{number(first, at, 4):08x}" for at in range(0, min(len(first), SHOWN_WORDS * 4), 4)]


def walk(buffers: Sequence[bytes], kinds: Sequence[int]) -> tuple[dict[int, int], list[Record]]:
    """Return the length of each kind and all records; nothing where no lengths fit.

    Args:
        buffers: The valid bytes of each buffer.
        kinds: Kinds that may be there.
    """
    for lengths in itertools.product(*(LENGTHS[kind] for kind in kinds)):
        by_kind = dict(zip(kinds, lengths, strict=True))
        if all(_fits(buffer, by_kind) for buffer in buffers):
            found = [record for buffer in buffers for record in _records(buffer, by_kind)]
            present = {record.kind for record in found}
            return {kind: length for kind, length in by_kind.items() if kind in present}, found
    return {}, []


def _fits(buffer: bytes, lengths: Mapping[int, int]) -> bool:
    at = 0
    while at < len(buffer):
        length = lengths.get(number(buffer, at, 4))
        if length is None or at + length > len(buffer):
            return False
        at += length
    return True


def _records(buffer: bytes, lengths: Mapping[int, int]) -> Iterator[Record]:
    at = 0
    while at < len(buffer):
        kind = number(buffer, at, 4)
        start = at + _START[kind]
        yield Record(kind, number(buffer, start, 8), number(buffer, start + 8, 8))
        at += lengths[kind]

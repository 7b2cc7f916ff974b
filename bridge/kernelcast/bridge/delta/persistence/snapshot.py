"""Running totals as bytes, and back: versioned, compressed, checksummed, in parts that Kafka takes.

Every part says which snapshot it belongs to and how many there are, so that half a snapshot is never taken for a whole
one, nor parts of two for one. Numbers are little-endian, histograms' blocks are words as `merging` describes them.
"""

import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import cramjam
import numpy as np
from numpy.typing import NDArray

from kernelcast.wire.errors import WireError

MAGIC: Final = b"KCBD"
VERSION: Final = 2
PART_BYTES: Final = 768 * 1024
"""Below Kafka's default message limit of 1 MiB, should the topic have been made without its own."""
LONGEST_BYTES: Final = 4 * 1024**3
COMPRESSION_LEVEL: Final = 1
_HEAD: Final = struct.Struct("<4sH8sIIQI")
"""Magic, version, which snapshot, number of the part, how many, bytes when inflated, checksum of the rest."""

_DAMAGED: Final = (
    cramjam.DecompressionError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
    MemoryError,
    struct.error,
)
"""What reading a snapshot that no bridge has written may raise; its checksum covers neither the head of a part nor the
sense of the content."""
TOTALS_RESTART: Final = "its totals begin anew"

COLUMNS: Final[dict[str, str]] = {
    "kind": "|u1",
    "flags": "|u1",
    "digest": "|u1",
    "key_hash": "<i8",
    "moved_ms": "<i8",
    "append_ms": "<i8",
    "start_ns": "<i8",
    "begin_ns": "<i8",
    "last_ns": "<i8",
    "total": "<f8",
    "integer": "<i8",
    "gaps": "<i4",
    "words": "<i4",
    "partition": "<i4",
}
"""What is kept of each row: `gaps` and `words` are how many it has of the two arrays after them."""
TAILS: Final[dict[str, str]] = {"gap_begin_ns": "<i8", "gap_end_ns": "<i8", "blocks": "<i8"}

ADDITIONS: Final[dict[str, str]] = {"right_ns": "<i8"}
"""Columns behind the tails: a bridge that does not know them reads no further, and its snapshots do not have them."""

Key = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class TotalsSnapshot:
    """Totals, and the offsets as of which they are valid.

    Attributes:
        identity: 8 bytes, other ones for each snapshot.
        written_ns: When, by the writer's clock.
        positions: Next offset by partition; `columns["partition"]` counts them.
        columns: One array per name of COLUMNS, TAILS and ADDITIONS; `digest` of shape (n, 16).
        topic_ids: Kafka's ids of the topics, where it has them: offsets count in the log of that topic only.
        append_ms: When Kafka appended it, which is not part of its bytes; 0 where Kafka does not say.
    """

    identity: bytes
    written_ns: int
    positions: tuple[tuple[Key, int], ...]
    columns: dict[str, NDArray[Any]]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    append_ms: int = 0

    @property
    def progress(self) -> int:
        """Rises with what was read: of two snapshots the one that knows more has more."""
        return sum(offset for _, offset in self.positions)

    def dump(self) -> list[bytes]:
        """Its parts."""
        head = {
            "written_ns": self.written_ns,
            "positions": [[topic, partition, offset] for (topic, partition), offset in self.positions],
            "topic_ids": dict(self.topic_ids),
            "lengths": {name: len(self.columns[name]) for name in (*COLUMNS, *TAILS, *ADDITIONS)},
        }
        text = json.dumps(head, separators=(",", ":")).encode()
        kinds = COLUMNS | TAILS | ADDITIONS
        arrays = [np.ascontiguousarray(self.columns[name], kind).tobytes() for name, kind in kinds.items()]
        whole = b"".join([struct.pack("<I", len(text)), text, *arrays])
        packed = bytes(cramjam.zstd.compress(whole, COMPRESSION_LEVEL))
        pieces = [packed[at : at + PART_BYTES] for at in range(0, len(packed), PART_BYTES)]
        return [
            _HEAD.pack(MAGIC, VERSION, self.identity, number, len(pieces), len(whole), zlib.crc32(piece)) + piece
            for number, piece in enumerate(pieces)
        ]


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """One part of a snapshot, its checksum verified."""

    identity: bytes
    number: int
    count: int
    inflated_bytes: int
    data: bytes

    @classmethod
    def of(cls, message: bytes) -> "SnapshotPart":
        """Read a part.

        Raises:
            WireError: It is none, of another version, or damaged.
        """
        if len(message) < _HEAD.size:
            raise WireError(
                f"part of a snapshot is {len(message)} bytes, its head alone {_HEAD.size}; {TOTALS_RESTART}"
            )
        magic, version, identity, number, count, inflated_bytes, checksum = _HEAD.unpack_from(message)
        if magic != MAGIC or version != VERSION:
            raise WireError(
                f"part of a snapshot is {magic!r} version {version}, not {MAGIC!r} {VERSION}; {TOTALS_RESTART}"
            )
        data = message[_HEAD.size :]
        if zlib.crc32(data) != checksum or inflated_bytes > LONGEST_BYTES:
            raise WireError(f"part {number} of {count} of a snapshot does not match its checksum; {TOTALS_RESTART}")
        return cls(identity, number, count, inflated_bytes, data)


def load(parts: Sequence[SnapshotPart]) -> TotalsSnapshot:
    """The snapshot that parts make, which are all of one.

    Raises:
        WireError: One is missing, or they do not make a snapshot.
    """
    ordered = sorted(parts, key=lambda part: part.number)
    whole_count = bool(ordered) and ordered[0].count == len(ordered)  # compared first: a damaged head says billions
    if not whole_count or [part.number for part in ordered] != list(range(len(ordered))):
        raise WireError(f"snapshot has {len(ordered)} of its parts; {TOTALS_RESTART}")
    whole = bytearray(ordered[0].inflated_bytes)
    try:
        written = cramjam.zstd.decompress_into(b"".join(part.data for part in ordered), whole)
        if written != len(whole):
            raise WireError(f"snapshot is {written} bytes and says {len(whole)}; {TOTALS_RESTART}")
        return _parse(ordered[0].identity, memoryview(whole))
    except _DAMAGED as error:
        raise WireError(f"snapshot cannot be read: {error}; {TOTALS_RESTART}") from error


def _parse(identity: bytes, whole: memoryview) -> TotalsSnapshot:
    (length,) = struct.unpack_from("<I", whole)
    head = json.loads(bytes(whole[4 : 4 + length]))
    at, columns = 4 + length, {}
    for name, kind in (COLUMNS | TAILS).items():
        rows = int(head["lengths"][name])
        items = rows * 16 if name == "digest" else rows
        columns[name] = np.frombuffer(whole, kind, items, at)
        at += columns[name].nbytes
    columns["digest"] = columns["digest"].reshape(-1, 16)
    rows = len(columns["kind"])
    for name, kind in ADDITIONS.items():
        known = name in head["lengths"]
        columns[name] = np.frombuffer(whole, kind, rows, at) if known else np.zeros(rows, kind)
        at += columns[name].nbytes if known else 0
    sums = (int(columns["gaps"].sum()), int(columns["words"].sum()))
    if any(len(columns[name]) != rows for name in COLUMNS) or sums != (
        len(columns["gap_begin_ns"]),
        len(columns["blocks"]),
    ):
        raise WireError(f"snapshot's arrays do not belong together; {TOTALS_RESTART}")
    positions = tuple(((str(topic), int(number)), int(offset)) for topic, number, offset in head["positions"])
    topic_ids = {str(topic): str(topic_id) for topic, topic_id in head.get("topic_ids", {}).items()}
    return TotalsSnapshot(identity, int(head["written_ns"]), positions, columns, topic_ids)

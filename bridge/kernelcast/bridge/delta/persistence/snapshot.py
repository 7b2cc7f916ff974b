"""Encoding of snapshots of running totals: versioned, compressed, checksummed, in parts below Kafka's message limit.

Every part has the identity of its snapshot and the number of parts, so that neither an incomplete snapshot nor a
mixture of two is read as one. Numbers are little-endian.

One part is a header of 34 bytes and a slice of the compressed content:

    offset  0  magic "KCBD"                      offset 18  number of parts, uint32
    offset  4  version, uint16                   offset 22  size of the content, uint64
    offset  6  identity of the snapshot          offset 30  CRC-32 of the slice, uint32
    offset 14  number of this part, uint32       offset 34  the slice

The content, after joining and decompressing: 4 bytes length of a JSON object, the JSON object (`TotalsSnapshot.dump`),
then the arrays in the order of COLUMNS, TAILS and ADDITIONS. `delta.columns` describes each column, `merging` the
blocks of histograms.
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
"""Of the layout; snapshots of other versions are refused, and their totals restart."""
PART_BYTES: Final = 768 * 1024
"""Below Kafka's default message limit of 1 MiB, in case the topic was created without its own limit."""
LONGEST_BYTES: Final = 4 * 1024**3
"""Largest size of the decompressed content; a damaged header may say more."""
COMPRESSION_LEVEL: Final = 1
"""The fastest ordinary level of zstd: snapshots are written every 30 s."""
_HEADER: Final = struct.Struct("<4sH8sIIQI")
"""Magic, version, identity, number of the part, number of parts, decompressed bytes, checksum of the slice."""

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
"""Exceptions that reading foreign bytes may raise. The checksum covers neither a part's header nor the meaning of the
content."""
TOTALS_RESTART: Final = "its totals restart at 0"

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
"""One item per row, except `digest`, which has 16 bytes per row; `partition` is an index into the positions. `gaps` and
`words` are the numbers of items that the row has in TAILS: gaps, and 64-bit words of its block of buckets."""
TAILS: Final[dict[str, str]] = {"gap_begin_ns": "<i8", "gap_end_ns": "<i8", "blocks": "<i8"}

ADDITIONS: Final[dict[str, str]] = {"right_ns": "<i8"}
"""Columns after the tails: an older bridge stops reading before them, and its snapshots do not have them."""

Key = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class TotalsSnapshot:
    """Totals, and the offsets up to which they are valid.

    Attributes:
        identity: 8 random bytes, different for each snapshot.
        written_ns: Time of writing, by the writer's clock.
        positions: Next offset by partition; `columns["partition"]` has indices into it.
        columns: One array per name of COLUMNS, TAILS and ADDITIONS; `digest` of shape (n, 16).
        topic_ids: Kafka's ids of the topics, if it has them: offsets are valid in the log of that topic only.
        append_ms: Kafka's append time, which is not part of the bytes; 0 if Kafka does not stamp messages.
    """

    identity: bytes
    written_ns: int
    positions: tuple[tuple[Key, int], ...]
    columns: dict[str, NDArray[Any]]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    append_ms: int = 0

    @property
    def progress(self) -> int:
        """Sum of all offsets: of two snapshots, the more advanced one has the greater sum."""
        return sum(offset for _, offset in self.positions)

    def matches_topics(self, topic_ids: Mapping[str, str]) -> bool:
        """Return whether this is of the topics with these ids, as far as both ids of a topic are known."""
        return all(topic_ids.get(topic, written) == written for topic, written in self.topic_ids.items())

    def dump(self) -> list[bytes]:
        """Encode the snapshot as parts.

        Raises:
            WireError: It has more than LONGEST_BYTES, which no bridge would read.
        """
        described = {
            "written_ns": self.written_ns,
            "positions": [[topic, partition, offset] for (topic, partition), offset in self.positions],
            "topic_ids": dict(self.topic_ids),
            "lengths": {name: len(self.columns[name]) for name in (*COLUMNS, *TAILS, *ADDITIONS)},
        }
        text = json.dumps(described, separators=(",", ":")).encode()
        kinds = COLUMNS | TAILS | ADDITIONS
        arrays = [np.ascontiguousarray(self.columns[name], kind).tobytes() for name, kind in kinds.items()]
        whole = b"".join([struct.pack("<I", len(text)), text, *arrays])
        if len(whole) > LONGEST_BYTES:
            raise WireError(_too_long(len(whole)))
        packed = bytes(cramjam.zstd.compress(whole, COMPRESSION_LEVEL))
        pieces = [packed[at : at + PART_BYTES] for at in range(0, len(packed), PART_BYTES)]
        return [
            _HEADER.pack(MAGIC, VERSION, self.identity, number, len(pieces), len(whole), zlib.crc32(piece)) + piece
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
        """Decode a part's header and verify its checksum.

        Raises:
            WireError: The bytes are not a part, have another version, or are damaged.
        """
        if len(message) < _HEADER.size:
            raise WireError(
                f"part of a snapshot is {len(message)} bytes, its header alone {_HEADER.size}; {TOTALS_RESTART}"
            )
        magic, version, identity, number, count, inflated_bytes, checksum = _HEADER.unpack_from(message)
        if magic != MAGIC or version != VERSION:
            raise WireError(
                f"part of a snapshot is {magic!r} version {version}, not {MAGIC!r} {VERSION}; {TOTALS_RESTART}"
            )
        data = message[_HEADER.size :]
        if inflated_bytes > LONGEST_BYTES:
            raise WireError(f"{_too_long(inflated_bytes)}; {TOTALS_RESTART}")
        if zlib.crc32(data) != checksum:
            raise WireError(f"part {number} of {count} of a snapshot does not match its checksum; {TOTALS_RESTART}")
        return cls(identity, number, count, inflated_bytes, data)


def _too_long(length: int) -> str:
    return f"snapshot is {length} bytes; the limit is {LONGEST_BYTES}; lower bridge.deltas.max_series"


def load(parts: Sequence[SnapshotPart]) -> TotalsSnapshot:
    """Decode a snapshot from its parts.

    Raises:
        WireError: A part is missing or of another snapshot, or the content is not a snapshot.
    """
    ordered = sorted(parts, key=lambda part: part.number)
    if len({(part.identity, part.count) for part in parts}) > 1:
        raise WireError(f"{len(parts)} parts of several snapshots; {TOTALS_RESTART}")
    is_complete = bool(ordered) and ordered[0].count == len(ordered)  # compared first: a damaged header says billions
    if not is_complete or [part.number for part in ordered] != list(range(len(ordered))):
        raise WireError(f"snapshot has {len(ordered)} of its parts; {TOTALS_RESTART}")
    try:
        # Memory is taken as it is written: a damaged header may say 4 GiB.
        whole = np.empty(ordered[0].inflated_bytes, np.uint8).data
        written = cramjam.zstd.decompress_into(b"".join(part.data for part in ordered), whole)
        if written != len(whole):
            raise WireError(f"snapshot is {written} bytes and says {len(whole)}; {TOTALS_RESTART}")
        return _parse(ordered[0].identity, whole)
    except _DAMAGED as error:
        raise WireError(f"snapshot cannot be read: {error}; {TOTALS_RESTART}") from error


def _parse(identity: bytes, whole: memoryview) -> TotalsSnapshot:
    (length,) = struct.unpack_from("<I", whole)
    described = json.loads(bytes(whole[4 : 4 + length]))
    at, columns = 4 + length, {}
    for name, kind in (COLUMNS | TAILS).items():
        rows = int(described["lengths"][name])
        items = rows * 16 if name == "digest" else rows
        columns[name] = np.frombuffer(whole, kind, items, at)
        at += columns[name].nbytes
    columns["digest"] = columns["digest"].reshape(-1, 16)
    rows = len(columns["kind"])
    for name, kind in ADDITIONS.items():
        known = name in described["lengths"]
        columns[name] = np.frombuffer(whole, kind, rows, at) if known else np.zeros(rows, kind)
        at += columns[name].nbytes if known else 0
    sums = (int(columns["gaps"].sum()), int(columns["words"].sum()))
    if any(len(columns[name]) != rows for name in COLUMNS) or sums != (
        len(columns["gap_begin_ns"]),
        len(columns["blocks"]),
    ):
        raise WireError(f"snapshot's arrays do not belong together; {TOTALS_RESTART}")
    positions = tuple(((str(topic), int(number)), int(offset)) for topic, number, offset in described["positions"])
    if ((columns["partition"] < 0) | (columns["partition"] >= len(positions))).any():
        raise WireError(f"snapshot's totals and positions do not belong together; {TOTALS_RESTART}")
    topic_ids = {str(topic): str(topic_id) for topic, topic_id in described.get("topic_ids", {}).items()}
    return TotalsSnapshot(identity, int(described["written_ns"]), positions, columns, topic_ids)

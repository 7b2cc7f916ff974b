"""Reads snapshots of version 1, which older revisions wrote: all windows of a partition in some parts.

`state.partitions` restores them where no newer one exists. This revision writes version 2, see `series/saved`.
"""

import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.predictor.series.subjects import Form, Subject
from kernelcast.wire.errors import WireError

WindowArray = NDArray[np.float32]

MAGIC: Final = b"KCPW"
VERSION: Final = 1
MAX_PART_BYTES: Final = 64 * 1024 * 1024
HEAD: Final = struct.Struct("<4sHIII")  # magic, version, checksum of the rest, length when inflated, of that the text


@dataclass(frozen=True, slots=True)
class SavedSeries:
    """One series in a snapshot.

    Attributes:
        subject: Whose values.
        values: Shape (points,), oldest first.
        newest: Number of the last interval.
        last_ns: When the last point was measured.
        since: First interval of its regime.
        baseline, spread: Normal level and spread; NaN where none was learnt.
        model, parameters: Of its last fit; empty where there is none.
    """

    subject: Subject
    values: WindowArray
    newest: int
    last_ns: int
    since: int
    baseline: float
    spread: float
    model: str = ""
    parameters: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PartitionSnapshot:
    """All series of one partition, and the offset of the next message to be read.

    Attributes:
        identity: Unique; its parts carry it, so that parts of two snapshots are never mixed.
        offset: Where to go on.
        interval_ns, points: The grid; windows on another one are of no use.
        series: The series.
    """

    identity: str
    offset: int
    interval_ns: int
    points: int
    series: tuple[SavedSeries, ...]


def load(parts: Sequence[bytes]) -> PartitionSnapshot:
    """The snapshot whose newest parts these are.

    Raises:
        WireError: A part is corrupt, of another version, or missing.
    """
    if not parts:
        raise WireError("snapshot has no parts; the windows are read again from Kafka")
    loaded = [_load_part(part) for part in parts]
    first = next((text for text, _ in loaded if text["part"] == 0), None)
    if first is None:
        raise WireError("snapshot lacks its first part; the windows are read again from Kafka")
    mine = sorted(
        (pair for pair in loaded if pair[0]["identity"] == first["identity"]), key=lambda pair: int(pair[0]["part"])
    )
    if [text["part"] for text, _ in mine] != list(range(first["parts"])):
        raise WireError(
            f"snapshot has {len(mine)} of its {first['parts']} parts; the windows are read again from Kafka"
        )
    series = tuple(saved for text, values in mine for saved in _series(text, values))
    return PartitionSnapshot(first["identity"], first["offset"], first["interval_ns"], first["points"], series)


def _load_part(part: bytes) -> tuple[dict[str, Any], bytes]:
    if len(part) < HEAD.size:
        raise WireError(f"snapshot part is {len(part)} bytes; a head is {HEAD.size}; it is ignored")
    magic, version, checksum, length, text_length = HEAD.unpack_from(part)
    if magic != MAGIC or version != VERSION:
        raise WireError(f"snapshot part is {magic!r} version {version}; expected {MAGIC!r} version {VERSION}")
    packed = part[HEAD.size :]
    if zlib.crc32(packed) != checksum or length > MAX_PART_BYTES or text_length > length:
        raise WireError("snapshot part does not match its checksum; the windows are read again from Kafka")
    try:
        whole = zlib.decompressobj().decompress(packed, length)
        return json.loads(whole[:text_length]), whole[text_length:]
    except (zlib.error, ValueError) as error:
        raise WireError(f"snapshot part cannot be read: {error}; the windows are read again from Kafka") from error


def _series(text: dict[str, Any], values: bytes) -> Iterator[SavedSeries]:
    try:
        matrix = np.frombuffer(values, "<f4").reshape(len(text["series"]), text["points"])
        for row, (metric, form, labels, newest, last_ns, since, normal, model, parameters) in zip(
            matrix, text["series"], strict=True
        ):
            subject = Subject(metric, Form(form), tuple((key, value) for key, value in labels))
            baseline, spread = (float("nan") if value is None else float(value) for value in normal)
            yield SavedSeries(
                subject, row.astype(np.float32), newest, last_ns, since, baseline, spread, model, tuple(parameters)
            )
    except (ValueError, TypeError, KeyError) as error:
        raise WireError(f"snapshot part has another shape: {error}; the windows are read again from Kafka") from error

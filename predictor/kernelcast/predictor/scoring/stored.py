"""Converts the state of the scores to bytes and back: a versioned head, a checksum, and named arrays.

`Scoring.dump` and `load` use it; `state.own_state` keeps the bytes on Kafka.
"""

import io
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kernelcast.wire.errors import WireError

MAGIC: Final = b"KCSC"
VERSION: Final = 1
_HEAD: Final = struct.Struct("<4sHI")  # magic, version, checksum of the rest
_META: Final = "meta"

Arrays = dict[str, NDArray[Any]]


def pack(meta: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Bytes of a state: `meta` as JSON, and arrays by name."""
    buffer = io.BytesIO()
    text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
    np.savez_compressed(buffer, allow_pickle=False, **{_META: text, **arrays})
    body = buffer.getvalue()
    return _HEAD.pack(MAGIC, VERSION, zlib.crc32(body)) + body


def unpack(state: bytes) -> tuple[dict[str, Any], Arrays]:
    """Meta and arrays of a state.

    Raises:
        WireError: It is damaged, or of another version.
    """
    if len(state) < _HEAD.size:
        raise WireError(
            f"the state of the scores has {len(state)} bytes, its head has {_HEAD.size}; scores begin again"
        )
    magic, version, checksum = _HEAD.unpack_from(state)
    if magic != MAGIC or version != VERSION:
        raise WireError(
            f"the state of the scores is {magic!r} version {version}, expected {MAGIC!r} version {VERSION}; "
            "scores begin again"
        )
    body = state[_HEAD.size :]
    if zlib.crc32(body) != checksum:
        raise WireError("the state of the scores does not match its checksum; scores begin again")
    with np.load(io.BytesIO(body), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(arrays.pop(_META).tobytes()), arrays


def table(arrays: Arrays, name: str, like: Mapping[str, NDArray[Any]]) -> Arrays:
    """The columns of a table, checked against an empty one.

    Args:
        arrays: Of a state.
        name: Of the table.
        like: Columns with the types and widths that are expected.

    Raises:
        WireError: A column is absent, or has another type, width or length.
    """
    columns: Arrays = {}
    for column, expected in like.items():
        saved = arrays.get(f"{name}/{column}")
        if saved is None or saved.dtype != expected.dtype or saved.shape[1:] != expected.shape[1:]:
            raise WireError(f"the state of the scores has no usable column {name}/{column}; scores begin again")
        columns[column] = saved
    if len({len(saved) for saved in columns.values()}) > 1:
        raise WireError(f"the columns of {name} in the state of the scores differ in length; scores begin again")
    return columns


def cells(arrays: Arrays, name: str, like: Mapping[str, NDArray[Any]], kept: Sequence[tuple[int, int]]) -> Arrays:
    """The sums of cells, with the horizons at their present places; 0 for new horizons.

    Args:
        arrays: Of a state.
        name: Of the cells.
        like: Sums of shape (classes, horizons, ...), as expected.
        kept: Pairs of the present and the former number of a horizon.

    Raises:
        WireError: A sum is absent, or has another shape.
    """
    totals: Arrays = {}
    for sums, expected in like.items():
        saved = arrays.get(f"{name}/{sums}")
        if (
            saved is None
            or saved.ndim != expected.ndim
            or saved.shape[:1] + saved.shape[2:] != (expected.shape[:1] + expected.shape[2:])
        ):
            raise WireError(f"the state of the scores has no usable sums {name}/{sums}; scores begin again")
        totals[sums] = np.zeros(expected.shape)
        for now, before in kept:
            totals[sums][:, now] = saved[:, before]
    return totals


def renumbered(columns: Arrays, kept: Sequence[tuple[int, int]]) -> Arrays:
    """A table with the present numbers of horizons; rows of horizons that are not in use are left out."""
    former = columns["horizon"]
    known = np.isin(former, [before for _, before in kept])
    numbers = former.copy()
    for now, before in kept:
        numbers[former == before] = now
    return {name: column[known] for name, column in {**columns, "horizon": numbers}.items()}

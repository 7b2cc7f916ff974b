"""Writes snapshots of version 1 as older revisions did."""

import json
import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from kernelcast.predictor.series.snapshot import HEAD, MAGIC, VERSION, PartitionSnapshot, SavedSeries

PART_BYTES: Final = 384 * 1024


def dump(snapshot: PartitionSnapshot) -> list[bytes]:
    """A snapshot in parts; at least one, even without series."""
    per_part = max(1, PART_BYTES // (4 * snapshot.points))
    groups = [snapshot.series[begin : begin + per_part] for begin in range(0, len(snapshot.series), per_part)] or [()]
    return [_dump_part(snapshot, group, number, len(groups)) for number, group in enumerate(groups)]


def _dump_part(snapshot: PartitionSnapshot, group: Sequence[SavedSeries], number: int, parts: int) -> bytes:
    text = json.dumps(
        {
            "identity": snapshot.identity,
            "offset": snapshot.offset,
            "interval_ns": snapshot.interval_ns,
            "points": snapshot.points,
            "part": number,
            "parts": parts,
            "series": [_describe(saved) for saved in group],
        },
        separators=(",", ":"),
    ).encode()
    values = np.stack([saved.values for saved in group]) if group else np.zeros((0, snapshot.points))
    whole = text + values.astype("<f4").tobytes()
    packed = zlib.compress(whole, 1)
    return HEAD.pack(MAGIC, VERSION, zlib.crc32(packed), len(whole), len(text)) + packed


def _describe(saved: SavedSeries) -> list[Any]:
    return [
        saved.subject.metric,
        int(saved.subject.form),
        saved.subject.labels,
        saved.newest,
        saved.last_ns,
        saved.since,
        [None if np.isnan(value) else value for value in (saved.baseline, saved.spread)],
        saved.model,
        saved.parameters,
    ]

"""A snapshot of running totals that is damaged is refused, quickly and with a sentence."""

import json
import random
import struct
import zlib
from dataclasses import replace
from typing import Any

import cramjam
import numpy as np
import pytest
from tests.fuzz.documents import snapshot

from kernelcast.bridge.delta.persistence.snapshot import MAGIC, VERSION, SnapshotPart, load
from kernelcast.wire.errors import WireError


def part_of(content: bytes, *, number: int = 0, count: int = 1, inflated_bytes: int | None = None) -> SnapshotPart:
    packed = bytes(cramjam.zstd.compress(content, 1))
    length = len(content) if inflated_bytes is None else inflated_bytes
    head = struct.pack("<4sH8sIIQI", MAGIC, VERSION, b"identity", number, count, length, zlib.crc32(packed))
    return SnapshotPart.of(head + packed)


def content_with(head: Any) -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack("<I", len(text)) + text


@pytest.mark.parametrize("count", [0, 2, 2**32 - 1])
def test_a_head_that_says_another_number_of_parts_is_refused_at_once(count: int) -> None:
    with pytest.raises(WireError, match="has 1 of its parts"):
        load([part_of(b"x", count=count)])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"abc",
        content_with([]),
        content_with({}),
        content_with({"lengths": {"kind": None}}),
        content_with(b'{"lengths": {"kind": Infinity}}'),
        content_with(b"[" * 100_000),
        struct.pack("<I", 2**32 - 1),
    ],
)
def test_content_that_no_bridge_has_written_is_refused(content: bytes) -> None:
    with pytest.raises(WireError, match="totals restart at 0"):
        load([part_of(content)])


def test_a_length_that_is_not_the_contents_is_refused() -> None:
    content = snapshot(random.Random(1))
    for length in (len(content) - 1, len(content) + 1, 4 * 1024**3):
        with pytest.raises(WireError, match="totals restart at 0"):
            load([part_of(content, inflated_bytes=length)])


def test_parts_of_two_snapshots_are_not_read_as_one() -> None:
    content = snapshot(random.Random(1))
    packed = bytes(cramjam.zstd.compress(content, 1))
    halves = (packed[:100], packed[100:])
    parts = [SnapshotPart(b"identity", i, 2, len(content), half) for i, half in enumerate(halves)]
    assert load(parts).identity == b"identity"
    for other in (replace(parts[1], identity=b"another!"), replace(parts[1], count=3)):
        with pytest.raises(WireError, match="parts of several snapshots"):
            load([parts[0], other])


def test_content_beyond_the_limit_is_refused_with_its_size() -> None:
    with pytest.raises(WireError, match=r"snapshot is 5000000000 bytes; the limit is 4294967296"):
        part_of(b"x", inflated_bytes=5_000_000_000)


@pytest.mark.parametrize("partition", [-1, 2])
def test_a_total_of_a_partition_that_the_snapshot_has_no_position_of_is_refused(partition: int) -> None:
    whole = load([part_of(snapshot(random.Random(1)))])
    columns = {**whole.columns, "partition": np.full_like(whole.columns["partition"], partition)}
    parts = [SnapshotPart.of(part) for part in replace(whole, columns=columns).dump()]
    with pytest.raises(WireError, match="do not belong together"):
        load(parts)

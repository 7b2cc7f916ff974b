"""CUPTI's records are found in a buffer's bytes, without CUPTI."""

import pytest
from tests.gpu.day.layout import CONCURRENT_KERNEL, GRAPH_TRACE, Record, first_words, walk


def graph(start: int, end: int, length: int = 56) -> bytes:
    """A CUpti_ActivityGraphTrace: kind, correlation, start, end."""
    head = GRAPH_TRACE.to_bytes(4, "little") + bytes(4) + start.to_bytes(8, "little") + end.to_bytes(8, "little")
    return head.ljust(length, b"\x07")


def kernel(start: int, end: int, length: int = 216) -> bytes:
    """A CUpti_ActivityKernel: kind, sizes and registers, then start and end."""
    head = CONCURRENT_KERNEL.to_bytes(4, "little") + bytes(12) + start.to_bytes(8, "little") + end.to_bytes(8, "little")
    return head.ljust(length, b"\x07")


@pytest.mark.parametrize(("short", "long"), [(56, 216), (48, 208), (64, 224)])
def test_lengths_of_records_follow_from_the_buffers_that_they_fill(short: int, long: int) -> None:
    buffers = [graph(1, 5, short) + kernel(2, 3, long) + kernel(3, 4, long), b"", graph(6, 9, short)]
    lengths, records = walk(buffers, [GRAPH_TRACE, CONCURRENT_KERNEL])
    assert lengths == {GRAPH_TRACE: short, CONCURRENT_KERNEL: long}
    assert [(record.start_ns, record.end_ns) for record in records] == [(1, 5), (2, 3), (3, 4), (6, 9)]


def test_only_kinds_that_are_there_have_a_length() -> None:
    assert walk([graph(1, 2)], [GRAPH_TRACE, CONCURRENT_KERNEL]) == ({GRAPH_TRACE: 56}, [Record(GRAPH_TRACE, 1, 2)])


@pytest.mark.parametrize("buffer", [graph(1, 2)[:-4], b"\x63" + bytes(55), graph(1, 2) + b"\x01"])
def test_bytes_that_no_lengths_fit_have_no_records(buffer: bytes) -> None:
    assert walk([buffer], [GRAPH_TRACE]) == ({}, [])


def test_the_first_words_are_those_of_the_first_buffer_that_has_any() -> None:
    assert first_words([b"", graph(1, 2)])[:4] == ["00000033", "00000000", "00000001", "00000000"]

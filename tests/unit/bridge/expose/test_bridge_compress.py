"""Compressed pages unpack to the original page with every decompressor."""

import zlib

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.bridge.expose.compress import SLICE_BYTES, PageCompressor, Piece
from kernelcast.bridge.expose.negotiate import Coding

ONE_GZIP_MEMBER = 31


def joined(pieces: list[Piece]) -> bytes:
    return b"".join(bytes(piece) for piece in pieces)


def unpacked_by_curl(packed: bytes) -> bytes:
    """curl and browsers stop at the end of the first gzip member, and do not say so."""
    decompressor = zlib.decompressobj(ONE_GZIP_MEMBER)
    body = decompressor.decompress(packed)
    assert decompressor.eof
    assert decompressor.unused_data == b""
    return body


@given(st.lists(st.binary(max_size=200), max_size=6), st.binary(max_size=200), st.binary(max_size=200))
def test_a_page_can_be_ended_again_and_again(pieces: list[bytes], one: bytes, other: bytes) -> None:
    for coding, unpacked in (
        (Coding.GZIP, unpacked_by_curl),
        (Coding.ZSTD, lambda body: bytes(cramjam.zstd.decompress(body)) if body else b""),
        (Coding.IDENTITY, bytes),
    ):
        compressor = PageCompressor(coding)
        begun = joined(list(compressor.pieces(pieces)))
        for end in (one, other, b""):
            assert unpacked(begun + bytes(compressor.finish(end))) == b"".join(pieces) + end


@pytest.mark.parametrize("size", [SLICE_BYTES - 1, SLICE_BYTES, 3 * SLICE_BYTES + 7])
def test_a_long_piece_is_compressed_in_slices_and_stays_whole(size: int) -> None:
    body = b"".join(b'some_metric{number="%d"} 1\n' % number for number in range(size // 25 + 1))[:size]
    compressor = PageCompressor(Coding.GZIP)
    packed = joined(list(compressor.pieces([memoryview(body), body])))
    assert len(packed) < size
    assert unpacked_by_curl(packed + bytes(compressor.finish(b"own 1\n"))) == body + body + b"own 1\n"

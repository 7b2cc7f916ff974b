"""Compression of a page: gzip at its quickest, or zstd, which takes less time and less room."""

from collections.abc import Iterable, Iterator
from typing import Final

import cramjam
from isal import isal_zlib

from kernelcast.bridge.expose.negotiate import Coding

GZIP_LEVEL: Final = 1
"""Of ISA-L, which does at levels 0 to 3 what zlib does at its quickest, in a third of the time."""
GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
"""No name, no time, the quickest level, any system: RFC 1952, section 2.3."""
RAW_DEFLATE: Final = -15
SLICE_BYTES: Final = 256 * 1024
"""Size of the compressor's input per call: its input and output stay in the processor's cache."""
ZSTD_LEVEL: Final = 1

Piece = bytes | memoryview


class Packing:
    """Compression of one page that is used again and again with another end.

    All of it is one gzip member: curl and browsers read the first member and leave the others out without a word, which
    Prometheus does not. A zstd page has a frame for each piece, which everybody reads (RFC 8878, section 3.1).
    """

    def __init__(self, coding: Coding) -> None:
        """Begin a page."""
        self._coding = coding
        self._checksum = self._length = 0

    def pieces(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Everything but the end, compressed as it comes; other threads run meanwhile."""
        if self._coding is Coding.GZIP:
            return self._deflated(pieces)
        return (_zstd_frame(piece) for piece in pieces) if self._coding is Coding.ZSTD else iter(pieces)

    def end(self, last: bytes) -> Piece:
        """The end, with what comes last in it; after all pieces were taken, as often as wanted."""
        if self._coding is Coding.GZIP:
            compressor = isal_zlib.compressobj(GZIP_LEVEL, isal_zlib.DEFLATED, RAW_DEFLATE)
            checksum, length = isal_zlib.crc32(last, self._checksum), (self._length + len(last)) & 0xFFFF_FFFF
            trailer = checksum.to_bytes(4, "little") + length.to_bytes(4, "little")
            return compressor.compress(last) + compressor.flush() + trailer
        return _zstd_frame(last) if self._coding is Coding.ZSTD and last else last

    def _deflated(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        yield GZIP_HEADER
        compressor = isal_zlib.compressobj(GZIP_LEVEL, isal_zlib.DEFLATED, RAW_DEFLATE)
        for piece in pieces:
            self._checksum = isal_zlib.crc32(piece, self._checksum)
            self._length += len(piece)
            view = memoryview(piece)
            packed = [compressor.compress(view[at : at + SLICE_BYTES]) for at in range(0, len(view), SLICE_BYTES)]
            # A flush ends on a whole byte, but not the stream: RFC 1951, section 3.2.4.
            yield b"".join((*packed, compressor.flush(isal_zlib.Z_SYNC_FLUSH)))


def _zstd_frame(piece: Piece) -> memoryview:
    return memoryview(cramjam.zstd.compress(piece, level=ZSTD_LEVEL))

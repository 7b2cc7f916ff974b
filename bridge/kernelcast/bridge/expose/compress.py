"""Compression of a page, for `Bodies` and `Exposition`: gzip at its fastest level, or zstd, faster and smaller."""

from collections.abc import Iterable, Iterator
from typing import Final

import cramjam
from isal import isal_zlib

from kernelcast.bridge.expose.negotiate import Coding

GZIP_LEVEL: Final = 1
"""Level of ISA-L, whose levels 0 to 3 compress like zlib's fastest level in a third of the time."""
GZIP_HEADER: Final = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"
"""Header of a gzip member: no name, no time, fastest level, unknown system; RFC 1952, section 2.3."""
RAW_DEFLATE: Final = -15
"""Window bits that ask zlib for a stream without header and trailer, which are written here."""
SLICE_BYTES: Final = 256 * 1024
"""Size of the compressor's input per call: its input and output stay in the processor's cache."""
ZSTD_LEVEL: Final = 1
"""The fastest ordinary level; higher ones cost more time than the network saves."""

Piece = bytes | memoryview


class PageCompressor:
    """Compresses one page: `pieces` once, then `finish` for each response, with the process's own metrics as the end.

    After `pieces` it is not changed, so several threads may call `finish`.

    A page is one gzip member: Prometheus reads several members, but curl and browsers silently ignore all after the
    first. A zstd page has a frame for each piece, which all readers support (RFC 8878, section 3.1).
    """

    def __init__(self, coding: Coding) -> None:
        """Start a page."""
        self._coding = coding
        self._checksum = self._length = 0

    def pieces(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Yield everything but the end, compressed piece by piece, without the GIL."""
        if self._coding is Coding.GZIP:
            return self._deflated(pieces)
        return (_zstd_frame(piece) for piece in pieces) if self._coding is Coding.ZSTD else iter(pieces)

    def finish(self, last: bytes) -> Piece:
        """Return the compressed end of the page; all pieces must have been taken before."""
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

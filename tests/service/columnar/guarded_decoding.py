"""Decodes random messages that end at an inaccessible page: `python guarded_decoding.py SEED COUNT`.

A walk that reads one byte too far, or before the first, ends the process with SIGSEGV instead of passing unseen.
"""

import ctypes
import mmap
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

if __name__ == "__main__":  # run as a program, there is no pytest to find the package
    sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.support.columnar.otlp_messages import random_message

from kernelcast.columnar import Decoder
from kernelcast.columnar.walk.layout import MessageStatus

UInt8Array = NDArray[np.uint8]
PAGE = mmap.PAGESIZE
ROOM_PAGES = 256
AT_ONCE = 7
"""Messages in one batch: successors and undone messages meet the next one."""
FORGET_EVERY = 50


class GuardedRoom:
    """Memory between two pages that are neither readable nor writable."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, (ROOM_PAGES + 2) * PAGE)
        self._whole: UInt8Array = np.frombuffer(self._map, np.uint8)
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for page in (0, ROOM_PAGES + 1):
            if libc.mprotect(self._whole.ctypes.data + page * PAGE, PAGE, 0):
                raise OSError(ctypes.get_errno(), "mprotect")

    def at_end(self, content: UInt8Array) -> UInt8Array:
        """A copy whose last byte is the last before the forbidden page."""
        return self._copy(content, (ROOM_PAGES + 1) * PAGE - len(content))

    def at_start(self, content: UInt8Array) -> UInt8Array:
        """A copy whose first byte is the first after the forbidden page."""
        return self._copy(content, PAGE)

    def _copy(self, content: UInt8Array, start: int) -> UInt8Array:
        if len(content) > ROOM_PAGES * PAGE:
            raise ValueError(f"{len(content)} bytes do not fit")
        place = self._whole[start : start + len(content)]
        place[:] = content
        return place


class GuardedDecoder(Decoder):
    """A decoder that walks over messages in guarded memory, without the byte that usually follows them."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._room = GuardedRoom()
        self.walks = 0

    def _walk(self, joined: UInt8Array, ends: NDArray[np.int64], at: int) -> tuple[int, MessageStatus]:
        self.walks += 1
        place = self._room.at_start if self.walks % 4 == 0 else self._room.at_end
        content = place(joined[: int(ends[-1])])
        content.setflags(write=False)  # the type that the decoder's own arrays have: compiled once
        return super()._walk(content, ends, at)


def main(seed: int, count: int) -> None:
    """Decode a number of messages, and print the numbers of accepted and refused ones."""
    rng = random.Random(seed)
    decoder = GuardedDecoder()
    refused = points = 0
    for batch in range(count // AT_ONCE):
        decoded = decoder.decode([random_message(rng) for _ in range(AT_ONCE)])
        refused += len(decoded.failures)
        points += len(decoded.numbers.series) + len(decoded.histograms.series)
        numbers = np.concatenate((decoded.numbers.series, decoded.histograms.series))
        for number in np.unique(numbers).tolist():
            decoder.identity(number)
        if batch % FORGET_EVERY == 0:
            decoder.forget(numbers)
    print(f"{count // AT_ONCE * AT_ONCE} messages, {refused} refused, {points} points, {decoder.walks} walks")  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

"""Table of the store's writers: one row per resource and scope, or per format with a job and an instance."""

from collections.abc import Hashable
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from kernelcast.bridge.tables.columns import WriterColumns, copy_into, empty_writers, grown
from kernelcast.bridge.tables.interning import Interning


class Writers:
    """The rows of all writers; the store's lock protects it.

    Attributes:
        columns: The rows, by number.
    """

    def __init__(self) -> None:
        self._interning: Interning[Hashable] = Interning()
        self.columns: WriterColumns = empty_writers(16)

    def number(self, writer: Hashable, host: str = "") -> int:
        """Return the number of a writer, a new one if needed; `host` is empty if its resource names none."""
        number = self._interning.number(writer)
        if number >= len(self.columns.append_ms):
            self.columns = copy_into(empty_writers(grown(number, number + 1)), self.columns)
        self.columns.host[number] = (crc32(host.encode()) >> 1) | 1 if host else 0
        return number

    def pause(self, numbers: NDArray[np.int32]) -> None:
        """Forget the last points and the intervals of writers, because points of them will be missed from now on."""
        self.columns.append_ms[numbers] = self.columns.interval_ms[numbers] = 0

    @property
    def overgrown(self) -> bool:
        """Whether it is time to look for writers that have no series left."""
        return self._interning.overgrown

    @property
    def used(self) -> int:
        """Every number lies below."""
        return self._interning.used

    def sweep(self, in_use: NDArray[np.bool_]) -> None:
        """Forget writers that no series refers to; `in_use` by number."""
        gone = self._interning.sweep(in_use)
        empty = empty_writers(1)
        for name in self.columns._fields:
            getattr(self.columns, name)[gone] = getattr(empty, name)[0]

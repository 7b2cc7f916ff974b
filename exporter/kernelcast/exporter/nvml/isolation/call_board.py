"""Shared memory with the NVML call in progress and the XIDs so far, for the exporter, even while the call hangs."""

import json
import mmap
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import astuple
from typing import Any, Final

from kernelcast.exporter.nvml.sampling.reading import XidTotal

BOARD_BYTES: Final = 128
"""One byte for the name's length, 0 between calls, and the name; NVML's longest has about 50 characters."""
# Then a byte that says which of two places has the XIDs, as JSON after its length: one is written, the other read.
_PLACE: Final = BOARD_BYTES
_XID_BYTES: Final = 64 * 1024
_LENGTH_BYTES: Final = 4
_ALL_BYTES: Final = _PLACE + 1 + 2 * _XID_BYTES


class CallBoard:
    """Memory that two processes share; the writer cannot be blocked by the reader.

    Args:
        file: Descriptor of a memory file, in the worker; None creates one, in the exporter.

    Attributes:
        file: The descriptor, which the worker inherits.
    """

    def __init__(self, file: int | None = None) -> None:
        self.file = os.memfd_create("nvml-call") if file is None else file
        try:
            if file is None:
                os.ftruncate(self.file, _ALL_BYTES)
            self._page = mmap.mmap(self.file, _ALL_BYTES)
        except OSError:
            os.close(self.file)
            raise

    @property
    def call(self) -> str:
        """Name of the call in progress; empty between calls."""
        return self._page[: self._page[0] + 1][1:].decode(errors="replace")

    def note(self, name: bytes) -> None:
        """Write the name of the call that begins; the one before has been cleared."""
        # The length comes last: until then a reader sees no call, never a part of a name.
        self._page[1 : len(name) + 1] = name
        self._page[0] = len(name)

    def clear(self) -> None:
        """Record that no call is in progress."""
        self._page[0] = 0

    @property
    def xids(self) -> list[tuple[str, XidTotal]]:
        """UUID and count of each XID that the process has seen."""
        start = _start(self._page[_PLACE])
        length = int.from_bytes(self._page[start - _LENGTH_BYTES : start], "little")
        with suppress(ValueError, TypeError):  # the process has written twice meanwhile
            return [(uuid, XidTotal(*one)) for uuid, *one in json.loads(self._page[start : start + length] or b"[]")]
        return []

    def note_xids(self, counts: Mapping[str, Mapping[int, XidTotal]]) -> None:
        """Write the counts of all XIDs by UUID, if there is room for them."""
        rows = [(uuid, *astuple(one)) for uuid, found in counts.items() for one in found.values()]
        data = json.dumps(rows, separators=(",", ":")).encode()
        if len(data) > _XID_BYTES - _LENGTH_BYTES:
            return
        place = 1 - self._page[_PLACE]
        start = _start(place)
        self._page[start - _LENGTH_BYTES : start] = len(data).to_bytes(_LENGTH_BYTES, "little")
        self._page[start : start + len(data)] = data
        self._page[_PLACE] = place

    def close(self) -> None:
        """Release the memory; safe to call twice."""
        if self.file >= 0:
            self._page.close()
            os.close(self.file)
            self.file = -1


def _start(place: int) -> int:
    return _PLACE + 1 + place * _XID_BYTES + _LENGTH_BYTES


class NotedNvml:
    """A pynvml module whose calls are written to a board while they last. The worker passes it to its `Sampler`.

    Only calls of the thread that made this object are written: the thread of XIDs waits in a call nearly all the time.

    Args:
        nvml: pynvml, or a double of it.
        board: Receives the names of calls.
    """

    def __init__(self, nvml: Any, board: CallBoard) -> None:
        self._nvml, self._board = nvml, board
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        """The module's attribute of this name."""
        theirs = getattr(self._nvml, name)
        if name.startswith("nvml") and callable(theirs) and not isinstance(theirs, type):
            theirs = self._noted(name.encode()[: BOARD_BYTES - 1], theirs)
        # The next access finds the attribute and does not call `__getattr__` again.
        self.__dict__[name] = theirs
        return theirs

    def _noted(self, name: bytes, call: Callable[..., Any]) -> Callable[..., Any]:
        note, clear, thread, this_thread = self._board.note, self._board.clear, self._thread, threading.get_ident

        def noted(*arguments: Any, **named: Any) -> Any:
            if this_thread() != thread:
                return call(*arguments, **named)
            note(name)
            try:
                return call(*arguments, **named)
            finally:
                clear()

        return noted

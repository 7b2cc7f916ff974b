"""Shared memory with the name of the NVML call in progress, which the exporter can read even while the call hangs."""

import mmap
import os
import threading
from collections.abc import Callable
from typing import Any, Final

BOARD_BYTES: Final = 128
"""One byte for the name's length, 0 between calls, and the name; NVML's longest has about 50 characters."""


class CallBoard:
    """A page of memory that two processes share; the writer cannot be blocked by the reader.

    Args:
        file: Descriptor of a memory file, in the worker; None creates one, in the exporter.

    Attributes:
        file: The descriptor, which the worker inherits.
    """

    def __init__(self, file: int | None = None) -> None:
        self.file = os.memfd_create("nvml-call") if file is None else file
        try:
            if file is None:
                os.ftruncate(self.file, BOARD_BYTES)
            self._page = mmap.mmap(self.file, BOARD_BYTES)
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

    def close(self) -> None:
        """Release the memory; safe to call twice."""
        if self.file >= 0:
            self._page.close()
            os.close(self.file)
            self.file = -1


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

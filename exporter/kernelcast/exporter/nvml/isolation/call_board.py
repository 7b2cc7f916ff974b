"""A shared page that holds the NVML call in progress, readable from outside even while the call hangs."""

import mmap
import os
import threading
from collections.abc import Callable
from typing import Any, Final

BOARD_BYTES: Final = 128


class CallBoard:
    """A page of memory that two processes share; the writer cannot be blocked by the reader.

    Args:
        file: A memory file's descriptor; None makes one.

    Attributes:
        file: The descriptor, to hand to the other process.
    """

    def __init__(self, file: int | None = None) -> None:
        self.file = os.memfd_create("nvml-call") if file is None else file
        if file is None:
            os.ftruncate(self.file, BOARD_BYTES)
        self._page = mmap.mmap(self.file, BOARD_BYTES)

    @property
    def call(self) -> str:
        """The call that is going on; empty between calls."""
        return self._page[: self._page[0] + 1][1:].decode(errors="replace")

    def note(self, name: bytes) -> None:
        """Say which call is going on; the one before has been cleared."""
        self._page[1 : len(name) + 1] = name
        self._page[0] = len(name)

    def clear(self) -> None:
        """Say that none is."""
        self._page[0] = 0

    def close(self) -> None:
        """Release the memory; safe to call twice."""
        if self.file >= 0:
            self._page.close()
            os.close(self.file)
            self.file = -1


class NotedNvml:
    """A pynvml module whose calls are noted on a board while they last.

    Only calls of the thread that made this are noted: another one waits for events nearly all the time.

    Args:
        nvml: pynvml, or a double of it.
        board: Where calls are noted.
    """

    def __init__(self, nvml: Any, board: CallBoard) -> None:
        self._nvml, self._board = nvml, board
        self._thread = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        """The module's attribute of this name."""
        theirs = getattr(self._nvml, name)
        if name.startswith("nvml") and callable(theirs) and not isinstance(theirs, type):
            theirs = self._noted(name.encode()[: BOARD_BYTES - 1], theirs)
        # The next look-up does not come here any more.
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

"""CUPTI's activity API by ctypes, without the probe: facts about CUPTI itself."""

import ctypes
import os
import time
from typing import Any, Final

from tests.gpu.day.programs.kernels import cannot

from kernelcast.probe.cupti.library import candidates

BUFFER_BYTES: Final = 1 << 20
REQUESTED: Final = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_size_t)
)
COMPLETED: Final = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


class RawCupti:
    """Enables kinds of records and keeps the bytes of completed buffers.

    Make it after the program has used CUDA, so that it finds the libcupti that the process has mapped. Call `close`,
    then end the process with `os._exit`: CUPTI's threads must not call Python while the interpreter ends.
    """

    def __init__(self) -> None:
        paths = candidates(os.environ)
        if not paths:
            cannot("no libcupti was found")
        self._library = ctypes.CDLL(str(paths[0]))
        self._enabled: set[int] = set()
        self._free: list[Any] = []
        self._in_use: dict[int, Any] = {}
        self._callbacks = REQUESTED(self._requested), COMPLETED(self._completed)
        self.buffers: list[bytes] = []
        self.keeps = True
        """Whether completed buffers are kept; else only their bytes are counted."""
        self.completed_bytes = 0
        version = ctypes.c_uint32(0)
        self._library.cuptiGetVersion(ctypes.byref(version))
        self.version = version.value
        answer = self._library.cuptiActivityRegisterCallbacks(*self._callbacks)
        if answer:
            cannot(f"cuptiActivityRegisterCallbacks answered {answer}")

    def enable(self, kind: int) -> int:
        """Enable records of a kind; returns CUPTI's answer, 0 for success."""
        code = int(self._library.cuptiActivityEnable(ctypes.c_int(kind)))
        if code == 0:
            self._enabled.add(kind)
        return code

    def disable(self, kind: int) -> int:
        """Disable records of a kind; returns CUPTI's answer."""
        self._enabled.discard(kind)
        return int(self._library.cuptiActivityDisable(ctypes.c_int(kind)))

    def flush(self, *, forced: bool = False) -> None:
        """Have CUPTI complete its buffers; with `forced`, those that are not full, too."""
        self._library.cuptiActivityFlushAll(ctypes.c_uint32(int(forced)))

    def dropped(self) -> int:
        """Return the records that CUPTI has dropped since the last call."""
        count = ctypes.c_size_t(0)
        self._library.cuptiActivityGetNumDroppedRecords(None, ctypes.c_uint32(0), ctypes.byref(count))
        return count.value

    def close(self) -> None:
        """Disable every kind and collect the rest."""
        for kind in sorted(self._enabled):
            self.disable(kind)
        self.flush(forced=True)
        time.sleep(0.3)

    def _requested(self, buffer: Any, size: Any, most: Any) -> None:
        memory = self._free.pop() if self._free else ctypes.create_string_buffer(BUFFER_BYTES)
        address = ctypes.addressof(memory)
        self._in_use[address] = memory
        buffer[0], size[0], most[0] = address, BUFFER_BYTES, 0

    def _completed(self, _context: Any, _stream: int, buffer: int, _size: int, valid_bytes: int) -> None:
        self.completed_bytes += valid_bytes
        if self.keeps and valid_bytes:
            self.buffers.append(ctypes.string_at(buffer, valid_bytes))
        self._free.append(self._in_use.pop(buffer))

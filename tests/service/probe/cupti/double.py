"""The double of libcupti, and a decoder of its own for each test: the C library's state belongs to a process."""

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.service.probe.cupti.records import LENGTHS, VERSIONS

from kernelcast.probe.cupti import build
from kernelcast.probe.cupti.native import ActivityDecoder, NativeSettings

SOURCE = Path(__file__).parent / "double.c"
SMALL = NativeSettings(buffer_bytes=64 * 1024, buffers=32)
EXTRA_FLAGS = "KERNELCAST_TEST_CFLAGS"
"""Environment variable: further flags for the C compiler, for the run under sanitizers."""
SUBSCRIBE, REGISTER, ENABLE, FLUSH, LATENCY = range(5)


def compile_double(target: Path, *, extra: Sequence[str] = ()) -> None:
    flags = ("-std=c11", "-O1", "-g", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror")
    command = [build.compiler(), *flags, *extra, str(SOURCE), "-o", str(target)]
    subprocess.run(command, check=True, capture_output=True, text=True)


class Double:
    """libcupti as a test wants it."""

    def __init__(self, path: Path, version: str = "12.9") -> None:
        self.path = path
        self.library: Any = ctypes.CDLL(str(path))
        self.library.double_take.restype = ctypes.c_void_p
        self.library.double_flushes.restype = ctypes.c_uint64
        self.library.double_latency.restype = ctypes.c_uint64
        self.library.double_brought.restype = ctypes.c_uint64
        self.library.double_others_records.restype = ctypes.c_uint64
        for name in ("double_attribute", "double_late_attributes", "double_dirty_buffers"):
            getattr(self.library, name).restype = ctypes.c_size_t
        self.library.double_version(ctypes.c_uint32(VERSIONS[version]))
        for kind, length in LENGTHS[version].items():
            self.library.double_layout(ctypes.c_uint32(kind), ctypes.c_uint32(length))

    def address(self, name: str) -> int:
        return ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0

    def connect(
        self,
        decoder: ActivityDecoder,
        settings: NativeSettings = SMALL,
        walk: str = "",
        *,
        next_record: int = 0,
        now_ns: int = 0,
    ) -> None:
        """Open a decoder and register its callbacks, without the method.

        Args:
            decoder: The decoder.
            settings: Its memory.
            walk: The double's walk over records, by name.
            next_record: Address of another library's walk.
            now_ns: CUPTI's clock; 0 for unknown.
        """
        decoder.open(settings, next_record or self.address(walk or "cuptiActivityGetNextRecord"), now_ns)
        requested, completed = decoder.callback("kc_requested"), decoder.callback("kc_completed")
        self.library.cuptiActivityRegisterCallbacks(requested, completed)

    def bring(self, *shares: Sequence[bytes]) -> None:
        """Have each share of records brought by a thread of its own."""
        texts = [b"".join(share) for share in shares]
        sizes = (ctypes.c_size_t * len(texts))(*map(len, texts))
        assert self.library.double_bring(b"".join(texts), sizes, len(texts)) == 0

    def pace(self, records: bytes, *, span_ns: int, per_millisecond: int, milliseconds: int) -> None:
        """Have the records brought over and over by a thread of its own, each time `span_ns` later than before."""
        numbers = (ctypes.c_uint64(number) for number in (span_ns, per_millisecond, milliseconds))
        self._paced = ctypes.create_string_buffer(records, len(records))
        assert self.library.double_pace(self._paced, ctypes.c_size_t(len(records)), *numbers) == 0

    def hold(self, *records: bytes, incomplete: bool = False) -> None:
        """Have records wait in a buffer for a flush; with an incomplete one, for a forced one or `double_finish`."""
        text = b"".join(records)
        assert self.library.double_hold(text, ctypes.c_size_t(len(text)), int(incomplete)) == 0

    def attribute(self, number: int) -> int:
        return int(self.library.double_attribute(number))

    def enabled(self) -> set[int]:
        return {kind for kind in range(64) if self.library.double_enabled(ctypes.c_uint32(kind))}


def copied(path: Path, folder: Path) -> Path:
    """A library of one's own: the same file opened twice is one library."""
    folder.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy(path, folder / path.name))

"""The stacks of all threads as a file, for a person who looks for the place where a program stands still.

The probe's thread writes it when the exporter asks. It reads frames only: the program's own `faulthandler` timers and
signal handlers stay, and no source file is opened, which may be on the file system that does not answer. While another
thread holds the interpreter's lock, nothing can be written; the exporter says so.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from time import gmtime, strftime
from types import FrameType
from typing import Final

from kernelcast.wire.frames.left import UNFINISHED, stacks_directory

MODE: Final = 0o600
MAX_THREADS: Final = 256
MAX_FRAMES: Final = 200
_RECORDER_SIZES: Final = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_RECORDER_FILES: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
"""Environment of PyTorch's flight recorder; the older names of two."""


def write_stacks(socket_path: str, nonce: str, heading: str, environ: Mapping[str, str] = os.environ) -> None:
    """Write the stacks of this process, in place of an earlier file; without the exporter's directory, nothing.

    Args:
        socket_path: The exporter's socket.
        nonce: The process's nonce, which is the file's name.
        heading: First line: who it is.
        environ: The process's environment.
    """
    path = f"{stacks_directory(socket_path)}/{nonce}"
    temporary = path + UNFINISHED
    text = "\n".join((f"{heading}, {strftime('%Y-%m-%dT%H:%M:%SZ', gmtime())}", *_recorder(environ), *_threads(), ""))
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(temporary, flags, MODE), "wb") as file:  # noqa: PTH123  a descriptor
            file.write(text.encode(errors="replace"))
        os.rename(temporary, path)  # noqa: PTH104  without pathlib
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108  likewise


def _recorder(environ: Mapping[str, str]) -> Iterator[str]:
    """A line with the files of PyTorch's flight recorder, where it is on."""
    sizes = [environ[name] for name in _RECORDER_SIZES if environ.get(name)]
    if sizes and sizes[0] != "0":
        pattern = next((environ[name] for name in _RECORDER_FILES if environ.get(name)), "/tmp/nccl_trace_rank_")  # noqa: S108  PyTorch's own
        yield f"PyTorch's flight recorder is on; at a timeout it writes {pattern}RANK"


def _threads() -> Iterator[str]:
    known = dict(threading._active)  # type: ignore[attr-defined]  # noqa: SLF001  `enumerate` takes a lock
    for number, (thread, frame) in enumerate(sys._current_frames().items()):  # noqa: SLF001  no other way
        if number == MAX_THREADS:
            yield f"\nfurther threads: more than {MAX_THREADS}"
            return
        name = getattr(known.get(thread), "name", "not Python's own")
        yield f"\nThread {name} ({thread:#x}), innermost first:"
        yield from _stack(frame)


def _stack(frame: FrameType | None) -> Iterator[str]:
    for _ in range(MAX_FRAMES):
        if frame is None:
            return
        code = frame.f_code
        yield f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}'
        frame = frame.f_back

"""Totals of a process that has no exporter at the moment, in a file for the exporter's next start.

No method raises OSError; without the exporter's directory, or with too little space in it, nothing is written.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from kernelcast.probe.recording.recorder import Cell, Recorder
from kernelcast.wire.frames import Bye, Frame, Hello, KernelName, KernelRows, Names, VariantRows, encode
from kernelcast.wire.frames.left import MAX_LEFT_BYTES, UNFINISHED, join_packets, joined_bytes, left_directory

# The exporter reads a file of any user, and only root and the file's owner may change it.
MODE: Final = 0o644
# Space that other users of the file system, which is often that of /run, need more urgently.
LEAST_FREE_BYTES: Final = 128 * 2**20
# Kernels that are encoded together, if one of them has changed since the last time.
BATCH_KERNELS: Final = 64


@dataclass(slots=True)
class EncodedBatch:
    """Some kernels of a device as in the last file: their names, and the packets with the names and with the totals."""

    names: tuple[KernelName, ...]
    name_packets: list[bytes]
    row_packets: list[bytes]


class LeftReport:
    """The file of one process. Only the probe's thread uses it.

    Args:
        socket_path: The exporter's socket.
        recorder: Has the totals. Kernels in a file are marked as sent, and all as unsent for the next connection.
    """

    def __init__(self, socket_path: str, recorder: Recorder) -> None:
        self._directory = left_directory(socket_path)
        self._recorder = recorder
        self._batches: dict[tuple[int, int], EncodedBatch] = {}
        self._path = ""

    @property
    def possible(self) -> bool:
        """Whether there is a directory in which this process may create files, and space in it."""
        try:
            space = os.statvfs(self._directory)
        except (OSError, ValueError):
            return False
        has_space = space.f_bavail * space.f_frsize >= LEAST_FREE_BYTES
        return has_space and os.access(self._directory, os.W_OK | os.X_OK)

    def write(self, hello: Hello, further: Iterable[Frame], *, connected: bool, final: bool) -> bool:
        """Replace the file by one with the present totals.

        Args:
            hello: That of the process.
            further: Its frames besides those of kernels.
            connected: Whether there is a connection, over which unsent kernels are still to be sent.
            final: Whether the process ends.

        Returns:
            False if some totals were beyond the limit.
        """
        ends = list(encode(Bye())) if final else []
        room_bytes = MAX_LEFT_BYTES - sum(map(joined_bytes, ends))
        packets, complete = list[bytes](), True
        first = (packet for frame in (hello, *further) for packet in encode(frame))
        for packet in chain(first, self._kernels(connected=connected)):
            room_bytes -= joined_bytes(packet)
            if room_bytes < 0:
                complete = False
                break
            packets.append(packet)
        self._replace(hello.nonce, join_packets(packets + ends))
        return complete

    def forget(self) -> None:
        """Encode all kernels for the next file: those that a connection has sent are no longer marked as changed."""
        self._batches.clear()

    def remove(self) -> None:
        """Remove the file, if there is one: an exporter has the totals now."""
        if self._path:
            with contextlib.suppress(OSError):  # the exporter has removed it
                os.unlink(self._path)  # noqa: PTH108  without pathlib, which costs more than the call
            self._path = ""

    def _kernels(self, *, connected: bool) -> Iterator[bytes]:
        for device in self._recorder.devices():
            cells = self._recorder.cells(device)
            for start in range(0, len(cells), BATCH_KERNELS):
                batch = cells[start : start + BATCH_KERNELS]
                known = self._batches.get((device, start))
                if known is None or len(known.names) < len(batch) or any(cell.changed for cell in batch):
                    unsent = [cell for cell in batch if cell.changed]
                    known = self._batches[device, start] = self._encoded(device, batch, known)
                    if connected:
                        self._recorder.mark_unsent(unsent)
                yield from known.name_packets
                yield from known.row_packets

    def _encoded(self, device: int, batch: list[Cell], known: EncodedBatch | None) -> EncodedBatch:
        names = tuple(cell.name() for cell in batch)
        name_packets = known.name_packets if known and known.names == names else list(encode(Names(names)))
        self._recorder.mark_unsent(batch)  # with all of their variants
        rows = KernelRows(device, tuple(self._recorder.take(cell) for cell in batch))
        variants = VariantRows(device, self._recorder.take_variants(batch))
        return EncodedBatch(names, name_packets, [*encode(rows), *encode(variants)])

    def _replace(self, name: str, content: bytes) -> None:
        path = f"{self._directory}/{name}"
        temporary = path + UNFINISHED
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(temporary, flags, MODE), "wb", buffering=0) as file:  # noqa: PTH123  a descriptor
                os.fchmod(file.fileno(), MODE)  # whatever the program's umask
                rest = memoryview(content)
                while rest:
                    rest = rest[file.write(rest) :]
            os.rename(temporary, path)  # noqa: PTH104  likewise
            self._path = path
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108  likewise

"""Orders to stop all trials and searches: while one is in force, no value is tried.

A person creates the file `hints.stop`, which stops every program of the node. The exporter writes `hints.stopped` for
orders of `kernelcast hints stop`; it names the programs. `KERNELCAST_HINTS=off` stops one process.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from time import monotonic
from typing import Final

from kernelcast.wire.tuning.orders import ANY, LIFTED_BY, MAX_FILE_BYTES, STOPPED_FILE, reasons_in

NAME: Final = "hints.stop"
SWITCH: Final = "KERNELCAST_HINTS"
OFF: Final = ("off", "0", "no", "false")
# Shortest time between two reads of the disk and the environment, because every step asks.
READ_SECONDS: Final = 0.5


class StopOrders:
    """Reads the environment and the files, at most twice a second unless `now` is given. For any thread.

    Args:
        directories: Folders in which the files may be; empty names are left out.
        clock: Monotonic seconds.
        program: The program, as orders name it.
        environ: The environment of the process.
    """

    def __init__(
        self,
        directories: Iterable[str] = (),
        clock: Callable[[], float] = monotonic,
        *,
        program: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        folders = tuple(dict.fromkeys(one for one in directories if one))
        self._paths = tuple(str(Path(one) / NAME) for one in folders)
        self._ordered = tuple(str(Path(one) / STOPPED_FILE) for one in folders)
        self._program = program
        self._environ: Mapping[str, str] = {} if environ is None else environ
        self._clock = clock
        self._read_at = -READ_SECONDS
        self._reason = ""

    def reason(self, *, now: bool = False) -> str:
        """Return why nothing may be tried; empty if it may. `now`: read them in any case."""
        time = self._clock()
        if now or time - self._read_at >= READ_SECONDS:
            self._read_at = time
            self._reason = self._read()
        return self._reason

    def _read(self) -> str:
        switch = self._environ.get(SWITCH, "")
        if switch.strip().lower() in OFF:
            return f"{SWITCH} is {switch!r}: this process takes no hints"
        for path in self._paths:
            if os.path.exists(path):  # noqa: PTH110  cheaper by far
                return f"{path} exists: nothing is tried until it is removed"
        for path in self._ordered:
            if os.path.exists(path):  # noqa: PTH110  cheaper by far
                try:
                    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123  cheaper by far
                        reasons = reasons_in(file.read(MAX_FILE_BYTES))
                except FileNotFoundError:
                    continue
                except OSError as error:
                    return f"{path} cannot be read ({error.strerror}): nothing is tried until it can, or is removed"
                for program in (ANY, self._program):
                    if program in reasons:
                        return f"{reasons[program] or 'stopped'} ({path}); {LIFTED_BY}"
        return ""

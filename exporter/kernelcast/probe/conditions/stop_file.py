"""Files of the node that stop trials: while one exists, no value is tried.

A person creates `hints.stop`, which stops every program. The exporter writes `hints.stopped` for orders of
`kernelcast hints stop`; it names the programs.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from time import monotonic
from typing import Final

from kernelcast.wire.tuning.orders import ANY, LIFTED_BY, MAX_FILE_BYTES, STOPPED_FILE, reasons_in

NAME: Final = "hints.stop"
# Shortest time between two reads of the disk, because every step asks.
READ_SECONDS: Final = 0.5


class StopFile:
    """Reads the files, at most twice a second unless `now` is given. For any thread.

    Args:
        directories: Folders in which the files may be; empty names are left out.
        clock: Monotonic seconds.
        program: The program, as orders name it.
    """

    def __init__(
        self, directories: Iterable[str], clock: Callable[[], float] = monotonic, *, program: str = ""
    ) -> None:
        folders = tuple(dict.fromkeys(one for one in directories if one))
        self._paths = tuple(str(Path(one) / NAME) for one in folders)
        self._ordered = tuple(str(Path(one) / STOPPED_FILE) for one in folders)
        self._program = program
        self._clock = clock
        self._read_at = -READ_SECONDS
        self._reason = ""

    def reason(self, *, now: bool = False) -> str:
        """Return why nothing may be tried; empty if it may. `now`: read the disk in any case."""
        time = self._clock()
        if now or time - self._read_at >= READ_SECONDS:
            self._read_at = time
            found = next((path for path in self._paths if os.path.exists(path)), "")  # noqa: PTH110  cheaper by far
            self._reason = f"{found} exists: nothing is tried until it is removed" if found else self._order()
        return self._reason

    def _order(self) -> str:
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

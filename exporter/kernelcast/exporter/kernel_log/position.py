"""The position up to which the kernel's log was read, on disk, so that a restart neither misses nor repeats an XID.

`KernelLogSource` loads it at its start and saves it about once a minute.
"""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kernelcast.exporter.private_files import write_private
from kernelcast.runtime.logging import get_logger

VERSION: Final = 1
FILE_NAME: Final = "kernel_log.json"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Position:
    """Position up to which the kernel log was read.

    Attributes:
        boot_id: Id of the boot; sequence numbers restart with each boot.
        sequence: Sequence number of the last record whose XID was exposed.
    """

    boot_id: str
    sequence: int


class PositionFile:
    """A file with one position in the exporter's state directory.

    Args:
        directory: The exporter's state directory.
        boot_id: Id of the present boot.
    """

    def __init__(self, directory: Path, *, boot_id: str) -> None:
        self.path = directory / FILE_NAME
        self.boot_id = boot_id

    def load(self) -> Position | None:
        """The saved position; None where there is none, or it cannot be read."""
        try:
            return _position_in(json.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, OverflowError, ValueError, KeyError, TypeError) as error:
            _log.warning("position in the kernel's log cannot be read", path=str(self.path), reason=str(error))
            return None

    def save(self, position: Position) -> None:
        """Replace the saved position.

        Raises:
            OSError: It cannot be written.
        """
        temporary = self.path.with_suffix(".new")
        write_private(temporary, json.dumps({"version": VERSION, **asdict(position)}).encode())
        os.replace(temporary, self.path)  # noqa: PTH105  as Path.replace


def _position_in(found: Any) -> Position:
    if found["version"] != VERSION:
        raise ValueError(f"it has version {found['version']!r}; this exporter reads {VERSION}")
    return Position(str(found["boot_id"]), int(found["sequence"]))

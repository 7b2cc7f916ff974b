"""The journal of this machine, with the models of its GPUs and their driver; no library is loaded for them.

Source of the files: NVIDIA Linux driver README, chapter "The /proc interface".
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kernelcast.probe.process.driver import CPU
from kernelcast.tuning.journal import GivenKept, Journal, JournalMachine
from kernelcast.wire.frames import DeviceClaim

VERSION_FILE: Final = "/proc/driver/nvidia/version"
GPUS_FOLDER: Final = "/proc/driver/nvidia/gpus"
PROCESSORS_FILE: Final = "/proc/cpuinfo"
MAX_READ_BYTES: Final = 4096
MAX_GPUS: Final = 64
VERSION: Final = re.compile(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s")
GPU_MODEL: Final = re.compile(r"^Model:\s*(.+?)\s*$", re.MULTILINE)
PROCESSOR_MODEL: Final = re.compile(r"^model name\s*:\s*(.+?)\s*$", re.MULTILINE)


def driver_version(path: str = VERSION_FILE) -> str:
    """Return the version of the NVIDIA driver; empty where there is none."""
    found = VERSION.search(_beginning(Path(path)))
    return found.group(1) if found else ""


def device_models(folder: str = GPUS_FOLDER) -> str:
    """Return the different models of the machine's GPUs, sorted; empty where none can be seen."""
    try:
        files = sorted(Path(folder).glob("*/information"))[:MAX_GPUS]
    except OSError:
        return ""
    models = (GPU_MODEL.search(_beginning(file)) for file in files)
    return ", ".join(sorted({found.group(1) for found in models if found}))


def models_of(claims: tuple[DeviceClaim, ...]) -> str:
    """Return the different models of a process's devices; those of the machine where the process does not know them."""
    if CPU in claims:
        found = PROCESSOR_MODEL.search(_beginning(Path(PROCESSORS_FILE)))
        return f"CPU {found.group(1)}" if found else "CPU"
    return ", ".join(sorted({claim.model_name for claim in claims if claim.model_name})) or device_models()


def memory(
    folder: Path,
    program: str,
    devices: Callable[[], tuple[DeviceClaim, ...]],
    clock: Callable[[], int],
    given: GivenKept | None = None,
) -> Journal:
    """Return the journal of a program on this machine.

    Args:
        folder: Folder of the journals.
        program: The program.
        devices: Returns the devices of this process.
        clock: Unix nanoseconds.
        given: Kept configurations of another node.
    """
    return Journal(
        folder,
        program,
        clock=lambda: clock() / 1e9,
        machine=JournalMachine(lambda: models_of(devices()), driver_version()),
        given=given,
    )


def _beginning(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_READ_BYTES).decode(errors="replace")
    except OSError:
        return ""

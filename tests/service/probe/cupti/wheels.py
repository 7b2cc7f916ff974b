"""NVIDIA's libcupti from the wheels of wheels.txt: without a GPU it walks over records.

They are too large for each developer's .venv: `make .venv/cupti` downloads them, as CI and `make nightly` do.
"""

import ctypes
import os
import zipfile
from pathlib import Path

from tests.service.require import REPOSITORY, missing

from kernelcast.probe.cupti.library import Cupti

WHEELS = {"12.9": "nvidia_cuda_cupti_cu12-12.9.79-*.whl", "13.0": "nvidia_cuda_cupti-13.0.85-*.whl"}


def real_cupti(version: str, folder: Path) -> Cupti:
    """The library of a version, unpacked into a folder."""
    wheels = Path(os.environ.get("KERNELCAST_CUPTI_WHEELS", REPOSITORY / ".venv" / "cupti"))
    found = next(wheels.glob(WHEELS[version]), None)
    if found is None:
        missing(f"{wheels / WHEELS[version]}", "make .venv/cupti downloads it")
    with zipfile.ZipFile(found) as wheel:
        (library,) = (name for name in wheel.namelist() if "/libcupti.so." in name)
        return Cupti(ctypes.CDLL(wheel.extract(library, folder)))

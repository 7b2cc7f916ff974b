"""NVIDIA's libcupti from the wheels of wheels.txt: without a GPU it walks over records.

CI downloads them (`.ci/run`), as they are too large for each developer's .venv; to have them here:
`python -m pip download --no-deps --require-hashes --dest .venv/cupti -r tests/service/probe/cupti/wheels.txt`.
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
        missing(f"{wheels / WHEELS[version]}", f"download it as {Path(__file__).name} says")
    with zipfile.ZipFile(found) as wheel:
        (library,) = (name for name in wheel.namelist() if "/libcupti.so." in name)
        return Cupti(ctypes.CDLL(wheel.extract(library, folder)))

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.probe.cupti.double import EXTRA_FLAGS, Double, compile_double, copied

from kernelcast.probe.cupti import build
from kernelcast.probe.cupti.native import ActivityDecoder


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the decoder and the double, compiled here with every warning an error."""
    if not build.compiler():
        pytest.skip("no C compiler on this machine; install gcc or clang")
    folder = tmp_path_factory.mktemp("cupti")
    extra = os.environ.get(EXTRA_FLAGS, "").split()
    assert build.compile_library(folder / build.LIBRARY_NAME, extra=["-Werror", *extra]) == ""
    compile_double(folder / "libcupti_double.so", extra=extra)
    return folder


@pytest.fixture
def double(built: Path, tmp_path: Path) -> Double:
    return Double(copied(built / "libcupti_double.so", tmp_path))


@pytest.fixture
def decoder(built: Path, tmp_path: Path) -> Iterator[ActivityDecoder]:
    decoder = ActivityDecoder(copied(built / build.LIBRARY_NAME, tmp_path))
    yield decoder
    decoder.close()

"""The requirements of these tests: without them they skip, with the reason."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here carries the marker, so that `-m 'not gpu'` leaves them out."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("gpu")


@pytest.fixture
def nvml() -> Iterator[Any]:
    """NVML, initialised, on a machine that has a GPU."""
    try:
        module = importlib.import_module("pynvml")
    except ImportError:
        pytest.skip("pynvml is not installed: pip install 'kernelcast[exporter]'")
    try:
        module.nvmlInit()
    except module.NVMLError as error:
        pytest.skip(f"no NVIDIA GPU: {error}")
    try:
        if not module.nvmlDeviceGetCount():
            pytest.skip("the NVIDIA driver sees no GPU")
        yield module
    finally:
        module.nvmlShutdown()


@pytest.fixture
def cupy(nvml: Any) -> Any:
    """CuPy with a GPU that it can compute on; the test is about what CUDA and NVML say of the same GPU."""
    try:
        module = importlib.import_module("cupy")
    except ImportError:
        pytest.skip("CuPy is not installed: pip install 'kernelcast[cuda12]' or 'kernelcast[cuda13]'")
    if not module.cuda.is_available():
        pytest.skip("CuPy finds no GPU that it can use")
    return module

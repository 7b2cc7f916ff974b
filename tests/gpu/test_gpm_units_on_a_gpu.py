"""The unit of GPM's PCIe rates: NVML's header says MiB/s, DCGM passes it on as bytes; a known copy decides."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kernelcast.exporter.nvml.devices import boot_time_ns
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.source import NvmlSource

RECEIVED = "DCGM_FI_PROF_PCIE_RX_BYTES"
COPY_BYTES = 256 * 2**20
SECONDS = 4.0


class Copies:
    """Copies from pinned memory to the GPU, one after the other, on a thread."""

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self._host = cupy.cuda.alloc_pinned_memory(COPY_BYTES)
        self._device = cupy.cuda.alloc(COPY_BYTES)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.copied_bytes = 0

    @contextmanager
    def running(self) -> Iterator["Copies"]:
        """Copies while the block runs."""
        self._thread.start()
        try:
            yield self
        finally:
            self._stopping.set()
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._device.copy_from_host(self._host.ptr, COPY_BYTES)
            self.copied_bytes += COPY_BYTES


@pytest.fixture
def source(nvml: Any) -> Iterator[NvmlSource]:
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
        pytest.skip(f"{nvml.nvmlDeviceGetName(handle)} has no GPM: it needs Hopper or later")
    started = NvmlSource(Sampler(nvml), hostname="node1", boot_ns=boot_time_ns()).start()
    yield started
    started.close()


def received_bytes_per_second(source: NvmlSource) -> float:
    gpu = source.devices[0]
    for sample in source.poll(time.time_ns()).samples:
        if sample.metric.otlp_name == RECEIVED and dict(sample.attributes)["UUID"] == gpu.uuid:
            assert isinstance(sample.value, int | float)
            return sample.value
    raise AssertionError(f"{RECEIVED} is absent")


def test_a_known_copy_shows_as_its_bytes_per_second(cupy: Any, source: NvmlSource) -> None:
    with Copies(cupy).running() as copies:
        time.sleep(1.0)
        source.poll(time.time_ns())
        before_bytes, before = copies.copied_bytes, time.monotonic()
        time.sleep(SECONDS)
        reported = received_bytes_per_second(source)
        copied = (copies.copied_bytes - before_bytes) / (time.monotonic() - before)
    # Headers and flow control add some per cent to the payload; a wrong unit is wrong by a million.
    assert reported == pytest.approx(copied, rel=0.3), f"{reported:.4g} B/s reported while {copied:.4g} B/s were copied"

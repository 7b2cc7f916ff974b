"""Whether and how the node's GPUs are read: NVML there or not, dcgm-exporter there or not."""

import importlib
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

from kernelcast.exporter.nvml import ErrorListener, NvmlSource
from kernelcast.exporter.report import Batch
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.errors import DeviceError, MissingExtraError
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

DCGM_TIMEOUT_SECONDS: Final = 2.0
DCGM_MARK: Final = b"DCGM_FI_"
DCGM_READ_BYTES: Final = 256 * 1024

Fetch = Callable[[str], bytes]

_log = get_logger(__name__)


def load_pynvml() -> Any:
    """The pynvml module.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        raise MissingExtraError(
            "the Python package nvidia-ml-py is not installed; pip install 'kernelcast[exporter]', "
            "or set exporter.nvml to off"
        ) from None


def open_nvml(
    settings: ExporterSettings, *, hostname: str, on_error: ErrorListener, load: Callable[[], Any] = load_pynvml
) -> NvmlSource | None:
    """Find the node's GPUs as the settings ask; None where they are not to be read, or there are none.

    Raises:
        DeviceError: `exporter.nvml` is on, and NVML cannot be used.
        MissingExtraError: `exporter.nvml` is on, and pynvml is not installed.
    """
    if settings.nvml == "off":
        return None
    try:
        return NvmlSource(load(), hostname=hostname, boot_ns=boot_time_ns(), on_error=on_error).start()
    except (DeviceError, MissingExtraError) as error:
        if settings.nvml == "on":
            raise
        _log.info("no GPU metrics", reason=str(error))
        return None


def wants_samples(settings: ExporterSettings, *, fetch: Fetch | None = None) -> bool:
    """Whether device metrics are ours to write: with dcgm-exporter beside us every sum over GPUs would be doubled."""
    if settings.device_metrics != "auto":
        return settings.device_metrics == "on"
    try:
        there = DCGM_MARK in (fetch or _fetch)(settings.dcgm_exporter_url)
    except (OSError, ValueError, HTTPException):
        return True
    if there:
        _log.warning(
            "dcgm-exporter found; device metrics are left to it",
            url=settings.dcgm_exporter_url,
            remedy="set exporter.device_metrics to on to write them all the same",
        )
    return not there


class Unsampled:
    """GPUs that are known, so that programs can be told where they run, but not written.

    Args:
        source: Kept open, and polled so that it notices what comes and goes.
    """

    def __init__(self, source: NvmlSource) -> None:
        self._source = source

    def poll(self, now_ns: int) -> Batch:
        """Nothing."""
        self._source.poll(now_ns)
        return Batch()

    def close(self) -> None:
        """Release NVML."""
        self._source.close()


def boot_time_ns(stat: Path = Path("/proc/stat")) -> int:
    """When this machine started, Unix nanoseconds: to the second, and the same at each call.

    A difference of two clocks would not be: an exporter that restarts would move the start of the GPUs' counters a
    little back, and readers take what started earlier for outdated.
    0 where the system does not say. Source: proc_stat(5), `btime`.
    """
    fields = dict(line.split()[:2] for line in stat.read_text().splitlines() if line.startswith("btime "))
    return int(fields.get("btime", "0")) * NANOSECONDS_PER_SECOND


def _fetch(url: str) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url} is not a web address")
    with urllib.request.urlopen(url, timeout=DCGM_TIMEOUT_SECONDS) as response:  # noqa: S310  checked above
        body: bytes = response.read(DCGM_READ_BYTES)
        return body

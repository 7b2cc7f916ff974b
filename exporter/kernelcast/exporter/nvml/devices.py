"""Whether and how the node's GPUs are read: NVML there or not, dcgm-exporter there or not."""

import ssl
import threading
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Self
from urllib.error import HTTPError

from kernelcast.columnar import Sample
from kernelcast.exporter.nvml.counters_file import CountersFile
from kernelcast.exporter.nvml.isolation.isolated import PYNVML
from kernelcast.exporter.nvml.recordings.any_format import check_any
from kernelcast.exporter.nvml.source import ErrorListener, Looker, NvmlSource
from kernelcast.exporter.nvml.windows import EventCounts
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.catalogue.devices.gpu import GPU_UP, UP_LABELS
from kernelcast.wire.errors import ConfigurationError, DeviceError, MissingExtraError, TraceError
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND
from kernelcast.wire.identity import LIVE, REPLAYED, Device, Labels

DCGM_TIMEOUT_SECONDS: Final = 2.0
DCGM_LOOK_SECONDS: Final = 60.0
DCGM_MARK: Final = b"DCGM_FI_"
DCGM_READ_BYTES: Final = 256 * 1024
ASKS_WHO_WE_ARE: Final = (401, 403)
TLS_ONLY: Final = b"HTTP request to an HTTPS server"
"""What servers written in Go answer on a port where they speak TLS."""

Fetch = Callable[[str], bytes]

_log = get_logger(__name__)


def pynvml_for(settings: ExporterSettings) -> tuple[str, ...]:
    """The module that the NVML process loads: pynvml, or the player of a recording."""
    if settings.nvml_recording is None:
        return PYNVML
    return "kernelcast.exporter.nvml.recorded:open_recording", str(settings.nvml_recording)


def check_files(settings: ExporterSettings, *, warn: Callable[[str], None]) -> None:
    """Whether the counters table and the recording can be used.

    Args:
        settings: They name them.
        warn: Called for each row of the table that cannot be served.

    Raises:
        ConfigurationError: They cannot.
    """
    for warning in CountersFile(settings.counters_file).table.warnings:
        warn(warning)
    if settings.nvml_recording is not None:
        _require_pynvml()
        try:
            check_any(settings.nvml_recording)
        except TraceError as error:
            raise ConfigurationError(f"exporter.nvml_recording: {error}") from None


def open_nvml(
    settings: ExporterSettings,
    sampler: Looker,
    *,
    hostname: str,
    on_error: ErrorListener,
    counters: CountersFile | None = None,
) -> NvmlSource | None:
    """Find the node's GPUs as the settings ask; None where they are not to be read.

    With `auto`, a driver that is not there yet is looked for again.

    Raises:
        DeviceError: `exporter.nvml` is on, and NVML cannot be used.
        MissingExtraError: `exporter.nvml` is on, and pynvml is not installed.
    """
    if settings.nvml == "off":
        return None
    source = NvmlSource(
        sampler,
        hostname=hostname,
        boot_ns=boot_time_ns(),
        on_error=on_error,
        source=REPLAYED if settings.nvml_recording is not None else LIVE,
        counters=counters,
    )
    source.events = EventCounts(
        xid_window_seconds=settings.xid_count_window_seconds,
        clock_window_seconds=settings.clock_events_count_window_seconds,
    )
    try:
        _require_pynvml()
        return source.start()
    except MissingExtraError as error:
        if settings.nvml == "on":
            raise
        _log.info("no GPU metrics", reason=str(error))
        return None
    except DeviceError:
        if settings.nvml == "on":
            raise
        return source


def _require_pynvml() -> None:
    if find_spec("pynvml") is None:
        raise MissingExtraError(
            "the Python package nvidia-ml-py is not installed; pip install 'kernelcast[exporter]', "
            "or set exporter.nvml to off"
        )


class DcgmWatch:
    """Looks for a dcgm-exporter on this node, at once and then once a minute on a thread of its own.

    With one beside us every sum over GPUs would be doubled. Both start with the node, in any order, so one look is not
    enough. Use as a context manager.

    Args:
        url: Where it would answer.
        fetch: Gets a page.
    """

    def __init__(self, url: str, *, fetch: Fetch | None = None) -> None:
        self._url = url
        self._fetch = fetch or _fetch
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dcgm-watch", daemon=True)
        self.answers = False
        """Whether one answered when it was looked for last."""

    def __enter__(self) -> Self:
        self.look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(DCGM_TIMEOUT_SECONDS)

    def look(self) -> None:
        """Look once; a change is logged."""
        before = self.answers
        try:
            self.answers = DCGM_MARK in self._fetch(self._url)
        except (OSError, ValueError, HTTPException):
            self.answers = False
        if self.answers and not before:
            _log.warning(
                "dcgm-exporter found; device metrics are left to it",
                url=self._url,
                remedy="set exporter.device_metrics to on to write them all the same",
            )
        elif before and not self.answers:
            _log.warning("dcgm-exporter is gone; device metrics are written again", url=self._url)

    def _run(self) -> None:
        while not self._stopping.wait(DCGM_LOOK_SECONDS):
            self.look()


class DeviceMetrics:
    """Whether device metrics are written: as the settings ask, and with `auto` by whether a dcgm-exporter answers.

    Use as a context manager.

    Args:
        settings: The settings at the start.
        has_gpus: Whether there is anything to write; else no dcgm-exporter is looked for.
    """

    def __init__(self, settings: ExporterSettings, *, has_gpus: bool) -> None:
        self._asked = _asked(settings)
        self._has_gpus = has_gpus
        self._watch: DcgmWatch | None = None

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def change(self, settings: ExporterSettings) -> None:
        """Go on as other settings ask; takes as long as one look at a dcgm-exporter."""
        if self._asked != _asked(settings):
            self._end()
            self._asked = _asked(settings)
            self._begin()

    @property
    def off(self) -> str:
        """Reason why device metrics are not written: `setting` or `dcgm_exporter`; empty where they are."""
        if self._watch is not None:
            return "dcgm_exporter" if self._watch.answers else ""
        return "setting" if self._asked[0] == "off" else ""

    def _begin(self) -> None:
        wanted, url = self._asked
        if wanted == "auto" and self._has_gpus:
            self._watch = DcgmWatch(url).__enter__()

    def _end(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.__exit__()


def _asked(settings: ExporterSettings) -> tuple[str, str]:
    return settings.device_metrics, settings.dcgm_exporter_url


class KnownGpus:
    """Lists the node's GPUs for programs, whether or not device metrics are written.

    Args:
        source: Kept open, and polled so that it notices what comes and goes.
        written: Whether its samples are passed on, asked at each poll.
    """

    def __init__(self, source: NvmlSource, written: Callable[[], bool]) -> None:
        self._source = source
        self._written = written
        self._seen: dict[str, Labels] = {}

    def poll(self, now_ns: int) -> SourceBatch:
        """The samples, and which of the GPUs ever seen answered; or nothing."""
        batch = self._source.poll(now_ns)
        whole = [device for device in self._source.devices if not device.gi_id]
        unseen = [device for device in whole if device.uuid not in self._seen]
        self._seen |= {device.uuid: _up_labels(device, self._source.source) for device in unseen}
        if not self._written():
            return SourceBatch()
        present = {device.uuid for device in whole} if self._source.answers else ()
        up = (Sample(GPU_UP, labels, now_ns, int(uuid in present)) for uuid, labels in self._seen.items())
        return SourceBatch(samples=(*batch.samples, *up))

    def close(self) -> None:
        """Release NVML."""
        self._source.close()


def _up_labels(device: Device, source: str) -> Labels:
    return tuple((name, value) for name, value in device.device_labels(source) if name in UP_LABELS)


def boot_id(file: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """This machine's boot id, the same in all its containers until it is started again; empty where there is none."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def boot_time_ns(stat: Path = Path("/proc/stat")) -> int:
    """Start time of this machine, Unix nanoseconds: exact to the second, and the same at each call.

    A difference of two clocks would not be: an exporter that restarts would move the start of the GPUs' counters a
    little back, and readers take what started earlier for outdated.
    0 where the system does not say. Source: proc_stat(5), `btime`.
    """
    fields = dict(line.split()[:2] for line in stat.read_text().splitlines() if line.startswith("btime "))
    return int(fields.get("btime", "0")) * NANOSECONDS_PER_SECOND


def _fetch(url: str) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url} is not a web address")
    try:
        return _page(url)
    except HTTPError as refusal:
        with refusal:
            if refusal.code in ASKS_WHO_WE_ARE:
                # We have no password for it, and no other check would guard this address.
                return DCGM_MARK
            if TLS_ONLY not in refusal.read(DCGM_READ_BYTES):
                raise
        return _page(url.replace("http://", "https://", 1))


def _page(url: str) -> bytes:
    # Nothing is believed but that it is there, and its certificate is often its own.
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    with urllib.request.urlopen(url, timeout=DCGM_TIMEOUT_SECONDS, context=unverified) as response:  # noqa: S310  checked
        body: bytes = response.read(DCGM_READ_BYTES)
        return body

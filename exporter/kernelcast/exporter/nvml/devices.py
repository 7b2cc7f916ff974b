"""Opens NVML where the settings ask for it and the node has it, and lists the node's GPUs.

The daemon's assembly calls `open_nvml` and makes `KnownGpus`; `boot_id` and `boot_time_ns` are used
by several sources.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from importlib.util import find_spec
from pathlib import Path

from kernelcast.columnar import EndedSeries, Sample
from kernelcast.exporter.nvml.counters_file import CountersFile
from kernelcast.exporter.nvml.isolation.isolated import PYNVML
from kernelcast.exporter.nvml.presence import has_gpu
from kernelcast.exporter.nvml.recordings.any_format import check_any
from kernelcast.exporter.nvml.sampling.inventory import GPUS, is_bound
from kernelcast.exporter.nvml.source import ErrorListener, GpuSampler, NvmlSource
from kernelcast.exporter.nvml.windows import EventCounts
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.catalogue.devices.gpu import GPU_DETACHED, GPU_UP, RELEASED, REMOVED, UP_LABELS
from kernelcast.wire.errors import ConfigurationError, DeviceError, MissingExtraError, TraceError
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND
from kernelcast.wire.identity import LIVE, REPLAYED, Device

_log = get_logger(__name__)


def pynvml_for(settings: ExporterSettings) -> tuple[str, ...]:
    """Return the module that the NVML process loads: pynvml, or the player of a recording; see `worker.load`."""
    if settings.nvml_recording is None:
        return PYNVML
    return "kernelcast.exporter.nvml.recorded:open_recording", str(settings.nvml_recording)


def check_files(settings: ExporterSettings, *, warn: Callable[[str], None]) -> None:
    """Check that the counters table and the recording can be used.

    Args:
        settings: The daemon's settings, with the paths of both.
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
    sampler: GpuSampler,
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
    if settings.naming == "both":
        source.name_as_opentelemetry()
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
        (_log.warning if has_gpu() else _log.info)("no GPU metrics", reason=str(error))
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


class KnownGpus:
    """Lists the node's GPUs for programs, whether or not device metrics are written.

    A GPU that was seen and does not answer is down, unless it was taken away on purpose: it is released, or the driver
    does not list it any more while all that it lists answer.

    Args:
        source: Polled at each interval even if nothing is written, because programs' frames are matched to its devices.
        written: Returns whether its samples are passed on; called at each poll.
        gpus: The driver's directory of GPUs.
    """

    def __init__(self, source: NvmlSource, written: Callable[[], bool], *, gpus: Path = GPUS) -> None:
        self._source = source
        self._written = written
        self._directory = gpus
        self._seen: dict[str, Device] = {}
        self._removed: set[str] = set()
        self._ended: EndedSeries[str] = EndedSeries()

    def poll(self, now_ns: int) -> SourceBatch:
        """Return the samples, and for each GPU ever seen whether it answered; nothing if device metrics are off."""
        batch = self._source.poll(now_ns)
        whole = {device.uuid: device for device in self._source.devices if not device.gi_id}
        self._seen |= {uuid: device for uuid, device in whole.items() if uuid not in self._seen}
        self._note_removed(whole.keys())
        if not self._written():
            return SourceBatch()
        states = [self._state(device, whole.keys(), now_ns) for device in self._seen.values()]
        return SourceBatch(samples=(*batch.samples, *self._ended.complete("", states, now_ns)))

    def close(self) -> None:
        """Release NVML."""
        self._source.close()

    def _note_removed(self, present: AbstractSet[str]) -> None:
        """Note which GPUs have left the driver's list in order; one that fell off the bus is missing instead."""
        reading = self._source.reading
        if not self._source.answers or reading is None:
            return
        self._removed -= present
        if reading.all_answer:
            gone = self._seen.keys() - present - set(reading.missing) - set(reading.released)
            self._removed |= {uuid for uuid in gone if not is_bound(self._seen[uuid].pci_bus_id, self._directory)}

    def _state(self, device: Device, present: AbstractSet[str], now_ns: int) -> Sample:
        """The sample that says whether a GPU answers, or why it is not expected to."""
        own = tuple(pair for pair in device.device_labels(self._source.source) if pair[0] in UP_LABELS)
        reading = self._source.reading
        released = reading is not None and device.uuid in reading.released
        if released or device.uuid in self._removed:
            reason = RELEASED if released else REMOVED
            return Sample(GPU_DETACHED, tuple(sorted((*own, ("reason", reason)))), now_ns, 1)
        return Sample(GPU_UP, own, now_ns, int(self._source.answers and device.uuid in present))


def boot_id(file: Path = Path("/proc/sys/kernel/random/boot_id")) -> str:
    """This machine's boot id, the same in all its containers until it is started again; empty where there is none."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def boot_time_ns(stat: Path = Path("/proc/stat")) -> int:
    """Return the boot time of this machine, Unix nanoseconds: exact to the second, and the same at each call.

    The difference of two clocks would vary: an exporter that restarts would move the start of the GPUs' counters a
    little back, and readers reject a series that starts earlier as outdated.
    0 if the system does not give it. Source: proc_stat(5), `btime`.
    """
    try:
        lines = stat.read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("btime ")), 0) * NANOSECONDS_PER_SECOND

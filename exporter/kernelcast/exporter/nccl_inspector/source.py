"""NCCL Inspector's files as a source of the daemon: a thread reads the folder, `poll` returns its last reading."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry

from kernelcast.columnar import EndedSeries, Sample
from kernelcast.exporter.background_value import Refreshed, RefreshPolicy
from kernelcast.exporter.nccl_inspector.files import FileReading, InspectorFolder
from kernelcast.exporter.programs.devices import DeviceResolver
from kernelcast.exporter.settings import ExporterSettings, NcclInspectorSettings
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.runtime.instruments import counter
from kernelcast.wire.catalogue import exporter as rows
from kernelcast.wire.catalogue.devices import nccl
from kernelcast.wire.frames import DeviceClaim
from kernelcast.wire.identity import Device, labels

NAME: Final = "nccl inspector"
STALE_INTERVALS: Final = 3
"""Intervals of the plugin after which its values are no longer shown."""


class NcclInspectorSource:
    """Reads the plugin's files; `poll` never waits. The daemon's thread calls it; a thread of its own reads.

    Args:
        settings: The folder and the plugin's interval.
        devices: Finds the GPU of a UUID.
        interval_seconds: Time between two polls.
        on_error: Called once for each reading of the folder that failed, and for each line that was left out.
        clock: Unix nanoseconds.
    """

    def __init__(
        self,
        settings: NcclInspectorSettings,
        devices: DeviceResolver,
        *,
        interval_seconds: float,
        on_error: Callable[[int], None],
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        assert settings.directory is not None  # noqa: S101  there is no source without
        stale_seconds = STALE_INTERVALS * settings.interval_seconds
        self._folder = InspectorFolder(settings.directory, stale_seconds)
        self._devices = devices
        self._clock = clock
        self._on_error = on_error
        self._told: dict[str, int] = {}
        self._ended: EndedSeries[str] = EndedSeries()
        pace = RefreshPolicy(interval_seconds, stale_seconds)
        self._reading = Refreshed[tuple[FileReading, ...]](
            NAME, self._read, (), pace=pace, on_error=lambda _source: on_error(1)
        )

    def start(self) -> "NcclInspectorSource":
        """Start the reading thread."""
        self._reading.start()
        return self

    def refresh(self) -> None:
        """Read once, now, on the caller's thread."""
        self._reading.refresh()

    def poll(self, now_ns: int) -> SourceBatch:
        """Return every value as of the last reading, and a last sample without value of ended series."""
        files = self._reading.value
        self._reading.soon()
        samples = [sample for file in files for sample in self._samples(file)]
        return SourceBatch(samples=tuple(self._ended.complete("", samples, now_ns)))

    def close(self) -> None:
        """Read no more; safe to call twice."""
        self._reading.close()

    def _read(self) -> tuple[FileReading, ...]:
        files = self._folder.read(self._clock())
        for file in files:
            if file.refused and self._told.get(file.uuid) != file.written_ns:
                self._on_error(file.refused)
        self._told = {file.uuid: file.written_ns for file in files}
        return files

    def _samples(self, file: FileReading) -> Iterator[Sample]:
        device = self._devices(DeviceClaim(uuid=f"GPU-{file.uuid}", gpu=""))
        for operation in file.operations:
            metric = nccl.OPERATION if operation.is_time else nccl.BUS_BANDWIDTH
            own = labels(**device.join_labels(), **dict(operation.labels))
            yield Sample(metric, own, file.written_ns, operation.value)


def nccl_inspector_source(
    settings: ExporterSettings,
    *,
    hostname: str,
    registry: CollectorRegistry,
    devices: Callable[[], Sequence[Device]],
) -> NcclInspectorSource | None:
    """Return a started source; None without a folder.

    Args:
        settings: The daemon's settings.
        hostname: Name of the node in samples.
        registry: The exporter's own metrics.
        devices: Gives those that NVML lists now.
    """
    errors = counter(rows.NCCL_INSPECTOR_ERRORS, registry)  # registered in either case, so that it is exposed as 0
    if settings.nccl_inspector.directory is None:
        return None
    return NcclInspectorSource(
        settings.nccl_inspector,
        DeviceResolver(hostname, devices),
        interval_seconds=settings.interval_seconds,
        on_error=errors.inc,
    ).start()

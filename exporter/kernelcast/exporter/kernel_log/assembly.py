"""The kernel's log for the daemon: from its settings, with its own metrics."""

from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from kernelcast.exporter.kernel_log.position import PositionFile
from kernelcast.exporter.kernel_log.reader import KernelLog
from kernelcast.exporter.kernel_log.source import KernelLogSource, LogCounts, NodeGpus
from kernelcast.exporter.nvml.devices import boot_id
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.instruments import counter
from kernelcast.wire.catalogue import exporter as rows
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.identity import Device


def check(settings: ExporterSettings) -> None:
    """Whether the settings go together.

    Raises:
        ConfigurationError: The log is to be read, and the position in it cannot be kept.
    """
    if settings.kernel_log == "on" and settings.state_directory is None:
        raise ConfigurationError(
            "exporter.kernel_log is on and exporter.state_directory is null; the position in the log is kept there: "
            "give a directory, or set exporter.kernel_log to off"
        )


def kernel_log_source(
    settings: ExporterSettings,
    *,
    hostname: str,
    registry: CollectorRegistry,
    devices: Callable[[], Sequence[Device]],
) -> KernelLogSource | None:
    """The kernel's log, read from now on; None where it is not to be read.

    Raises:
        ConfigurationError: As `check`.
    """
    check(settings)
    errors = counter(rows.KERNEL_LOG_ERRORS, registry)
    lost = counter(rows.KERNEL_LOG_LOST, registry)
    if settings.kernel_log == "off" or settings.state_directory is None:
        return None
    return KernelLogSource(
        KernelLog(),
        PositionFile(settings.state_directory, boot_id=boot_id()),
        gpus=NodeGpus(hostname, devices),
        counts=LogCounts(error=lambda _source: errors.inc(), lost=lost.inc),
        interval_seconds=settings.interval_seconds,
    ).start()

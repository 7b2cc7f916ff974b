"""Makes the source of XIDs from the kernel's log from the daemon's settings.

`command.py` calls `check` at start and reload; the daemon's assembly calls `kernel_log_source` and polls the source.
"""

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
    """Check that the settings fit together.

    Raises:
        ConfigurationError: The log is to be read, and there is no directory for the position in it.
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
    """Return a started source; None where the setting is off.

    Raises:
        ConfigurationError: See `check`.
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

"""The InfiniBand source for the daemon: from its settings, with its own metrics."""

from prometheus_client import CollectorRegistry

from kernelcast.exporter.infiniband.source import InfinibandSource
from kernelcast.exporter.nvml.devices import boot_time_ns
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.instruments import counter
from kernelcast.wire.catalogue import exporter as rows


def infiniband_source(
    settings: ExporterSettings, *, hostname: str, registry: CollectorRegistry
) -> InfinibandSource | None:
    """This node's ports, read from now on; None where they are not to be read."""
    errors = counter(rows.INFINIBAND_ERRORS, registry)
    if settings.infiniband == "off":
        return None
    return InfinibandSource(
        hostname=hostname,
        boot_ns=boot_time_ns(),
        interval_seconds=settings.interval_seconds,
        on_error=lambda _source: errors.inc(),
        sysfs=settings.infiniband_directory,
    ).start()

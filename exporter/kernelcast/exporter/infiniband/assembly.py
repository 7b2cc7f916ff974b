"""Makes the InfiniBand source from the daemon's settings; the daemon's assembly calls it and polls the source."""

from prometheus_client import CollectorRegistry

from kernelcast.exporter.infiniband.source import InfinibandSource
from kernelcast.exporter.nvml.devices import boot_time_ns
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.instruments import counter
from kernelcast.wire.catalogue import exporter as rows


def infiniband_source(
    settings: ExporterSettings, *, hostname: str, registry: CollectorRegistry
) -> InfinibandSource | None:
    """Return a started source of this node's ports; None where the setting is off."""
    errors = counter(rows.INFINIBAND_ERRORS, registry)  # registered in either case, so that it is exposed as 0
    if settings.infiniband == "off":
        return None
    return InfinibandSource(
        hostname=hostname,
        boot_ns=boot_time_ns(),
        interval_seconds=settings.interval_seconds,
        on_error=lambda _source: errors.inc(),
        sysfs=settings.infiniband_directory,
    ).start()

"""The TPU source for the daemon: from its settings, with its own metrics."""

from prometheus_client import CollectorRegistry

from kernelcast.exporter.settings import ExporterSettings
from kernelcast.exporter.tpu.chips import UNKNOWN, ports_of, tpu_model
from kernelcast.exporter.tpu.reader import ERRORS
from kernelcast.exporter.tpu.source import TpuSource
from kernelcast.runtime.instruments import counter
from kernelcast.wire.catalogue import exporter as rows


def tpu_source(settings: ExporterSettings, *, hostname: str, registry: CollectorRegistry) -> TpuSource | None:
    """This node's TPUs, asked from now on; None where they are not to be read, or there are none.

    Raises:
        MissingExtraError: There are TPUs, or `exporter.tpu` is on, and grpcio is not installed.
    """
    errors = counter(rows.TPU_ERRORS, registry)
    by_reason = {reason: errors.labels(reason) for reason in ERRORS}
    model = tpu_model() if settings.tpu != "off" else ""
    if settings.tpu == "off" or (settings.tpu == "auto" and not model):
        return None
    return TpuSource(
        settings.tpu_ports or ports_of(),
        hostname=hostname,
        model=model or UNKNOWN,
        interval_seconds=settings.interval_seconds,
        on_error=lambda reason: by_reason[reason].inc(),
    ).start()

"""Makes the TPU source from the daemon's settings; the daemon's assembly calls it and polls the source."""

from prometheus_client import CollectorRegistry

from kernelcast.exporter.settings import ExporterSettings
from kernelcast.exporter.tpu.chips import UNKNOWN, ports_of, tpu_model
from kernelcast.exporter.tpu.reader import ERRORS
from kernelcast.exporter.tpu.source import TpuSource
from kernelcast.runtime.instruments import counter
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.catalogue import exporter as rows
from kernelcast.wire.errors import MissingExtraError

_log = get_logger(__name__)


def tpu_source(settings: ExporterSettings, *, hostname: str, registry: CollectorRegistry) -> TpuSource | None:
    """Return a started source of this node's TPUs; None where the setting is off, or there are none.

    Raises:
        MissingExtraError: `exporter.tpu` is on, and grpcio is not installed.
    """
    errors = counter(rows.TPU_ERRORS, registry)
    by_reason = {reason: errors.labels(reason) for reason in ERRORS}
    model = tpu_model() if settings.tpu != "off" else ""
    if settings.tpu == "off" or (settings.tpu == "auto" and not model):
        return None
    try:
        source = TpuSource(
            settings.tpu_ports or ports_of(),
            hostname=hostname,
            model=model or UNKNOWN,
            interval_seconds=settings.interval_seconds,
            on_error=lambda reason: by_reason[reason].inc(),
        )
    except MissingExtraError as error:
        if settings.tpu == "on":
            raise
        _log.warning("no TPU metrics", reason=str(error))
        return None
    return source.start()

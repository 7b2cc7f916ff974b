"""Attribution for the daemon: from its settings, with its own metrics."""

from collections.abc import Iterable, Sequence
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kernelcast.exporter.attribution.attribution import SOURCES, Attribution, AttributionSettings
from kernelcast.exporter.refreshed import Refreshed
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.instruments import counter
from kernelcast.wire.catalogue import exporter as rows


def attribution(settings: ExporterSettings, registry: CollectorRegistry) -> Attribution:
    """Who uses this node's GPUs; enter it to begin.

    Raises:
        MissingExtraError: `exporter.kubernetes` is on, and grpcio is not installed.
    """
    errors = counter(rows.ATTRIBUTION_ERRORS, registry)
    by_source = {source: errors.labels(source) for source in SOURCES}
    made = Attribution(
        AttributionSettings(
            kubernetes=settings.kubernetes,
            socket=settings.pod_resources_socket,
            shared_gpus=settings.kubernetes_virtual_gpus,
            job_directory=settings.job_mapping_directory,
        ),
        on_error=lambda source: by_source[source].inc(),
    )
    registry.register(Ages(made.refreshed))
    return made


class Ages(Collector):
    """The age of what each source said last; a source that never answered has none."""

    def __init__(self, sources: Sequence[Refreshed[Any]]) -> None:
        self._sources = sources

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """One sample for each source."""
        row = rows.ATTRIBUTION_AGE
        family = GaugeMetricFamily(row.prometheus_name, row.help, labels=row.labels)
        for source in self._sources:
            age = source.age_seconds
            if age is not None:
                family.add_metric([source.source], age)
        yield family

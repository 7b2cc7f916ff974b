"""Attribution for the daemon: from its settings, with its own metrics."""

import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kernelcast.exporter.attribution.api_server import ApiServer
from kernelcast.exporter.attribution.attribution import OFF, SOURCES, AttributedGpu, Attribution, AttributionSettings
from kernelcast.exporter.background_value import Refreshed
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.instruments import counter
from kernelcast.wire.catalogue import exporter as rows


class CurrentUsers:
    """Attribution of this node's GPUs by the present settings. Use as a context manager.

    Args:
        settings: The settings at the start.
        registry: Registry of attribution's own metrics.

    Raises:
        MissingExtraError: `exporter.kubernetes` is on, and grpcio is not installed.
    """

    def __init__(self, settings: ExporterSettings, registry: CollectorRegistry) -> None:
        errors = counter(rows.ATTRIBUTION_ERRORS, registry)
        self._errors = {source: errors.labels(source) for source in SOURCES}
        self._places = _places(settings)
        self._now = self._attribution(self._places)
        registry.register(Ages(lambda: self._now.refreshed))

    def __enter__(self) -> Self:
        self._now.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._now.__exit__()

    def change(self, settings: ExporterSettings) -> None:
        """Use other settings: waits up to a second for first answers, and two for each old source that hangs.

        Raises:
            MissingExtraError: `exporter.kubernetes` is on, and grpcio is not installed; nothing has changed.
        """
        places = _places(settings)
        if places == self._places:
            return
        before, self._now = self._now, self._attribution(places).__enter__()
        self._places = places
        before.__exit__()

    def refresh(self) -> None:
        """See `Attribution.refresh`."""
        self._now.refresh()

    def users_of(self, gpu: AttributedGpu) -> tuple[Mapping[str, str], ...]:
        """See `Attribution.users_of`."""
        return self._now.users_of(gpu)

    def labels_for(self, gpu: AttributedGpu) -> tuple[Mapping[str, str], ...]:
        """See `Attribution.labels_for`."""
        return self._now.labels_for(gpu)

    def owners_of(self, gpu: AttributedGpu) -> tuple[Mapping[str, str], ...]:
        """See `Attribution.owners_of`."""
        return self._now.owners_of(gpu)

    def process_labels(self, gpu: AttributedGpu, pid: int) -> Mapping[str, str]:
        """See `Attribution.process_labels`."""
        return self._now.process_labels(gpu, pid)

    def labels_of_pid(self, gpu: AttributedGpu, pid: int) -> Mapping[str, str]:
        """See `Attribution.labels_of_pid`."""
        return self._now.labels_of_pid(gpu, pid)

    def image_of_pid(self, pid: int) -> str:
        """See `Attribution.image_of_pid`."""
        return self._now.image_of_pid(pid)

    def _attribution(self, places: AttributionSettings) -> Attribution:
        return Attribution(places, on_error=lambda source: self._errors[source].inc())


def _places(settings: ExporterSettings) -> AttributionSettings:
    if settings.attribution == OFF:  # nothing is asked, but for images, which are no labels of a GPU
        kubernetes = settings.kubernetes if settings.kubernetes_images else "off"
        api_server = _api_server(settings) if settings.kubernetes_images else None
        return AttributionSettings(
            form=OFF, kubernetes=kubernetes, api_server=api_server, images=settings.kubernetes_images
        )
    return AttributionSettings(
        form=settings.attribution,
        kubernetes=settings.kubernetes,
        socket=settings.pod_resources_socket,
        shared_gpus=settings.kubernetes_virtual_gpus,
        job_directory=settings.job_mapping_directory,
        api_server=_api_server(settings),
        pod_label_patterns=settings.kubernetes_pod_label_allowlist_regex,
        images=settings.kubernetes_images,
        pod_uids=settings.kubernetes_pod_uid,
        slices=settings.kubernetes_resource_slices,
    )


def _api_server(settings: ExporterSettings) -> ApiServer | None:
    asks_for_pods = settings.kubernetes_pod_label_allowlist_regex or settings.kubernetes_images
    if not asks_for_pods and not settings.kubernetes_resource_slices:
        return None
    return ApiServer(settings.kubernetes_node_name or settings.hostname or platform.node(), settings.kubernetes_api_url)


class Ages(Collector):
    """The age of each source's last answer, and the age up to which it is used; none before the first answer."""

    def __init__(self, sources: Callable[[], Sequence[Refreshed[Any]]]) -> None:
        self._sources = sources

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Two samples for each source."""
        ages, kept = (
            GaugeMetricFamily(row.prometheus_name, row.help, labels=row.labels)
            for row in (rows.ATTRIBUTION_AGE, rows.ATTRIBUTION_KEPT)
        )
        for source in self._sources():
            age = source.age_seconds
            if age is not None:
                ages.add_metric([source.source], age)
                kept.add_metric([source.source], source.keep_seconds)
        yield from (ages, kept)

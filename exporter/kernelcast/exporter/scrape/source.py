"""Pages of engines and of other vendors' exporters as a source: a thread reads them, `poll` returns the last one."""

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry

from kernelcast.columnar import EndedSeries, Sample
from kernelcast.exporter.attribution.api_server import ApiServer
from kernelcast.exporter.attribution.pod_labels import PodLabelReader
from kernelcast.exporter.background_value import Refreshed, RefreshPolicy
from kernelcast.exporter.counter_starts import KeyedStarts
from kernelcast.exporter.scrape.fetch import Fetch, PageTarget, fetch
from kernelcast.exporter.scrape.gpus import NodeGpu, gpus_of, listener
from kernelcast.exporter.scrape.page import EnginePage, read_page
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.runtime.instruments import counter
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.catalogue import Kind, Metric, inference
from kernelcast.wire.catalogue import exporter as rows
from kernelcast.wire.catalogue.devices import accelerator
from kernelcast.wire.cloudevents import NANOSECONDS
from kernelcast.wire.errors import PageError
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Labels, labels

NAME: Final = "scrape"
MAX_TARGETS: Final = 64
"""Pages of a node."""
KEPT_INTERVALS: Final = 3
PODS_SECONDS: Final = 60.0
"""Between two lists of the node's pods."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Reading:
    time_ns: int
    target: PageTarget
    page: EnginePage
    gpus: tuple[NodeGpu, ...]


class ScrapeSource:
    """Reads pages of engines; `poll` never waits. The daemon's thread calls it; a thread of its own reads.

    Args:
        targets: Returns the pages to read; may block.
        gpus: Returns the node's GPUs with their users.
        hostname: The node's name.
        interval_seconds: Time between two polls.
        on_error: Called once for each page, and each list of pods, that could not be read.
        get: Gets a page.
    """

    def __init__(
        self,
        targets: Callable[[], Sequence[PageTarget]],
        gpus: Callable[[], Sequence[NodeGpu]],
        *,
        hostname: str,
        interval_seconds: float,
        on_error: Callable[[], None],
        get: Fetch = fetch,
    ) -> None:
        self._targets = targets
        self._gpus = gpus
        self._hostname = hostname
        self._on_error = on_error
        self._get = get
        self._starts = KeyedStarts()
        self._last: dict[str, _Reading] = {}
        self._keep_ns = round(KEPT_INTERVALS * interval_seconds * NANOSECONDS)
        self._troubles: dict[str, str] = {}
        self._ended: EndedSeries[str] = EndedSeries()
        pace = RefreshPolicy(interval_seconds, KEPT_INTERVALS * interval_seconds + 60)
        self._reading = Refreshed[tuple[_Reading, ...]](
            NAME, self._read, (), pace=pace, on_error=lambda _source: on_error()
        )

    def start(self) -> "ScrapeSource":
        """Start the reading thread."""
        self._reading.start()
        return self

    def refresh(self) -> None:
        """Read once, now, on the caller's thread."""
        self._reading.refresh()

    def poll(self, now_ns: int) -> SourceBatch:
        """Return every value as of the last reading, and a last sample without value of ended series."""
        readings = self._reading.value
        self._reading.soon()
        samples = [sample for reading in readings for sample in self._samples(reading)]
        return SourceBatch(samples=tuple(self._ended.complete("", samples, now_ns)))

    def close(self) -> None:
        """Read no more; safe to call twice."""
        self._reading.close()

    def _read(self) -> tuple[_Reading, ...]:
        targets = {target.url: target for target in self._targets()}
        gpus = self._gpus()
        readings = dict[str, _Reading]()
        for url, target in [*targets.items()][:MAX_TARGETS]:
            time_ns = time.time_ns()
            try:
                page = read_page(self._get(url))
            except PageError as error:
                self._failed(target, str(error))
                before = self._last.get(url)
                if before is not None and time_ns - before.time_ns < self._keep_ns:
                    readings[url] = before
                continue
            self._troubles.pop(url, None)
            users = gpus_of(gpus, listener(target.port), dict(target.labels))
            readings[url] = _Reading(time_ns, target, page, users)
        self._last = readings
        return tuple(readings.values())

    def _failed(self, target: PageTarget, trouble: str) -> None:
        self._on_error()
        if len(self._troubles) > MAX_TARGETS:
            self._troubles.clear()
        if self._troubles.get(target.url) != trouble:
            _log.warning("page of an engine cannot be read", url=target.url, reason=trouble)
        self._troubles[target.url] = trouble

    def _samples(self, reading: _Reading) -> Iterator[Sample]:
        base = {"Hostname": self._hostname, "address": reading.target.address, **dict(reading.target.labels)}
        servers = set[tuple[str, str]]()
        for (row, own), value in reading.page.values.items():
            known = dict(own)
            if row in accelerator.ROWS:
                # The page's own address and pod are the exporter's, not those of who uses the device.
                device = labels(Hostname=self._hostname, **known)
                yield Sample(row, device, reading.time_ns, value, self._start_ns(row, device, value, reading))
                continue
            whole = labels(**base, **known)
            servers.add((known.get(inference.SERVER, ""), known.get(inference.MODEL, "")))
            start_ns = self._start_ns(row, whole, value, reading)
            if start_ns and 0 < reading.page.started_ns <= reading.time_ns:
                start_ns = reading.page.started_ns
            yield Sample(row, whole, reading.time_ns, value, start_ns, detailed=isinstance(value, DurationTotals))
        for gpu in reading.gpus:
            for server, model in sorted(servers):
                place = labels(
                    **base, UUID=gpu.uuid, gpu=gpu.index, GPU_I_ID=gpu.gi_id, server=server, model_name=model
                )
                yield Sample(inference.GPU_INFO, place, reading.time_ns, 1)

    def _start_ns(self, row: Metric, own: Labels, value: float | DurationTotals, reading: _Reading) -> int:
        """The time since which a counter counts, as far as it was seen; 0 for a gauge."""
        if row.kind not in {Kind.COUNTER, Kind.HISTOGRAM}:
            return 0
        count = value.count if isinstance(value, DurationTotals) else value
        return self._starts((row.otlp_name, own), count, reading.time_ns)


def scrape_source(
    settings: ExporterSettings,
    *,
    hostname: str,
    registry: CollectorRegistry,
    gpus: Callable[[], Sequence[NodeGpu]],
) -> ScrapeSource | None:
    """Return a started source; None where the settings name no page.

    Args:
        settings: The daemon's settings.
        hostname: Name of the node in samples.
        registry: The exporter's own metrics.
        gpus: Gives the GPUs that NVML lists now, with their users.
    """
    errors = counter(rows.SCRAPE_ERRORS, registry)  # registered in either case, so that it is exposed as 0
    if not settings.scrape.urls and settings.scrape.pods == "off":
        return None
    named = tuple(PageTarget(url) for url in settings.scrape.urls)
    targets: Callable[[], Sequence[PageTarget]] = lambda: named  # noqa: E731  the same as below, without pods
    if settings.scrape.pods == "on":
        node = settings.kubernetes_node_name or settings.hostname or platform.node()
        pods = AnnotatedPods(PodLabelReader(ApiServer(node, settings.kubernetes_api_url), (), pages=True))
        targets = lambda: (*named, *pods.targets())  # noqa: E731
    return ScrapeSource(
        targets, gpus, hostname=hostname, interval_seconds=settings.interval_seconds, on_error=errors.inc
    ).start()


class AnnotatedPods:
    """The pages of the node's pods that ask for it by an annotation; the list is read once a minute. For one thread.

    Args:
        reader: Reads the pods of the node with their pages.
        monotonic: Monotonic seconds.
    """

    def __init__(self, reader: PodLabelReader, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._reader = reader
        self._monotonic = monotonic
        self._read_at: float | None = None
        self._targets: tuple[PageTarget, ...] = ()

    def targets(self) -> tuple[PageTarget, ...]:
        """The pages of now.

        Raises:
            ApiServerError, OSError, ValueError: The pods cannot be listed.
        """
        now = self._monotonic()
        if self._read_at is None or now - self._read_at >= PODS_SECONDS:
            pages = self._reader.read().pages
            self._read_at = now
            self._targets = tuple(
                PageTarget(url, labels(pod=pod, namespace=namespace)) for (namespace, pod), url in sorted(pages.items())
            )
        return self._targets

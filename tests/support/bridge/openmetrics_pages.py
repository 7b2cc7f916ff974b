"""Text messages stored, and the OpenMetrics page that shows them."""

from tests.support.bridge.fleet import come_from, exposed_store

from kernelcast.bridge.expose.formats import openmetrics
from kernelcast.bridge.inputs.prometheus.text import PrometheusText
from kernelcast.bridge.series.store import SeriesStore


def stored(*pages: bytes) -> SeriesStore:
    """The bridge's series after messages of different producers."""
    store = exposed_store()
    for offset, page in enumerate(pages):
        source = PrometheusText()
        decoded = source.decode([page])
        assert not decoded.failures
        decoded.numbers.time_ns[:] = decoded.histograms.time_ns[:] = 1_800_000_000_000_000_000
        store.apply(decoded, come_from(offset=offset, append_ms=1_800_000_000_000), source)
    return store


def openmetrics_of(store: SeriesStore, *, created: bool = False) -> bytes:
    return b"".join(openmetrics(store.snapshot(), created=created)) + b"# EOF\n"

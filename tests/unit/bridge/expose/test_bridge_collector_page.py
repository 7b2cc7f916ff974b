"""A message as an OpenTelemetry Collector writes it, from its bytes to the page that Prometheus reads."""

from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client.parser import text_string_to_metric_families
from tests.support.bridge.collector import TIME_NS, collector_message, gauge, number
from tests.support.bridge.fleet import come_from, page, samples

from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.columns import DELTA, TEMPORALITY, TYPE_CONFLICT, UNNAMED, Int64Array
from kernelcast.bridge.tables.producers import ProducerRules
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.bridge.translation.settings import TranslationSettings
from kernelcast.bridge.translation.translate import Translator
from kernelcast.columnar import Decoder

APPEND_MS = TIME_NS // 10**6


def conflicting_message() -> bytes:
    """A gauge by the name of the histogram above."""
    request = ExportMetricsServiceRequest()
    request.resource_metrics.add().scope_metrics.add().metrics.append(
        gauge("http.server.duration.seconds", number(1.0))
    )
    return request.SerializeToString()


class Site:
    """A decoder and a store."""

    def __init__(self, **settings: Any) -> None:
        self.decoder = Decoder()
        translator = Translator(TranslationSettings(**settings))
        self.store = SeriesStore(SeriesLimits(), translator=translator, producers=ProducerRules())
        self.store.expose(0, exposed=True)

    def send(self, message: bytes, offset: int = 0) -> Int64Array:
        decoded = self.decoder.decode([message])
        assert decoded.failures == ()
        origin = come_from(0, offset, APPEND_MS)
        outcomes = self.store.apply(decoded, origin, self.decoder)
        self.store.judge_producers({0: APPEND_MS + 1_500})
        return outcomes

    def body(self) -> str:
        """The page without the bridge's own metrics."""
        families = page(self.store).split("# HELP ")[1:]
        return "".join(f"# HELP {family}" for family in families if not family.startswith("kernelcast_producer_"))


def test_a_collectors_message_becomes_the_page_that_the_specification_asks_for() -> None:
    site = Site()
    outcomes = site.send(collector_message())
    assert site.body() == (Path(__file__).parent / "collector_page.txt").read_text()
    assert (outcomes[DELTA], outcomes[TEMPORALITY], outcomes[UNNAMED], outcomes[TYPE_CONFLICT]) == (1, 0, 1, 0)


def test_a_metric_of_another_kind_changes_nothing_on_the_page() -> None:
    site = Site()
    site.send(collector_message())
    before = site.body()
    assert site.send(conflicting_message(), offset=1)[TYPE_CONFLICT] == 1
    assert site.body() == before


def test_the_page_is_one_that_prometheus_own_parser_reads_without_repetition() -> None:
    site = Site()
    site.send(collector_message())
    assert len(samples(site.body())) == site.body().count("\n") - 2 * site.body().count("# HELP")


def test_a_summarys_quantiles_sum_and_count_are_together_under_one_type() -> None:
    site = Site()
    site.send(collector_message())
    [family] = [one for one in text_string_to_metric_families(site.body()) if one.name == "gc_pause_seconds"]
    assert family.type == "summary"
    quantiles = [one.labels["quantile"] for one in family.samples if one.name == family.name]
    assert quantiles == ["0.5", "0.99", "1.0"]
    sums = {one.name: one.value for one in family.samples if one.name != family.name}
    assert sums == {"gc_pause_seconds_sum": 0.5, "gc_pause_seconds_count": 7}


def test_without_the_specifications_options_only_jobs_and_attributes_are_left() -> None:
    site = Site(strategy="UnderscoreEscapingWithoutSuffixes", scope_labels=False, target_info=False)
    site.send(collector_message())
    assert 'http_server_requests{http_method="GET",instance="pod-1",job="shop/api",ok="true"} 41\n' in site.body()
    assert "otel_scope" not in site.body()
    assert "target_info" not in site.body()

"""Exemplars and summaries from a producer's bytes to the formats in which a scrape may ask for them."""

from opentelemetry.proto.metrics.v1 import metrics_pb2
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.support.bridge.exemplars import TRACE, Site, exemplar

from kernelcast.bridge.expose.formats import openmetrics, text


def parsed(site: Site) -> list[Metric]:
    body = b"".join(openmetrics(site.store.snapshot())).decode() + "# EOF\n"
    return list(text_string_to_metric_families(body))  # type: ignore[no-untyped-call]


def test_openmetrics_shows_the_exemplars_that_a_producer_sent_and_plain_text_none() -> None:
    site = Site()
    site.count(exemplar(3.5, 5, trace_id=TRACE))
    site.observe(exemplar(0.5, 1), exemplar(99.0, 3))
    families = parsed(site)
    shown = {
        (sample.name, sample.labels.get("le", "")): sample.exemplar.value
        for family in families
        for sample in family.samples
        if sample.exemplar is not None
    }
    assert shown == {("hits_total", ""): 3.5, ("latency_bucket", "1.0"): 0.5, ("latency_bucket", "+Inf"): 99.0}
    assert TRACE.hex().encode() not in b"".join(text(site.store.snapshot()))


def test_openmetrics_reads_a_summary_as_the_same_series() -> None:
    site = Site()
    point = metrics_pb2.SummaryDataPoint(count=3, sum=1.5, time_unix_nano=1)
    point.quantile_values.add(quantile=0.5, value=0.25)
    site.send(metrics_pb2.Metric(name="pause", summary=metrics_pb2.Summary(data_points=[point])))
    families = parsed(site)
    found = {sample.name: sample.value for family in families for sample in family.samples}
    assert found == {"pause": 0.25, "pause_sum": 1.5, "pause_count": 3}

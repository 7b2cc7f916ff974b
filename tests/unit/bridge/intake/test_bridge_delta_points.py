"""Delta points are not shown: their messages go to the dead letters with the remedy, and the other points are shown."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToJson
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE, AGGREGATION_TEMPORALITY_DELTA
from tests.support.bridge.fleet import Site, page
from tests.support.bridge.list_kafka import ListKafka
from tests.support.bridge.requests import SumPoint, add_sum, empty_request, sums

from kernelcast.bridge.inputs import TopicFormat

P0 = ("kernels", 0)
RECIPE = "deploy/collector/delta.yaml"
POINTS = (SumPoint(1, 2, 5, "a"), SumPoint(1, 2, 7, "b"))


def reading(**options: Any) -> Site:
    site = Site(**options)
    site.kafka.assign(site.intake, P0)
    return site


def deltas_and_totals() -> bytes:
    """One message with a sum of either temporality."""
    request, metrics = empty_request()
    add_sum(metrics, POINTS, name="sold", temporality=AGGREGATION_TEMPORALITY_DELTA)
    add_sum(metrics, POINTS, name="made", temporality=AGGREGATION_TEMPORALITY_CUMULATIVE)
    return bytes(request.SerializeToString())


def histograms() -> bytes:
    """A delta histogram of either kind."""
    request, metrics = empty_request()
    explicit, exponential = metrics.add(name="a").histogram, metrics.add(name="b").exponential_histogram
    for data in (explicit, exponential):
        data.aggregation_temporality = AGGREGATION_TEMPORALITY_DELTA
        data.data_points.add(start_time_unix_nano=1, time_unix_nano=2, count=0)
    return bytes(request.SerializeToString())


def test_a_message_with_delta_points_becomes_a_dead_letter_and_its_other_points_are_shown() -> None:
    site = reading()
    site.kafka.write(*P0, deltas_and_totals(), append_ms=1)
    site.kafka.write(*P0, sums(POINTS, name="made", temporality=AGGREGATION_TEMPORALITY_CUMULATIVE), append_ms=1)
    site.read_all()
    ((message, error),) = site.shelf.messages
    assert message.offset() == 0
    assert "2 points are delta points" in str(error)
    assert RECIPE in str(error)
    assert site.own("kernelcast_bridge_decode_failures_total", topic="kernels", error="DeltaError") == 1
    assert site.own("kernelcast_bridge_discarded_points_total", cause="delta") == 2
    assert "made_total{" in page(site.store)
    assert "sold" not in page(site.store)


def test_the_recipe_that_the_reason_names_is_there() -> None:
    assert (Path(__file__).parents[4] / RECIPE).is_file()


def test_delta_histograms_are_refused_as_well() -> None:
    site = reading()
    site.kafka.write(*P0, histograms(), append_ms=1)
    site.read_all()
    assert len(site.shelf.messages) == 1
    assert site.own("kernelcast_bridge_discarded_points_total", cause="delta") == 2
    assert page(site.store) == ""


def test_delta_points_in_json_are_refused_as_well() -> None:
    site = reading(formats={P0[0]: TopicFormat(format="otlp_json")})
    body = MessageToJson(ExportMetricsServiceRequest.FromString(deltas_and_totals())).encode()
    site.kafka.write(*P0, body, append_ms=1)
    site.read_all()
    assert len(site.shelf.messages) == 1
    assert "made_total{" in page(site.store)


@pytest.mark.parametrize("at_once", [1, 100])
def test_each_of_many_messages_is_a_dead_letter_with_the_number_of_its_own_points(at_once: int) -> None:
    site = reading(kafka=ListKafka(at_once=at_once))
    for count in (1, 2, 1):
        site.kafka.write(*P0, sums(POINTS[:count]), append_ms=1)
    site.read_all()
    assert [str(error).partition(" ")[0] for _, error in site.shelf.messages] == ["1", "2", "1"]


def test_messages_that_a_former_owner_has_refused_are_not_sent_again() -> None:
    kafka = ListKafka()
    kafka.write(*P0, deltas_and_totals(), append_ms=1_000_000)
    site = reading(kafka=ListKafka(kafka.logs, commits={P0: 1}))
    site.read_all()
    assert site.shelf.messages == []
    assert "made_total{" in page(site.store)

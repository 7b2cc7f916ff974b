from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.bridge.fleet import counter, gauge

from kernelcast.bridge.columns import LABELS_TOO_LONG, TEMPORALITY, TYPE_CONFLICT, UNNAMED, WIRE_ONLY
from kernelcast.bridge.translate import Placement, place
from kernelcast.columnar import PointType, SeriesIdentity, Temporality
from kernelcast.wire.catalogue import CATALOGUE, Kind, Metric


def labels_of(placement: Placement) -> dict[str, str]:
    line = f"m{{{placement.labels.decode()}}} 1\n"
    [family] = text_string_to_metric_families(line)
    return family.samples[0].labels


def placed(identity: SeriesIdentity) -> Placement:
    placement = place(identity)
    assert isinstance(placement, Placement)
    return placement


def labels(**options: Any) -> dict[str, str]:
    return labels_of(placed(gauge(**options)))


def test_job_and_instance_come_from_the_resource() -> None:
    resource = (("service.instance.id", "n1"), ("service.name", "api"), ("service.namespace", "shop"))
    assert labels(resource=resource) == {"job": "shop/api", "instance": "n1"}
    assert labels(resource=()) == {}


def test_an_attribute_cannot_replace_the_targets_labels() -> None:
    assert labels(attributes=(("job", "mine"),))["exported_job"] == "mine"


def test_colliding_label_names_are_joined_in_the_order_of_their_keys() -> None:
    assert labels(attributes=(("a.b", "1"), ("a_b", "2")), resource=()) == {"a_b": "1;2"}


def test_empty_values_are_absent() -> None:
    assert labels(attributes=(("a", ""),), resource=()) == {}


@pytest.mark.parametrize(
    ("key", "name"),
    [("k8s.pod", "k8s_pod"), ("1st", "key_1st"), ("__name__", "key__name__"), ("ü", "_"), ("", "_"), ("_x", "_x")],
)
def test_label_names_are_made_legal(key: Any, name: str) -> None:
    assert labels(attributes=((key, "v"),), resource=()) == {name: "v"}


def test_an_attribute_cannot_pose_as_a_histograms_bound() -> None:
    identity = gauge(
        type=PointType.HISTOGRAM, temporality=Temporality.CUMULATIVE, attributes=(("le", "0.5"),), resource=()
    )
    assert labels_of(placed(identity)) == {"exported_le": "0.5"}


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_value_survives_escaping(value: Any) -> None:
    assert labels(attributes=(("a", value),), resource=()) == {"a": value}


@pytest.mark.parametrize("row", [row for row in CATALOGUE if row.otlp_name], ids=lambda row: row.otlp_name)
def test_what_the_catalogue_names_gets_the_catalogues_name_kind_and_help(row: Metric) -> None:
    shape: dict[str, Any] = {"type": PointType.GAUGE, "temporality": Temporality.UNSPECIFIED, "monotonic": False}
    if row.kind is Kind.COUNTER:
        shape = {"type": PointType.SUM, "temporality": Temporality.CUMULATIVE, "monotonic": True}
    if row.kind is Kind.HISTOGRAM:
        shape |= {"type": PointType.EXPONENTIAL_HISTOGRAM, "temporality": Temporality.CUMULATIVE}
    identity = gauge(row.otlp_name, unit=row.unit, **shape)
    if not row.exposed:
        assert place(identity) == WIRE_ONLY
        return
    placement = placed(identity)
    assert (placement.name, placement.kind, placement.help) == (row.prometheus_name, row.kind, row.help)


def test_a_number_claimed_for_a_histogram_of_the_catalogue_is_a_conflict_and_a_gauge_for_a_counter_is_not() -> None:
    assert place(gauge("cuda.kernel.duration", unit="s")) == TYPE_CONFLICT
    assert placed(gauge("cuda.kernel.launches", unit="{launch}")).kind is Kind.COUNTER


@pytest.mark.parametrize("suffix", ["bucket", "sum", "count"])
def test_a_stranger_cannot_keep_a_histogram_of_the_catalogue_out_by_taking_one_of_its_names(suffix: str) -> None:
    assert place(gauge(f"cuda.kernel.duration.seconds.{suffix}")) == TYPE_CONFLICT


def test_other_names_follow_the_specification() -> None:
    assert placed(counter("http.server.request.size", unit="By")).name == "http_server_request_size_bytes_total"
    assert placed(gauge("system.cpu.utilization", unit="1")).name == "system_cpu_utilization_ratio"
    assert placed(counter("up.down", monotonic=False)).kind is Kind.GAUGE


@pytest.mark.parametrize("name", ["", "...", "日本"])
def test_a_name_without_a_legal_character_is_refused(name: str) -> None:
    assert place(gauge(name)) == UNNAMED


@pytest.mark.parametrize("temporality", [Temporality.DELTA, Temporality.UNSPECIFIED])
def test_what_is_not_cumulative_is_refused(temporality: Temporality) -> None:
    assert place(counter(temporality=temporality)) == TEMPORALITY


def test_labels_without_end_are_refused() -> None:
    assert place(gauge(attributes=(("a", "x" * 9000),))) == LABELS_TOO_LONG

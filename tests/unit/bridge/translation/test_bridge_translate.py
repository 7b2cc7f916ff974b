from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ValidationError
from tests.support.bridge.fleet import counter, gauge

from kernelcast.bridge.tables.columns import DELTA, LABELS_TOO_LONG, TEMPORALITY, TYPE_CONFLICT, UNNAMED, WIRE_ONLY
from kernelcast.bridge.tables.placement import Placement
from kernelcast.bridge.translation.settings import TranslationSettings
from kernelcast.bridge.translation.translate import Translator
from kernelcast.columnar import PointType, SeriesIdentity, Temporality
from kernelcast.wire.catalogue import CATALOGUE, Kind, Metric
from kernelcast.wire.catalogue.devices import device


def labels_of(placement: Placement) -> dict[str, str]:
    line = f"m{{{placement.labels.decode()}}} 1\n"
    [family] = text_string_to_metric_families(line)
    return family.samples[0].labels


def place(identity: SeriesIdentity) -> Placement | int:
    return Translator().place(identity)


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
    [("k8s.pod", "k8s_pod"), ("1st", "key_1st"), ("__name__", "_name_"), ("ü", "_"), ("", "_"), ("_x", "_x")],
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
def test_metrics_of_the_catalogue_get_its_name_kind_and_help(row: Metric) -> None:
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
def test_a_foreign_producer_cannot_block_a_histogram_of_the_catalogue_by_using_its_name(suffix: str) -> None:
    assert place(gauge(f"cuda.kernel.duration.seconds.{suffix}")) == TYPE_CONFLICT


def test_other_names_follow_the_specification() -> None:
    assert placed(counter("http.server.request.size", unit="By")).name == "http_server_request_size_bytes_total"
    assert placed(gauge("system.cpu.utilization", unit="1")).name == "system_cpu_utilization_ratio"
    assert placed(counter("up.down", monotonic=False)).kind is Kind.GAUGE


@pytest.mark.parametrize("name", ["", "...", "日本"])
def test_a_name_without_a_legal_character_is_refused(name: str) -> None:
    assert place(gauge(name)) == UNNAMED


def test_a_sum_of_differences_or_without_temporality_is_refused() -> None:
    assert place(counter(temporality=Temporality.UNSPECIFIED)) == TEMPORALITY
    assert place(counter(temporality=Temporality.DELTA)) == DELTA


def test_labels_without_end_are_refused() -> None:
    assert place(gauge(attributes=(("a", "x" * 9000),))) == LABELS_TOO_LONG


def test_a_placement_names_its_producer_and_keeps_what_else_is_known_of_it() -> None:
    resource = (("host.name", "n1"), ("service.instance.id", "i"), ("service.name", "api"), ("service.namespace", "s"))
    placement = placed(gauge(resource=resource))
    assert placement.producer == ("s/api", "i")
    assert placement.target == (("host.name", "n1"),)


@pytest.mark.parametrize(
    ("identity", "unit"),
    [
        (counter("http.server.request.size", unit="By"), "bytes"),
        (gauge("system.cpu.utilization", unit="1"), "ratio"),
        (gauge("plain"), ""),
        (gauge("system.network.packets.dropped", unit="{packet}"), ""),
        (gauge("DCGM_FI_DEV_FB_USED"), ""),
    ],
)
def test_a_unit_is_given_only_where_the_name_ends_with_it(identity: SeriesIdentity, unit: str) -> None:
    assert placed(identity).unit == unit


def translated(identity: SeriesIdentity, **settings: Any) -> Placement:
    placement = Translator(TranslationSettings(**settings)).place(identity)
    assert isinstance(placement, Placement)
    return placement


def scoped(identity: SeriesIdentity) -> SeriesIdentity:
    attributes = (("library.mascot", "bear"),)
    named = replace(identity, scope_name="otelhttp", scope_version="v0.24.0", scope_attributes=attributes)
    return replace(named, schema_url="https://opentelemetry.io/schemas/1.26.0")


def test_a_series_says_which_scope_made_it_unless_that_is_switched_off() -> None:
    identity = scoped(counter("http.server.duration", resource=()))
    assert labels_of(translated(identity)) == {
        "otel_scope_name": "otelhttp",
        "otel_scope_version": "v0.24.0",
        "otel_scope_schema_url": "https://opentelemetry.io/schemas/1.26.0",
        "otel_scope_library_mascot": "bear",
    }
    assert labels_of(translated(identity, scope_labels=False)) == {}


def test_an_attribute_cannot_replace_the_scopes_labels() -> None:
    identity = scoped(gauge(attributes=(("otel.scope.name", "mine"),)))
    assert labels_of(translated(identity))["otel_scope_name"] == "otelhttp"
    assert labels_of(translated(identity))["exported_otel_scope_name"] == "mine"


def test_the_catalogues_metrics_have_no_scope_labels_and_no_target_info() -> None:
    identity = scoped(gauge("DCGM_FI_DEV_GPU_TEMP", resource=(("host.name", "n1"), ("service.name", "x"))))
    assert labels_of(translated(identity)) == {"job": "x"}
    assert translated(identity).target == ()


RESOURCE_OF_A_POD = (("k8s.pod.name", "p1"), ("k8s_pod_name", "p2"), ("service.name", "api"))


def test_promoted_resource_attributes_are_labels_and_colliding_ones_are_joined() -> None:
    identity = gauge(resource=RESOURCE_OF_A_POD)
    assert labels_of(translated(identity)) == {"job": "api"}
    chosen = translated(identity, promote_resource_attributes=["k8s.pod.name"])
    assert labels_of(chosen) == {"job": "api", "k8s_pod_name": "p1"}
    everything = translated(identity, promote_resource_attributes="all")
    assert labels_of(everything) == {"job": "api", "k8s_pod_name": "p1;p2", "service_name": "api"}


def test_a_points_own_attribute_wins_over_a_promoted_one() -> None:
    identity = gauge(resource=RESOURCE_OF_A_POD, attributes=(("k8s_pod_name", "own"),))
    assert labels_of(translated(identity, promote_resource_attributes="all"))["k8s_pod_name"] == "own"


@pytest.mark.parametrize("promoted", ["all", ["le", "quantile"]])
def test_a_promoted_attribute_cannot_replace_the_labels_that_a_kind_has_itself(promoted: Any) -> None:
    resource = (("le", "r"), ("quantile", "q"))
    histogram = counter(resource=resource, type=PointType.HISTOGRAM)
    chosen = labels_of(translated(histogram, promote_resource_attributes=promoted))
    assert chosen == {"exported_le": "r", "quantile": "q"}
    summary = gauge(resource=resource, type=PointType.SUMMARY)
    chosen = labels_of(translated(replace(summary, part="0.5"), promote_resource_attributes=promoted))
    assert chosen == {"exported_quantile": "q", "le": "r", "quantile": "0.5"}


def test_attributes_promoted_by_name_are_on_the_catalogues_metrics_too_and_all_does_not_apply() -> None:
    identity = gauge("DCGM_FI_DEV_GPU_TEMP", resource=RESOURCE_OF_A_POD)
    assert labels_of(translated(identity, promote_resource_attributes=["k8s.pod.name"]))["k8s_pod_name"] == "p1"
    assert labels_of(translated(identity, promote_resource_attributes="all")) == {"job": "api"}


def test_target_info_can_be_switched_off() -> None:
    identity = gauge(resource=RESOURCE_OF_A_POD)
    assert translated(identity).target == (("k8s.pod.name", "p1"), ("k8s_pod_name", "p2"))
    assert translated(identity, target_info=False).target == ()


def test_suffixes_can_be_left_out_but_not_of_the_catalogues_metrics() -> None:
    bare = {"strategy": "UnderscoreEscapingWithoutSuffixes"}
    assert translated(counter("http.server.request.size", unit="By"), **bare).name == "http_server_request_size"
    assert translated(counter("cuda.kernel.launches", unit="{launch}"), **bare).name == "cuda_kernel_launches_total"


@pytest.mark.parametrize("strategy", ["NoTranslation", "NoUTF8EscapingWithSuffixes", "nonsense"])
def test_a_naming_strategy_that_the_page_cannot_carry_is_refused(strategy: Any) -> None:
    with pytest.raises(ValidationError):
        TranslationSettings(strategy=strategy)


def test_a_sum_that_rises_and_falls_is_no_ratio() -> None:
    assert placed(counter("queue.length", monotonic=False, unit="1")).name == "queue_length"
    assert placed(gauge("queue.filled", unit="1")).name == "queue_filled_ratio"


LABELS = {
    "label:with:colons": "label_with_colons",
    "LabelWithCapitalLetters": "LabelWithCapitalLetters",
    "label!with&special$chars)": "label_with_special_chars_",
    "label_with_foreign_characters_字符": "label_with_foreign_characters_",
    "label.with.dots": "label_with_dots",
    "123label": "key_123label",
    "_label_starting_with_underscore": "_label_starting_with_underscore",
    "__label_starting_with_2underscores": "_label_starting_with_2underscores",
    "regular label": "regular_label",
}
"""prometheus/otlptranslator, label_namer_test.go, with runs of underscores collapsed as the specification demands."""


@pytest.mark.parametrize(("key", "name"), LABELS.items())
def test_an_attribute_gets_the_label_name_that_prometheus_and_the_collector_give_it(key: Any, name: str) -> None:
    assert labels(attributes=((key, "v"),), resource=()) == {name: "v"}


def test_a_name_of_foreign_characters_alone_keeps_its_values() -> None:
    assert labels(attributes=(("ようこそ", "a"), ("字符", "b")), resource=()) == {"_": "a;b"}


SUMMARY: Any = {"type": PointType.SUMMARY, "resource": ()}


@pytest.mark.parametrize(
    ("part", "name", "labels"),
    [
        ("0.99", "gc_pause_seconds", {"quantile": "0.99", "exported_quantile": "mine"}),
        ("1", "gc_pause_seconds", {"quantile": "1.0", "exported_quantile": "mine"}),
        ("sum", "gc_pause_seconds_sum", {"exported_quantile": "mine"}),
        ("count", "gc_pause_seconds_count", {"exported_quantile": "mine"}),
    ],
)
def test_each_part_of_a_summary_has_its_place(part: str, name: str, labels: dict[str, str]) -> None:
    identity = gauge("gc.pause", unit="s", attributes=(("quantile", "mine"),), **SUMMARY)
    placement = placed(replace(identity, part=part))
    assert (placement.name, placement.kind) == (name, Kind.SUMMARY)
    assert labels_of(placement) == labels


def test_a_summary_by_the_name_of_a_catalogued_metric_is_a_conflict() -> None:
    assert place(replace(gauge("cuda.kernel.duration", unit="s", **SUMMARY), part="sum")) == TYPE_CONFLICT


def test_a_row_under_another_of_dcgms_names_keeps_that_name_and_the_catalogues_help() -> None:
    counter: Any = {"type": PointType.SUM, "temporality": Temporality.CUMULATIVE, "monotonic": True}
    placement = placed(gauge("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", unit="", **counter))
    shown = (placement.name, placement.kind, placement.help)
    assert shown == ("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", Kind.COUNTER, device.PCIE_REPLAY.help)

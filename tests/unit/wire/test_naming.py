"""Facts about names from elsewhere: inputs and outputs of prometheus/otlptranslator's own tests (metric_namer_test.go,
unit_namer_test.go), of opentelemetry-collector-contrib's (pkg/translator/prometheus/normalize_name_test.go) and of the
specification's examples (compatibility/prometheus_and_openmetrics.md)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.wire.catalogue import Kind, translate, unit_words

GAUGES = {
    ("simple_metric", ""): "simple_metric",
    ("metric@with#special$chars", ""): "metric_with_special_chars",
    ("metric@@##$$name", ""): "metric_name",
    ("123metric", ""): "_123metric",
    ("3.14 digits", ""): "_3_14_digits",
    ("@#$%", ""): "",
    ("cpu_usage", "1"): "cpu_usage_ratio",
    ("cpu_usage_ratio", "1"): "cpu_usage_ratio",
    ("hw.fan.speed_ratio", "1"): "hw_fan_speed_ratio",
    ("hw.gpu.memory.utilization", "1"): "hw_gpu_memory_utilization_ratio",
    ("system.cpu.load_average.15m", "1"): "system_cpu_load_average_15m_ratio",
    ("response_time", "ms"): "response_time_milliseconds",
    ("response_time_seconds", "s"): "response_time_seconds",
    ("memory_usage", "By"): "memory_usage_bytes",
    ("\t system.filesystem.usage       ", "  By\t"): "system_filesystem_usage_bytes",
    ("requests", "1/s"): "requests_per_second",
    ("throughput", "By/s"): "throughput_bytes_per_second",
    ("custom_metric", "custom_unit"): "custom_metric_custom_unit",
    ("custom_metric", "{custom}"): "custom_metric",
    ("custom_metric", "By/{custom}"): "custom_metric_bytes",
    ("custom_metric", "unit@with#special/chars"): "custom_metric_unit_with_special_per_chars",
    ("custom", "1/custom_unit"): "custom_per_custom_unit",
    ("metric__with__multiple__underscores", "unit__multiple__underscores"): (
        "metric_with_multiple_underscores_unit_multiple_underscores"
    ),
    ("metric", "By/"): "metric_bytes",
    ("metric", " By / s "): "metric_bytes_per_second",
    ("metric", "/"): "metric",
    ("broken.metric.speed", "km/h"): "broken_metric_speed_km_per_hour",
    ("astro.light.speed_limit", "m/s"): "astro_light_speed_limit_meters_per_second",
    ("broken.metric.success_ratio", "%"): "broken_metric_success_ratio_percent",
    ("broken.metric.success_percent", "%"): "broken_metric_success_percent",
    ("system.network.dropped", "{packets}"): "system_network_dropped",
    ("system.network.dropped", "packets"): "system_network_dropped_packets",
    ("system.network.packets.dropped", "packets"): "system_network_packets_dropped",
    ("system.network.packets", "packets"): "system_network_packets",
    ("test.metric.spaces", "   \t  "): "test_metric_spaces",
    ("unsupported.metric.temperature", "°F"): "unsupported_metric_temperature_F",
    ("unsupported.metric.redundant", "__test $/°C"): "unsupported_metric_redundant_test_per_C",
    ("mongodbatlas.process.asserts", "{assertions}/s"): "mongodbatlas_process_asserts_per_second",
    ("mongodbatlas.process.oplog.rate", "GiBy/h"): "mongodbatlas_process_oplog_rate_gibibytes_per_hour",
    ("mongodbatlas.process.db.query_targeting.scanned_per_returned", "{scanned}/{returned}"): (
        "mongodbatlas_process_db_query_targeting_scanned_per_returned"
    ),
    ("nginx.connections_accepted", "connections"): "nginx_connections_accepted",
    ("redis.latest_fork", "us"): "redis_latest_fork_microseconds",
    ("envoy__rule_engine_zlib_buf_error", ""): "envoy_rule_engine_zlib_buf_error",
}
COUNTERS = {
    ("requests", ""): "requests_total",
    ("requests_total", ""): "requests_total",
    ("items", "1"): "items_total",
    ("http.requests", "1"): "http_requests_total",
    ("cpu_seconds_total", "s"): "cpu_seconds_total",
    ("system.io", "By"): "system_io_bytes_total",
    ("network_transmitted_bytes_total", "By"): "network_transmitted_bytes_total",
    ("system.network.packets.dropped", "packets"): "system_network_packets_dropped_total",
    ("system.disk.operation_time", "s"): "system_disk_operation_time_seconds_total",
    ("bigip.virtual_server.request.count", "{requests}"): "bigip_virtual_server_request_count_total",
    ("active_directory.ds.replication.sync.object.pending", "{objects}"): (
        "active_directory_ds_replication_sync_object_pending_total"
    ),
}
HISTOGRAMS = {
    ("request_duration", "s"): "request_duration_seconds",
    ("request_size", "By"): "request_size_bytes",
    ("http.request.duration", "ms"): "http_request_duration_milliseconds",
}
WORDS = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "TiBy": "tibibytes",
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "GBy": "gigabytes",
    "TBy": "terabytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "%": "percent",
    "": "",
    "   ": "",
    "1": "",
    "1/s": "per_second",
    "1/m": "per_minute",
    "1/h": "per_hour",
    "1/d": "per_day",
    "1/w": "per_week",
    "1/mo": "per_month",
    "1/y": "per_year",
    "KBy/s": "kilobytes_per_second",
    "MBy/h": "megabytes_per_hour",
    "requests/m": "requests_per_minute",
    "W/h": "watts_per_hour",
    "custom/custom": "custom_per_custom",
    "{custom}/s": "per_second",
    "{custom}/{invalid}": "",
    "custom@unit#with$chars": "custom_unit_with_chars",
    "@#$": "",
    "/": "",
    "/s": "per_second",
    "By/custom@per#unit": "bytes_per_custom_per_unit",
    "unit@@##$$name": "unit_name",
    "seconds/": "seconds",
    "_custom_unit": "custom_unit",
    "custom_unit_": "custom_unit",
    "By/_custom__unit_": "bytes_per_custom_unit",
}
LEGAL = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")


@pytest.mark.parametrize(
    ("kind", "name", "unit", "expected"),
    [
        (kind, *metric, expected)
        for kind, table in ((Kind.GAUGE, GAUGES), (Kind.COUNTER, COUNTERS), (Kind.HISTOGRAM, HISTOGRAMS))
        for metric, expected in table.items()
    ],
)
def test_a_metric_gets_the_name_that_prometheus_and_the_collector_give_it(
    kind: Kind, name: str, unit: str, expected: str
) -> None:
    assert translate(name, unit, kind) == expected


@pytest.mark.parametrize(("unit", "expected"), WORDS.items())
def test_a_unit_becomes_prometheus_words(unit: str, expected: str) -> None:
    assert unit_words(unit, Kind.COUNTER) == expected


def test_a_unit_that_the_name_contains_is_not_repeated() -> None:
    assert translate("io.bytes.per.second", "By/s", Kind.GAUGE) == "io_bytes_per_second"
    assert translate("io.bytes", "By/s", Kind.GAUGE) == "io_bytes_per_second"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("http.request.duration", "http_request_duration"),
        ("123metric", "_123metric"),
        ("metric@@##$$name", "metric_name"),
    ],
)
def test_without_suffixes_only_the_characters_change(name: str, expected: str) -> None:
    assert translate(name, "ms", Kind.COUNTER, suffixes=False) == expected


@given(st.text(), st.text(), st.sampled_from([Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM, Kind.INFO]), st.booleans())
def test_every_name_is_legal_or_empty(name: str, unit: str, kind: Kind, suffixes: bool) -> None:  # noqa: FBT001  drawn
    translated = translate(name, unit, kind, suffixes=suffixes)
    assert translated == "" or LEGAL.fullmatch(translated)
    assert "__" not in translated

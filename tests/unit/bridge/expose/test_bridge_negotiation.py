"""Negotiation of the page's format and compression."""

import pytest

from kernelcast.bridge.expose.negotiate import PLAIN_TEXT, PROTOBUF, Coding, Format, negotiate, negotiate_coding

PROTO = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
OPENMETRICS = "application/openmetrics-text"
PROMETHEUS_2_42 = (
    f"{OPENMETRICS};version=1.0.0,{OPENMETRICS};version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_2_42_NATIVE = (
    f"{PROTO},{OPENMETRICS};version=1.0.0;q=0.8,{OPENMETRICS};version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    f"{OPENMETRICS};version=1.0.0;escaping=allow-utf-8;q=0.5,{OPENMETRICS};version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
OPENMETRICS_1 = "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping="


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        (PROMETHEUS_2_42, f"{OPENMETRICS_1}underscores"),
        (PROMETHEUS_2_42_NATIVE, PROTOBUF.content_type),
        (PROMETHEUS_3, f"{OPENMETRICS_1}allow-utf-8"),
        (f"{PROTO};q=0.6,{PROMETHEUS_3}", PROTOBUF.content_type),
        ("", PLAIN_TEXT.content_type),
        ("*/*", PLAIN_TEXT.content_type),
        ("text/html,application/xhtml+xml,*/*;q=0.8", PLAIN_TEXT.content_type),
        ("image/png", PLAIN_TEXT.content_type),
        ("text/plain;version=1.0.0;escaping=values", "text/plain; version=1.0.0; charset=utf-8; escaping=values"),
        ("text/plain;version=1.0.0;escaping=dots", "text/plain; version=1.0.0; charset=utf-8; escaping=underscores"),
        ("application/openmetrics-text", "application/openmetrics-text; version=0.0.1; charset=utf-8"),
        ("text/plain;q=0.2, APPLICATION/OpenMetrics-text ; Version=1.0.0 ; q=0.3", f"{OPENMETRICS_1}underscores"),
    ],
)
def test_the_supported_format_of_the_highest_weight_wins(accept: str, content_type: str) -> None:
    assert negotiate(accept).content_type == content_type


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text;version=9.0.0",
        "application/openmetrics-text;version=1.0.0;q=0",
        "application/openmetrics-text;version=1.0.0;q=high,text/plain;q=0.1",
        PROTO.replace("delimited", "text"),
        PROTO.replace("MetricFamily", "Metric"),
        "application/vnd.google.protobuf",
    ],
)
def test_what_we_do_not_have_is_not_answered_as_if_we_had(accept: str) -> None:
    assert negotiate(accept).format is Format.TEXT


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        ("gzip", Coding.GZIP),
        ("gzip, zstd", Coding.ZSTD),
        ("gzip;q=0.9, zstd;q=0.5", Coding.GZIP),
        ("deflate, GZIP;q=0.5", Coding.GZIP),
        ("x-gzip", Coding.GZIP),
        ("gzip;q=0", Coding.IDENTITY),
        ("gzip; q=0.000", Coding.IDENTITY),
        ("*", Coding.ZSTD),
        ("*;q=0.5, zstd;q=0", Coding.GZIP),
        ("identity, gzip;q=0.5", Coding.IDENTITY),
        ("", Coding.IDENTITY),
        ("br", Coding.IDENTITY),
    ],
)
def test_compression_is_chosen_as_http_defines_it(header: str, coding: Coding) -> None:
    assert negotiate_coding(header) is coding

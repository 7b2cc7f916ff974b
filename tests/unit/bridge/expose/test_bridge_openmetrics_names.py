"""OpenMetrics pages of families whose names clash are legal, and have the series that text has."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from tests.support.bridge.openmetrics_pages import openmetrics_of, stored

from kernelcast.bridge.expose.formats import text
from kernelcast.bridge.series.store import SeriesStore

SUFFIXES = ("", "_total", "_created", "_bucket", "_count", "_sum", "_info", "_gcount", "_gsum")
TYPES = ("counter", "gauge", "histogram", "summary", "info", "untyped")
HISTOGRAM = ('_bucket{{zone="{0}",le="1"}} 2', '_bucket{{zone="{0}",le="+Inf"}} 3', '_sum{{zone="{0}"}} 4')
SUMMARY = ('{{zone="{0}",quantile="0.5"}} 2', '_sum{{zone="{0}"}} 4', '_count{{zone="{0}"}} 3')

names = st.builds("".join, st.tuples(st.sampled_from("xy"), *[st.sampled_from(SUFFIXES)] * 2))


def page_of(families: list[tuple[str, str, bool]]) -> bytes:
    """A page with two series of each family; summaries have quantiles or none."""
    lines = []
    for name, kind, quantiles in families:
        lines += [f"# HELP {name} Of {name} as {kind}.", f"# TYPE {name} {kind}"]
        samples = {"histogram": HISTOGRAM, "summary": SUMMARY[not quantiles :]}.get(kind, ('{{zone="{0}"}} 1',))
        lines += [f"{name}{sample.format(zone)}" for zone in ("a\r", "b") for sample in samples]
    return "\n".join([*lines, ""]).encode()


def samples(page: bytes) -> list[bytes]:
    return sorted(line.replace(b'="1.0"', b'="1"') for line in page.split(b"\n") if line and not line.startswith(b"#"))


def types_of(store: SeriesStore) -> dict[str, str]:
    found = openmetrics_families(openmetrics_of(store).decode())  # type: ignore[no-untyped-call]
    return {family.name: family.type for family in found}


@given(st.lists(st.tuples(names, st.sampled_from(TYPES), st.booleans()), max_size=12, unique_by=lambda one: one[0]))
def test_the_strict_parser_takes_every_set_of_families(families: list[tuple[str, str, bool]]) -> None:
    store = stored(*(page_of([family]) for family in families))
    for created in (False, True):
        page = openmetrics_of(store, created=created)
        list(openmetrics_families(page.decode()))  # type: ignore[no-untyped-call]
        assert samples(page) == samples(b"".join(text(store.snapshot())))


def test_a_counter_whose_start_time_has_the_name_of_a_gauge_is_unknown() -> None:
    store = stored(page_of([("x_total", "counter", True)]), page_of([("x_created", "gauge", True)]))
    assert types_of(store) == {"x_total": "unknown", "x_created": "gauge"}


def test_a_histogram_whose_start_time_has_the_name_of_a_gauge_is_three_unknown_families() -> None:
    store = stored(page_of([("x", "histogram", True)]), page_of([("x_created", "gauge", True)]))
    assert types_of(store) == {"x_bucket": "unknown", "x_sum": "unknown", "x_count": "unknown", "x_created": "gauge"}


def test_a_page_of_the_python_client_keeps_its_types() -> None:
    page = b"".join(
        f"# HELP {name} Help.\n# TYPE {name} {kind}\n{sample}\n".encode()
        for name, kind, sample in (
            ("c_total", "counter", "c_total 3"),
            ("c_created", "gauge", "c_created 1.7e9"),
            ("h", "histogram", 'h_bucket{le="+Inf"} 1\nh_sum 1\nh_count 1'),
            ("h_created", "gauge", "h_created 1.7e9"),
        )
    )
    store = stored(page)
    assert types_of(store) == {"c": "counter", "h": "histogram"}
    assert b"c_created 1700000000.000000000\n" in openmetrics_of(store, created=True)


@pytest.mark.parametrize("quantiles", [True, False])
def test_text_says_once_that_a_summary_is_one(*, quantiles: bool) -> None:
    store = stored(page_of([("s", "summary", quantiles), ("r", "gauge", True), ("t", "gauge", True)]))
    lines = b"".join(text(store.snapshot())).decode().splitlines()
    at = lines.index("# TYPE s summary")
    assert lines[at - 1] == "# HELP s Of s as summary."
    assert lines[at + 1].startswith("s{" if quantiles else "s_count{")
    assert sum(line.startswith("# TYPE") for line in lines) == 3


def test_a_summary_beside_a_metric_of_its_name_has_no_second_header() -> None:
    store = stored(page_of([("s", "gauge", True)]), page_of([("s", "summary", False)]))
    lines = b"".join(text(store.snapshot())).decode().splitlines()
    assert [line for line in lines if line.startswith("# TYPE")] == ["# TYPE s gauge"]

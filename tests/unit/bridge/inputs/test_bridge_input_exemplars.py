"""Exemplars of OpenMetrics pages reach the bridge's own OpenMetrics page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.support.bridge.openmetrics_pages import openmetrics_of, stored

from kernelcast.bridge.inputs.prometheus.text import PrometheusText

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
Shown = dict[tuple[str, str], tuple[dict[str, str], float, float | None]]


def exemplars(page: bytes) -> Shown:
    """Exemplars by name and bound of the sample: labels, value, and time in seconds."""
    return {
        (sample.name, sample.labels.get("le", "")): (
            sample.exemplar.labels,
            sample.exemplar.value,
            sample.exemplar.timestamp and float(sample.exemplar.timestamp),
        )
        for family in text_string_to_metric_families(page.decode())  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.exemplar is not None
    }


def test_the_python_clients_exemplars_are_exposed_unchanged() -> None:
    registry = CollectorRegistry()
    Counter("jobs", "Jobs.", registry=registry).inc(3, {"trace_id": TRACE, "x": "a\\c\nd"})
    latency = Histogram("latency", "Latency.", registry=registry, buckets=(1, 5))
    latency.observe(0.5, {"span_id": "00f067aa0ba902b7"})
    latency.observe(7, {"trace_id": "not in hexadecimal"})
    page = generate_latest(registry)  # type: ignore[no-untyped-call]
    expected = exemplars(page)
    assert len(expected) == 3
    found = exemplars(openmetrics_of(stored(page)))
    assert found.keys() == expected.keys()
    for key, (labels, value, seconds) in expected.items():
        assert found[key][:2] == (labels, value)
        assert found[key][2] == pytest.approx(seconds)


def test_a_refused_page_leaves_no_exemplar() -> None:
    source = PrometheusText()
    good = b'# TYPE a counter\na_total 1 # {b="c"} 1\n# EOF\n'
    decoded = source.decode([good, good.replace(b"# EOF", b"nonsense\n# EOF"), good])
    assert (decoded.exemplars.row.tolist(), len(decoded.failures)) == ([0, 1], 1)


@pytest.mark.parametrize(
    "exemplar",
    ["{", '{a="b"}', '{a="b"} x', '{a="b"} 1 2 3', '{a="b"} 1 1e30', "{a=b} 1", "{a} 1", 'a="b" 1', ""],
)
def test_a_sample_counts_whatever_its_exemplar_is(exemplar: str) -> None:
    decoded = PrometheusText().decode([f"# TYPE a counter\na_total 5 # {exemplar}\n# EOF\n".encode()])
    assert (decoded.numbers.value.tolist(), decoded.exemplars.raw, decoded.failures) == ([5.0], (), ())


@given(st.text(max_size=40))
def test_no_text_behind_a_sample_breaks_the_reader(text: str) -> None:
    line = text.replace("\n", "").replace("\r", "")
    decoded = PrometheusText().decode([f"# TYPE a counter\na_total 5 # {line}\n# EOF\n".encode(errors="replace")])
    assert decoded.failures or decoded.numbers.value.tolist() == [5.0]

"""Samples of a page of Prometheus' text."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from kernelcast.runtime.prometheus_text import TextSample, samples
from kernelcast.wire.errors import DecodeError


def test_a_page_of_an_engine_is_read_without_its_comments_and_times() -> None:
    page = (
        "# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
        "# TYPE vllm:num_requests_running gauge\r\n"
        'vllm:num_requests_running{engine="0",model_name="meta/llama"} 3.0 1700000000000\n'
        "\n"
        "process_open_fds 21\n"
        'x{le="+Inf",} NaN'
    )
    running, opened, endless = samples(page.split("\n"))
    assert running == TextSample("vllm:num_requests_running", {"engine": "0", "model_name": "meta/llama"}, 3.0)
    assert opened == TextSample("process_open_fds", {}, 21.0)
    assert endless.labels == {"le": "+Inf"}
    assert math.isnan(endless.value)


@pytest.mark.parametrize("line", ['a{b="c} 1', "a", "a{b=c} 1", "a 1_0", "a 1 2 3", '{b="c"} 1', "a one"])
def test_a_line_that_breaks_the_grammar_is_refused_with_what_was_expected(line: str) -> None:
    with pytest.raises(DecodeError, match="expected"):
        list(samples([line]))


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True), st.text(max_size=8), max_size=4))
def test_labels_of_prometheus_client_are_read_as_they_were_set(labels: dict[str, str]) -> None:
    registry = CollectorRegistry()
    gauge = Gauge("a", "", tuple(labels), registry=registry)
    (gauge.labels(**labels) if labels else gauge).set(0.25)
    assert [*samples(generate_latest(registry).decode().split("\n"))] == [TextSample("a", labels, 0.25)]

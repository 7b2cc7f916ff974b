"""Baselines on the wire: encoded, decoded, merged."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.wire.baselines import MAX_NODES, KernelBaseline, NodeBaseline, baseline_event, baseline_from, merge
from kernelcast.wire.cloudevents import MAX_EVENT_BYTES, decode_event, encode_event
from kernelcast.wire.errors import EventError


def of(*nodes: NodeBaseline) -> KernelBaseline:
    return KernelBaseline("gemm#1a2b", "128x128", "NVIDIA H100", nodes)


NODE = NodeBaseline("node1", 1e-3, 0.02, 400, "v3", 7)


def test_a_baseline_survives_kafka() -> None:
    sent = of(NODE, NodeBaseline("node2", 2e-3, 0.0, 1))
    body = encode_event(baseline_event(sent, source="/kernelcast/predictor/a", time_ns=1_700_000_000_000_000_000))

    assert baseline_from(decode_event(body)) == sent
    assert json.loads(body)["subject"] == sent.key == "gemm#1a2b|128x128|NVIDIA H100"


def test_the_largest_baseline_fits_into_an_event() -> None:
    nodes = tuple(NodeBaseline(f"{at:03}" + "h" * 60, 0.123456789012345, 0.123456789012345, 10**9, "v" * 64, 2**62)
                  for at in range(MAX_NODES))  # fmt: skip
    assert len(encode_event(baseline_event(of(*nodes), source="/s", time_ns=1))) < MAX_EVENT_BYTES


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"median_seconds": 0}, "median_seconds is 0: it must be above 0"),
        ({"median_seconds": "NaN"}, "it is not a number"),
        ({"median_seconds": float("nan")}, "it is not finite"),
        ({"spread_ratio": -1}, "it must be at least 0"),
        ({"count": 0}, "it must be at least 1"),
        ({"sm_clock_mhz": -1.0}, "it must be at least 0"),
        ({"count": 1.5}, "count is 1.5: it is not an integer"),
        ({"time_ns": True}, "time_ns is True: it is not an integer"),
        ({"hostname": 3}, "hostname"),
        ({"hostname": "h" * 600}, "hostname"),
    ],
)
def test_a_part_that_cannot_be_is_refused_with_its_value(change: dict[str, Any], problem: str) -> None:
    event = baseline_event(of(NODE), source="/s", time_ns=1)
    event["data"]["nodes"] = [{**json.loads(json.dumps(event["data"]["nodes"][0])), **change}]
    with pytest.raises(EventError, match=problem):
        baseline_from(event)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"type": "dev.kernelcast.hint.v1"}, "expected 'dev.kernelcast.baseline.v1'"),
        ({"data": None}, "has no data object; it is refused"),
        ({"data": {"kernel": "k"}}, "unusable data: configuration is missing; it is refused"),
        ({"data": {"kernel": "k", "configuration": "", "device_model": "m", "nodes": [{}] * 65}}, "the limit is 64"),
    ],
)
def test_an_event_without_a_baseline_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(EventError, match=problem):
        baseline_from({**baseline_event(of(NODE), source="/s", time_ns=1), **change})


PARTS = st.builds(
    NodeBaseline, st.sampled_from("abcd"), st.floats(0.001, 1), st.floats(0, 1), st.integers(1, 9), st.just(""),
    st.integers(0, 3),
)  # fmt: skip
BASELINES = st.lists(PARTS, max_size=6, unique_by=lambda part: part.hostname).map(lambda parts: of(*parts))


@given(BASELINES, BASELINES, BASELINES)
def test_merging_does_not_depend_on_the_order_of_arrival(
    first: KernelBaseline, second: KernelBaseline, third: KernelBaseline
) -> None:
    assert merge(first, second) == merge(second, first)
    assert merge(merge(first, second), third) == merge(first, merge(second, third))
    assert merge(merge(first, first), second) == merge(first, second)


def test_merging_takes_the_newest_part_of_each_node_and_keeps_the_newest_nodes() -> None:
    newer = NodeBaseline("node1", 5e-3, 0.02, 1, "v4", 8)
    many = of(*(NodeBaseline(f"n{at:03}", 1e-3, 0.0, 1, "", at) for at in range(MAX_NODES)))

    assert merge(of(newer), of(NODE)).nodes == (newer,)
    merged = merge(many, of(NodeBaseline("z", 1e-3, 0.0, 1, "", 99)))
    assert len(merged.nodes) == MAX_NODES
    assert {part.hostname for part in merged.nodes} == {f"n{at:03}" for at in range(1, MAX_NODES)} | {"z"}


def test_baselines_of_different_kernels_are_not_merged() -> None:
    with pytest.raises(ValueError, match="merge those of one key"):
        merge(of(NODE), KernelBaseline("other", "", "NVIDIA H100"))

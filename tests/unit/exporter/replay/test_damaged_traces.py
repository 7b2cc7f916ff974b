"""Damaged Chrome traces: what can be read is read, what cannot is counted and named by its line."""

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.support.examples import parser_examples

from kernelcast.exporter.replay import Trace
from kernelcast.exporter.replay.formats import kineto
from kernelcast.wire.errors import TraceError


def kernel(number: int, **more: Any) -> dict[str, Any]:
    arguments = {"device": 0, "stream": 7, "correlation": number}
    event = {"ph": "X", "cat": "kernel", "name": f"k{number}", "pid": 0, "tid": 7, "ts": 1000.5 + 50 * number}
    return {**event, "dur": 10, "args": {**arguments, **more}}


def text_of(*events: dict[str, Any], before: str = '"schemaVersion": 1, ', after: str = ', "traceName": "t"') -> str:
    """A trace with an event a line: events begin in line 2."""
    lines = ",\n".join(json.dumps(event) for event in events)
    return "{" + before + '"traceEvents": [\n' + lines + "\n]" + after + "}"


def read(folder: Path, text: str | bytes) -> Trace:
    path = folder / "trace.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return kineto.read(path)


def said(trace: Trace) -> str:
    return "; ".join(trace.notes)


@pytest.mark.parametrize(
    "value",
    [
        '"Process Group Description": }',  # pytorch/pytorch PR 172353
        '"Process Group Description": , "x": 1}',
        '"dims": [1, , 2], "x": }',
        '"path": "torch\\cuda\\_utils.py"}',  # pytorch/pytorch issue 98432: Windows
        '"GB/s": -inf, "x": nan, "y": }',
        '"last": 1,}',
        '"tab": "a\tb", "x": }',
    ],
)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_value_that_is_no_json_loses_only_itself(tmp_path: Path, value: str, position: int) -> None:
    text = text_of(kernel(0), kernel(1), kernel(2))
    whole = f'"correlation": {position}}}'
    trace = read(tmp_path, text.replace(whole, f'"correlation": {position}, {value}'))
    if "[1, , 2]" in value:  # what a list lacks cannot be known
        assert sorted(trace.names) == sorted({"k0", "k1", "k2"} - {f"k{position}"})
        assert f"1 damaged event of 3 left out: line {position + 2}" in said(trace)
        assert trace.read_ratio == pytest.approx(2 / 3)
        return
    assert trace.names == ("k0", "k1", "k2")
    assert trace.launches.spans.duration_ns.tolist() == [10_000] * 3
    assert f"1 damaged event read without the value that is no JSON: line {position + 2}" in said(trace)
    assert (trace.read_ratio, trace.complete, trace.title) == (1.0, True, "t")


@pytest.mark.parametrize(
    "broken",
    [
        '{"ph": "X", "cat": "python_function", "name": "Library("_inductor_test", "IMPL")\n(1): <module>", "pid": 1}',
        '{"ph": "X", "cat": "cpu_op", ttid": 0, "ts": 5}',  # pytorch/pytorch issue 33961
        '{"ph": "X", "cat": "cpu_op", "ts": 0x1p}',
        "none",
    ],
)
def test_an_event_that_cannot_be_read_is_counted_and_named_by_its_line(tmp_path: Path, broken: str) -> None:
    """pytorch/pytorch issue 113001: a source line with quotes is the name of a function."""
    text = text_of(*map(kernel, range(4)))
    lines = text.splitlines()
    lines.insert(3, broken + ",")
    trace = read(tmp_path, "\n".join(lines))
    assert trace.names == ("k0", "k1", "k2", "k3")
    assert "1 damaged event of 5 left out: line 4" in said(trace)
    assert (trace.read_ratio, trace.complete) == (0.8, False)


def test_of_many_damaged_events_the_first_are_named(tmp_path: Path) -> None:
    text = text_of(*map(kernel, range(1000)))
    trace = read(tmp_path, text.replace('"ts": 1', '"ts": 1x', 7))
    assert len(trace.launches.spans) == 993
    assert "7 damaged events of 1000 left out: line 2, line 3, line 4, line 5, line 6, …" in said(trace)
    assert (trace.read_ratio, trace.complete) == (0.993, True)


def test_a_list_without_its_end_is_a_whole_trace(tmp_path: Path) -> None:
    """Chrome's format: the `]` is optional."""
    listed = "[\n" + ",\n".join(json.dumps(kernel(at)) for at in range(3))
    for text in (listed, listed + ",", listed + ",\n", listed + "\n]"):
        trace = read(tmp_path, text)
        assert trace.names == ("k0", "k1", "k2")
        assert (trace.complete, "end" in said(trace)) == (True, False)


@pytest.mark.parametrize("lost", [1, 30, 100])
def test_a_cut_file_says_where_it_ends_and_what_is_missing(tmp_path: Path, lost: int) -> None:
    calls = [{**kernel(at), "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 9} for at in range(1, 4)]
    text = text_of(*calls, kernel(1), kernel(2), kernel(3), after="")
    trace = read(tmp_path, text[: text.rindex("\n]") - lost])
    assert trace.names == ("k1", "k2")
    assert "its end is missing: the file ends within an event at line 7" in said(trace)
    assert "1 of its 3 launching calls have no work of a GPU in it" in said(trace)
    assert math.isnan(trace.read_ratio)
    assert not trace.complete


def test_a_file_that_is_cut_between_events_or_gzip_that_ends_early_is_read_so_far(tmp_path: Path) -> None:
    text = text_of(*map(kernel, range(300)))
    cut = text[: text.index('{"ph"', len(text) // 2)].rstrip()
    trace = read(tmp_path, cut)
    assert 100 < len(trace.launches.spans) < 200
    assert "no event follows line" in said(trace)
    packed = gzip.compress(text.encode())
    trace = read(tmp_path, packed[: len(packed) // 2])
    assert 50 < len(trace.launches.spans) < 250
    assert "its end is missing: " in said(trace)
    assert "gzip: Compressed file ended" in said(trace)
    assert not trace.complete


def test_a_trace_behind_another_is_not_left_out_without_a_word(tmp_path: Path) -> None:
    trace = read(tmp_path, text_of(kernel(0)) + text_of(kernel(1)))
    assert trace.names == ("k0",)
    assert "characters are behind the list of events" in said(trace)
    assert not trace.complete


def test_long_events_and_a_byte_order_mark_are_no_damage(tmp_path: Path) -> None:
    long = kernel(0, **{"Input Dims": [{"name": "x" * 3_000, "id": at} for at in range(100)]})
    text = text_of(long, kernel(1), kernel(2)).replace('"correlation": 1}', '"correlation": 1, "x": }')
    for read_text in ("\ufeff" + text, text):
        assert read(tmp_path, read_text).names == ("k0", "k1", "k2")


def test_a_list_with_things_that_are_no_events_keeps_the_events(tmp_path: Path) -> None:
    trace = read(tmp_path, json.dumps({"traceEvents": [kernel(0), None, 5, kernel(1), {}]}))
    assert trace.names == ("k0", "k1")
    assert "2 damaged events of 5 left out: event 1, event 2" in said(trace)


def test_fields_beside_the_events_survive_damage(tmp_path: Path) -> None:
    before = (
        '"distributedInfo": {"rank": 3, "backend": , "world_size": 8}, "baseTimeNanoseconds": 1700000000000000000, '
    )
    trace = read(tmp_path, text_of(kernel(0), before=before))
    assert (trace.rank, trace.world_size, trace.title) == ("3", 8, "t")
    assert trace.start_ns == 1_700_000_000_000_000_000 + 1_000_500


@given(st.data())
@parser_examples(120, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_trace_that_is_cut_or_spoilt_anywhere_is_read_or_refused_with_its_name(
    tmp_path: Path, data: st.DataObject
) -> None:
    text = text_of(*map(kernel, range(5)))
    at = data.draw(st.integers(0, len(text)))
    spoilt = data.draw(st.sampled_from(["", '"', "\\", "{", "}", "]", ",", "nul", "\n"]))
    after = text[at + data.draw(st.integers(0, 30)) :] if data.draw(st.booleans()) else ""
    try:
        trace = read(tmp_path, text[:at] + spoilt + after)
    except TraceError as error:
        refused = str(error)
    else:
        refused = ""
        assert len(trace.launches.spans) + trace.unusable <= 5
    assert not refused or str(tmp_path) in refused

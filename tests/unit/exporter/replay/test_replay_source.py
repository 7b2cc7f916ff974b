"""A replay's pace and its totals, on small recordings made here."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import parser_examples

from kernelcast.exporter.replay import TraceSource
from kernelcast.exporter.replay.occupation import COLLECTIVE, COMPUTE, COPY, IDLE, OVERLAP, STATES, Occupation
from kernelcast.exporter.replay.trace import EventSpans, LaunchConfiguration, Span, Trace, TraceBuilder, TraceOrigin
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.kernels import kernel_id, normalise

SECOND = 1_000_000_000
NOW = 1_760_000_000 * SECOND
SMALL = LaunchConfiguration("1x1x1", "64x1x1", 32, 0)
LARGE = LaunchConfiguration("8x1x1", "64x1x1", 32, 0)


def recording(*launches: tuple[int, int, str]) -> Trace:
    recorder = TraceBuilder()
    for start_ns, duration_ns, name in launches:
        recorder.launch(Span(start_ns, duration_ns, 0), name, SMALL, 7)
    return recorder.trace(TraceOrigin("made here", "0123456789abcdef", {0: "NVIDIA A100"}))


def source(trace: Trace, speed: float | None = 1.0) -> TraceSource:
    return TraceSource(trace, program="train", rank="0", hostname="node1", speed=speed, start_ns=NOW)


def launches_in(batch: SourceBatch) -> int:
    return sum(row.launches for report in batch.reports for row in report.rows)


def test_a_kernel_is_reported_once_its_end_has_passed() -> None:
    replayed = source(recording((0, 2 * SECOND, "k"), (3 * SECOND, SECOND, "k")))
    assert replayed.poll(NOW - 1) == SourceBatch()
    assert launches_in(replayed.poll(NOW)) == 0
    assert launches_in(replayed.poll(NOW + 2 * SECOND - 1)) == 0
    assert launches_in(replayed.poll(NOW + 2 * SECOND)) == 1
    last = replayed.poll(NOW + 4 * SECOND)
    assert launches_in(last) == 2
    assert last.done
    assert all(report.final for report in last.reports)
    assert replayed.poll(NOW + 5 * SECOND) == SourceBatch(done=True)


def test_at_four_times_the_speed_a_trace_takes_a_quarter() -> None:
    replayed = source(recording((0, SECOND, "k"), (7 * SECOND, SECOND, "k")), speed=4)
    assert launches_in(replayed.poll(NOW + SECOND // 4)) == 1
    assert not replayed.poll(NOW + 2 * SECOND - 1).done
    assert replayed.poll(NOW + 2 * SECOND).done


def test_a_speed_beyond_any_clock_ends_the_replay_at_once() -> None:
    replayed = source(recording((0, SECOND, "k")), speed=1e308)
    assert not replayed.poll(NOW).done
    assert replayed.poll(NOW + SECOND).done


def test_at_full_speed_everything_comes_with_the_first_poll() -> None:
    replayed = source(recording((0, SECOND, "k"), (7000 * SECOND, SECOND, "k")), speed=None)
    first = replayed.poll(NOW)
    assert first.done
    assert launches_in(first) == 2


def test_a_clock_that_steps_back_takes_nothing_back() -> None:
    replayed = source(recording((0, SECOND, "k"), (3 * SECOND, SECOND, "k")))
    before = dict(replayed.poll(NOW + 2 * SECOND).reports[0].counters.device_time)  # type: ignore[union-attr]
    after = dict(replayed.poll(NOW + SECOND).reports[0].counters.device_time)  # type: ignore[union-attr]
    assert after == before


@given(
    events=st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**6)), min_size=1, max_size=30),
    speed=st.floats(0.01, 1000),
    steps=st.lists(st.integers(0, 10**7), max_size=10),
)
@parser_examples(60)
def test_nothing_is_ever_reported_before_its_time(
    events: list[tuple[int, int]], speed: float, steps: list[int]
) -> None:
    replayed = source(recording(*((start, duration, "k") for start, duration in events)), speed=speed)
    first = min(start for start, _ in events)
    now_ns, reported = NOW, 0
    for step in steps:
        now_ns += step
        batch = replayed.poll(now_ns)
        if batch.reports and batch.reports[0].rows:
            reported = launches_in(batch)
        ended = sum((start + duration - first) / speed <= (now_ns - NOW) * (1 + 1e-12) for start, duration in events)
        assert reported <= ended


def test_raw_names_of_one_identity_add_up() -> None:
    first, second = "triton_poi_fused_add_3", "triton_poi_fused_add_17"
    replayed = source(recording((0, 5, first), (10, 7, second), (20, 9, "gemm")), speed=None)
    (report,) = replayed.poll(NOW).reports
    rows = {row.kernel: row for row in report.rows}
    shared = rows[kernel_id(normalise(first))]
    assert len(rows) == 2
    assert (shared.launches, shared.durations.sum_ns) == (2, 12)
    assert {name.signature for name in report.names} == {normalise(first), "gemm"}


def test_configurations_of_one_kernel_are_variants_of_it() -> None:
    recorder = TraceBuilder()
    for start_ns, configuration in ((0, SMALL), (10, LARGE), (20, LARGE)):
        recorder.launch(Span(start_ns, 4, 0), "gemm", configuration, 7)
    recorder.launch(Span(30, 4, 0), "unknown shape", LaunchConfiguration(), 7)
    (report,) = source(recorder.trace(TraceOrigin("", "d")), speed=None).poll(NOW).reports
    assert {variant: row.launches for (_, variant), row in report.variants.items()} == {
        "1x1x1|64x1x1": 1,
        "8x1x1|64x1x1": 2,
    }


@given(st.lists(st.tuples(st.integers(0, 2**40), st.sampled_from(["a", "b", "ncclAllReduce"])), max_size=40))
@parser_examples(60)
def test_totals_are_those_of_observing_each_launch(durations: list[tuple[int, str]]) -> None:
    expected: dict[int, DurationTotals] = {}
    for duration_ns, name in durations:
        expected.setdefault(kernel_id(name), DurationTotals()).observe(duration_ns)
    trace = recording(*((position, duration, name) for position, (duration, name) in enumerate(durations)))
    reports = source(trace, speed=None).poll(NOW).reports
    assert {row.kernel: row.durations for report in reports for row in report.rows} == expected


def test_totals_reported_earlier_do_not_change_later() -> None:
    replayed = source(recording((0, SECOND, "k"), (2 * SECOND, SECOND, "k")))
    early = replayed.poll(NOW + SECOND).reports[0].rows[0]
    replayed.poll(NOW + 3 * SECOND)
    assert early.durations.count == 1


def test_each_replay_is_a_process_of_its_own_on_a_device_that_the_file_determines() -> None:
    trace = recording((0, 1, "k"))
    one, other = source(trace), source(trace)
    assert one.process.nonce != other.process.nonce
    assert one.process.source == "replayed"
    assert one.devices == other.devices
    assert one.devices[0].uuid == "GPU-replay-0123456789abcdef-0"
    assert one.devices[0].model_name == "NVIDIA A100"


def test_copies_and_waits_add_up_by_kind() -> None:
    recorder = TraceBuilder()
    recorder.copy(Span(0, 10, 0), "h2d", "true", 100)
    recorder.copy(Span(20, 10, 0), "h2d", "true", 50)
    recorder.copy(Span(40, 5, 1), "d2h", "", 7)
    recorder.sync(Span(41, 30, 0), "stream")
    replayed = source(recorder.trace(TraceOrigin("", "d")))
    middle = {report.device.gpu: report.counters for report in replayed.poll(NOW + 15).reports}
    assert middle["0"] is not None
    assert middle["0"].memcpy == (("h2d", "true", 100, 1, 10),)
    assert middle["0"].sync == (("stream", 0, 0),)
    end = {report.device.gpu: report.counters for report in replayed.poll(NOW + 100).reports}
    assert end["0"] is not None
    assert end["1"] is not None
    assert end["0"].memcpy == (("h2d", "true", 150, 2, 20),)
    assert end["0"].sync == (("stream", 1, 30),)
    assert end["1"].memcpy == (("d2h", "", 7, 1, 5),)
    assert replayed.copies == 3


def test_fills_are_copies_of_the_kind_memset_but_no_copies_in_the_account() -> None:
    recorder = TraceBuilder()
    recorder.memset(Span(0, 10, 0), 100)
    recorder.memset(Span(20, 10, 0), 50)
    recorder.memset(Span(40, 5, 1), 7)
    recorder.copy(Span(41, 5, 1), "d2h", "", 3)
    replayed = source(recorder.trace(TraceOrigin("", "d")))
    middle = {report.device.gpu: report.counters for report in replayed.poll(NOW + 15).reports}
    assert middle["0"] is not None
    assert middle["0"].memcpy == (("memset", "", 100, 1, 10),)
    end = {report.device.gpu: report.counters for report in replayed.poll(NOW + 100).reports}
    assert end["0"] is not None
    assert end["1"] is not None
    assert end["0"].memcpy == (("memset", "", 150, 2, 20),)
    assert end["1"].memcpy == (("d2h", "", 3, 1, 5), ("memset", "", 7, 1, 5))
    assert replayed.copies == 1


def test_a_recording_without_gpu_activity_ends_at_once_and_says_nothing() -> None:
    assert source(recording()).poll(NOW) == SourceBatch(done=True)


# The GPU's activity, compared with a walk over every nanosecond.

KINDS = (COMPUTE, COLLECTIVE, COPY)


def walked(events: list[tuple[int, int, str]], until: int, end: int) -> dict[str, int]:
    totals = dict.fromkeys(STATES, 0)
    for moment in range(min(until, end)):
        running = {kind for start, duration, kind in events if start <= moment < start + duration}
        if COMPUTE in running:
            totals[OVERLAP if len(running) > 1 else COMPUTE] += 1
        elif COLLECTIVE in running:
            totals[COLLECTIVE] += 1
        else:
            totals[COPY if running else IDLE] += 1
    return totals


def spans(events: list[tuple[int, int, str]], kind: str) -> EventSpans:
    chosen = sorted((start + duration, start, duration) for start, duration, one in events if one == kind)
    columns = np.array(chosen, dtype=np.int64).reshape(-1, 3).T
    return EventSpans(columns[1], columns[2], np.zeros(columns.shape[1], dtype=np.int64))


@given(
    events=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30), st.sampled_from(KINDS)), max_size=12),
    moments=st.lists(st.integers(0, 100), min_size=1, max_size=6),
)
@parser_examples(150)
def test_device_time_equals_a_walk_over_every_moment(events: list[tuple[int, int, str]], moments: list[int]) -> None:
    end = max((start + duration for start, duration, _ in events), default=0)
    occupation = Occupation(tuple((kind, spans(events, kind)) for kind in KINDS), start_ns=0, end_ns=end)
    for moment in moments:
        assert dict(occupation.until(moment)) == walked(events, moment, end)


def test_device_time_adds_up_to_the_time_that_has_passed() -> None:
    trace = recording((100, 50, "k"), (120, 60, "ncclDevKernel_AllReduce"), (300, 10, "k"))
    replayed = source(trace, speed=None)
    counters = replayed.poll(NOW).reports[0].counters
    assert counters is not None
    assert dict(counters.device_time) == {"compute": 30, "overlap": 30, "collective": 30, "copy": 0, "idle": 120}
    assert sum(total for _, total in counters.device_time) == trace.end_ns - trace.start_ns


@pytest.mark.parametrize("speed", [1.0, 1e-6, 1e6])
def test_position_runs_from_zero_to_the_length(speed: float) -> None:
    replayed = source(recording((5 * SECOND, SECOND, "k")), speed=speed)
    assert (replayed.position_seconds, replayed.length_seconds) == (0, 1)
    replayed.poll(NOW + math.ceil(SECOND / speed))
    assert replayed.position_seconds == 1

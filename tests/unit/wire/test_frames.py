import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import parser_examples

from kernelcast.wire import frames
from kernelcast.wire.errors import FrameError
from kernelcast.wire.histogram import DurationTotals

U64 = st.integers(min_value=0, max_value=2**63)


@st.composite
def kernel_rows(draw: st.DrawFn) -> frames.KernelRow:
    totals = DurationTotals()
    for duration_ns in draw(st.lists(st.integers(min_value=0, max_value=10**13), max_size=20)):
        totals.observe(duration_ns)
    return frames.KernelRow(draw(U64), draw(U64), totals, draw(U64), draw(U64), draw(U64))


def texts(longest: int) -> st.SearchStrategy[str]:
    return st.text(st.characters(codec="utf-8"), max_size=longest)


@st.composite
def counters(draw: st.DrawFn) -> frames.Counters:
    gaps = DurationTotals()
    for duration_ns in draw(st.lists(st.integers(min_value=0, max_value=10**13), max_size=20)):
        gaps.observe(duration_ns)

    def rows(*parts: st.SearchStrategy[object]) -> tuple[tuple[object, ...], ...]:
        return tuple(draw(st.lists(st.tuples(*parts), max_size=5)))

    text = texts(20)
    return frames.Counters(
        draw(st.integers(0, 63)),
        memcpy=rows(text, text, U64, U64, U64),  # type: ignore[arg-type]
        sync=rows(text, U64, U64),  # type: ignore[arg-type]
        device_time=rows(text, U64),  # type: ignore[arg-type]
        overhead_ns=draw(U64),
        launch_gaps=draw(st.sampled_from([None, gaps])),
        pools=rows(text, text, U64),  # type: ignore[arg-type]
        regions=rows(text, U64, U64, U64),  # type: ignore[arg-type]
        unseen=rows(text, U64),  # type: ignore[arg-type]
        dropped_records=draw(U64),
        dropped_outcomes=draw(U64),
        malformed_hints=draw(U64),
        untimed_records=draw(U64),
    )


@given(st.lists(kernel_rows(), max_size=50))
def test_kernel_rows_survive_the_socket(rows: list[frames.KernelRow]) -> None:
    packets = list(frames.encode(frames.KernelRows(3, tuple(rows))))
    back = [frames.decode(packet) for packet in packets]
    assert all(isinstance(frame, frames.KernelRows) and frame.device == 3 for frame in back)
    assert [row for frame in back if isinstance(frame, frames.KernelRows) for row in frame.rows] == rows


@given(st.lists(st.builds(frames.VariantRow, U64, texts(128), U64, U64, st.integers(0, 2**128 - 1)), max_size=50))
def test_variant_rows_survive_the_socket(rows: list[frames.VariantRow]) -> None:
    back = [frames.decode(packet) for packet in frames.encode(frames.VariantRows(3, tuple(rows)))]
    assert [row for frame in back if isinstance(frame, frames.VariantRows) for row in frame.rows] == rows


@given(counters())
def test_counters_survive_the_socket(sent: frames.Counters) -> None:
    assert [frames.decode(packet) for packet in frames.encode(sent)] == [sent]


@given(st.builds(frames.Status, texts(20), texts(20), texts(200), st.floats(0, 1)))
def test_a_status_survives_the_socket(sent: frames.Status) -> None:
    assert [frames.decode(packet) for packet in frames.encode(sent)] == [sent]


@pytest.mark.parametrize(
    "frame",
    [
        frames.Hello("p", "ab", 1, 2, rank="0", devices=(frames.DeviceClaim("GPU-1", "0", "A100"),)),
        frames.Names((frames.KernelName(2**64 - 1, "void f<int>(…)", "1x1x1", "32x1x1", 40, 1024, 96, 0.75),)),
        frames.Counters(0, memcpy=(("h2d", "true", 1, 2, 3),), sync=(("stream", 2, 5),), device_time=(("idle", 9),)),
        frames.Tunables((frames.TunableClaim("block", "48", ("32", "64"), kernels=("k",)),)),
        frames.HintFrame({"id": "1"}),
        frames.OutcomeFrame({"id": "1"}),
        frames.OutcomesConfirmed(("1", "2")),
        frames.Bye(),
    ],
)
def test_control_frames_survive_the_socket(frame: frames.Frame) -> None:
    (packet,) = frames.encode(frame)
    assert frames.decode(packet) == frame


def test_frames_that_are_too_long_for_a_packet_are_split_and_no_packet_is_too_long() -> None:
    totals = DurationTotals()
    for index in range(200):
        totals.observe(1000 + 137 * index * index)
    rows = frames.KernelRows(0, tuple(frames.KernelRow(number, 1, totals) for number in range(300)))
    names = frames.Names(tuple(frames.KernelName(number, "k" * 1800) for number in range(100)))
    variant = frames.VariantRow(7, "v" * 128, 1, 2, 4)
    for frame in (rows, names, frames.VariantRows(0, (variant,) * 1000)):
        packets = list(frames.encode(frame))
        assert len(packets) > 1
        assert max(len(packet) for packet in packets) <= frames.MAX_FRAME_BYTES


def test_a_row_that_fits_no_field_is_refused_and_not_cut() -> None:
    for frame in (
        frames.KernelRows(0, (frames.KernelRow(1, 2**64, DurationTotals()),)),
        frames.VariantRows(0, (frames.VariantRow(1, "v", -1, 1, 1),)),
    ):
        with pytest.raises(FrameError, match="does not fit"):
            list(frames.encode(frame))


def test_a_single_name_that_fits_no_packet_is_refused_with_the_limit() -> None:
    with pytest.raises(FrameError, match="the limit is 65536"):
        list(frames.encode(frames.Names((frames.KernelName(1, "k" * 70_000),))))


@parser_examples(300)
@given(st.binary(max_size=400))
def test_random_bytes_are_a_frame_that_can_be_written_again_or_are_refused(body: bytes) -> None:
    for packet in (body, *(frames.HEADER.pack(frames.MAGIC, 2, kind) + body for kind in range(12))):
        try:
            frame = frames.decode(packet)
        except FrameError:
            continue
        assert [frames.decode(again) for again in frames.encode(frame)] in ([frame], [])


@given(kernel_rows(), st.data())
def test_a_truncated_or_altered_row_never_gives_a_count_its_buckets_do_not_have(
    row: frames.KernelRow, data: st.DataObject
) -> None:
    (packet,) = frames.encode(frames.KernelRows(0, (row,)))
    cut = packet[: data.draw(st.integers(min_value=0, max_value=len(packet) - 1))]
    with pytest.raises(FrameError):
        frames.decode(cut)
    position = data.draw(st.integers(min_value=frames.HEADER.size, max_value=len(packet) - 1))
    altered = packet[:position] + bytes([packet[position] ^ 0x41]) + packet[position + 1 :]
    try:
        frame = frames.decode(altered)
    except FrameError:
        return
    assert isinstance(frame, frames.KernelRows)
    for each in frame.rows:
        assert each.durations.count == each.durations.zero_count + sum(each.durations.buckets.values())


@pytest.mark.parametrize(
    "packet",
    [
        b"\x00\x00\x01\x00" + b"\x01" * 40 + b"\x09\x00" + b"short",
        b"\x00\x00\x01\x00" + b"\x01" * 40 + b"\x01\x00" + b"\xff",
        b"\x00\x00\x02\x00" + b"\x01" * 40 + b"\x01\x00" + b"v",
        b"\x00\x00\x01\x00" + b"\x01" * 40 + b"\x01\x00" + b"vv",
    ],
    ids=["text beyond the end", "no UTF-8", "row missing", "bytes too many"],
)
def test_a_spoilt_variant_is_refused(packet: bytes) -> None:
    with pytest.raises(FrameError, match="VariantRows frame"):
        frames.decode(frames.HEADER.pack(frames.MAGIC, 2, frames.VariantRows.TYPE) + packet)


@pytest.mark.parametrize(
    "gaps",
    [
        {"count": 2, "sum_ns": 5, "sum_squares_ns2": 25, "zero_count": 0, "buckets": {"3": 1}},
        {"count": 1, "sum_ns": -5, "sum_squares_ns2": 25, "zero_count": 0, "buckets": {"3": 1}},
        {"count": 1, "sum_ns": 5, "sum_squares_ns2": 2.5, "zero_count": 0, "buckets": {"3": 1}},
        {"count": 1, "sum_ns": 5, "sum_squares_ns2": 25, "zero_count": 0, "buckets": {"x": 1}},
        {"count": 1, "sum_ns": 5},
        [1, 2],
    ],
)
def test_gaps_that_contradict_themselves_are_refused(gaps: object) -> None:
    body = json.dumps({"device": 0, "launch_gaps": gaps}).encode()
    with pytest.raises(FrameError, match="Counters frame is malformed"):
        frames.decode(frames.HEADER.pack(frames.MAGIC, 2, frames.Counters.TYPE) + body)


@pytest.mark.parametrize("ratio", ["NaN", "1e999", '"half"', "true"])
def test_a_ratio_that_is_no_number_is_refused(ratio: str) -> None:
    body = f'{{"method":"event","state":"active","sample_ratio":{ratio}}}'.encode()
    with pytest.raises(FrameError, match="sample_ratio"):
        frames.decode(frames.HEADER.pack(frames.MAGIC, 2, frames.Status.TYPE) + body)


@pytest.mark.parametrize(
    "body",
    [
        {"program": 1, "nonce": "a", "start_ns": 1, "pid": 1},
        {"program": "p", "nonce": "a", "start_ns": "soon", "pid": 1},
        {"program": "p", "nonce": "a", "start_ns": 2**80, "pid": 1},
        {"program": "p", "nonce": "a", "start_ns": 1, "pid": 1, "devices": [{"uuid": 3}]},
        {"program": "p"},
    ],
)
def test_a_field_of_the_wrong_type_is_refused(body: dict[str, object]) -> None:
    packet = frames.HEADER.pack(frames.MAGIC, 2, frames.Hello.TYPE) + json.dumps(body).encode()
    with pytest.raises(FrameError, match="Hello frame is malformed"):
        frames.decode(packet)


@pytest.mark.parametrize(
    "rows",
    [{"memcpy": [["h2d", "true", 1]]}, {"sync": [["stream", "1", 2]]}, {"phases": [7]}, {"steps": 1.5}],
    ids=["cell missing", "text for a number", "no row", "half a step"],
)
def test_rows_of_another_shape_are_refused(rows: dict[str, object]) -> None:
    body = json.dumps({"device": 0, **rows}).encode()
    with pytest.raises(FrameError, match=f"Counters frame is malformed: {next(iter(rows))} is"):
        frames.decode(frames.HEADER.pack(frames.MAGIC, 2, frames.Counters.TYPE) + body)


def test_another_protocol_version_says_what_to_do() -> None:
    with pytest.raises(FrameError, match="install the same kernelcast"):
        frames.decode(frames.HEADER.pack(frames.MAGIC, 9, 1))


@pytest.mark.parametrize("event_ids", [b"7", b"[7]", b"[{}]", b"null"])
def test_confirmed_ids_that_are_no_texts_are_refused(event_ids: bytes) -> None:
    with pytest.raises(FrameError):
        frames.decode(b'KC\x02\x0b{"event_ids":' + event_ids + b"}")


@pytest.mark.parametrize("kind", [frames.HintFrame, frames.OutcomeFrame])
@pytest.mark.parametrize("event", [b"[]", b"7", b"null", b'"hint"'])
def test_an_event_that_is_no_object_is_refused_and_reaches_no_reader(kind: Any, event: bytes) -> None:
    with pytest.raises(FrameError, match=r"event is .*: it is not an object"):
        frames.decode(frames.HEADER.pack(frames.MAGIC, 2, kind.TYPE) + b'{"event":' + event + b"}")

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz import readings
from tests.fuzz.shapes import influx
from tests.fuzz.targets import points_of
from tests.support.bridge.input_reading import one, read
from tests.support.examples import parser_examples

from kernelcast.bridge.inputs import TopicFormat
from kernelcast.bridge.inputs.influx import InfluxLines
from kernelcast.wire.catalogue import Kind


def test_names_and_labels_are_those_of_telegrafs_prometheus_output() -> None:
    points = read(InfluxLines(), b"cpu,host=a,cpu-total=all usage_idle=97.5,n=4i,big=5u,up=t 1700000000000000001\n")
    assert [(point.name, point.value) for point in points] == [
        ("cpu_usage_idle", 97.5),
        ("cpu_n", 4),
        ("cpu_big", 5),
        ("cpu_up", 1),
    ]
    assert {(point.kind, point.labels, point.time_ns) for point in points} == {
        (Kind.UNKNOWN, 'cpu_total="all",host="a"', 1700000000000000001)
    }


def test_a_measurement_called_prometheus_gives_the_field_its_own_name() -> None:
    assert one(InfluxLines(), b"prometheus,job=x http_requests_total=3").name == "http_requests_total"


def test_escapes_are_undone_and_spaces_in_quotes_divide_nothing() -> None:
    line = rb'disk\ io,path=/a\ b,c\,d=e\=f free\ space=1,note="x, y=z \" w",n=2i 5'
    points = read(InfluxLines(), line)
    assert [(point.name, point.value, point.time_ns) for point in points] == [
        ("disk_io_free_space", 1.0, 5),
        ("disk_io_n", 2, 5),
    ]
    assert points[0].labels == 'c_d="e=f",path="/a b"'


def test_strings_are_left_out_and_counted() -> None:
    decoded = InfluxLines().decode([b'm s="text",t="more"\nm v=1'])
    assert (decoded.numbers.value.tolist(), decoded.unsupported) == ([1.0], 2)


@pytest.mark.parametrize(("precision", "scale"), [("ns", 1), ("us", 10**3), ("ms", 10**6), ("s", 10**9)])
def test_times_count_the_unit_that_the_setting_says(precision: str, scale: int) -> None:
    source = InfluxLines(TopicFormat.model_validate({"format": "influx", "precision": precision}))
    assert one(source, b"m v=1 1700000000").time_ns == 1_700_000_000 * scale
    assert one(source, b"m v=1 -1").time_ns == 1
    assert one(source, b"m v=1 \t7").time_ns == one(source, b'm v=1,s="x y" \t7').time_ns == 7 * scale
    assert one(source, b"m v=1").time_ns == 0


def test_integers_stay_exact() -> None:
    assert one(InfluxLines(), b"m v=9007199254740993i").value == 9007199254740993


@pytest.mark.parametrize(
    "line",
    [
        b"m",
        b"m v",
        b"m v=",
        b"m =1",
        b"m v=1,",
        b"m v=1x",
        b"m v=1.5i",
        b"m v=nan",
        b"m v=1 now",
        b"m v=1 1 1",
        b"m v=1 99999999999999999999999",
        b"m,a v=1",
        b"m,a= v=1",
        b"m,,a=b v=1",
        b",a=b v=1",
        b'm v="open',
        b'm v="a""b"',
        b"m v=\xff",
        b'm,a s="only a string"',
    ],
)
def test_a_message_with_a_wrong_line_is_refused_whole(line: bytes) -> None:
    source = InfluxLines()
    decoded = source.decode([b"good v=1\n" + line, b"good v=2"])
    assert [index for index, _ in decoded.failures] == [0]
    assert (decoded.numbers.value.tolist(), len(source.interner)) == ([2.0], 1)


@parser_examples(300)
@given(seed=st.integers(0, 2**63))
def test_lines_read_as_a_slow_reading_of_the_protocol_reads_them(seed: int) -> None:
    message = influx(random.Random(seed))
    source = InfluxLines()
    for _ in range(2):  # unknown, then known
        decoded = source.decode([message])
        assert list(points_of(source, decoded, 0)) == readings.influx(message)
    source.forget(np.arange(20, dtype=np.int32))
    assert len(source.interner) == 0


@pytest.mark.parametrize(
    ("message", "values"),
    [
        (b'deadlocks,db=master seq=5i,xml="this does\nnot work" 1\ndeadlocks,db=master seq=2i 2\n', [5, 2]),
        (b'log text="a \\"quoted\\" word\nand a second line",n=1i 1\nlog n=2i 2', [1, 2]),
        (b'log text="first\r\ncpu n=7i 9\r\n",n=1i 1\r\nlog n=2i 2\r\n', [1, 2]),
        (b'log text="first\n# no comment",other="\n\n",n=1i\nlog n=2i', [1, 2]),
        (b'log,tag="x n=1i 1\nlog,tag=y" n=2i,text="a\nb" 2', [1, 2]),
        (b'# a "comment\nlog n=1i 1\n  log n=2i,text="a\nb" 2', [1, 2]),
        (b'  # a "comment\nlog n=1i 1\n\t# more\nlog n=2i 2', [1, 2]),
        (b"\xef\xbb\xbf# first\nlog n=1i 1\nlog n=2i 2", [1, 2]),
        (b'log text="ends in a backslash\\\\",n=1i 1\nlog n=2i 2', [1, 2]),
    ],
)
def test_a_line_feed_in_a_string_ends_no_line(message: bytes, values: list[int]) -> None:
    assert [point.value for point in read(InfluxLines(), message)] == values


def test_a_string_without_its_end_refuses_the_message() -> None:
    [(_, error)] = InfluxLines().decode([b'log n=1i,text="no end 1\nlog n=2i 2\n' * 1000]).failures
    assert "is no Influx line protocol" in str(error)

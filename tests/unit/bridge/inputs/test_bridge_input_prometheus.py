import random
from itertools import islice, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from tests.fuzz import readings
from tests.fuzz.shapes import prometheus
from tests.fuzz.targets import points_of
from tests.support.bridge.input_reading import one, read
from tests.support.examples import parser_examples

from kernelcast.bridge.inputs.interning import MAX_SPELLINGS
from kernelcast.bridge.inputs.prometheus.text import PrometheusText
from kernelcast.wire.catalogue import Kind

NS = 1_000_000_000


def test_a_page_reads_as_prometheus_reads_it() -> None:
    page = """# HELP http_requests_total Requests, by code.
# TYPE http_requests_total counter
http_requests_total{method="post",code="200"} 1027 1395066363000
http_requests_total{method="post",code="400",}    3
# A comment.
msdos_file_access_time_seconds{path="C:\\\\DIR\\\\FILE.TXT",error="Cannot find file:\\n\\"FILE.TXT\\""} 1.458255915e9
metric_without_timestamp_and_labels 12.47
something_weird{problem="division by zero"} +Inf -3982045
"""
    points = read(PrometheusText(), page.encode())
    assert [point.value for point in points] == [1027, 3, 1.458255915e9, 12.47, float("inf")]
    first = points[0]
    assert (first.name, first.kind, first.help) == ("http_requests_total", Kind.COUNTER, "Requests, by code.")
    assert (first.labels, first.time_ns) == ('code="200",method="post"', 1395066363 * NS)
    assert points[1].time_ns == 0
    assert points[2].labels == 'error="Cannot find file:\\n\\"FILE.TXT\\"",path="C:\\\\DIR\\\\FILE.TXT"'
    assert points[3].kind is Kind.UNKNOWN
    assert points[4].time_ns == 1  # before 1970: the oldest possible time, not without a time


def test_a_line_with_too_many_labels_is_refused_with_the_limit() -> None:
    line = "up{" + ",".join(f'l{i}="x"' for i in range(10_001)) + "} 1\n"
    [(_, error)] = PrometheusText().decode([line.encode()]).failures
    assert "more than 10000 labels" in str(error)


def test_classic_buckets_become_one_histogram() -> None:
    page = b"""# TYPE rpc_seconds histogram
rpc_seconds_bucket{le="0.1",path="/a"} 2
rpc_seconds_bucket{le="1",path="/a"} 5
rpc_seconds_bucket{le="+Inf",path="/a"} 6
rpc_seconds_sum{path="/a"} 7.5
rpc_seconds_count{path="/a"} 6
"""
    found = one(PrometheusText(), page)
    assert (found.name, found.kind, found.labels) == ("rpc_seconds", Kind.HISTOGRAM, 'path="/a"')
    assert (found.count, found.value) == (6, 7.5)
    assert (found.bounds, found.buckets) == ([0.1, 1.0], [2, 3, 1])


def test_a_histograms_own_label_le_cannot_stand_beside_the_bound_of_its_buckets() -> None:
    found = one(PrometheusText(), b'# TYPE x histogram\nx_count{a="b",le="5"} 3\n')
    assert (found.kind, found.labels) == (Kind.HISTOGRAM, 'a="b",exported_le="5"')


@pytest.mark.parametrize(
    "lines",
    [
        b'h_bucket{le="1"} 5\nh_bucket{le="+Inf"} 4\nh_count 4\n',
        b'h_bucket{le="1"} 1.5\nh_bucket{le="+Inf"} 4\n',
        b'h_bucket{le="1"} 1\n',
        b'h_bucket{le="+Inf"} NaN\n',
        b"h_sum 3\n",
    ],
)
def test_buckets_that_make_no_histogram_are_left_out_and_counted(lines: bytes) -> None:
    decoded = PrometheusText().decode([b"# TYPE h histogram\n" + lines + b"up 1\n"])
    assert (len(decoded.histograms.series), decoded.unsupported, decoded.numbers.value.tolist()) == (0, 1, [1.0])


def test_quantiles_beside_the_buckets_do_not_take_the_histograms_name() -> None:
    """Micrometer writes both in one family: open-telemetry/opentelemetry-collector-contrib issue 12976."""
    page = b'# TYPE h histogram\nh{quantile="0.5"} 0.1\nh_bucket{le="+Inf"} 4\nh_count 4\nh_sum 2\n'
    decoded = PrometheusText().decode([page])
    assert (decoded.histograms.count.tolist(), decoded.unsupported, len(decoded.numbers.value)) == ([4], 1, 0)
    assert decoded.failures == ()


def test_a_byte_order_mark_is_skipped() -> None:
    """prometheus/prometheus issue 3364: a library for .NET writes one."""
    assert one(PrometheusText(), b"\xef\xbb\xbf# TYPE up gauge\nup 1\n").kind is Kind.GAUGE
    assert one(PrometheusText(), b"\xef\xbb\xbfup 1\n").name == "up"


def test_openmetrics_counts_seconds_and_its_creation_times_are_starts() -> None:
    page = b"""# TYPE jobs counter
# UNIT jobs_seconds seconds
jobs_total{q="a"} 17 1520879607.789 # {trace_id="KOO5S4vxi0o"} 0.67
jobs_created{q="a"} 1520872607.123
# TYPE h histogram
h_bucket{le="+Inf"} 1
h_created 1520872608
# TYPE build info
build_info{version="1"} 1
# TYPE s summary
s{quantile="0.5"} 2
s_sum 10
s_count 4
s_created 3
# EOF
"""
    points = {point.name: point for point in read(PrometheusText(), page)}
    assert set(points) == {"jobs_total", "h", "build_info", "s", "s_sum", "s_count"}
    jobs = points["jobs_total"]
    assert (jobs.kind, jobs.value, jobs.time_ns) == (Kind.COUNTER, 17, 1520879607789000000)
    assert jobs.start_ns == 1520872607123000000
    assert (points["h"].start_ns, points["h"].count, points["h"].buckets) == (1520872608 * NS, 1, [1])
    assert points["build_info"].kind is Kind.INFO
    parts = [points[name] for name in ("s", "s_sum", "s_count")]
    assert [(part.kind, part.value, part.start_ns) for part in parts] == [
        (Kind.SUMMARY, 2, 0),
        (Kind.SUMMARY, 10, 0),
        (Kind.SUMMARY, 4, 3 * NS),
    ]


def test_names_in_quotes_are_read_and_made_legal() -> None:
    found = one(PrometheusText(), b'{"my.metric","a.b"="x",le="1"} 3\n')
    assert (found.name, found.labels, found.value) == ("my_metric", 'a_b="x",le="1"', 3)


def test_a_quoted_name_with_a_blank_has_its_type_and_help() -> None:
    page = b"""# HELP "a \\"b" what it counts
# TYPE "a \\"b" counter
{"a \\"b"} 3
"""
    found = one(PrometheusText(), page)
    assert (found.kind, found.help, found.value) == (Kind.COUNTER, "what it counts", 3)


def test_blanks_before_a_line_are_ignored_as_the_format_says() -> None:
    page = b"\t # TYPE up gauge\n  up 1\n\tup 2 1000\n \n"
    source = PrometheusText()
    for _ in range(2):  # unknown, then known
        points = read(source, page)
        assert [(found.kind, found.value, found.time_ns) for found in points] == [
            (Kind.GAUGE, 1, 0),
            (Kind.GAUGE, 2, NS),
        ]
    assert len(source.interner) == 1


@pytest.mark.parametrize(
    "line",
    [
        b"up",
        b"up1",
        b"up one",
        b"up 1_0",
        b"up 0x1p3",
        "up \N{ARABIC-INDIC DIGIT ONE}".encode(),
        b"up 1 2 3",
        b"up 1 1.5",
        b"up{a=b} 1",
        b'up{a="b" 1',
        b'up{a="b"}',
        b'up{a="b"c="d"} 1',
        b'{a="b"} 1',
        b"1up 1",
        b"up 1 99999999999999999999",
        b"# TYPE up speedometer",
        b"up \xff",
    ],
)
def test_a_page_with_a_wrong_line_is_refused_whole_and_says_why(line: bytes) -> None:
    source = PrometheusText()
    source.decode([b"up 1\n"])  # a known name makes no wrong line right
    decoded = source.decode([b'good{a="1"} 1\n' + line + b"\n", b"good 2\n"])
    [(index, error)] = decoded.failures
    assert (index, decoded.numbers.value.tolist(), len(source.interner)) == (0, [2.0], 2)
    assert "look at the producer" in str(error)


def test_pages_of_the_python_client_arrive_as_its_own_parser_reads_them() -> None:
    registry = CollectorRegistry()
    Counter("jobs", 'Jobs "done".', ["queue"], registry=registry).labels('a"b\\c\nd').inc(3)
    Gauge("temperature", "t", registry=registry).set(-1.5)
    Summary("size", "s", registry=registry).observe(2)
    Histogram("latency_seconds", "l", ["path"], registry=registry).labels("/x").observe(0.3)
    pages = [generate_latest(registry), openmetrics(registry)]  # type: ignore[no-untyped-call]
    for page in pages:
        points = {point.name: point for point in read(PrometheusText(), page) if not point.name.endswith("_created")}
        expected = {
            sample.name: sample.value
            for family in text_string_to_metric_families(generate_latest(registry).decode())
            for sample in family.samples
            if not sample.name.startswith("latency") and not sample.name.endswith("_created")
        }
        numbers = {name: point.value for name, point in points.items() if name != "latency_seconds"}
        assert numbers == expected
        assert (points["latency_seconds"].count, sum(points["latency_seconds"].buckets)) == (1, 1)


@parser_examples(300)
@given(seed=st.integers(0, 2**63))
def test_lines_read_as_a_slow_reading_of_the_grammar_reads_them(seed: int) -> None:
    page = b"\n".join(line for line in prometheus(random.Random(seed)).split(b"\n") if b"#" not in line)
    source = PrometheusText()
    for _ in range(2):  # unknown, then known
        decoded = source.decode([page])
        assert list(points_of(source, decoded, 0)) == (readings.prometheus(page) or [])


def test_start_times_that_the_python_client_writes_as_gauges_belong_to_their_series() -> None:
    registry = CollectorRegistry()
    Counter("jobs", "Jobs.", ["queue"], registry=registry).labels("a").inc(3)
    Histogram("latency", "", registry=registry).observe(1)
    Summary("size", "Size.", registry=registry).observe(2)
    page = generate_latest(registry)
    began = {line.split()[0]: line.split()[1] for line in page.decode().splitlines() if "_created" in line[:15]}
    source = PrometheusText()
    for _ in range(2):  # unknown, then known
        points = {point.name: point for point in read(source, page)}
        assert set(points) == {"jobs_total", "latency", "size_count", "size_sum"}
        assert points["jobs_total"].start_ns == pytest.approx(float(began['jobs_created{queue="a"}']) * 1e9)
        assert points["latency"].start_ns == pytest.approx(float(began["latency_created"]) * 1e9)
        assert points["size_count"].start_ns == pytest.approx(float(began["size_created"]) * 1e9)


@pytest.mark.parametrize(
    "page",
    [
        (
            "# HELP jobs_total Jobs.\n# TYPE jobs_total counter\njobs_total 3\n"
            "# HELP jobs_created Jobs made today.\n# TYPE jobs_created gauge\njobs_created 17\n"
        ),
        "# TYPE jobs_total counter\njobs_total 3\n# TYPE jobs_created gauge\njobs_created 17\n",
        (
            "# HELP jobs_created Jobs.\n# TYPE jobs_created gauge\njobs_created 17\n"
            "# HELP jobs_total Jobs.\n# TYPE jobs_total gauge\njobs_total 3\n"
        ),
    ],
)
def test_a_gauge_of_a_programs_own_stays_one_whatever_it_is_called(page: str) -> None:
    points = {point.name: (point.value, point.start_ns) for point in read(PrometheusText(), page.encode())}
    assert points == {"jobs_total": (3, 0), "jobs_created": (17, 0)}


def test_an_invalid_start_time_is_not_exposed() -> None:
    page = "# HELP x_total X\n# TYPE x_total counter\nx_total 3\n# HELP x_created X\n# TYPE x_created gauge\n"
    for value in ("NaN", "+Inf", "-1", "0", "1e300"):
        point = one(PrometheusText(), f"{page}x_created {value}\n".encode())
        assert (point.name, point.value, point.start_ns) == ("x_total", 3, 0)


def test_a_series_that_is_written_in_ever_other_ways_keeps_its_number_and_takes_bounded_memory() -> None:
    """As by a program that writes its labels in the order of a hash map."""
    reader = PrometheusText(max_identities=10)
    labels = [f'{name}="1"' for name in "abcdefg"]
    spellings = list(islice(permutations(labels), MAX_SPELLINGS + 500))
    page = "".join("a{" + ",".join(each) + "} 5\n" for each in spellings)
    for _ in range(2):
        assert {(point.labels, point.value) for point in read(reader, page.encode())} == {(",".join(labels), 5)}
    assert len(reader.interner) == 1
    assert sum(map(len, reader._contexts.values())) <= MAX_SPELLINGS

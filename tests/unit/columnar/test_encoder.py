import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from kernelcast.columnar import (
    EXPLICIT,
    HAS_SUM,
    IS_INTEGER,
    Decoder,
    Export,
    PointType,
    Resource,
    Sample,
    Temporality,
    encode,
)
from kernelcast.columnar.encoding import encoder as encoder_module
from kernelcast.columnar.encoding import fields
from kernelcast.wire.catalogue import Kind, Metric
from kernelcast.wire.errors import WireError
from kernelcast.wire.histogram import SCALE, DurationTotals

RESOURCE = Resource((("service.instance.id", "node1:1"), ("service.name", "kernelcast-exporter")))
TEMPERATURE = Metric("DCGM_FI_DEV_GPU_TEMP", Kind.GAUGE, "help", "DCGM_FI_DEV_GPU_TEMP")
LAUNCHES = Metric("cuda_kernel_launches_total", Kind.COUNTER, "help", "cuda.kernel.launches", "1")
DURATION = Metric("cuda_kernel_duration_seconds", Kind.HISTOGRAM, "help", "cuda.kernel.duration", "s")
INFO = Metric("cuda_kernel_info", Kind.INFO, "help", "cuda.kernel.info")
GPU0 = (("gpu", "0"),)


def durations(*nanoseconds: int) -> DurationTotals:
    totals = DurationTotals()
    for duration_ns in nanoseconds:
        totals.observe(duration_ns)
    return totals


def whole(*samples: Sample) -> bytes:
    (export,) = encode(RESOURCE, samples, scope="kernelcast.test")
    assert export.points == len(samples)
    return export.body


def test_integers_stay_integers_and_floats_floats() -> None:
    decoder = Decoder()
    body = whole(
        Sample(LAUNCHES, GPU0, 9, 2**53 + 1, start_ns=5),
        Sample(TEMPERATURE, GPU0, 9, 61.5),
        Sample(TEMPERATURE, GPU0, 9, -3),
        Sample(INFO, GPU0, 9, 1),
    )
    numbers = decoder.decode([body]).numbers
    assert numbers.integer.tolist() == [2**53 + 1, 0, -3, 1]
    assert numbers.flags.tolist() == [IS_INTEGER, 0, IS_INTEGER, IS_INTEGER]
    assert numbers.value.tolist() == [2.0**53, 61.5, -3.0, 1.0]
    assert numbers.start_ns.tolist() == [5, 0, 0, 0]
    launches, temperature = decoder.identity(0), decoder.identity(1)
    assert (launches.type, launches.temporality, launches.monotonic) == (PointType.SUM, Temporality.CUMULATIVE, True)
    assert (launches.name, launches.unit, launches.resource) == ("cuda.kernel.launches", "1", RESOURCE.attributes)
    assert (temperature.type, temperature.attributes, temperature.scope_name) == (
        PointType.GAUGE,
        GPU0,
        "kernelcast.test",
    )


def test_detailed_durations_travel_with_their_buckets_and_plain_ones_without() -> None:
    totals = durations(0, 1_000, 1_050, 2_000_000)
    decoder = Decoder()
    body = whole(Sample(DURATION, GPU0, 9, totals, 5, detailed=True), Sample(DURATION, GPU0, 9, totals, 5))
    rows = decoder.decode([body]).histograms
    assert rows.count.tolist() == [4, 4]
    assert rows.total.tolist() == [totals.sum_seconds] * 2
    assert rows.flags.tolist() == [HAS_SUM, HAS_SUM | EXPLICIT]
    assert (rows.scale[0], rows.zero_count[0]) == (SCALE, 1)
    counts = {int(rows.positive_offset[0]) + i: int(n) for i, n in enumerate(rows.positive) if n}
    assert counts == totals.buckets
    assert rows.positive_indptr.tolist() == [0, len(rows.positive), len(rows.positive)]
    assert len(rows.buckets) == len(rows.bounds) == 0
    assert decoder.identity(int(rows.series[1])).temporality is Temporality.CUMULATIVE


def test_durations_of_nothing_have_no_buckets() -> None:
    rows = Decoder().decode([whole(Sample(DURATION, (), 9, DurationTotals(), 5, detailed=True))]).histograms
    assert (rows.count.tolist(), rows.total.tolist(), rows.positive.tolist()) == ([0], [0.0], [])


def random_samples(rng: random.Random) -> list[Sample]:
    samples = []
    for i in range(rng.randrange(60)):
        attributes = (("gpu", str(rng.randrange(8))), ("kernel", "k" * rng.choice((1, 30, 200)) + str(i)))
        metric = rng.choice((TEMPERATURE, LAUNCHES, DURATION, INFO))
        value: int | float | DurationTotals = rng.choice((rng.randrange(-(2**63), 2**63), rng.random(), float("inf")))
        if metric is DURATION:
            value = durations(*(rng.randrange(10**9) for _ in range(rng.randrange(5))))
        samples.append(
            Sample(metric, attributes, rng.randrange(2**64), value, rng.randrange(2**64), rng.random() < 0.5)
        )
    return samples


def points(exports: list[Export]) -> list[bytes]:
    """Every point with its metric, serialised, in order."""
    found = []
    for export in exports:
        for resource in ExportMetricsServiceRequest.FromString(export.body).resource_metrics:
            for metric in resource.scope_metrics[0].metrics:
                container = getattr(metric, str(metric.WhichOneof("data")))
                found += [metric.name.encode() + point.SerializeToString() for point in container.data_points]
    return found


@given(seed=st.integers(0, 2**63), max_bytes=st.sampled_from((1, 300, 700, 2000, 512 * 1024)))
def test_splitting_loses_and_repeats_nothing_and_keeps_to_the_limit(seed: int, max_bytes: int) -> None:
    samples = random_samples(random.Random(seed))
    exports = list(encode(RESOURCE, samples, scope="s", max_bytes=max_bytes))
    assert all(len(export.body) <= max_bytes or export.points == 1 for export in exports)
    assert sum(export.points for export in exports) == len(samples)
    assert points(exports) == points(list(encode(RESOURCE, samples, scope="s")))
    assert Decoder().decode([export.body for export in exports]).failures == ()
    assert exports == list(encode(RESOURCE, samples, scope="s", max_bytes=max_bytes))


@given(seed=st.integers(0, 2**63))
def test_encoded_frames_decode_to_the_same_frames(seed: int) -> None:
    samples = random_samples(random.Random(seed))
    decoder = Decoder()
    decoded = decoder.decode([export.body for export in encode(RESOURCE, samples, scope="s")])
    found = {}
    for columns in (decoded.numbers, decoded.histograms):
        for i, number in enumerate(columns.series):
            identity = decoder.identity(int(number))
            found[identity.name, identity.attributes] = (int(columns.start_ns[i]), int(columns.time_ns[i]))
    assert found == {(s.metric.otlp_name, s.attributes): (s.start_ns, s.time_ns) for s in samples}
    values = {s.attributes: s.value for s in samples if s.metric is LAUNCHES or s.metric is TEMPERATURE}
    numbers = decoded.numbers
    for i, number in enumerate(numbers.series):
        identity = decoder.identity(int(number))
        if identity.attributes in values:
            is_integer = bool(numbers.flags[i] & IS_INTEGER)
            assert values[identity.attributes] == (numbers.integer[i] if is_integer else numbers.value[i])


def test_no_samples_make_no_export() -> None:
    assert list(encode(RESOURCE, [], scope="s")) == []


def test_text_that_utf8_cannot_hold_does_not_stop_the_export() -> None:
    decoder = Decoder()
    decoder.decode([whole(Sample(TEMPERATURE, (("kernel", "a\ud800b"),), 9, 1.0))])
    assert decoder.identity(0).attributes == (("kernel", "a?b"),)


@pytest.mark.parametrize(
    ("sample", "words"),
    [
        (Sample(TEMPERATURE, GPU0, 9, DurationTotals()), "DurationTotals"),
        (Sample(DURATION, GPU0, 9, 1.0), "histograms take DurationTotals"),
        (Sample(LAUNCHES, GPU0, 9, 2**63), "64 bits"),
        (Sample(LAUNCHES, GPU0, -1, 1), "64 bits"),
    ],
)
def test_values_that_cannot_be_encoded_are_an_error_that_names_the_metric(sample: Sample, words: str) -> None:
    with pytest.raises(WireError, match=words) as caught:
        list(encode(RESOURCE, [sample], scope="s"))
    assert sample.metric.otlp_name in str(caught.value)


def test_a_resource_must_say_which_service_and_instance_it_is() -> None:
    with pytest.raises(WireError, match=r"service\.instance\.id"):
        Resource((("service.name", "x"),))


NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(), st.none(), st.booleans(), st.sampled_from([2**63, -(2**63) - 1])
)


@given(
    st.sampled_from([TEMPERATURE, LAUNCHES]),
    st.dictionaries(st.text(max_size=8), st.text(max_size=200), max_size=4),
    st.integers(-1, 2**64),
    NUMBERS,
    st.sampled_from([0, 1, 2**64 - 1, 2**64]),
)
def test_a_plain_number_is_packed_at_once_as_it_is_packed_field_by_field(
    metric: Metric, labels: dict[str, str], time_ns: int, value: float | None, start_ns: int
) -> None:
    sample = Sample(metric, tuple(sorted(labels.items())), time_ns, value, start_ns)
    at_once = encoder_module.plain_number(sample, encoder_module.plain_parts(sample.attributes))
    try:
        slowly = fields.delimited_first(encoder_module.point(sample, encoder_module.point_type(sample)))
    except WireError:
        slowly = b""
    assert at_once == slowly or (at_once == b"" and (value is None or isinstance(value, bool)))
    assert bool(at_once) == (bool(slowly) and value is not None and not isinstance(value, bool))


@given(st.lists(st.tuples(st.sampled_from([TEMPERATURE, LAUNCHES, INFO]), st.integers(0, 9)), min_size=1, max_size=30))
def test_points_that_fit_together_are_taken_as_if_one_by_one(drawn: list[tuple[Metric, int]]) -> None:
    samples = [Sample(metric, GPU0, 9, value) for metric, value in drawn]
    whole_size = len(whole(*samples))
    (together,) = encode(RESOURCE, samples, scope="kernelcast.test")
    slowly = list(encode(RESOURCE, samples, scope="kernelcast.test", max_bytes=whole_size + 1))
    assert sum(export.points for export in slowly) == together.points == len(samples)
    assert all(len(export.body) <= whole_size + 1 for export in slowly)
    numbers = Decoder().decode([export.body for export in slowly]).numbers
    again = Decoder().decode([together.body]).numbers
    assert numbers.value.tolist() == again.value.tolist()

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1 import metrics_pb2
from tests.support.columnar.otlp_messages import delimited

from kernelcast.columnar import EXPLICIT, HAS_SUM, IS_INTEGER, NO_RECORDED_VALUE, Decoder, PointType, Temporality
from kernelcast.columnar.walk.layout import ARENA_USED, FREE, USED


def key_values(**attributes: str) -> list[KeyValue]:
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in attributes.items()]


def gauge(value: float = 1.0, *, host: str = "node1", description: str = "", **attributes: str) -> bytes:
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.extend(key_values(**{"host.name": host}))
    metric = resource.scope_metrics.add().metrics.add(name="DCGM_FI_DEV_GPU_TEMP", description=description)
    point = metric.gauge.data_points.add(time_unix_nano=7, as_double=value)
    point.attributes.extend(key_values(**attributes))
    return request.SerializeToString()


def several(names: list[str], **attributes: str) -> bytes:
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    for name in names:
        point = scope.metrics.add(name=name).gauge.data_points.add(time_unix_nano=7, as_double=1.0)
        point.attributes.extend(key_values(**attributes))
    return request.SerializeToString()


def one_metric(metric: metrics_pb2.Metric) -> bytes:
    request = ExportMetricsServiceRequest()
    request.resource_metrics.add().scope_metrics.add().metrics.append(metric)
    return request.SerializeToString()


@pytest.fixture
def decoder() -> Decoder:
    return Decoder()


def test_the_same_series_keeps_its_number_from_message_to_message(decoder: Decoder) -> None:
    first = decoder.decode([gauge(1.0, gpu="0"), gauge(2.0, gpu="1")])
    second = decoder.decode([gauge(3.0, gpu="1"), gauge(4.0, gpu="0"), gauge(5.0, gpu="1")])
    assert first.numbers.series.tolist() == [0, 1]
    assert second.numbers.series.tolist() == [1, 0, 1]
    assert second.numbers.message.tolist() == [0, 1, 2]
    assert second.numbers.value.tolist() == [3.0, 4.0, 5.0]


def test_reordered_attributes_have_one_identity(decoder: Decoder) -> None:
    decoded = decoder.decode([gauge(gpu="0", UUID="a"), gauge(UUID="a", gpu="0")])
    first, second = (decoder.identity(int(number)) for number in decoded.numbers.series)
    assert first == second
    assert hash(first) == hash(second)
    assert first.attributes == (("UUID", "a"), ("gpu", "0"))


def test_hosts_do_not_mix_when_a_resource_follows_its_scopes(decoder: Decoder) -> None:
    def late_resource(host: str) -> bytes:
        block = ExportMetricsServiceRequest.FromString(gauge(gpu="0", host=host)).resource_metrics[0]
        scope, resource = block.scope_metrics[0].SerializeToString(), block.resource.SerializeToString()
        return delimited(1, delimited(2, scope) + delimited(1, resource))

    late = late_resource("node1") + late_resource("node2")
    decoded = decoder.decode([late])
    hosts = [decoder.identity(int(number)).resource for number in decoded.numbers.series]
    assert hosts == [(("host.name", "node1"),), (("host.name", "node2"),)]


def test_a_description_is_kept_beside_the_identity_and_is_no_part_of_it(decoder: Decoder) -> None:
    decoded = decoder.decode([gauge(description="as it was"), gauge(description="reworded"), gauge()])
    assert decoded.numbers.series.tolist() == [0, 0, 0]
    assert decoder.identity(0).description == "as it was"


def test_integers_are_exact_beyond_the_precision_of_a_double(decoder: Decoder) -> None:
    metric = metrics_pb2.Metric(name="n")
    metric.sum.aggregation_temporality = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    metric.sum.is_monotonic = True
    metric.sum.data_points.add(as_int=2**53 + 1, start_time_unix_nano=3)
    numbers = decoder.decode([one_metric(metric)]).numbers
    assert numbers.integer.tolist() == [2**53 + 1]
    assert numbers.value.tolist() == [2.0**53]
    assert numbers.flags.tolist() == [IS_INTEGER]
    assert numbers.start_ns.tolist() == [3]
    identity = decoder.identity(0)
    assert (identity.type, identity.temporality, identity.monotonic) == (PointType.SUM, Temporality.CUMULATIVE, True)


def test_points_flagged_or_left_without_a_value_have_no_recorded_value(decoder: Decoder) -> None:
    metric = metrics_pb2.Metric(name="n")
    metric.gauge.data_points.add(flags=1)
    metric.gauge.data_points.add()
    metric.gauge.data_points.add(as_int=0)
    flags = decoder.decode([one_metric(metric)]).numbers.flags
    assert flags.tolist() == [NO_RECORDED_VALUE, NO_RECORDED_VALUE, IS_INTEGER]


def test_histograms_keep_their_buckets_and_bounds(decoder: Decoder) -> None:
    metric = metrics_pb2.Metric(name="h", unit="s")
    metric.histogram.data_points.add(count=6, sum=1.5, bucket_counts=[1, 2, 3], explicit_bounds=[0.5, 1.0])
    metric.histogram.data_points.add(count=4)
    rows = decoder.decode([one_metric(metric)]).histograms
    assert rows.count.tolist() == [6, 4]
    assert rows.flags.tolist() == [EXPLICIT | HAS_SUM, EXPLICIT]
    assert rows.bucket_indptr.tolist() == [0, 3, 3]
    assert rows.buckets.tolist() == [1, 2, 3]
    assert rows.bounds_indptr.tolist() == [0, 2, 2]
    assert rows.bounds.tolist() == [0.5, 1.0]


def test_exponential_histograms_keep_scale_offsets_and_both_sides(decoder: Decoder) -> None:
    metric = metrics_pb2.Metric(name="h")
    point = metric.exponential_histogram.data_points.add(count=9, sum=0.0, scale=-3, zero_count=2, zero_threshold=1e-9)
    point.positive.offset = -160
    point.positive.bucket_counts.extend([1, 0, 300])
    point.negative.bucket_counts.extend([5])
    rows = decoder.decode([one_metric(metric)]).histograms
    assert (rows.scale[0], rows.zero_count[0], rows.zero_threshold[0]) == (-3, 2, 1e-9)
    assert (rows.positive_offset[0], rows.positive.tolist()) == (-160, [1, 0, 300])
    assert (rows.negative_offset[0], rows.negative.tolist()) == (0, [5])


def test_a_summary_is_a_series_of_numbers_for_each_quantile_for_its_sum_and_for_its_count(decoder: Decoder) -> None:
    metric = metrics_pb2.Metric(name="s", unit="s")
    point = metric.summary.data_points.add(count=3, sum=4.5, time_unix_nano=7)
    point.quantile_values.add(quantile=0.5, value=1.25)
    point.quantile_values.add(quantile=1.0, value=2.0)
    rows = decoder.decode([one_metric(metric)]).numbers
    parts = [decoder.identity(number).part for number in rows.series.tolist()]
    assert dict(zip(parts, rows.value.tolist(), strict=True)) == {"0.5": 1.25, "1": 2.0, "sum": 4.5, "count": 3.0}
    assert rows.time_ns.tolist() == [7] * 4


def test_metrics_without_a_name_are_counted_and_the_rest_is_used(decoder: Decoder) -> None:
    request = ExportMetricsServiceRequest()
    metrics = request.resource_metrics.add().scope_metrics.add().metrics
    metrics.add().summary.data_points.add(count=1)
    metrics.add().gauge.data_points.add(as_double=1.0)
    metrics.add(name="g").gauge.data_points.add(as_double=2.0)
    decoded = decoder.decode([request.SerializeToString()])
    assert decoded.unsupported == 2
    assert decoded.numbers.value.tolist() == [2.0]


def test_a_refusal_names_the_length_the_reason_and_the_place(decoder: Decoder) -> None:
    message = gauge(gpu="0")
    (failure,) = decoder.decode([gauge(), message[:-3]]).failures
    assert failure[0] == 1
    assert f"message of {len(message) - 3} bytes" in str(failure[1])
    assert "at byte 0" in str(failure[1])


def test_a_refused_message_leaves_no_identity_behind(decoder: Decoder) -> None:
    good = gauge(gpu="0")
    decoder.decode([good[:-1] + b"\xff\x0b" for _ in range(3)])
    with pytest.raises(KeyError):
        decoder.identity(0)
    assert decoder.decode([good]).numbers.series.tolist() == [0]


def test_text_that_is_not_utf8_is_refused_everywhere(decoder: Decoder) -> None:
    for text in (b"gpu", b"node1", b"DCGM_FI_DEV_GPU_TEMP", b"spoken"):
        message = gauge(gpu="0", description="spoken").replace(text, b"\xff" * len(text))
        assert len(decoder.decode([message]).failures) == 1, text


def test_forgotten_numbers_come_again_for_other_series(decoder: Decoder) -> None:
    decoder.decode([gauge(gpu="0"), gauge(gpu="1", host="node2")])
    decoder.forget(np.array([0], np.int32))
    with pytest.raises(KeyError):
        decoder.identity(0)
    assert decoder.decode([gauge(gpu="9", host="node9")]).numbers.series.tolist() == [0]
    assert decoder.identity(0).resource == (("host.name", "node9"),)
    assert decoder.identity(1).resource == (("host.name", "node2"),)


def test_memory_stays_bounded_while_series_come_and_go(decoder: Decoder) -> None:
    for round_number in range(40):
        messages = [gauge(pod=f"pod-{round_number}-{i}-{'x' * 40}", host=f"{round_number}-{i}") for i in range(200)]
        series = decoder.decode(messages).numbers.series
        assert decoder.identity(int(series[7])).attributes[0][1].startswith(f"pod-{round_number}-7-")
        decoder.forget(series)
        assert series.max() < 200
    state = decoder._state
    assert len(state.series.entries) <= 1024
    assert len(state.contexts.entries) <= 2048
    assert len(state.contexts.arena) <= 128 * 1024


def test_metrics_share_the_bytes_of_equal_attributes_and_free_them_together(decoder: Decoder) -> None:
    names = [f"m{i}" for i in range(30)]
    pods = {"pod": "p" * 200, "host": "h" * 200}
    series = decoder.decode([several(names, **pods), several([*names, "late"], gpu="0")]).numbers.series
    arena = decoder._state.contexts
    assert int(arena.counters[ARENA_USED]) < 3_000
    decoder.forget(series[:29])
    assert decoder.identity(29).attributes == tuple(sorted(pods.items()))
    decoder.forget(series)
    assert decoder._state.contexts.counters[USED] == decoder._state.contexts.counters[FREE]
    assert decoder.decode([several(names, **pods)]).numbers.series.max() < len(series)


def test_bytes_that_move_when_memory_is_freed_still_identify_their_series(decoder: Decoder) -> None:
    kept = decoder.decode([gauge(pod="kept")]).numbers.series
    gone = decoder.decode([gauge(pod=f"{i}-{'x' * 4000}") for i in range(100)]).numbers.series
    late = decoder.decode([gauge(pod="late")]).numbers.series
    before = int(decoder._state.contexts.counters[ARENA_USED])
    decoder.forget(gone)
    assert decoder._state.contexts.counters[ARENA_USED] < before
    again = decoder.decode([gauge(pod="late"), gauge(pod="kept"), gauge(pod="late")]).numbers.series
    assert again.tolist() == [late[0], kept[0], late[0]]
    assert [decoder.identity(int(one)).attributes for one in again[:2]] == [(("pod", "late"),), (("pod", "kept"),)]


def test_more_series_than_fit_at_first_keep_their_identities(decoder: Decoder) -> None:
    messages = [gauge(gpu=str(i), host=f"node{i % 50}", pod="p" * 90) for i in range(5000)]
    decoded = decoder.decode(messages)
    assert decoded.failures == ()
    assert np.array_equal(decoded.numbers.series, np.arange(5000))
    assert np.array_equal(decoder.decode(messages[::-1]).numbers.series, np.arange(5000)[::-1])
    assert decoder.identity(4321).attributes == (("gpu", "4321"), ("pod", "p" * 90))
    assert decoder.identity(4321).resource == (("host.name", "node21"),)


def test_an_empty_batch_and_an_empty_message_hold_no_points(decoder: Decoder) -> None:
    for messages in ([], [b""], [b"", b""]):
        decoded = decoder.decode(messages)
        assert decoded.failures == ()
        assert len(decoded.numbers.series) == 0
        assert decoded.histograms.positive_indptr.tolist() == [0]


def test_columns_stay_as_they_were_when_the_next_batch_is_decoded(decoder: Decoder) -> None:
    decoded = decoder.decode([gauge(1.0)])
    decoder.decode([gauge(2.0)])
    assert decoded.numbers.value.tolist() == [1.0]

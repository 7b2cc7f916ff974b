"""Series that move to another partition: added partitions, another partitioner, whichever replica has which."""

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1 import metrics_pb2
from tests.support.bridge.fleet import come_from, page
from tests.support.bridge.list_kafka import MARKER
from tests.support.bridge.moving_series import Group

from kernelcast.bridge.partitions.ownership import Ownership
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.columnar import Decoder

OLD, LIVE, NEW = 0, 1, 4
"""Partitions: one that a series leaves, one that others are in all the time, one that was added."""
CONFLICTS = "kernelcast_producer_identity_conflicts_total"


def grown(*, seconds_ago: int, seconds_before: int = 150) -> Group:
    """A topic in which `gemm` moved from one partition to an added one some seconds ago; `relu` has stayed."""
    group = Group()
    first = group.bridge(OLD, LIVE)
    group.live_long(seconds_before, {"gemm": OLD, "relu": LIVE})
    group.give(first, NEW)
    group.live_long(seconds_ago, {"gemm": NEW, "relu": LIVE})
    assert group.shown(first) == group.counts
    return group


def test_an_old_partition_that_another_replica_reads_again_exposes_no_moved_series() -> None:
    group = grown(seconds_ago=180)
    group.take(group.bridges[0], OLD)
    second = group.bridge(OLD)
    group.read_all()
    assert group.shown(second) == {}
    assert second.intake.ownership.readiness() == (True, "")
    group.live(100, {"gemm": NEW, "relu": LIVE})
    assert group.falls == []


def test_a_bridge_whose_clock_is_an_hour_behind_exposes_no_moved_series_either() -> None:
    group = grown(seconds_ago=400)
    group.take(group.bridges[0], OLD)
    second = group.bridge(OLD, behind_seconds=3600)
    group.read_all()
    assert group.shown(second) == {}
    assert second.intake.ownership.readiness() == (True, "")
    group.live(20, {"gemm": NEW, "relu": LIVE})
    assert group.falls == []


@pytest.mark.parametrize("first", [OLD, LIVE])
def test_a_replica_that_reads_old_and_live_partitions_exposes_no_moved_series(first: int) -> None:
    group = grown(seconds_ago=180)
    group.take(group.bridges[0], OLD, LIVE)
    second = group.bridge(first)
    group.read_all()
    group.give(second, OLD + LIVE - first)
    group.read_all()
    assert group.shown(second) == {}
    group.live(1, {"gemm": NEW, "relu": LIVE})
    assert group.shown(second) == {"relu": group.counts["relu"]}
    assert group.falls == []


def test_series_that_left_all_partitions_of_a_replica_end_there_though_it_reads_nothing() -> None:
    group = grown(seconds_ago=20)
    second = group.bridge(OLD)
    group.read_all()
    assert set(group.shown(second)) == {"gemm"}
    group.live(55, {"gemm": NEW, "relu": LIVE})
    assert group.shown(second) == {}


def test_a_replica_that_reads_an_old_partition_slowly_exposes_no_moved_series() -> None:
    group = grown(seconds_ago=50)
    group.take(group.bridges[0], OLD)
    second = group.bridge(OLD, at_once=10)
    group.live(40, {"gemm": NEW, "relu": LIVE})
    assert second.intake.ownership.readiness() == (True, "")
    assert group.shown(second) == {}
    assert group.falls == []


def test_before_a_slow_partition_is_exposed_a_kafka_that_hangs_is_asked_once() -> None:
    group = grown(seconds_ago=50)
    group.take(group.bridges[0], OLD)
    second = group.bridge(OLD, at_once=10)
    group.live(2, {"gemm": NEW, "relu": LIVE})
    second.intake._inquiry._ids_due = float("inf")  # not the question for ids and partitions, every 10 s
    second.kafka.answers, before = False, second.kafka.questions
    while second.intake.step():
        group.clock.seconds += 1
    assert second.intake.ownership.readiness() == (True, "")
    assert second.kafka.questions - before <= 1


@pytest.mark.parametrize("last", [OLD, LIVE, NEW])
def test_a_restart_right_after_partitions_were_added_exposes_no_old_value_whichever_is_read_last(last: int) -> None:
    group = grown(seconds_ago=15, seconds_before=30)
    group.kill(group.bridges[0])
    second = group.bridge(OLD, LIVE, NEW, at_once=1)
    held_back = second.kafka.reading.pop(("kernels", last))
    group.read_all()
    second.kafka.reading["kernels", last] = held_back
    group.read_all()
    assert group.shown(second) == group.counts
    assert group.falls == []


def test_a_kafka_that_stands_still_ends_nothing_when_partitions_are_read_again() -> None:
    group = Group()
    first = group.bridge(OLD, LIVE)
    group.live_long(150, {"gemm": OLD, "relu": LIVE})
    for _ in range(50):
        group.clock.seconds += 4
        group.step()
    assert group.shown(first) == group.counts
    group.take(first, OLD)
    second = group.bridge(OLD)
    group.read_all()
    for _ in range(80):
        group.clock.seconds += 1
        group.step()
    assert (group.shown(first), group.shown(second)) == ({"relu": 150}, {"gemm": 150})


def test_the_end_of_an_empty_partition_ends_no_series_early_and_moved_series_in_time() -> None:
    group = grown(seconds_ago=180)
    group.kafka.write("kernels", OLD, None, append_ms=0, kind=MARKER)
    group.take(group.bridges[0], OLD)
    second = group.bridge(OLD)
    group.read_all()
    assert second.intake.ownership.readiness()[0] is False
    second.kafka.end("kernels", OLD, 301)
    group.step()
    assert second.intake.ownership.readiness() == (True, "")
    assert group.shown(second) == {}
    assert group.falls == []


def test_without_an_answer_about_the_newest_append_time_moved_series_end_with_the_next_message() -> None:
    group = grown(seconds_ago=180)
    group.kill(group.bridges[0])
    second = group.bridge()
    second.kafka.names_newest = False
    group.give(second, LIVE)
    group.read_all()
    group.give(second, OLD)
    group.live(1, {"gemm": NEW, "relu": LIVE})
    assert group.shown(second) == {"relu": group.counts["relu"]}
    assert group.falls == []


def ownership(append_ms: dict[int, int]) -> Ownership:
    """Partitions that have been read to their end."""
    owner = Ownership()
    for number, newest_ms in append_ms.items():
        partition = owner.assign(("kernels", number), start=0, gate=1)
        owner.advance(partition, position=1, append_ms=newest_ms, now_seconds=0)
    owner.opened(0)
    return owner


def test_silence_is_measured_from_append_time_to_append_time_whenever_a_partition_was_read() -> None:
    owner = ownership({0: 100_000, 1: 400_000})
    assert owner.ages.heard_ms(0) == {0: 400_000, 1: 400_000}


def test_messages_that_kafka_names_and_that_were_not_read_yet_end_nothing() -> None:
    owner = ownership({0: 100_000, 1: 100_000})
    owner.note_newest({("kernels", 0): 300_000, ("kernels", 1): 100_000, ("kernels", 9): 310_000})
    assert owner.ages.heard_ms(0) == {0: 100_000, 1: 310_000}


def test_a_broker_whose_clock_is_behind_the_others_ends_nothing() -> None:
    owner = ownership({0: 100_000, 1: 220_000})
    slow, right = owner.owned()
    for second in range(1, 10):
        for partition, append_ms in ((slow, 100_000 + second * 1000), (right, 220_000 + second * 1000)):
            owner.advance(partition, position=1 + second, append_ms=append_ms, now_seconds=second)
    owner.advance(right, position=11, append_ms=230_000, now_seconds=10)
    assert owner.ages.heard_ms(0) == {0: 111_000, 1: 230_000}


def test_lag_of_a_partition_is_not_taken_for_a_clock_of_its_broker_that_is_behind() -> None:
    owner = ownership({0: 100_000, 1: 100_000})
    late, right = owner.owned()
    late.high = 5
    owner.advance(right, position=2, append_ms=400_000, now_seconds=300)
    owner.advance(late, position=5, append_ms=104_000, now_seconds=300)
    assert owner.ages.heard_ms(300) == {0: 400_000, 1: 400_000}


def test_skipped_messages_keep_their_series_from_ending() -> None:
    owner = ownership({0: 100_000, 1: 400_000})
    owner.jump(owner.owned()[0], to=5, high=9)
    assert owner.ages.heard_ms(0) == {0: 100_000, 1: 400_000}
    owner.reached_end(("kernels", 0), 9, now_seconds=0)
    assert owner.ages.heard_ms(0) == {0: 400_000, 1: 400_000}


@pytest.mark.parametrize("kill", [False, True])
def test_a_partition_that_is_read_again_never_exposes_series_of_another_partition(*, kill: bool) -> None:
    group = grown(seconds_ago=20, seconds_before=30)
    first = group.bridges[0]
    group.take(first, OLD)
    second = group.bridge(OLD, at_once=1)
    group.live(5, {"gemm": NEW, "relu": LIVE})
    if kill:
        group.kill(first)
    else:
        group.take(first, NEW)
    group.falls.clear()
    before = group.shown(second).get("gemm")
    group.give(second, NEW)
    while second.intake.step():
        assert group.shown(second).get("gemm", 55) in {before, 55}
    assert group.shown(second) | {"relu": 55} == group.counts


@pytest.mark.parametrize("at_once", [1, 1000])
@pytest.mark.parametrize("last", [OLD, LIVE])
def test_a_series_that_moved_while_no_bridge_ran_has_its_newest_value(last: int, at_once: int) -> None:
    group = Group()
    first = group.bridge(OLD, LIVE)
    group.live(25, {"gemm": OLD, "relu": LIVE})
    group.kill(first)
    group.live(5, {"gemm": OLD, "relu": LIVE})
    group.live(3, {"gemm": LIVE, "relu": LIVE})
    second = group.bridge(OLD + LIVE - last, last, at_once=at_once)
    group.read_all()
    assert group.shown(second) == group.counts
    assert group.falls == []


def test_a_series_goes_on_after_old_messages_of_a_partition_that_it_has_left() -> None:
    group = Group(grouped=False, ttl_seconds=60)
    first = group.bridge(OLD, LIVE)
    group.live(10, {"gemm": OLD, "relu": LIVE})
    group.kill(first)
    group.live(10, {"gemm": OLD, "relu": LIVE})
    group.live(10, {"gemm": LIVE, "relu": LIVE})
    second = group.bridge(LIVE, OLD)
    group.live(90, {"gemm": LIVE, "relu": LIVE})
    assert group.shown(second) == group.counts
    assert group.falls == []


def moved_while_no_bridge_ran(at_once: int = 1000) -> Group:
    """A bridge that has read `gemm` where it is now, and then the points of the partition that it has left."""
    group = Group()
    first = group.bridge(OLD, LIVE)
    group.live(25, {"gemm": OLD})
    group.kill(first)
    group.live(20, {"gemm": OLD})
    group.live(20, {"gemm": LIVE})
    group.bridge(LIVE, OLD, at_once=at_once)
    group.read_all()
    assert group.shown(group.bridges[0]) == group.counts
    return group


@pytest.mark.parametrize("at_once", [1, 2, 1000])
def test_a_producer_whose_series_has_moved_once_is_one_whichever_partition_is_read_first(at_once: int) -> None:
    group = moved_while_no_bridge_ran(at_once)
    group.live(5, {"gemm": LIVE})
    (site,) = group.bridges
    conflicts = [sample for family in site.registry.collect() for sample in family.samples if sample.name == CONFLICTS]
    assert [sample.labels for sample in conflicts if sample.value] == []


@pytest.mark.parametrize(("partition", "shown"), [(OLD, {"gemm": 65}), (LIVE, {})])
def test_a_tombstone_ends_a_moved_series_in_the_partition_where_it_is(partition: int, shown: dict[str, float]) -> None:
    group = moved_while_no_bridge_ran(at_once=1)
    group.kafka.write("kernels", partition, None, group.clock.now_ns() // 1_000_000, keyed=b"gemm")
    group.read_all()
    assert group.shown(group.bridges[0]) == shown


@pytest.mark.parametrize("grouped", [True, False])
def test_a_series_that_moved_twice_while_no_bridge_ran_has_its_newest_value(*, grouped: bool) -> None:
    group = Group(grouped=grouped)
    first = group.bridge(OLD, LIVE)
    group.live(25, {"gemm": OLD, "relu": LIVE})
    group.kill(first)
    for partition in (LIVE, NEW):
        group.live(20, {"gemm": partition, "relu": LIVE})
    second = group.bridge(OLD, LIVE, NEW)
    group.live(1, {"gemm": NEW, "relu": LIVE})
    assert group.shown(second) == group.counts == {"gemm": 66, "relu": 66}
    assert group.falls == []


@pytest.mark.parametrize("killed_after_seconds", [1, 10])
def test_a_series_that_moved_survives_the_revocation_of_the_partition_that_it_left(
    killed_after_seconds: int,
) -> None:
    group = Group()
    first = group.bridge(OLD, LIVE)
    group.live(25, {"gemm": OLD, "relu": LIVE})
    group.live(killed_after_seconds, {"gemm": LIVE, "relu": LIVE})
    group.take(first, OLD)
    group.kill(first)
    second = group.bridge(OLD, LIVE)
    group.read_all()
    assert group.shown(second) == group.counts
    assert group.falls == []


@pytest.mark.parametrize("committed_seconds_ago", range(5))
def test_what_a_replica_has_not_read_yet_of_a_partition_that_a_series_left_survives_its_end(
    committed_seconds_ago: int,
) -> None:
    group = Group()
    first, second = group.bridge(OLD), group.bridge(LIVE)
    group.live(20 + committed_seconds_ago, {"gemm": OLD, "relu": LIVE})
    group.kill(first)
    group.give(second, NEW)
    group.live(3, {"gemm": NEW, "relu": LIVE})
    second.kafka.at_once = 1
    group.give(second, OLD)
    group.live(2, {"gemm": NEW, "relu": LIVE})
    group.kill(second)
    third = group.bridge(OLD, LIVE, NEW)
    group.live(1, {"gemm": NEW, "relu": LIVE})
    assert group.shown(third) == group.counts
    assert group.falls == []


def test_a_stopped_and_replaced_bridge_exposes_only_new_values_of_moved_series() -> None:
    group = grown(seconds_ago=20, seconds_before=30)
    group.kill(group.bridges[0])
    for _ in range(30):
        group.clock.seconds += 1
        group.write(NEW, "gemm")
    second = group.bridge(LIVE, at_once=3)
    group.give(second, NEW)
    group.give(second, OLD)
    group.read_all()
    assert group.shown(second) == group.counts
    assert group.falls == []


def test_a_series_is_not_exposed_through_a_partition_that_it_has_left() -> None:
    group = grown(seconds_ago=20, seconds_before=30)
    group.kill(group.bridges[0])
    for _ in range(30):
        group.clock.seconds += 1
        group.write(NEW, "gemm")
    second = group.bridge(NEW)
    held_back = second.kafka.reading.pop(("kernels", NEW))
    group.give(second, OLD)
    group.read_all()
    assert group.shown(second) == {}
    second.kafka.reading["kernels", NEW] = held_back
    group.read_all()
    assert group.shown(second) == {"gemm": group.counts["gemm"]}


def number(metric: metrics_pb2.Metric) -> Any:
    """The points of a counter."""
    metric.sum.aggregation_temporality, metric.sum.is_monotonic = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE, True
    return metric.sum.data_points.add()


def explicit(metric: metrics_pb2.Metric) -> Any:
    """The points of a histogram."""
    metric.histogram.aggregation_temporality = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    return metric.histogram.data_points.add(explicit_bounds=[1.0])


def exponential(metric: metrics_pb2.Metric) -> Any:
    """The points of an exponential histogram."""
    metric.exponential_histogram.aggregation_temporality = metrics_pb2.AGGREGATION_TEMPORALITY_CUMULATIVE
    return metric.exponential_histogram.data_points.add()


def summary(metric: metrics_pb2.Metric) -> Any:
    """The points of a summary."""
    return metric.summary.data_points.add()


class Store:
    """A store behind a decoder, of which partition 0 is exposed and partition 1 is read again."""

    def __init__(self, kind: Callable[[metrics_pb2.Metric], Any]) -> None:
        self.kind, self.decoder, self.store = kind, Decoder(), SeriesStore(SeriesLimits())
        self.store.expose(0, exposed=True)

    def put(self, partition: int, second: int, count: int | None, exemplar: str = "") -> None:
        """Store a point; without a count it says that the series has no value."""
        request = ExportMetricsServiceRequest()
        point = self.kind(request.resource_metrics.add().scope_metrics.add().metrics.add(name="work"))
        point.start_time_unix_nano, point.time_unix_nano = 1, second * 10**9
        if count is None:
            point.flags = 1
        elif self.kind is number:
            point.as_int = count
        else:
            point.count, point.sum = count, float(count)
        if self.kind is explicit and count is not None:
            point.bucket_counts.extend([0, count])
        if self.kind is exponential and count is not None:
            point.zero_count = count
        if exemplar:
            point.exemplars.add(time_unix_nano=second * 10**9, as_double=0.5, trace_id=exemplar.encode())
        decoded = self.decoder.decode([request.SerializeToString()])
        self.store.apply(decoded, come_from(partition, second, second * 1000), self.decoder)


@pytest.mark.parametrize("kind", [number, explicit, exponential, summary])
def test_no_kind_of_point_of_a_hidden_partition_changes_the_page_and_none_is_lost(
    kind: Callable[[metrics_pb2.Metric], Any],
) -> None:
    site = Store(kind)
    site.put(0, 10, 10)
    exposed = page(site.store)
    assert "10" in exposed
    site.put(1, 5, 5)
    assert page(site.store) == exposed
    for second in (20, 30):
        site.put(1, second, second)
        assert page(site.store) == ""
    site.put(0, 15, 15)
    assert page(site.store) == ""
    site.store.expose(1, exposed=True)
    newest = page(site.store)
    assert newest == exposed.replace(" 10\n", " 30\n")
    site.store.drop_partition(0)
    assert page(site.store) == newest


def test_a_marker_of_a_hidden_partition_that_a_series_has_no_value_holds_for_what_comes_before_it() -> None:
    site = Store(number)
    site.put(0, 10, 10)
    site.put(1, 20, None)
    site.put(0, 15, 15)
    site.store.expose(1, exposed=True)
    assert page(site.store) == ""
    site.put(1, 30, 30)
    assert "work_total 30" in page(site.store)


def test_exemplars_of_a_partition_that_a_series_has_left_are_not_shown() -> None:
    site = Store(number)
    site.put(0, 10, 10, exemplar="of this point...")
    site.put(1, 5, 5, exemplar="of an older one.")
    (shown,) = site.store.snapshot().exemplars().values()
    assert [dict(one.labels)["trace_id"] for one in shown] == [b"of this point...".hex()]

"""A topic that grows while several bridges of a group run: a series moves from one bridge's partition to another's."""

from collections.abc import Iterable

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE
from tests.support.bridge.fleet import LAUNCHES, Site
from tests.support.bridge.moving_series import Group
from tests.support.bridge.requests import empty_request

OLD, LIVE, NEW, LATER = 0, 1, 2, 3
"""Partitions: one that a series leaves, one that others are in all the time, two that were added."""
BEFORE = {"gemm": OLD, "relu": LIVE}
AFTER = {"gemm": NEW, "relu": LIVE}
LATENCY = "latency_count"
HELD_SECONDS = 79
"""60 s until a series has expired, 17 s of margin, an interval of 1 s, and one to be over them."""


class Growing(Group):
    """A group that also writes a histogram, of as many observations as its counter shows.

    Attributes:
        drops: Each value below the one exposed before it, as Prometheus sees them: metric, series, before, after.
    """

    def __init__(self) -> None:
        self.drops: list[tuple[str, str, float, float]] = []
        self._last: dict[tuple[str, str], float] = {}
        super().__init__()

    def look(self) -> None:
        """Compare the exposed values with the previous ones."""
        for site in self.bridges:
            for (metric, labels), value in site.exposed().items():
                if metric in {LAUNCHES, LATENCY}:
                    name = dict(labels)["kernel" if metric == LAUNCHES else "kind"]
                    last = self._last.get((metric, name), 0.0)
                    if value < last:
                        self.drops.append((metric, name, last, value))
                    self._last[metric, name] = value

    def write_more(self, where: dict[str, int]) -> None:
        """Write a histogram for each series."""
        for name, partition in where.items():
            made, metrics = empty_request()
            metric = metrics.add(name="latency")
            metric.histogram.aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
            count = self.counts.get(name, 0)
            point = metric.histogram.data_points.add(
                start_time_unix_nano=1,
                time_unix_nano=self.clock.now_ns(),
                count=count,
                sum=float(count),
                explicit_bounds=[1.0],
                bucket_counts=[count, 0],
            )
            attribute = point.attributes.add(key="kind")
            attribute.value.string_value = name
            now_ms = self.clock.now_ns() // 1_000_000
            self.kafka.write("kernels", partition, made.SerializeToString(), now_ms, keyed=name.encode())


def growing(*, seconds_before: int = 30, partitions: Iterable[int] = (OLD, LIVE)) -> tuple[Growing, Site, Site]:
    """Two bridges, each with one partition, and the messages that they have read."""
    group = Growing()
    for number in partitions:
        group.kafka.logs["kernels", number] = []
    first, second = group.bridge(OLD), group.bridge(LIVE)
    group.live_long(seconds_before, BEFORE)
    assert group.drops == []
    return group, first, second


def grow(group: Group, *partitions: int) -> None:
    """Add partitions to the topic."""
    for number in partitions:
        group.kafka.logs["kernels", number] = []


def counted(group: Group, site: Site, metric: str) -> dict[str, float]:
    """The exposed values of a metric, by series."""
    if metric == LATENCY:
        return {dict(labels)["kind"]: value for (name, labels), value in site.exposed().items() if name == metric}
    return group.shown(site, metric)


@pytest.mark.parametrize("seconds_before", [30, 150, 400])
def test_no_counter_alternates_while_its_old_and_its_new_partition_are_on_different_replicas(
    seconds_before: int,
) -> None:
    group, first, second = growing(seconds_before=seconds_before)
    grow(group, NEW)
    group.give(second, NEW)
    apart: dict[str, list[bool]] = {LAUNCHES: [], LATENCY: []}
    for _ in range(110):
        group.live(1, AFTER)
        for metric, exposed in apart.items():
            exposed.append("gemm" in counted(group, second, metric))
            assert not (exposed[-1] and "gemm" in counted(group, first, metric)), metric
    for metric, exposed in apart.items():
        assert exposed == sorted(exposed), f"a series of {metric} that is exposed stays exposed"
        assert exposed[-1], metric
        assert {name: counted(group, second, metric)[name] for name in group.counts} == group.counts
    assert group.drops == []


@pytest.mark.parametrize("seconds_since", [1, 2, 20])
def test_no_counter_alternates_if_a_series_was_silent_for_some_intervals_before_it_moved(seconds_since: int) -> None:
    group, first, second = growing(seconds_before=30)
    group.live(20, {"relu": LIVE})
    group.live(seconds_since, BEFORE)
    grow(group, NEW)
    group.give(second, NEW)
    for _ in range(110):
        group.live(1, AFTER)
        assert not ("gemm" in group.shown(first) and "gemm" in group.shown(second))
    assert group.shown(second) == group.counts
    assert group.drops == []


def test_no_counter_alternates_if_a_series_had_one_point_before_it_moved() -> None:
    group, first, second = growing(seconds_before=30)
    group.live(1, {**BEFORE, "tanh": OLD})
    grow(group, NEW)
    group.give(second, NEW)
    for _ in range(110):
        group.live(1, {**AFTER, "tanh": NEW})
        assert not ("tanh" in group.shown(first) and "tanh" in group.shown(second))
    assert group.shown(second)["tanh"] == group.counts["tanh"]
    assert group.drops == []


def test_a_series_that_is_silent_in_a_grown_topic_is_exposed_again_with_its_next_point() -> None:
    group, first, second = growing(seconds_before=30)
    group.live(20, {"relu": LIVE})
    group.live(5, BEFORE)
    grow(group, NEW)
    group.give(second, NEW)
    group.live(80, {"relu": LIVE})
    assert group.shown(first) == {}
    group.live(1, BEFORE)
    assert group.shown(first) == {"gemm": 36}
    assert group.drops == []


def test_no_counter_alternates_while_the_old_partition_has_no_leader() -> None:
    group, first, second = growing(seconds_before=30)
    grow(group, NEW)
    group.give(second, NEW)
    group.live(1, AFTER)
    first.kafka.leaderless.add(("kernels", OLD))
    for _ in range(110):
        group.live(1, AFTER)
        assert not ("gemm" in group.shown(first) and "gemm" in group.shown(second))
    assert group.shown(second) == group.counts
    assert group.drops == []


def away(group: Growing, seconds: int) -> None:
    """Let time pass in which no broker answers and nothing is written."""
    for site in group.bridges:
        site.kafka.answers = False
    for _ in range(seconds):
        group.clock.seconds += 1
        group.step()
    for site in group.bridges:
        site.kafka.answers = True


def on_one_replica_for(seconds: int, group: Growing, first: Site, second: Site, where: dict[str, int]) -> None:
    """Let a group run; at no time both replicas expose the series that has moved, and in the end one has all counts."""
    for _ in range(seconds):
        group.live(1, where)
        for metric in (LAUNCHES, LATENCY):
            assert not ("gemm" in counted(group, first, metric) and "gemm" in counted(group, second, metric))
    assert (group.shown(first)["silu"], group.shown(second)["gemm"]) == (group.counts["silu"], group.counts["gemm"])


@pytest.mark.parametrize("seconds_away", [20, 260])
@pytest.mark.parametrize("others", [{}, {"tanh": NEW}], ids=["empty", "in use"])
def test_no_counter_alternates_if_a_series_moves_right_after_an_outage(
    others: dict[str, int], seconds_away: int
) -> None:
    group, first, second = growing(seconds_before=30)
    grow(group, NEW)
    group.give(second, NEW)
    group.live(30, BEFORE | {"silu": OLD} | others)
    away(group, seconds_away)
    group.live(1, BEFORE | {"silu": OLD} | others)
    on_one_replica_for(HELD_SECONDS + 2, group, first, second, AFTER | {"silu": OLD} | others)
    assert group.shown(second)["gemm"] == group.counts["gemm"]
    assert group.drops == []


@pytest.mark.parametrize("seconds_away", [20, 50])
def test_no_counter_alternates_if_the_old_partition_has_no_leader_for_a_while(seconds_away: int) -> None:
    group, first, second = growing(seconds_before=30)
    grow(group, NEW)
    group.give(second, NEW)
    group.live(30, BEFORE | {"silu": OLD})
    group.live(1, AFTER)
    first.kafka.leaderless.add(("kernels", OLD))
    group.live(seconds_away, AFTER)
    first.kafka.leaderless.clear()
    on_one_replica_for(110 - seconds_away, group, first, second, AFTER | {"silu": OLD})
    assert group.drops == []


@pytest.mark.parametrize("seconds_away", [20, 260])
def test_a_series_that_stays_in_its_partition_is_exposed_throughout_an_outage_after_growth(seconds_away: int) -> None:
    group, first, second = growing(seconds_before=30)
    grow(group, NEW)
    group.give(second, NEW)
    group.live(30, BEFORE | {"tanh": NEW})
    away(group, seconds_away)
    for _ in range(20):
        group.live(1, {"relu": LIVE, "tanh": NEW})
        assert set(group.shown(first)) == {"gemm"}
    group.live(1, BEFORE)
    assert group.shown(first) == {"gemm": group.counts["gemm"]}


def test_a_kafka_that_is_away_ends_no_series_of_a_topic_that_has_grown() -> None:
    group, first, second = growing(seconds_before=30)
    grow(group, NEW)
    group.give(second, NEW)
    group.live(11, BEFORE)
    for site in group.bridges:
        site.kafka.answers = False
    for _ in range(400):
        group.clock.seconds += 1
        group.step()
    assert (group.shown(first), group.shown(second)) == ({"gemm": 41}, {"relu": 41})


@pytest.mark.parametrize("seconds_away", [20, 260])
def test_an_outage_right_after_a_move_lengthens_the_hold_of_a_replica_that_joins_later(seconds_away: int) -> None:
    group, first, second = growing(seconds_before=30)
    grow(group, NEW)
    group.live(1, AFTER)
    for site in group.bridges:
        site.kafka.answers = False
    for _ in range(seconds_away):
        group.clock.seconds += 1
        group.step()
    for site in group.bridges:
        site.kafka.answers = True
    group.live(1, AFTER | {"silu": OLD})
    group.give(second, NEW)
    for _ in range(HELD_SECONDS):
        group.live(1, AFTER | {"silu": OLD})
        assert not ("gemm" in group.shown(first) and "gemm" in group.shown(second))
    assert "gemm" not in group.shown(first)
    assert group.drops == []


def test_counters_go_on_at_their_right_values() -> None:
    group, _, second = growing(seconds_before=100)
    grow(group, NEW)
    group.give(second, NEW)
    group.live(HELD_SECONDS + 1, AFTER)
    assert group.shown(second) == group.counts
    assert group.drops == []


def test_a_series_that_moves_between_two_partitions_that_were_there_before_does_not_alternate_either() -> None:
    """A key moves as if four partitions became six: its remainder changes from 1 to 3, for example."""
    group, first, second = growing(seconds_before=100)
    grow(group, NEW)
    group.give(first, NEW)
    group.live(11, BEFORE)
    for _ in range(110):
        group.live(1, {"gemm": LIVE, "relu": LIVE})
        for metric in (LAUNCHES, LATENCY):
            assert not ("gemm" in counted(group, first, metric) and "gemm" in counted(group, second, metric))
    assert group.shown(second) == group.counts
    assert group.drops == []


def test_a_series_follows_its_key_to_a_replica_that_then_takes_the_former_partition_over() -> None:
    group, first, second = growing(seconds_before=25)
    grow(group, NEW)
    group.give(second, NEW)
    group.live(3, AFTER)
    group.kill(first)
    group.give(second, OLD)
    group.live(5, AFTER)
    assert group.shown(second) == group.counts
    assert group.drops == []


def test_a_series_survives_the_replica_that_was_about_to_continue_it() -> None:
    group, first, second = growing(seconds_before=25)
    grow(group, NEW)
    group.give(second, NEW)
    group.live(3, AFTER)
    group.kill(second)
    group.give(first, LIVE, NEW)
    group.live(5, AFTER)
    assert group.shown(first) == group.counts
    assert group.drops == []


def test_series_that_another_replica_was_about_to_continue_are_not_exchanged() -> None:
    group, first, second = growing(seconds_before=25)
    group.live(10, BEFORE | {"silu": OLD})
    grow(group, NEW)
    group.give(second, NEW)
    group.live(3, AFTER | {"silu": NEW})
    group.kill(second)
    group.give(first, LIVE, NEW)
    group.live(5, AFTER | {"silu": NEW})
    assert group.shown(first) == group.counts == {"gemm": 43, "relu": 43, "silu": 18}
    assert group.drops == []


@pytest.mark.parametrize("seconds_elsewhere", [1, 4, 8, 13, 27, 41, 69, 75, 120, 300])
def test_a_counter_has_what_was_counted_elsewhere_when_it_returns_to_its_former_replica(
    seconds_elsewhere: int,
) -> None:
    group, first, second = growing()
    grow(group, NEW)
    group.give(second, NEW)
    group.live_long(seconds_elsewhere, AFTER, after=90)
    group.live(110, BEFORE)
    count = 140 + seconds_elsewhere
    assert (group.shown(first), group.shown(second)) == ({"gemm": count}, {"relu": count})


def test_a_counter_is_right_when_the_replica_that_it_visited_takes_its_partition_over() -> None:
    group, first, second = growing()
    grow(group, NEW)
    group.give(second, NEW)
    group.live(1, AFTER)
    group.live(1, BEFORE)
    group.take(first, OLD)
    group.give(second, OLD)
    group.live(11, BEFORE)
    assert group.shown(second) == group.counts
    assert group.drops == []


def test_a_series_is_exposed_by_the_third_replica_when_a_topic_grows_twice_within_seconds() -> None:
    group, _, second = growing(seconds_before=400)
    grow(group, NEW)
    group.give(second, NEW)
    group.live(1, AFTER)
    grow(group, LATER)
    third = group.bridge(LATER)
    group.live(110, {"gemm": LATER, "relu": LIVE})
    assert (group.shown(third), group.shown(second)) == ({"gemm": 511}, {"relu": 511})
    assert group.drops == []


@pytest.mark.parametrize("dies", [False, True])
def test_a_series_is_exposed_by_the_third_replica_that_takes_the_first_ones_partition_over(*, dies: bool) -> None:
    group, first, second = growing(seconds_before=400)
    grow(group, NEW)
    group.give(second, NEW)
    group.live(100, AFTER)
    grow(group, LATER)
    third = group.bridge(LATER)
    group.live(5, {"gemm": LATER, "relu": LIVE})
    group.kill(first)
    group.give(third, OLD)
    group.live(15, {"gemm": LATER, "relu": LIVE})
    if dies:
        group.kill(third)
        third = group.bridge(OLD, LATER)
    group.live(110, {"gemm": LATER, "relu": LIVE})
    assert group.shown(third)["gemm"] == group.counts["gemm"]


@pytest.mark.parametrize("dies", [False, True])
def test_a_series_stays_with_the_partition_that_it_moved_to_when_that_is_taken_away(*, dies: bool) -> None:
    group, first, second = growing(seconds_before=400)
    group.kafka.logs["kernels", LATER] = []
    grow(group, NEW)
    third = group.bridge(NEW)
    group.live(5, AFTER)
    group.kill(first)
    group.give(third, OLD)
    group.live(15, AFTER)
    group.take(third, NEW)
    group.give(second, NEW)
    if dies:
        group.live(15, AFTER)
        group.kill(third)
        group.bridge(OLD)
    group.live(110, AFTER)
    assert group.shown(second) == group.counts
    assert group.drops == []


@pytest.mark.parametrize("seconds_between", [90, 150])
def test_a_counter_is_right_when_a_topic_grows_twice_within_one_time_to_live(seconds_between: int) -> None:
    group, _, second = growing()
    grow(group, NEW)
    group.give(second, NEW)
    group.live(seconds_between, AFTER)
    grow(group, LATER)
    group.give(second, LATER)
    group.live(10, {"gemm": LATER, "relu": LIVE})
    assert group.shown(second) == group.counts
    assert group.drops == []


def test_a_series_that_is_new_after_growth_is_exposed() -> None:
    group, _, second = growing()
    grow(group, NEW)
    group.give(second, NEW)
    group.live(110, BEFORE | {"silu": NEW})
    assert group.shown(second)["silu"] == 110


def test_a_writer_that_finds_the_added_partitions_later_is_held_for_as_long() -> None:
    group, _, second = growing()
    grow(group, NEW)
    group.give(second, NEW)
    group.live_long(290, BEFORE | {"silu": NEW}, after=90)
    assert group.shown(second).keys() == {"relu", "silu"}
    group.live(70, AFTER | {"silu": NEW})
    assert "gemm" not in group.shown(second)
    group.live(40, AFTER | {"silu": NEW})
    assert group.shown(second) == group.counts
    assert group.drops == []


def test_a_series_that_moves_between_partitions_of_one_replica_moves_at_once() -> None:
    group, first, _ = growing()
    grow(group, NEW)
    group.give(first, NEW)
    group.live(1, AFTER)
    assert group.shown(first) == {"gemm": 31}
    assert group.drops == []


def test_a_bridge_that_has_all_partitions_of_a_topic_holds_nothing() -> None:
    group = Growing()
    grow(group, OLD, LIVE)
    only = group.bridge(OLD, LIVE)
    group.live(30, BEFORE)
    grow(group, NEW)
    group.give(only, NEW)
    group.live(1, AFTER | {"silu": NEW})
    assert group.shown(only) == group.counts
    group.kill(only)
    again = group.bridge(OLD, LIVE, NEW)
    group.read_all()
    assert group.shown(again) == group.counts
    assert group.drops == []


def test_a_counter_goes_on_when_a_topic_grows_twice_that_one_bridge_has_wholly() -> None:
    group = Growing()
    grow(group, OLD, LIVE)
    only = group.bridge(OLD, LIVE)
    group.live(5, BEFORE)
    grow(group, NEW)
    group.give(only, NEW)
    group.live(5, AFTER)
    grow(group, LATER)
    group.give(only, LATER)
    group.live(5, AFTER | {"gemm": LATER})
    assert group.shown(only) == group.counts == {"gemm": 15, "relu": 15}


@pytest.mark.parametrize("grouped", [True, False], ids=["group", "replica"])
def test_an_added_partition_is_exposed_no_earlier_than_the_one_that_its_series_left(*, grouped: bool) -> None:
    group = Group(grouped=grouped)
    former = group.bridge(OLD)
    group.live(30, {"gemm": OLD})
    group.kill(former)
    site = group.bridge(OLD, at_once=1)
    group.clock.seconds += 1
    group.write(OLD, "gemm")
    for _ in range(6):
        group.step()
    assert group.shown(site) == {}
    grow(group, NEW)
    group.give(site, NEW)
    for _ in range(30):
        group.clock.seconds += 1
        group.write(NEW, "gemm")
        group.read_all()
    assert group.shown(site) == group.counts
    assert group.falls == []


def test_a_replica_that_takes_over_all_partitions_exposes_its_held_series() -> None:
    group, first, second = growing()
    grow(group, NEW)
    group.give(second, NEW)
    group.live(20, AFTER)
    assert "gemm" not in group.shown(second)
    group.kill(first)
    group.give(second, OLD)
    group.read_all()
    assert group.shown(second) == group.counts


def test_a_replica_that_takes_an_old_partition_over_exposes_a_series_only_with_its_next_point() -> None:
    group = Growing()
    grow(group, OLD, LIVE)
    second, third = group.bridge(OLD), group.bridge(LIVE)
    group.take(second, OLD)
    group.take(third, LIVE)
    first, before = group.bridge(OLD, LIVE), BEFORE | {"silu": OLD}
    group.live(100, before)
    grow(group, NEW)
    group.give(first, NEW)
    group.live(3, before | AFTER)
    assert group.shown(first) == {"gemm": 103, "relu": 103, "silu": 103}
    group.take(first, OLD, NEW)
    group.give(second, OLD)
    group.give(third, NEW)
    group.read_all()
    assert group.shown(second) == {}
    assert second.intake.ownership.readiness() == (True, "")
    group.live(2, before | AFTER)
    assert group.shown(second) == {"silu": 105}
    group.live(HELD_SECONDS, before | AFTER)
    assert group.shown(third) == {"gemm": 105 + HELD_SECONDS}
    assert group.drops == []


def test_nothing_of_a_topic_that_is_new_altogether_is_held() -> None:
    group, first, second = growing(seconds_before=1)
    assert (group.shown(first), group.shown(second)) == ({"gemm": 1}, {"relu": 1})
    group.live(1, BEFORE | {"silu": LIVE})
    assert group.shown(second) == {"relu": 2, "silu": 1}


@pytest.mark.parametrize("assigned_first", [(NEW,), ()], ids=["at_once", "after_an_empty_assignment"])
def test_a_bridge_that_joins_holds_new_series_of_partitions_that_are_younger_than_the_others(
    assigned_first: tuple[int, ...],
) -> None:
    group, first, _ = growing(seconds_before=400)
    grow(group, NEW, LATER)
    group.give(first, LATER)
    group.live(20, AFTER)
    third = group.bridge(*assigned_first)
    group.read_all()
    group.give(third, *{NEW} - set(assigned_first))
    group.read_all()
    assert "gemm" not in group.shown(third)
    group.live(100, AFTER)
    assert group.shown(third) == {"gemm": group.counts["gemm"]}
    assert group.drops == []


def test_a_replica_stays_ready_while_it_holds_series_and_counts_them() -> None:
    group, _, second = growing()
    grow(group, NEW)
    group.give(second, NEW)
    group.live(2, AFTER)
    assert second.intake.ownership.readiness() == (True, "")
    assert second.own("kernelcast_bridge_series", state="held") == 2
    group.live(110, AFTER)
    assert second.own("kernelcast_bridge_series", state="held") == 0

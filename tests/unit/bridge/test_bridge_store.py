from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.bridge.fleet import (
    RESOURCE,
    Point,
    come_from,
    counter,
    decoded,
    exposed_store,
    gauge,
    page,
    samples,
    values,
)

from kernelcast.bridge.columns import (
    CLAMPED,
    METRIC_LIMIT,
    OLDER,
    SECOND_WRITER,
    SERIES_LIMIT,
    STORED,
    TEMPORALITY,
    TYPE_CONFLICT,
    WIRE_ONLY,
    Int64Array,
    Rules,
)
from kernelcast.bridge.slots import SeriesLimits
from kernelcast.bridge.store import RETRIED_BESIDES, SeriesStore
from kernelcast.columnar import PointType, SeriesIdentity, Temporality

OTHER_WRITER = (*RESOURCE, ("service.version", "2"))
SECOND_NS = 1_000_000_000


def put(store: SeriesStore, identity: SeriesIdentity, point: Point, **origin: Any) -> Int64Array:
    return store.apply(decoded([point]), come_from(**origin), lambda _: identity)


def test_the_newest_point_of_a_series_is_shown_whatever_order_points_come_in() -> None:
    store = exposed_store()
    put(store, gauge(), Point(0, 1.5, 20))
    put(store, gauge(), Point(0, 9.5, 10), offset=1)
    assert values(store, "some_gauge") == [1.5]


def test_a_restarted_counter_replaces_the_old_one_and_late_points_of_the_old_one_are_ignored() -> None:
    store = exposed_store()
    put(store, counter(), Point(0, 100, 20, start_ns=1))
    put(store, counter(), Point(0, 3, 40, start_ns=30), offset=1)
    outcomes = put(store, counter(), Point(0, 120, 50, start_ns=1), offset=2)
    assert values(store, "some_count_total") == [3]
    assert outcomes[OLDER] == 1


def test_the_same_message_read_twice_changes_nothing() -> None:
    store = exposed_store()
    put(store, counter(), Point(0, 7, 20, start_ns=1), offset=5)
    outcomes = put(store, counter(), Point(0, 7, 20, start_ns=1), offset=5)
    assert outcomes[STORED] == 1
    assert values(store, "some_count_total") == [7]


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 2**53 + 1, 0, -1, 10, 1234567890123456789])
def test_integers_are_exposed_exactly(number: int) -> None:
    store = exposed_store()
    put(store, gauge(), Point(0, number, 1))
    assert page(store).splitlines()[-1].split()[-1] == str(number)


def test_a_series_without_a_recorded_value_disappears_and_an_older_point_does_not_bring_it_back() -> None:
    store = exposed_store()
    put(store, gauge(), Point(0, 1.0, 10))
    put(store, gauge(), Point(0, None, 20), offset=1)
    put(store, gauge(), Point(0, 2.0, 15), offset=2)
    assert page(store) == ""
    assert store.states() == {"exposed": 0, "catching_up": 0, "absent": 1}
    put(store, gauge(), Point(0, 3.0, 30), offset=3)
    assert values(store, "some_gauge") == [3.0]


def test_a_point_from_the_future_is_clamped_to_its_append_time_so_that_it_blocks_nothing() -> None:
    store = exposed_store()
    append_ns = 1_000 * 1_000_000
    outcomes = put(store, gauge(), Point(0, 1.0, 10**18), append_ms=1_000)
    assert outcomes[CLAMPED] == 1
    put(store, gauge(), Point(0, 2.0, append_ns + 1), offset=1, append_ms=1_001)
    assert values(store, "some_gauge") == [2.0]


@pytest.mark.parametrize("time_ns", [2**64 - 1, 2**63])
def test_times_beyond_the_year_2262_are_the_future_too(time_ns: int) -> None:
    store = exposed_store()
    assert put(store, gauge(), Point(0, 1.0, time_ns))[CLAMPED] == 1
    assert values(store, "some_gauge") == [1.0]


def test_a_second_live_writer_of_the_same_labels_is_kept_out_and_counted() -> None:
    store = exposed_store()
    both = {0: counter(), 1: counter(resource=OTHER_WRITER)}
    store.apply(decoded([Point(0, 100, 20, start_ns=10)]), come_from(), both.__getitem__)
    outcomes = store.apply(decoded([Point(1, 5, 30, start_ns=11)]), come_from(offset=1), both.__getitem__)
    assert outcomes[SECOND_WRITER] == 1
    assert values(store, "some_count_total") == [100]


def test_a_writer_that_began_after_the_last_one_ended_takes_over_and_keeps_it() -> None:
    store = exposed_store()
    both = {0: counter(), 1: counter(resource=OTHER_WRITER)}
    store.apply(decoded([Point(0, 100, 20, start_ns=10)]), come_from(), both.__getitem__)
    store.apply(decoded([Point(1, 5, 30, start_ns=25)]), come_from(offset=1), both.__getitem__)
    outcomes = store.apply(decoded([Point(0, 101, 40, start_ns=10)]), come_from(offset=2), both.__getitem__)
    assert outcomes[SECOND_WRITER] == 1
    assert values(store, "some_count_total") == [5]


def test_a_gauge_goes_to_another_writer_once_the_first_has_been_silent() -> None:
    store = exposed_store(rules=Rules(tolerance_ns=0, takeover_ms=60_000))
    both = {0: gauge(), 1: gauge(resource=OTHER_WRITER)}
    store.apply(decoded([Point(0, 1.0, 20)]), come_from(append_ms=1_000), both.__getitem__)
    store.apply(decoded([Point(1, 2.0, 20)]), come_from(offset=1, append_ms=61_000), both.__getitem__)
    assert values(store, "some_gauge") == [1.0]
    store.apply(decoded([Point(1, 3.0, 20)]), come_from(offset=2, append_ms=61_001), both.__getitem__)
    assert values(store, "some_gauge") == [3.0]


def test_two_orders_of_the_same_attributes_are_one_series() -> None:
    store = exposed_store()
    one = gauge(attributes=(("a", "1"), ("b", "2")))
    store.apply(decoded([Point(0, 1.0, 1), Point(1, 2.0, 2)]), come_from(), lambda _: one)
    assert values(store, "some_gauge") == [2.0]


def test_a_name_claimed_with_another_type_is_refused_until_the_first_has_gone() -> None:
    store = exposed_store()
    histogram = gauge("queue", type=PointType.HISTOGRAM, temporality=Temporality.CUMULATIVE)
    put(store, gauge("queue"), Point(0, 1.0, 1))
    assert put(store, histogram, Point(1, 1.0, 1))[TYPE_CONFLICT] == 1
    store.expire({0: 10**9})
    assert put(store, histogram, Point(1, 1.0, 1))[TYPE_CONFLICT] == 0


def test_a_gauge_cannot_take_the_sample_name_of_a_histogram() -> None:
    store = exposed_store()
    put(store, gauge("latency", type=PointType.HISTOGRAM, temporality=Temporality.CUMULATIVE), Point(0, 1.0, 1))
    assert put(store, gauge("latency.count"), Point(1, 1.0, 1))[TYPE_CONFLICT] == 1


def test_the_processes_own_names_cannot_be_taken() -> None:
    store = exposed_store(reserved=frozenset({"process_open_fds"}))
    assert put(store, gauge("process.open.fds"), Point(0, 1.0, 1))[TYPE_CONFLICT] == 1


def test_wire_only_metrics_and_deltas_are_counted_and_not_shown() -> None:
    store = exposed_store()
    variant = counter("kernelcast.kernel.variant.launches")
    delta = counter("requests", temporality=Temporality.DELTA)
    assert put(store, variant, Point(0, 1, 1))[WIRE_ONLY] == 1
    assert put(store, delta, Point(1, 1, 1))[TEMPORALITY] == 1
    assert page(store) == ""


def test_series_beyond_the_limits_are_counted_by_cause_and_come_in_once_there_is_room() -> None:
    store = exposed_store(SeriesLimits(series=3, series_per_metric=2))
    identities = {i: gauge("a", attributes=(("i", str(i)),)) for i in range(3)}
    identities |= {i: gauge("b", attributes=(("i", str(i)),)) for i in range(3, 5)}
    outcomes = store.apply(decoded([Point(i, 1.0, 1) for i in range(5)]), come_from(), identities.__getitem__)
    assert (outcomes[STORED], outcomes[METRIC_LIMIT], outcomes[SERIES_LIMIT]) == (3, 1, 1)
    store.apply(
        decoded([Point(1, 1.0, 2), Point(3, 1.0, 2)]), come_from(offset=1, append_ms=9_000), identities.__getitem__
    )
    store.expire({0: 5_000})
    outcomes = store.apply(decoded([Point(2, 1.0, 3)]), come_from(offset=2, append_ms=9_000), identities.__getitem__)
    assert outcomes[STORED] == 1
    assert store.lines == 3


def test_series_far_beyond_the_limit_are_not_all_judged_again_at_every_expiry_and_each_has_its_turn() -> None:
    refused = 3 * RETRIED_BESIDES
    store = exposed_store(SeriesLimits(series=1, series_per_metric=1))
    judged: list[int] = []

    def identify(number: int) -> SeriesIdentity:
        judged.append(number)
        return gauge("a", attributes=(("i", str(number)),))

    def write(numbers: Iterable[int], append_ms: int) -> None:
        store.apply(decoded([Point(i, 1.0, 1) for i in numbers]), come_from(append_ms=append_ms), identify)

    admitted = 0
    write(range(refused), 1_000)
    for append_ms in (10_000, 20_000, 30_000):
        others = [i for i in range(refused) if i != admitted]
        write(others, append_ms)
        seen = len(judged)
        store.expire({0: append_ms})
        write(others, append_ms)
        assert 0 < len(judged) - seen <= RETRIED_BESIDES + 1
        assert store.lines == 1
        admitted = judged[seen]
    assert set(judged[refused:]) >= set(range(1, refused))


def test_expired_series_leave_nothing_behind_however_many_come_and_go() -> None:
    store = exposed_store()
    for generation in range(30):
        identities = {i: gauge(attributes=(("pod", f"{generation}-{i}"),)) for i in range(400)}
        points = [Point(i, 1.0, generation) for i in range(400)]
        store.apply(decoded(points), come_from(append_ms=generation * 10), identities.__getitem__)
        removed, numbers = store.expire({0: generation * 10 + 1})
        assert removed == 400
        assert sorted(numbers) == list(range(400))
    assert store._slots.used == 400
    assert len(store._slots.labels.arena) < 1 << 21
    assert store.lines == 0
    assert page(store) == ""


def test_a_partition_that_goes_takes_its_series_along() -> None:
    store = exposed_store()
    store.expose(1, exposed=True)
    identities = {0: gauge("a"), 1: gauge("b")}
    store.apply(decoded([Point(0, 1.0, 1)]), come_from(partition=0), identities.__getitem__)
    store.apply(decoded([Point(1, 2.0, 1)]), come_from(partition=1), identities.__getitem__)
    removed, numbers = store.drop_partition(1)
    assert (removed, list(numbers)) == (1, [1])
    assert page(store).splitlines()[-1].startswith("a{")


def test_a_series_stays_visible_while_a_partition_that_also_has_it_catches_up() -> None:
    store = exposed_store()
    store.apply(decoded([Point(0, 1, 10)]), come_from(partition=0), lambda _: counter())
    store.apply(decoded([Point(0, 2, 20)]), come_from(partition=1), lambda _: counter())
    assert values(store, "some_count_total") == [2]
    store.expose(1, exposed=True)
    store.apply(decoded([Point(0, 3, 30)]), come_from(partition=1, offset=1), lambda _: counter())
    store.drop_partition(0)
    assert values(store, "some_count_total") == [3]


@dataclass
class Held:
    writer: int
    start_ns: int
    time_ns: int
    partition: int
    offset: int
    append_ms: int
    value: float | int | None


@dataclass
class SlowStore:
    """The same rules, one dictionary and one point at a time."""

    takeover_ms: int = 1_000
    tolerance_ns: int = 2_000 * 1_000_000
    held: dict[int, Held] = field(default_factory=dict)
    exposed: set[int] = field(default_factory=set)

    def put(self, series: int, writer: int, point: Point, origin: Any) -> None:
        partition, offset, append_ms = origin
        latest = append_ms * 1_000_000
        time_ns = latest if point.time_ns > latest + self.tolerance_ns else point.time_ns
        start_ns = latest if point.start_ns > latest + self.tolerance_ns else point.start_ns
        old = self.held.get(series)
        if old is not None and not self._accepts(old, writer, (start_ns, time_ns), origin):
            return
        new = Held(writer, start_ns, time_ns, partition, offset, append_ms, point.value)
        if old is not None:
            new.append_ms = max(append_ms, old.append_ms)
            if old.partition in self.exposed and partition not in self.exposed:
                new.partition, new.offset = old.partition, old.offset
        self.held[series] = new

    def _accepts(self, old: Held, writer: int, when: tuple[int, int], origin: tuple[int, int, int]) -> bool:
        start_ns, time_ns = when
        if old.writer != writer:
            return origin[2] - old.append_ms > self.takeover_ms or start_ns > old.time_ns
        if start_ns and old.start_ns and start_ns != old.start_ns:
            return start_ns > old.start_ns
        if time_ns != old.time_ns:
            return time_ns > old.time_ns
        return origin[0] == old.partition and origin[1] >= old.offset

    def shown(self) -> dict[int, float | int]:
        return {
            series: held.value
            for series, held in self.held.items()
            if held.value is not None and held.partition in self.exposed
        }


SERIES = range(4)
points = st.builds(
    Point,
    st.just(0),
    st.one_of(st.integers(-5, 5), st.floats(allow_nan=False, width=32), st.none()),
    st.integers(0, 9_000).map(lambda ms: ms * 1_000_000),
    st.integers(0, 9_000).map(lambda ms: ms * 1_000_000),
)
actions = st.one_of(
    st.tuples(
        st.just("put"),
        st.sampled_from(SERIES),
        st.integers(0, 1),
        points,
        st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(0, 5_000)),
    ),
    st.tuples(st.just("expose"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("drop"), st.integers(0, 2)),
    st.tuples(st.just("expire"), st.integers(0, 2), st.integers(0, 5_000)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(actions, max_size=25))
def test_the_store_agrees_with_a_dictionary_that_follows_the_rules_one_point_at_a_time(steps: list[Any]) -> None:
    slow = SlowStore()
    fast = SeriesStore(SeriesLimits(), rules=Rules(slow.tolerance_ns, slow.takeover_ms))
    identities = {
        series * 2 + writer: counter(attributes=(("i", str(series)),), resource=(RESOURCE, OTHER_WRITER)[writer])
        for series in SERIES
        for writer in (0, 1)
    }
    for step in steps:
        match step:
            case ("put", series, writer, point, origin):
                slow.put(series, writer, point, origin)
                moved = Point(series * 2 + writer, point.value, point.time_ns, point.start_ns)
                fast.apply(decoded([moved]), come_from(*origin), identities.__getitem__)
            case ("expose", partition, shown):
                fast.expose(partition, exposed=shown)
                slow.exposed = slow.exposed | {partition} if shown else slow.exposed - {partition}
            case ("drop", partition):
                fast.drop_partition(partition)
                slow.exposed.discard(partition)
                slow.held = {key: held for key, held in slow.held.items() if held.partition != partition}
            case ("expire", partition, oldest):
                fast.expire({partition: oldest})
                slow.held = {
                    key: held
                    for key, held in slow.held.items()
                    if held.partition != partition or held.append_ms >= oldest
                }
        found = {int(dict(labels)["i"]): value for (_, labels), value in samples(page(fast)).items()}
        assert found == slow.shown()

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.support.bridge.fleet import (
    RESOURCE,
    Known,
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

from kernelcast.bridge.intake.future_points import mark_future
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.columns import (
    OLDER,
    SECOND_WRITER,
    STORED,
    TEMPORALITY,
    TYPE_CONFLICT,
    WIRE_ONLY,
    Int64Array,
    PointRules,
)
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.columnar import PointType, SeriesIdentity, Temporality

OTHER_WRITER = (*RESOURCE, ("service.version", "2"))
SECOND_NS = 1_000_000_000


def put(store: SeriesStore, identity: SeriesIdentity, point: Point, **origin: Any) -> Int64Array:
    points, origins = decoded([point]), come_from(**origin)
    mark_future(points, origins.append_ms, 10 * SECOND_NS)
    return store.apply(points, origins, Known(lambda _: identity))


def test_the_newest_point_of_a_series_is_exposed_for_any_order_of_points() -> None:
    store = exposed_store()
    put(store, gauge(), Point(0, 1.5, 20))
    put(store, gauge(), Point(0, 9.5, 10), offset=1)
    assert values(store, "some_gauge") == [1.5]


def test_a_restarted_counter_replaces_the_old_one_and_late_points_of_the_old_one_are_ignored() -> None:
    store = exposed_store()
    put(store, counter(), Point(0, 100, 20 * SECOND_NS, start_ns=SECOND_NS), append_ms=20_000)
    put(store, counter(), Point(0, 3, 40 * SECOND_NS, start_ns=30 * SECOND_NS), offset=1, append_ms=40_000)
    outcomes = put(store, counter(), Point(0, 120, 29 * SECOND_NS, start_ns=SECOND_NS), offset=2, append_ms=50_000)
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
    assert store.states() == {"exposed": 0, "catching_up": 0, "held": 0, "absent": 1}
    put(store, gauge(), Point(0, 3.0, 30), offset=3)
    assert values(store, "some_gauge") == [3.0]


def test_a_point_from_the_future_blocks_nothing_and_is_counted_by_producer() -> None:
    store = exposed_store()
    append_ns = 1_000 * 1_000_000
    put(store, gauge(), Point(0, 1.0, 10**18), append_ms=1_000)
    assert store.take_ahead()[0] == (("kernelcast-exporter", "host-1"), 1)
    put(store, gauge(), Point(0, 2.0, append_ns + 1), offset=1, append_ms=1_001)
    assert values(store, "some_gauge") == [2.0]


@pytest.mark.parametrize("time_ns", [2**64 - 1, 2**63])
def test_times_beyond_the_year_2262_are_the_future_too(time_ns: int) -> None:
    store = exposed_store()
    put(store, gauge(), Point(0, 1.0, time_ns))
    assert sum(count for _, count in store.take_ahead()) == 1
    assert values(store, "some_gauge") == [1.0]


def test_a_second_live_writer_of_the_same_labels_is_kept_out_and_counted() -> None:
    store = exposed_store()
    both = {0: counter(), 1: counter(resource=OTHER_WRITER)}
    known = Known(both.__getitem__)
    store.apply(decoded([Point(0, 100, 20, start_ns=10)]), come_from(), known)
    outcomes = store.apply(decoded([Point(1, 5, 30, start_ns=11)]), come_from(offset=1), known)
    assert outcomes[SECOND_WRITER] == 1
    assert values(store, "some_count_total") == [100]


def test_a_writer_that_began_after_the_last_one_ended_takes_over_and_keeps_it() -> None:
    store = exposed_store()
    both = {0: counter(), 1: counter(resource=OTHER_WRITER)}
    known = Known(both.__getitem__)
    store.apply(decoded([Point(0, 100, 20, start_ns=10)]), come_from(), known)
    store.apply(decoded([Point(1, 5, 30, start_ns=25)]), come_from(offset=1), known)
    outcomes = store.apply(decoded([Point(0, 101, 40, start_ns=10)]), come_from(offset=2), known)
    assert outcomes[SECOND_WRITER] == 1
    assert values(store, "some_count_total") == [5]


def test_a_gauge_goes_to_another_writer_once_the_first_has_been_silent() -> None:
    store = exposed_store(rules=PointRules(takeover_ms=60_000))
    both = {0: gauge(), 1: gauge(resource=OTHER_WRITER)}
    known = Known(both.__getitem__)
    store.apply(decoded([Point(0, 1.0, 20)]), come_from(append_ms=1_000), known)
    store.apply(decoded([Point(1, 2.0, 20)]), come_from(offset=1, append_ms=61_000), known)
    assert values(store, "some_gauge") == [1.0]
    store.apply(decoded([Point(1, 3.0, 20)]), come_from(offset=2, append_ms=61_001), known)
    assert values(store, "some_gauge") == [3.0]


def test_two_orders_of_the_same_attributes_are_one_series() -> None:
    store = exposed_store()
    one = gauge(attributes=(("a", "1"), ("b", "2")))
    store.apply(decoded([Point(0, 1.0, 1), Point(1, 2.0, 2)]), come_from(), Known(lambda _: one))
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


def test_wire_only_metrics_and_sums_without_temporality_are_counted_and_not_shown() -> None:
    store = exposed_store()
    variant = counter("kernelcast.kernel.variant.launches")
    neither = counter("requests", temporality=Temporality.UNSPECIFIED)
    assert put(store, variant, Point(0, 1, 1))[WIRE_ONLY] == 1
    assert put(store, neither, Point(1, 1, 1))[TEMPORALITY] == 1
    assert page(store) == ""


def test_a_partition_that_goes_takes_its_series_along() -> None:
    store = exposed_store()
    store.expose(1, exposed=True)
    identities = {0: gauge("a"), 1: gauge("b")}
    known = Known(identities.__getitem__)
    store.apply(decoded([Point(0, 1.0, 1)]), come_from(partition=0), known)
    store.apply(decoded([Point(1, 2.0, 1)]), come_from(partition=1), known)
    removed, [(source, numbers)] = store.drop_partition(1)
    assert (removed, source, list(numbers)) == (1, known, [1])
    assert page(store).splitlines()[-1].startswith("a{")


def test_a_series_is_hidden_while_the_partition_that_has_its_newest_point_catches_up() -> None:
    store = exposed_store()
    store.apply(decoded([Point(0, 1, 10)]), come_from(partition=0), Known(lambda _: counter()))
    store.apply(decoded([Point(0, 2, 20)]), come_from(partition=1), Known(lambda _: counter()))
    assert values(store, "some_count_total") == []
    store.expose(1, exposed=True)
    assert values(store, "some_count_total") == [2]
    store.apply(decoded([Point(0, 3, 30)]), come_from(partition=1, offset=1), Known(lambda _: counter()))
    store.drop_partition(0)
    assert values(store, "some_count_total") == [3]


@dataclass
class Held:
    writer: int
    start_ns: int
    time_ns: int
    ahead: bool
    partition: int
    offset: int
    append_ms: int
    value: float | int | None

    @property
    def shown_ns(self) -> int:
        return self.append_ms * 1_000_000 if self.ahead else self.time_ns


@dataclass
class SlowStore:
    """The same rules, one dictionary and one point at a time."""

    takeover_ms: int = 3_000
    tolerance_ns: int = 2_000 * 1_000_000
    held: dict[int, Held] = field(default_factory=dict)
    appends: dict[int, int] = field(default_factory=dict)
    firsts: dict[int, int] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    intervals: dict[int, int] = field(default_factory=dict)
    exposed: set[int] = field(default_factory=set)

    def put(self, series: int, writer: int, point: Point, origin: Any) -> None:
        partition, offset, append_ms = origin
        old = self.held.get(series)
        latest_ns = append_ms * 1_000_000 + self.tolerance_ns
        start_ns, is_ahead = point.start_ns if point.start_ns <= latest_ns else 0, point.time_ns > latest_ns
        new = Held(writer, start_ns, point.time_ns, is_ahead, partition, offset, append_ms, point.value)
        if old is not None and old.writer != writer and not self._free(old, new, origin):
            return
        if old is not None and old.writer == writer and self._both_live(old, new):
            if not self._silent(old, origin):
                return
            old = None
        self._live(writer, new.shown_ns, append_ms)
        if old is not None and old.writer == writer and not self._newer(old, new):
            return
        old = self.held.get(series)
        if old is not None:
            new.append_ms = max(append_ms, old.append_ms)
        self.held[series] = new

    def _live(self, writer: int, shown_ns: int, append_ms: int) -> None:
        self.times[writer] = max(shown_ns, self.times.get(writer, 0))
        self.firsts[writer] = min(append_ms, self.firsts.get(writer, append_ms))
        known_ms = self.appends.get(writer, 0)
        if append_ms > known_ms:
            self.appends[writer] = append_ms
            if known_ms:
                gap_ms, interval_ms = append_ms - known_ms, self.intervals.get(writer, 0)
                self.intervals[writer] = max(gap_ms, interval_ms - gap_ms // 8)

    def _free(self, old: Held, new: Held, origin: tuple[int, int, int]) -> bool:
        """Whether a series may go to another writer."""
        return (new.start_ns > old.shown_ns and self._is_no_repetition(old.writer, new)) or self._silent(old, origin)

    def _is_no_repetition(self, owner: int, new: Held) -> bool:
        """Whether a point cannot be one from before its series' owner began, read or sent again."""
        first_ms = self.firsts[owner]
        if new.append_ms < first_ms:
            return False
        if self.firsts.get(new.writer, first_ms) >= first_ms:
            return True
        newest_ns = self.times[new.writer]
        is_newest = new.append_ms == self.appends.get(new.writer, 0) and new.shown_ns == newest_ns
        return is_newest or new.shown_ns > newest_ns

    def _both_live(self, old: Held, new: Held) -> bool:
        """Whether a point of a series' own writer comes from a process that began earlier and still runs."""
        return 0 < new.start_ns < old.start_ns - 2_000_000_000 and self._later(old, new)

    def _silent(self, old: Held, origin: tuple[int, int, int]) -> bool:
        """Whether a series' writer has stopped."""
        partition, _, append_ms = origin
        if append_ms - old.append_ms > self.takeover_ms:
            return True
        if partition != old.partition and not {partition, old.partition} <= self.exposed:
            return False
        interval_ms = self.intervals.get(old.writer)
        return interval_ms is not None and append_ms - self.appends[old.writer] > max(1.5 * interval_ms, 1_000)

    def _newer(self, old: Held, new: Held) -> bool:
        """Whether a point of a series' own writer is its newest."""
        if new.start_ns and old.start_ns and abs(new.start_ns - old.start_ns) > 2_000_000_000:
            return new.start_ns > old.start_ns
        if new.time_ns == old.time_ns:
            return new.partition == old.partition and new.offset >= old.offset
        return self._later(old, new)

    def _later(self, old: Held, new: Held) -> bool:
        """Whether a point is later than the stored one: by its clock, or by the times at which both are shown."""
        if old.ahead == new.ahead:
            return new.time_ns > old.time_ns
        came_late = new.partition != old.partition and new.append_ms - old.append_ms <= self.takeover_ms
        return not (new.ahead and came_late) and new.shown_ns > old.shown_ns

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


def ahead(time_ms: int, origin: tuple[int, int, int]) -> tuple[Any, ...]:
    return ("put", 0, 0, Point(0, time_ms, time_ms * 1_000_000, 0), origin)


@example(
    [("put", 0, 0, Point(0, 0, 0, 0), (0, 1, 0)), ("expose", 0, True), ahead(0, (0, 0, 0)), ahead(2001, (0, 0, 0))]
)
@example(
    [
        ("put", 0, 0, Point(0, 0, 0, 0), (0, 0, 0)),
        ("put", 0, 0, Point(0, 0, 0, 0), (0, 0, 1)),
        ("expose", 0, True),
        ("put", 0, 1, Point(0, None, 0, 1_000_000), (1, 0, 0)),
    ]
)
@example([("put", 0, 0, Point(0, 0, 0, 0), (1, 0, 1)), ahead(1, (0, 0, 0)), ("expose", 0, True)])
@example(
    [
        ("put", 0, 0, Point(0, 1, 0, 0), (0, 0, 1)),
        ("expose", 0, True),
        ("put", 0, 1, Point(0, 0, 0, 1_000_000), (0, 0, 0)),
    ]
)
@example(
    [
        *[("put", 0, 0, Point(0, 0, 0, 0), (0, 0, 1)), ("drop", 0)],
        *[("put", 0, 1, Point(0, 0, 0, 0), (0, 0, 0)), ("drop", 0)],
        *[("put", 0, 0, Point(0, 1, 0, 0), (0, 0, 1)), ("expose", 0, True)],
        ("put", 0, 1, Point(0, 0, 1_000_000, 1_000_000), (0, 0, 1)),
    ]
)
@given(st.lists(actions, max_size=25))
def test_the_store_agrees_with_a_dictionary_that_follows_the_rules_one_point_at_a_time(steps: list[Any]) -> None:
    slow = SlowStore()
    fast = SeriesStore(SeriesLimits(), rules=PointRules(slow.takeover_ms))
    identities = {
        series * 2 + writer: counter(attributes=(("i", str(series)),), resource=(RESOURCE, OTHER_WRITER)[writer])
        for series in SERIES
        for writer in (0, 1)
    }
    known = Known(identities.__getitem__)
    for step in steps:
        match step:
            case ("put", series, writer, point, origin):
                slow.put(series, writer, point, origin)
                moved = Point(series * 2 + writer, point.value, point.time_ns, point.start_ns)
                read, came = decoded([moved]), come_from(*origin)
                mark_future(read, came.append_ms, slow.tolerance_ns)
                fast.apply(read, came, known)
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

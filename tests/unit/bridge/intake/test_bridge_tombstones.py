"""Messages with a key and no value: earlier series of the key end, later points start new series."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bridge.collector import collector_message
from tests.support.bridge.exemplars import Site as ExemplarSite
from tests.support.bridge.exemplars import exemplar
from tests.support.bridge.fleet import Site, gauge, page, samples, values
from tests.support.bridge.list_kafka import ListKafka
from tests.support.bridge.producers import INFO, UP, Fleet, resource
from tests.support.runtime.kafka_record import Record

from kernelcast.bridge.intake.parts import IntakePolicy
from kernelcast.bridge.partitions.tombstones import key_hash
from kernelcast.columnar import Sample
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.histogram import DurationTotals

P0, P1, OTHER = ("kernels", 0), ("kernels", 1), ("kernelcast.kernels", 0)
LAUNCHES = "cuda_kernel_launches_total"
REMOVED = "kernelcast_bridge_removed_series_total"
TOMBSTONES = "kernelcast_bridge_tombstones_total"


def launches(number: int, *, time_ns: int | None = None, name: str = "gemm", start_ns: int = 1) -> Sample:
    return Sample(kernel.LAUNCHES, (("kernel", name),), number if time_ns is None else time_ns, number, start_ns)


def reading(*partitions: tuple[str, int], at_once: int = 100, **options: Any) -> Site:
    site = Site(kafka=ListKafka(at_once=at_once), **options)
    site.kafka.assign(site.intake, *(partitions or (P0,)))
    return site


def bury(site: Site, partition: int = 0, key: bytes | None = b"key") -> None:
    site.kafka.write("kernels", partition, None, site.clock.now_ns() // 1_000_000, keyed=key)


# What goes


def test_everything_that_came_under_the_key_goes_at_once_whatever_its_kind() -> None:
    site = reading()
    site.kafka.write(*P0, collector_message(), append_ms=site.clock.now_ns() // 1_000_000)
    site.read_all()
    kinds = {line.split()[3] for line in page(site.store).splitlines() if line.startswith("# TYPE")}
    assert {"gauge", "counter", "histogram", "summary"} <= kinds
    held = sum(site.store.states().values())
    bury(site)
    site.read_all()
    assert page(site.store) == ""
    assert site.store.states() == {"exposed": 0, "catching_up": 0, "held": 0, "absent": 0}
    assert site.store.lines == 0
    assert site.own(REMOVED, cause="tombstone") == held
    assert [message.offset() for message, _ in site.shelf.messages] == [0]  # it has delta points, too


@pytest.mark.parametrize("at_once", [1, 100])
def test_points_before_it_in_its_batch_do_not_outlive_it_and_points_after_it_do(at_once: int) -> None:
    site = reading(at_once=at_once)
    site.export(0, launches(1, name="a"), launches(1, name="b"))
    bury(site)
    site.export(0, launches(2, name="b"))
    site.read_all()
    assert values(site.store, LAUNCHES) == [2]
    assert site.own(REMOVED, cause="tombstone") == 2
    assert site.own(TOMBSTONES, topic="kernels", kind="keyed") == 1


def test_offsets_decide_not_times() -> None:
    site = reading()
    site.export(0, launches(9, time_ns=900, start_ns=800))
    bury(site)
    site.export(0, launches(3, time_ns=300, start_ns=200))
    site.read_all()
    assert values(site.store, LAUNCHES) == [3]


def test_other_keys_partitions_and_topics_keep_their_series() -> None:
    site = reading(P0, P1, OTHER)
    site.export(0, launches(1, name="a"), keyed=b"x")
    site.export(0, launches(2, name="b"), keyed=b"y")
    site.export(1, launches(3, name="c"), keyed=b"x")
    site.kafka.write(*OTHER, site.kafka.logs[P1][0].body, append_ms=1_000_000, keyed=b"z")
    bury(site, key=b"x")
    bury(site, key=b"z")
    bury(site, key=b"unknown")
    site.read_all()
    assert sorted(values(site.store, LAUNCHES)) == [2, 3]


def test_a_series_goes_with_the_key_of_its_newest_point() -> None:
    site = reading()
    site.export(0, launches(1), keyed=b"before")
    site.export(0, launches(2), keyed=b"now")
    site.export(0, launches(1), keyed=b"late")
    bury(site, key=b"before")
    bury(site, key=b"late")
    site.read_all()
    assert values(site.store, LAUNCHES) == [2]
    bury(site, key=b"now")
    site.read_all()
    assert page(site.store) == ""


def test_an_empty_key_is_a_key() -> None:
    site = reading()
    site.export(0, launches(1), keyed=b"")
    bury(site, key=b"")
    site.read_all()
    assert page(site.store) == ""


def test_exemplars_go_with_their_series() -> None:
    site = ExemplarSite()
    site.count(exemplar(3.5))
    site.store.end_keys([1])
    site.count()
    assert site.shown() == []


def test_the_numbers_of_removed_series_are_returned_to_the_input() -> None:
    fleet = Fleet()
    fleet.send(gauge("a"), gauge("b"), append_ms=10_000, key_hash=1)
    fleet.send(gauge("c"), append_ms=10_000, key_hash=2)
    removed, [(source, numbers)] = fleet.store.end_keys([1])
    assert (removed, source, numbers.tolist()) == (2, fleet.source, [0, 1])


# Who may say it, and where


@pytest.mark.parametrize("policy", [IntakePolicy(), IntakePolicy(grouped=False)])
def test_without_a_key_it_means_nothing_and_is_counted(
    policy: IntakePolicy, capsys: pytest.CaptureFixture[str]
) -> None:
    site = reading(policy=policy)
    site.export(0, launches(1), keyed=b"key" if policy.grouped else None)
    bury(site, key=None)
    site.read_all()
    site.clock.seconds += 2
    site.read_all()
    assert values(site.store, LAUNCHES) == [1]
    assert site.own(TOMBSTONES, topic="kernels", kind="unkeyed") == 1
    assert site.own("kernelcast_bridge_unkeyed_messages_total", topic="kernels") == 0
    assert site.own("kernelcast_bridge_lag_messages", topic="kernels", partition="0") == 0
    assert site.shelf.messages == []
    assert "error" not in capsys.readouterr().out


def test_a_former_owners_tombstones_work_when_they_are_read_again_and_nothing_shows_meanwhile() -> None:
    writer = Site()
    writer.export(0, launches(1, name="a"), launches(1, name="b"))
    bury(writer)
    writer.export(0, launches(2, name="b"))
    site = Site(kafka=ListKafka(writer.kafka.logs, commits={P0: 3}), clock=writer.clock)
    site.kafka.assign(site.intake, P0)
    for _ in range(2):
        site.intake.step()
        assert page(site.store) == ""
    site.read_all()
    assert values(site.store, LAUNCHES) == [2]


def test_long_keys_are_not_kept_in_memory() -> None:
    key_hash("kernels", 0, b"first")
    tracemalloc.start()
    try:
        for i in range(200):
            key_hash("kernels", 0, i.to_bytes(2, "big") * 50_000)
        assert tracemalloc.get_traced_memory()[0] < 1_000_000
    finally:
        tracemalloc.stop()


# Producers


def test_a_producer_removed_with_its_key_is_not_exposed_until_it_returns() -> None:
    fleet = Fleet()
    ours = [gauge(f"g{i}", resource=resource(str(i), host_name=f"n{i}")) for i in range(8)]
    for i, one in enumerate(ours):
        fleet.send(one, append_ms=10_000, key_hash=i + 1)
    fleet.look(10_000)
    before = fleet.shown(UP)
    fleet.store.end_keys([1, 2, 3, 4])
    fleet.look(11_000)
    assert fleet.shown(UP) == {one: up for one, up in before.items() if int(one) >= 4}
    assert not fleet.shown(INFO).keys() & {"0", "1", "2", "3"}
    for i, one in enumerate(ours[:4]):
        fleet.send(one, append_ms=12_000, key_hash=i + 1)
    fleet.look(12_000)
    assert fleet.shown(UP) == before


def test_a_producer_with_series_under_another_key_is_still_exposed() -> None:
    fleet = Fleet()
    fleet.send(gauge("a", resource=resource()), append_ms=10_000, key_hash=1)
    fleet.send(gauge("b", resource=resource()), append_ms=10_000, key_hash=2)
    fleet.look(10_000)
    assert fleet.store.end_keys([1])[0] == 1
    fleet.look(11_000)
    assert fleet.shown(UP) == {"a": 1}
    assert fleet.store.end_keys([2])[0] == 1
    fleet.look(12_000)
    assert page(fleet.store) == ""


def test_who_has_no_name_can_go_too() -> None:
    fleet = Fleet()
    fleet.send(gauge(resource=(("host.name", "n1"),)), append_ms=10_000)
    fleet.store.end_keys([1])
    assert page(fleet.store) == ""


# All of it, against the slow way


@dataclass(frozen=True)
class Written:
    """A message of one point, or a tombstone where there is no series."""

    partition: int
    key: bytes
    series: str = ""
    time_ns: int = 0
    start_ns: int = 0


@dataclass
class Slow:
    """The newest point of each series, where it came from, and which partition owns the series.

    A series goes over to the partition of its newest point, unless it would vanish there: its owner is shown, and the
    other one has not caught up. Of points of one time, the owner's later one counts.
    """

    shown_partitions: set[int]
    newest: dict[str, tuple[Written, int]] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)

    def take(self, written: Written, value: int) -> None:
        if not written.series:
            self.end((written.partition, written.key))
        elif written.series not in self.newest or self.later(written):
            self.newest[written.series] = (written, value)
            owner = self.owners.setdefault(written.series, written.partition)
            if owner not in self.shown_partitions or written.partition in self.shown_partitions:
                self.owners[written.series] = written.partition

    def end(self, origin: tuple[int, bytes]) -> None:
        for series, (point, _) in list(self.newest.items()):
            if (point.partition, point.key) == origin:
                del self.newest[series], self.owners[series]

    def later(self, point: Written) -> bool:
        known, _ = self.newest[point.series]
        if point.series.startswith("gauge") or point.start_ns == known.start_ns:
            again = point.time_ns == known.time_ns and point.partition == self.owners[point.series]
            return point.time_ns > known.time_ns or again
        return point.start_ns > known.start_ns

    def read_again(self, messages: Sequence[Written], at_once: int, *, joint: bool) -> None:
        """Begin with nothing, and show a partition once it has been read to its end; all together where asked for."""
        self.newest, self.owners, self.shown_partitions = {}, {}, set()
        for begin in range(-at_once, len(messages), at_once):
            for number in range(max(begin, 0), min(begin + at_once, len(messages))):
                self.take(messages[number], number + 1)
            left = {written.partition for written in messages[begin + at_once :]}
            if not (joint and left):
                self.shown_partitions |= {0, 1} - left

    def shown(self) -> dict[str, float]:
        return {series: value for series, (_, value) in self.newest.items()}


@dataclass
class InOrder(ListKafka):
    """Returns messages of all partitions in the order of writing, a fixed number at a time."""

    def consume(self, *_: object) -> tuple[list[Record], list[object]]:
        left = [record for key, offset in self.reading.items() for record in self.logs[key][offset:]]
        batch = sorted(left, key=lambda record: record.append_ms)[: self.at_once]
        for record in batch:
            self.reading["kernels", record.partition()] += 1
        return batch, []


def point_of(written: Written, value: int) -> Sample:
    labels = (("kernel", written.series),)
    if written.series.startswith("gauge"):
        return Sample(kernel.PROBE_COVERAGE, labels, written.time_ns, float(value))
    if written.series.startswith("counter"):
        return Sample(kernel.LAUNCHES, labels, written.time_ns, value, written.start_ns)
    observed = DurationTotals()
    for _ in range(value):
        observed.observe(1_000)
    return Sample(kernel.DURATION, labels, written.time_ns, observed, written.start_ns, detailed=True)


POINT = st.builds(
    Written,
    st.integers(0, 1),
    st.sampled_from([b"x", b"y"]),
    st.sampled_from(["gauge", "counter", "counter 2", "histogram"]),
    st.integers(3, 9),
    st.sampled_from([1_000_000_000, 4_000_000_000]),  # too far apart to be one process's
)
TOMBSTONE = st.builds(Written, st.integers(0, 1), st.sampled_from([b"x", b"y"]))


@given(
    messages=st.lists(st.one_of(POINT, POINT, TOMBSTONE), max_size=25),
    at_once=st.integers(1, 12),
    policy=st.sampled_from([IntakePolicy(), IntakePolicy(grouped=False)]),
    again=st.booleans(),
)
def test_however_points_and_tombstones_follow_each_other_the_slow_way_shows_the_same(
    *, messages: list[Written], at_once: int, policy: IntakePolicy, again: bool
) -> None:
    site = Site(kafka=InOrder(at_once=at_once), policy=policy)
    site.kafka.assign(site.intake, P0, P1)
    slow = Slow({0, 1})
    for number, written in enumerate(messages, start=1):
        if written.series:
            site.export(written.partition, point_of(written, number), append_ms=number, keyed=written.key)
        else:
            site.kafka.write("kernels", written.partition, None, number, keyed=written.key)
        slow.take(written, number)
    site.read_all()
    if again:  # as the next owner reads it all
        site.kafka.revoke(site.intake, P0, P1)
        site.kafka.assign(site.intake, P0, P1)
        site.read_all()
        slow.read_again(messages, at_once, joint=not policy.grouped)
    found = samples(page(site.store)).items()
    names = {LAUNCHES, kernel.PROBE_COVERAGE.prometheus_name, f"{kernel.DURATION.prometheus_name}_count"}
    assert {dict(labels)["kernel"]: value for (name, labels), value in found if name in names} == slow.shown()

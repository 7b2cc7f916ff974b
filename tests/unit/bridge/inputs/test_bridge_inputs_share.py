from typing import Any

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
    values,
)

from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.hashing import stable_hash
from kernelcast.bridge.tables.interning import FEWEST_SWEPT
from kernelcast.bridge.tables.placement import Placement
from kernelcast.columnar import SeriesIdentity
from kernelcast.wire.catalogue import Kind

PRODUCER = ("kernelcast-exporter", "host-1")


def put(store: SeriesStore, identity: SeriesIdentity, point: Point, **origin: Any) -> None:
    store.apply(decoded([point]), come_from(**origin), Known(lambda _: identity))


def heard(store: SeriesStore, producer: tuple[str, str] = PRODUCER) -> list[int]:
    number = store.producers.number(producer)
    return [int(column[number]) for column in store.producers.columns[:3]]  # append time, event time, partition


def test_two_inputs_may_call_different_series_by_one_number_and_one_series_by_two() -> None:
    store = exposed_store()
    one, other = Known([gauge("a"), gauge("b")].__getitem__), Known([gauge("b"), gauge("c")].__getitem__)
    store.apply(decoded([Point(0, 1.0, 1), Point(1, 1.0, 1)]), come_from(append_ms=1_000), one)
    store.apply(decoded([Point(0, 2.0, 2), Point(1, 2.0, 2)]), come_from(offset=1, append_ms=9_000), other)
    assert [values(store, name) for name in "abc"] == [[1.0], [2.0], [2.0]]
    removed, forgotten = store.expire({0: 5_000})
    assert (removed, [(source, numbers.tolist()) for source, numbers in forgotten]) == (1, [(one, [0, 1])])
    assert [values(store, name) for name in "abc"] == [[], [2.0], [2.0]]


def test_an_input_may_say_itself_where_a_series_goes() -> None:
    store = exposed_store()
    placement = Placement("up", Kind.GAUGE, "", b'job="a"', cumulative=False, writer=1)
    store.apply(decoded([Point(0, 1, 1)]), come_from(), Known(lambda _: placement))
    assert page(store).splitlines()[-1] == 'up{job="a"} 1'


def test_a_series_has_the_same_hash_in_every_process() -> None:
    assert stable_hash("up", b'instance="host-1",job="a"') == 1244522356241358569


def test_the_last_sample_of_a_producer_is_known_even_if_it_is_older_than_the_stored_one() -> None:
    store = exposed_store()
    put(store, gauge(), Point(0, 1.0, 500_000_000), append_ms=1_000)
    put(store, gauge(), Point(0, 1.0, 400_000_000), offset=1, append_ms=2_000, partition=1)
    assert heard(store) == [2_000, 500_000_000, 1]


def test_a_refused_second_writer_is_no_sign_of_life() -> None:
    store = exposed_store()
    put(store, counter(), Point(0, 100, 20, start_ns=10), append_ms=1_000)
    other = counter(resource=(*RESOURCE, ("service.version", "2")))
    put(store, other, Point(0, 5, 30, start_ns=11), offset=1, append_ms=2_000)
    assert heard(store) == [1_000, 20, 0]


def test_writers_and_producers_that_have_gone_leave_nothing_behind() -> None:
    store = exposed_store()
    for generation in range(60):
        pods = [f"pod-{generation}-{i}" for i in range(FEWEST_SWEPT // 16)]
        resources = [(("service.instance.id", pod), ("service.name", "a")) for pod in pods]
        known = Known([gauge(resource=resource) for resource in resources].__getitem__)
        points = [Point(i, 1.0, generation) for i in range(len(resources))]
        store.apply(decoded(points), come_from(append_ms=generation * 10), known)
        store.expire({0: generation * 10 + 1})
    assert store._writers.used <= 1.5 * FEWEST_SWEPT
    assert store.producers.used <= 1.5 * FEWEST_SWEPT

"""Encoded pages are shared: by scrapers of one moment, by slow readers, and between updates."""

import asyncio
import gc
import itertools
import threading

import pytest
from tests.support.bridge.fleet import Known, Point, come_from, decoded, exposed_store, gauge

from kernelcast.bridge.expose import bodies as module
from kernelcast.bridge.expose.bodies import SENT_BYTES, Bodies, Body, BodyKey
from kernelcast.bridge.expose.compress import PageCompressor
from kernelcast.bridge.expose.negotiate import Coding, Format
from kernelcast.bridge.layouts.layout import StoreSnapshot
from kernelcast.bridge.layouts.view import ALL, SeriesView
from kernelcast.bridge.series.store import SeriesStore

PLAIN = BodyKey(Format.TEXT, Coding.IDENTITY, ALL)


def updated(store: SeriesStore, time: int) -> None:
    store.apply(decoded([Point(0, float(time), time)]), come_from(offset=time), Known(lambda _: gauge()))


def bodies_of(store: SeriesStore) -> tuple[Bodies, list[int]]:
    lengths: list[int] = []
    return Bodies(store, lambda _seconds, length: lengths.append(length)), lengths


def test_slow_readers_of_a_large_page_share_its_only_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT_BYTES", 0)
    store = exposed_store()
    updated(store, 1)
    bodies, encoded = bodies_of(store)
    first = bodies.body(PLAIN)
    assert bodies.body(PLAIN) is first
    assert len(encoded) == 1
    del first
    gc.collect()
    bodies.body(PLAIN)
    assert len(encoded) == 2


def test_pages_that_are_kept_are_those_of_the_newest_version_within_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = exposed_store()
    updated(store, 1)
    bodies, encoded = bodies_of(store)
    requests = [BodyKey(format_, Coding.IDENTITY, SeriesView((0, n))) for format_ in Format for n in (1, 2)]
    for request in requests * 2:
        bodies.body(request)
    assert len(encoded) == len(requests)
    monkeypatch.setattr(module, "MAX_KEPT", 2)
    updated(store, 2)
    for request in requests:
        bodies.body(request)
    gc.collect()
    encoded.clear()
    for request in reversed(requests[-2:]):
        bodies.body(request)
    assert not encoded
    bodies.body(requests[0])
    assert len(encoded) == 1


class SlowSource:
    """A store whose snapshots take until they are let go, while updates go on."""

    def __init__(self, store: SeriesStore) -> None:
        self._store = store
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)

    @property
    def version(self) -> int:
        return self._store.version

    def snapshot(self, view: SeriesView) -> StoreSnapshot:
        snapshot = self._store.snapshot(view)
        self.begun.release()
        self.go.acquire()
        return snapshot


class CountedClock:
    """Says how often it has been looked at."""

    def __init__(self) -> None:
        self._looks, self._counted = itertools.count(), threading.Semaphore(0)

    def tick(self) -> float:
        try:
            return float(next(self._looks))
        finally:
            self._counted.release()

    def wait(self, looks: int) -> None:
        for _ in range(looks):
            assert self._counted.acquire(timeout=10)


def test_scrapers_that_came_before_a_page_was_begun_share_it_though_the_store_has_moved_on() -> None:
    store = exposed_store()
    updated(store, 1)
    source, lengths, found = SlowSource(store), [], []
    clock = CountedClock()
    bodies = Bodies(source, lambda _seconds, length: lengths.append(length), clock=clock.tick)
    threads = [threading.Thread(target=lambda: found.append(bodies.body(PLAIN))) for _ in range(4)]
    threads[0].start()
    source.begun.acquire()
    for thread in threads[1:]:
        thread.start()
    clock.wait(2 + 3)  # the first one looked twice, each of the others once
    updated(store, 2)
    for _ in range(2):
        source.go.release()
    for thread in threads:
        thread.join(10)
    assert len(lengths) == 2
    assert len({id(body) for body in found}) == 2


def test_a_page_is_sent_in_slices_that_are_not_copies() -> None:
    async def slices(body: Body) -> list[bytes | memoryview]:
        return [piece async for piece in body.slices(b"own")]

    whole = bytes(range(256)) * 2048
    found = asyncio.run(slices(Body(1, 0.0, PageCompressor(Coding.IDENTITY), (whole, b"end"), len(whole) + 3)))
    assert b"".join(found) == whole + b"endown"
    assert max(len(piece) for piece in found) == SENT_BYTES
    assert all(isinstance(piece, memoryview) and piece.obj in (whole, b"end", b"own") for piece in found)

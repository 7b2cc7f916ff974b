import gzip
import math
import re
import threading
from collections.abc import Callable

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter
from starlette.routing import Route
from tests.support.bridge.fleet import (
    TARGET,
    Browser,
    Known,
    Point,
    come_from,
    counter,
    decoded,
    exposed_store,
    gauge,
    page,
    parsed,
)
from tests.support.bridge.histograms import Shown, explicit

from kernelcast.bridge.expose.exposition import Exposition
from kernelcast.bridge.expose.formats import text as lines
from kernelcast.bridge.expose.negotiate import PLAIN_TEXT, PROTOBUF, Format
from kernelcast.bridge.layouts.layout import StoreSnapshot
from kernelcast.bridge.layouts.view import SeriesView
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.columnar import Attributes, Decoder, PointType, Temporality

SAMPLE = re.compile(r'n_total\{i="\d{200}",[^{}]*\} \d+')
"""A line of a page whose thousands of series would keep Prometheus' parser busy for seconds."""

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
attributes = st.dictionaries(names, text, max_size=4).map(lambda found: tuple(sorted(found.items())))
numbers = st.one_of(
    st.floats(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-1000, 1000).map(float),
    st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 2.0**53, 1e21, 1e-7]),
)


@given(st.lists(st.tuples(names, attributes, numbers), max_size=15))
def test_prometheus_own_parser_reads_back_the_same_series(entries: list[tuple[str, Attributes, float]]) -> None:
    store = exposed_store()
    identities = [gauge(f"m.{name}", attributes=given_labels) for name, given_labels, _ in entries]
    points = [Point(i, value, i + 1) for i, (_, _, value) in enumerate(entries)]
    store.apply(decoded(points), come_from(), Known(identities.__getitem__))
    expected = {}
    for name, given_labels, value in entries:
        labels = {**TARGET, **{key: item for key, item in given_labels if item}}
        expected[f"m_{name}", frozenset(labels.items())] = value
    found = parsed(page(store))
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == value or (math.isnan(value) and math.isnan(found[key]))
        assert math.copysign(1, found[key]) == math.copysign(1, value) or math.isnan(value)


def test_integers_keep_every_digit_and_floats_the_shortest_text() -> None:
    store = exposed_store()
    values = [2**53 + 1, 0.1, 1e300, math.nan, math.inf, -math.inf, 3.0, -0.0]
    store.apply(
        decoded([Point(i, value, 1) for i, value in enumerate(values)]), come_from(), Known(lambda i: gauge(f"m{i}"))
    )
    shown = [line.split()[-1] for line in page(store).splitlines() if not line.startswith("#")]
    assert shown == ["9007199254740993", "0.1", "1e+300", "NaN", "+Inf", "-Inf", "3", "-0.0"]


def test_each_family_is_written_once_under_one_header_in_the_order_of_names() -> None:
    store = exposed_store()
    identities = [gauge(name, attributes=(("i", str(i)),)) for i, name in enumerate(["b", "a", "b", "a", "c"])]
    store.apply(decoded([Point(i, 1.0, 1) for i in range(5)]), come_from(), Known(identities.__getitem__))
    lines = page(store).splitlines()
    assert [line.split()[2] for line in lines if line.startswith("# TYPE")] == ["a", "b", "c"]
    assert [line[0] for line in lines if not line.startswith("#")] == ["a", "a", "b", "b", "c"]


def test_help_and_type_come_from_the_catalogue_not_from_the_producer() -> None:
    store = exposed_store()
    claimed = gauge("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", description="lies\nand \\ more")
    free = gauge("free", description="two\nlines and a \\")
    store.apply(decoded([Point(0, 1.0, 1), Point(1, 1.0, 1)]), come_from(), Known([claimed, free].__getitem__))
    assert "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n" in page(store)
    assert "# HELP DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION Total energy" in page(store)
    assert "# HELP free two\\nlines and a \\\\\n" in page(store)


@pytest.mark.slow
def test_more_series_than_one_chunk_are_all_there_with_one_header_each() -> None:
    store = exposed_store()
    total = 70_000
    identities = [gauge("ab"[i % 2], attributes=(("i", str(i)),)) for i in range(total)]
    store.apply(decoded([Point(i, i + 0.5, 1) for i in range(total)]), come_from(), Known(identities.__getitem__))
    body = page(store)
    assert body.count("# TYPE") == 2
    shown = {int(i): float(value) for i, value in re.findall(r'i="(\d+)".*} (\S+)\n', body)}
    assert shown == {i: i + 0.5 for i in range(total)}


def scraper_of(
    store: SeriesStore, registry: CollectorRegistry | None = None
) -> tuple[Callable[..., httpx.Response], list[int]]:
    scrapes: list[int] = []
    exposition = Exposition(
        store, registry or CollectorRegistry(), observe=lambda seconds, size: scrapes.append(size), clock=lambda: 0.0
    )
    browser = Browser(Route("/metrics", exposition.answer))

    def scrape(encoding: str = "gzip", *, raw: bool = False) -> httpx.Response:
        return browser.ask("GET", "/metrics", headers={"accept-encoding": encoding}, raw=raw)

    return scrape, scrapes


def test_a_scrape_has_the_series_and_the_processes_own_metrics_each_family_once() -> None:
    store, registry = exposed_store(), CollectorRegistry()
    Counter("own_things", "Things.", registry=registry).inc()
    store.apply(decoded([Point(0, 1.5, 1)]), come_from(), Known(lambda _: gauge()))
    scrape, _ = scraper_of(store, registry)
    answer = scrape("identity")
    assert answer.headers["content-type"] == PLAIN_TEXT.content_type
    assert "content-encoding" not in answer.headers
    assert [*parsed(answer.text).values()] == [1.5, 1.0]


class CompilingStore:
    """A store that no scrape may ask yet: it would wait for the compiler."""

    version = 1

    def snapshot(self, view: SeriesView) -> StoreSnapshot:
        raise AssertionError(f"a scrape of {view} waits for the compiler")


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text;version=1.0.0", PROTOBUF.content_type])
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
def test_before_anything_is_compiled_a_scrape_gets_the_processes_own_metrics_at_once(
    accept: str, encoding: str
) -> None:
    registry = CollectorRegistry()
    Counter("own_things", "Things.", registry=registry).inc()
    exposition = Exposition(CompilingStore(), registry, observe=lambda *_: None, compiled=lambda _: False)
    browser = Browser(Route("/metrics", exposition.answer))

    def scrape(query: str) -> httpx.Response:
        return browser.ask("GET", f"/metrics{query}", headers={"accept": accept, "accept-encoding": encoding})

    assert parsed(scrape("").text) == {("own_things_total", frozenset()): 1.0}
    part = scrape("?shard=1/2")
    assert (part.status_code, part.text, part.headers.get("etag")) == (200, "", None)


class ChangingStore:
    """A store that changes between two reads of its version, after the first `calm` reads."""

    def __init__(self, store: SeriesStore, calm: int) -> None:
        self._store, self._calm, self._reads = store, calm, 0

    @property
    def version(self) -> int:
        self._reads += 1
        return self._store.version + max(0, self._reads - self._calm)

    def snapshot(self, view: SeriesView) -> StoreSnapshot:
        return self._store.snapshot(view)


def test_an_unchanged_page_keeps_its_tag_though_the_store_changes_meanwhile() -> None:
    store = exposed_store()
    store.apply(decoded([Point(0, 1.5, 1)]), come_from(), Known(lambda _: gauge()))
    exposition = Exposition(ChangingStore(store, calm=2), CollectorRegistry(), observe=lambda *_: None)
    browser = Browser(Route("/metrics", exposition.answer))
    tag = browser.ask("GET", "/metrics?shard=1/2").headers["etag"]
    again = browser.ask("GET", "/metrics?shard=1/2", headers={"if-none-match": tag})
    assert (again.status_code, again.headers["etag"]) == (304, tag)
    assert browser.ask("GET", "/metrics?shard=1/2", headers={"if-none-match": "*"}).status_code == 304
    assert browser.ask("GET", "/metrics?shard=1/2", headers={"if-none-match": '"other"'}).status_code == 200


def test_while_one_format_is_compiled_its_scrapers_get_the_next_one_that_they_take() -> None:
    store = exposed_store()
    store.apply(decoded([Point(0, 1.5, 1)]), come_from(), Known(lambda _: gauge()))
    exposition = Exposition(
        store,
        CollectorRegistry(),
        observe=lambda *_: None,
        compiled=lambda format_: format_ is not Format.PROTOBUF,
    )
    browser = Browser(Route("/metrics", exposition.answer))
    accept = f"{PROTOBUF.content_type};q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.4"

    answer = browser.ask("GET", "/metrics", headers={"accept": accept})

    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert "some_gauge" in answer.text


def test_gzip_is_sent_to_those_who_take_it_and_holds_the_same() -> None:
    store = exposed_store()
    store.apply(decoded([Point(i, float(i), 1) for i in range(100)]), come_from(), Known(lambda i: gauge(f"m{i}")))
    scrape, _ = scraper_of(store)
    plain = scrape("identity").content
    answer = scrape("gzip")
    packed = scrape("gzip", raw=True).content
    assert answer.headers["content-encoding"] == "gzip"
    assert int(answer.headers["content-length"]) == len(packed)
    assert answer.content == plain == gzip.decompress(packed)


def test_scrapers_share_one_encoding_until_something_changes() -> None:
    store = exposed_store()
    store.apply(decoded([Point(0, 1.5, 1)]), come_from(), Known(lambda _: gauge()))
    scrape, scrapes = scraper_of(store)
    first = scrape().text
    assert scrape().text == first
    assert len(scrapes) == 1
    store.apply(decoded([Point(0, 2.5, 2)]), come_from(offset=1), Known(lambda _: gauge()))
    assert "2.5" in scrape().text
    assert len(scrapes) == 2


def test_a_snapshot_stays_as_it_was_while_series_come_change_and_go() -> None:
    store = exposed_store()
    identities = [counter("n", attributes=(("i", f"{i:0200d}"),)) for i in range(8_000)]
    store.apply(decoded([Point(i, i, 1) for i in range(4_000)]), come_from(), Known(identities.__getitem__))
    snapshot, before = store.snapshot(), page(store)
    stop = threading.Event()

    def disturb() -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            half = range(4_000 * (turn % 2), 4_000 * (turn % 2) + 4_000)
            points = [Point(i, turn, turn + 1) for i in half]
            store.apply(decoded(points), come_from(offset=turn, append_ms=turn), Known(identities.__getitem__))
            store.expire({0: turn})

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(20):
            assert b"".join(lines(snapshot)).decode() == before
            shown = page(store).splitlines()[2:]
            assert len(set(shown)) == len(shown)
            assert len(shown) in (0, 4_000, 8_000)
            assert all(map(SAMPLE.fullmatch, shown))
    finally:
        stop.set()
        thread.join()


def test_a_histogram_on_a_page_is_whole_while_it_changes() -> None:
    shown = Shown()
    shown.read(explicit([1.0], [1, 1], time=1, total=2.0))
    stop = threading.Event()

    def feed() -> None:
        time = 1
        while not stop.is_set():
            time += 1
            shown.read(explicit([1.0], [time, time], time=time, total=float(time * 2)))

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        for _ in range(200):
            found = {
                key[0] if "le" not in dict(key[1]) else dict(key[1])["le"]: v
                for key, v in parsed(page(shown.store)).items()
            }
            assert found["+Inf"] == found["latency_count"] == found["latency_sum"] == found["1"] * 2
    finally:
        stop.set()
        thread.join()


def test_an_empty_store_is_an_empty_page() -> None:
    assert page(exposed_store()) == ""


def test_a_histogram_without_labels_but_its_bound_is_valid_text() -> None:
    identity = gauge("bare", type=PointType.HISTOGRAM, temporality=Temporality.CUMULATIVE, resource=())
    store = exposed_store()
    points = Decoder().decode([explicit([1.0], [1, 0])])
    store.apply(points, come_from(), Known(lambda _: identity))
    assert 'bare_bucket{le="1"} 1\n' in page(store)
    assert "bare_count 1\n" in page(store)

"""Parts of a page: shards, names, and the targets that Prometheus finds them by."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import cramjam
import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.routing import Route
from tests.support.bridge.fleet import Browser, Known, Point, come_from, decoded, exposed_store, gauge, samples
from tests.support.bridge.protobuf_pages import families

from kernelcast.bridge.expose.exposition import Exposition
from kernelcast.bridge.expose.http_sd import PATH, discovery
from kernelcast.bridge.layouts.layout import MAX_LAYOUTS, Layouts
from kernelcast.bridge.layouts.view import SeriesView
from kernelcast.bridge.series.store import SeriesStore

PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
FORMATS = ("text/plain", "application/openmetrics-text;version=1.0.0", PROTOBUF)
Scrape = Callable[..., httpx.Response]


def store_of(series: int, metrics: int = 3, **options: Any) -> SeriesStore:
    store = exposed_store(**options)
    known = Known(lambda i: gauge(f"m{i % metrics}", attributes=(("i", str(i)),)))
    store.apply(decoded([Point(i, i + 0.5, 1) for i in range(series)]), come_from(), known)
    return store


def scraper(store: SeriesStore, registry: CollectorRegistry | None = None) -> Scrape:
    exposition = Exposition(store, registry or CollectorRegistry(), observe=lambda _seconds, _size: None)
    browser = Browser(Route("/metrics", exposition.answer))

    def scrape(query: str = "", *, raw: bool = False, **headers: str) -> httpx.Response:
        given = {"accept-encoding": "identity", **{key.replace("_", "-"): value for key, value in headers.items()}}
        return browser.ask("GET", f"/metrics{query}", headers=given, raw=raw)

    return scrape


def own_registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Counter("own_things", "Things.", ["kind"], registry=registry).labels("a").inc(3)
    Histogram("own_seconds", "Durations.", buckets=[1.0], registry=registry).observe(0.5)
    return registry


def message_samples(body: bytes) -> dict[str, Any]:
    return {family.name: family for family in families(body)}


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_shards_hold_every_series_once_and_the_processes_own_metrics_once(shards: int) -> None:
    scrape = scraper(store_of(300), own_registry())
    whole = samples(scrape().text)
    parts = [samples(scrape(f"?shard={i}/{shards}").text) for i in range(shards)]
    assert sum(len(part) for part in parts) == len(whole)
    assert {key: value for part in parts for key, value in part.items()} == whole
    assert [any(name.startswith("own_") for name, _ in part) for part in parts] == [True] + [False] * (shards - 1)
    assert all(len(part) > 50 / shards for part in parts)


def test_a_series_stays_in_its_shard_whatever_process_holds_it() -> None:
    assert scraper(store_of(50))("?shard=1/2").text == scraper(store_of(50))("?shard=1/2").text


def test_names_choose_whole_families_of_the_process_too() -> None:
    scrape = scraper(store_of(30), own_registry())
    found = {name for name, _ in samples(scrape("?name[]=m1&name[]=own_things_total&name[]=unheard_of").text)}
    assert found == {"m1", "own_things_total"}
    assert {name for name, _ in samples(scrape("?name[]=own_seconds").text)} == {
        "own_seconds_bucket",
        "own_seconds_count",
        "own_seconds_sum",
    }


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("?shard=2/2", "the last shard is 1/2"),
        ("?shard=0/0", "from 1 to 256"),
        ("?shard=0/1000", "from 1 to 256"),
        ("?shard=a/b", "0 <= i < n"),
        ("?shard=-1/2", "0 <= i < n"),
        ("?shard=0/2&shard=1/2", "2 times"),
        ("?name[]=no%20name", "exact name"),
        ("?name[]=", "exact name"),
        ("?" + "&".join(f"name[]=m{i}" for i in range(101)), "the limit is 100"),
    ],
)
def test_a_part_that_cannot_be_is_refused_with_the_reason(query: str, reason: str) -> None:
    answer = scraper(store_of(3))(query)
    assert answer.status_code == 400
    assert reason in answer.text


def test_every_format_has_the_processes_own_metrics() -> None:
    scrape = scraper(store_of(3), own_registry())
    for accept in FORMATS[:2]:
        body = scrape(accept=accept).text
        assert 'own_things_total{kind="a"} 3.0' in body
        assert 'own_seconds_bucket{le="1.0"} 1.0' in body
    found = message_samples(scrape(accept=PROTOBUF).content)
    assert set(found) == {"m0", "m1", "m2", "own_things_total", "own_seconds"}
    (metric,) = found["own_things_total"].metric
    assert (metric.label[0].name, metric.label[0].value, metric.counter.value) == ("kind", "a", 3.0)
    histogram = found["own_seconds"].metric[0].histogram
    assert (histogram.sample_count, histogram.sample_sum) == (1, 0.5)
    assert [bucket.cumulative_count for bucket in histogram.bucket] == [1, 1]


@pytest.mark.parametrize("accept", FORMATS)
def test_every_compression_holds_the_same(accept: str) -> None:
    scrape = scraper(store_of(500), own_registry())
    plain = scrape(accept=accept).content
    for coding, unpack in (("gzip", gzip.decompress), ("zstd", lambda b: bytes(cramjam.zstd.decompress(b)))):
        packed = scrape(accept=accept, accept_encoding=coding, raw=True).content
        assert len(packed) < len(plain) / 2
        assert unpack(packed) == plain


def test_an_unchanged_shard_is_not_sent_again() -> None:
    store = store_of(30)
    scrape = scraper(store)
    tag = scrape("?shard=1/2").headers["etag"]
    again = scrape("?shard=1/2", if_none_match=f'"other", W/{tag}')
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert scrape("?shard=1/2", if_none_match=tag, accept=PROTOBUF).status_code == 200
    assert scrape("?shard=1/2", if_none_match=tag, accept_encoding="gzip").status_code == 200
    store.apply(decoded([Point(0, 1.0, 2)]), come_from(offset=1), Known(lambda _: gauge("new")))
    assert scrape("?shard=1/2", if_none_match=tag).status_code == 200


def test_a_page_with_the_processes_own_metrics_has_no_tag_because_they_always_differ() -> None:
    assert "etag" not in scraper(store_of(3))().headers


def test_views_are_kept_up_to_a_limit_and_the_last_ones_stay() -> None:
    store = store_of(100)
    layouts = Layouts()
    views = [SeriesView((i, 64)) for i in range(64)] + [SeriesView(names=frozenset({f"n{i}"})) for i in range(10)]
    exposed = store._exposed
    kept = [layouts.of(view, store._slots, exposed) for view in views]
    assert layouts.of(views[-1], store._slots, exposed) is kept[-1]
    assert layouts.of(views[0], store._slots, exposed) is not kept[0]
    assert len(layouts._kept) == MAX_LAYOUTS


def found_targets(query: str, advertised: str = "", **headers: str) -> httpx.Response:
    return Browser(Route(PATH, discovery(advertised))).ask("GET", f"{PATH}{query}", headers=headers)


def test_prometheus_finds_a_target_for_each_shard() -> None:
    answer = found_targets("?shards=3", host="bridge.example:19401")
    assert answer.headers["content-type"] == "application/json"
    targets = json.loads(answer.text)
    assert [target["targets"] for target in targets] == [["bridge.example:19401"]] * 3
    assert [target["labels"]["__param_shard"] for target in targets] == ["0/3", "1/3", "2/3"]
    assert [target["labels"]["instance"] for target in targets] == [
        "bridge.example:19401",
        "bridge.example:19401?shard=1/3",
        "bridge.example:19401?shard=2/3",
    ]


def test_an_address_that_is_set_wins_over_the_host_header() -> None:
    assert json.loads(found_targets("", "[::1]:9", host="a:1").text)[0]["targets"] == ["[::1]:9"]


@pytest.mark.parametrize("query", ["?shards=0", "?shards=257", "?shards=x", "?shards=1&shards=2", "?shards="])
def test_a_number_of_shards_that_cannot_be_is_refused(query: str) -> None:
    answer = found_targets(query)
    assert answer.status_code == 400
    assert "from 1 to 256" in answer.text


def test_a_host_header_that_is_no_address_reaches_no_target() -> None:
    answer = found_targets("", host="a b/../c")
    assert answer.status_code == 400
    assert "advertised_address" in answer.text

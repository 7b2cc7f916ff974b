"""Processor time of the served pages, beside the scrapes of a bridge with many series.

    python -m benchmarks.pages --series 1000000 --json pages.json

Three clients replay the requests of the generated pages: every query of a page again every 30 s, as if each panel were
in view, through the bridge's proxy to a Prometheus that answers at once with a recorded answer; it is another process,
as on a site. The result is the processor time that these requests cost the bridge in one scrape interval, and its share
of the processor time of one scrape of all series: where each query is a request of its own, where three clients look at
the same page, and where they look at different pages.
"""

import argparse
import asyncio
import gzip
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe, get_context
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import numpy as np
from benchmarks.exposition import filled_store
from benchmarks.pages.recorded import run_prometheus
from prometheus_client import CollectorRegistry

from kernelcast.bridge.browser import models
from kernelcast.bridge.browser.batch import MAX_QUERIES
from kernelcast.bridge.browser.prometheus import PrometheusProxy
from kernelcast.bridge.browser.settings import PagesSettings
from kernelcast.bridge.browser.site import PageSite
from kernelcast.bridge.expose.compress import PageCompressor
from kernelcast.bridge.expose.formats import encode
from kernelcast.bridge.expose.negotiate import Coding, Format
from kernelcast.bridge.warm_up import warm_up, warm_up_the_rest
from kernelcast.runtime.settings.service import WebSettings
from kernelcast.runtime.web.server import WebServer

CLIENTS: Final = 3
SCRAPE_SECONDS: Final = 15.0
REFRESH_SECONDS: Final = 30.0
RANGE: Final = "start=0&end=NOW&step=15"
MIN_PART_BYTES: Final = 100
LIMIT_RATIO: Final = 0.05
"""The goal: three clients cost at most this share of a scrape's processor time."""


def panels(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the panels whose queries a page asks at first; panels in collapsed rows are not among them."""
    yield from (panel for panel in found if panel["type"] != "row")


def pages() -> list[list[str]]:
    """The queries of one refresh of each page: variables, annotations and panels; `NOW` is replaced by the time."""
    made = []
    for model in models.load():
        dashboard = json.loads(gzip.decompress(model.body))
        queries = [f"query?query=group{number}&time=NOW" for number, _ in enumerate(dashboard["templating"]["list"])]
        queries += [f"query_range?query=ALERTS{n}&{RANGE}" for n, _ in enumerate(dashboard["annotations"]["list"])]
        for panel in panels(dashboard["panels"]):
            for target in panel.get("targets", []):
                text = urlencode({"query": target["expr"]})
                queries.append(f"query?{text}&time=NOW" if target["instant"] else f"query_range?{text}&{RANGE}")
        made.append(queries)
    return made


def pages_cpu_seconds(prometheus: str, rounds: int, chosen: Callable[[int], Sequence[int]], *, alone: bool) -> float:
    """Processor seconds of one refresh of all clients, without those of the clients, which run on this thread.

    Args:
        prometheus: URL of Prometheus.
        rounds: Refreshes.
        chosen: The page of each client, for a round.
        alone: Whether each query is a request of its own.
    """
    settings = PagesSettings(prometheus_url=prometheus)
    site = PageSite(settings, models.load(), prometheus=PrometheusProxy(settings))
    web = WebSettings(listen_address="127.0.0.1:0")
    with WebServer(web, title="bridge", metrics=CollectorRegistry(), routes=site.routes()) as server:
        began, own = time.process_time(), time.thread_time()
        asyncio.run(_replay(server.address, rounds, chosen, alone=alone))
        return (time.process_time() - began - (time.thread_time() - own)) / rounds


async def _replay(address: str, rounds: int, chosen: Callable[[int], Sequence[int]], *, alone: bool) -> None:
    """The requests of all clients, all clients at one time; plain sockets, so that the clients cost little."""
    host, port = address.split(":")
    clients = [await asyncio.open_connection(host, int(port)) for _ in range(CLIENTS)]
    all_pages = pages()

    async def client(number: int, queries: list[str]) -> None:
        for request in _requests(queries, alone=alone):
            reader, writer = clients[number]
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head.decode())
            body = await reader.readexactly(int(re.findall(rb"content-length: (\d+)", head)[0]))
            if not alone and len(body) < len(queries) * MIN_PART_BYTES:
                raise RuntimeError("a query has no part")

    for number in range(rounds):
        now = str(int(SCRAPE_SECONDS) * (number + 1))
        wanted = [[query.replace("NOW", now) for query in all_pages[page]] for page in chosen(number)]
        await asyncio.gather(*(client(place, queries) for place, queries in enumerate(wanted)))
    for _, writer in clients:
        writer.close()


def _requests(queries: list[str], *, alone: bool) -> Iterator[bytes]:
    if alone:
        for query in queries:
            yield f"GET /pages/api/v1/{query} HTTP/1.1\r\nhost: b\r\naccept-encoding: gzip\r\n\r\n".encode()
        return
    for part in batched(queries, MAX_QUERIES):
        body = json.dumps(part).encode()
        head = "POST /pages/api/queries HTTP/1.1\r\nhost: b\r\ncontent-type: application/json\r\ncontent-length:"
        yield f"{head} {len(body)}\r\n\r\n".encode() + body


def batched(queries: list[str], size: int) -> Iterator[list[str]]:
    """Parts of a list."""
    for first in range(0, len(queries), size):
        yield queries[first : first + size]


def scrape_cpu_seconds(series: int) -> float:
    """Processor seconds of one scrape of a changed store, in the format and coding that Prometheus asks for."""
    store = filled_store(np.random.default_rng(1).uniform(0, 1e6, series))
    times = []
    for _ in range(3):
        began = time.process_time()
        compressor = PageCompressor(Coding.GZIP)
        total = sum(len(piece) for piece in compressor.pieces(encode(store.snapshot(), Format.TEXT, created=False)))
        times.append(time.process_time() - began)
        if not total:
            raise RuntimeError("the page is empty")
    return min(times)


def main() -> None:
    """Measure, print, and write the requested output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=24, help="refreshes of each case")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warm_up()
    warm_up_the_rest()
    count = len(pages())
    cases: dict[str, tuple[Callable[[int], Sequence[int]], bool]] = {
        "each_query_alone": (lambda number: [number % count] * CLIENTS, True),
        "the_same_page": (lambda number: [number % count] * CLIENTS, False),
        "different_pages": (lambda number: [(number + other) % count for other in range(CLIENTS)], False),
    }
    ours, theirs = Pipe()
    prometheus = get_context("spawn").Process(target=run_prometheus, args=(theirs,), daemon=True)
    prometheus.start()
    url = f"http://127.0.0.1:{ours.recv()}"
    refreshes: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(3):
        for name, (chosen, alone) in cases.items():
            refreshes[name].append(pages_cpu_seconds(url, options.rounds, chosen, alone=alone))
    prometheus.terminate()
    scrape = scrape_cpu_seconds(options.series)
    result = {
        "series": options.series,
        "clients": CLIENTS,
        "queries_of_a_page": sum(len(queries) for queries in pages()) / count,
        "cpu_seconds_of_a_scrape": scrape,
        **{name: _shares(min(found), scrape) for name, found in refreshes.items()},
    }
    print(json.dumps(result, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


def _shares(refresh: float, scrape: float) -> dict[str, Any]:
    """Cost of the clients in a scrape interval, from that of one refresh of all of them."""
    interval = refresh * SCRAPE_SECONDS / REFRESH_SECONDS
    return {
        "cpu_seconds_of_a_refresh": refresh,
        "ratio_of_a_scrape": interval / scrape,
        "ratio_of_a_core": interval / SCRAPE_SECONDS,
        "within_the_goal": interval / scrape <= LIMIT_RATIO,
    }


if __name__ == "__main__":
    main()

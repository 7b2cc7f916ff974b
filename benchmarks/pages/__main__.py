"""Processor time of the served pages, beside the scrapes of a bridge with many series.

    python -m benchmarks.pages --series 1000000 --json pages.json

Three clients replay the requests of the generated pages: every query of a page again every 30 s, as if each panel were
in view, through the bridge's proxy to a Prometheus that answers at once with a recorded answer (on a site it is another
process). The result is the processor time that these requests cost the bridge in one scrape interval, and its share of
the processor time of one scrape of all series.
"""

import argparse
import asyncio
import gzip
import json
import time
from collections.abc import Iterator, Mapping
from itertools import cycle, islice
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import numpy as np
from benchmarks.exposition import filled_store
from prometheus_client import CollectorRegistry

from kernelcast.bridge.browser import models
from kernelcast.bridge.browser.connections import Answer
from kernelcast.bridge.browser.prometheus import PrometheusProxy
from kernelcast.bridge.browser.settings import PagesSettings
from kernelcast.bridge.browser.site import Site
from kernelcast.bridge.expose.compress import Packing
from kernelcast.bridge.expose.formats import encode
from kernelcast.bridge.expose.negotiate import Coding, Format
from kernelcast.bridge.warm_up import warm_up, warm_up_the_rest
from kernelcast.runtime.settings.service import WebSettings
from kernelcast.runtime.web.server import WebServer

CLIENTS: Final = 3
SCRAPE_SECONDS: Final = 15.0
REFRESH_SECONDS: Final = 30.0
POINTS: Final = 240
SERIES_OF_AN_ANSWER: Final = 8
LIMIT_RATIO: Final = 0.05
"""The goal: three clients cost at most this share of a scrape's processor time."""


def panels(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The panels of a page that it asks at first: rows that are collapsed ask nothing."""
    yield from (panel for panel in found if panel["type"] != "row")


def requests() -> list[str]:
    """One refresh of each page: variables, annotations and panels."""
    made = []
    for model in models.load():
        dashboard = json.loads(gzip.decompress(model.body))
        made += ["query?query=group&time=1"] * len(dashboard.get("templating", {}).get("list", []))
        made += ["query_range?query=ALERTS&start=0&end=3600&step=15"] * len(dashboard["annotations"]["list"])
        for panel in panels(dashboard["panels"]):
            for target in panel.get("targets", []):
                text = urlencode({"query": target["expr"]})
                times = "time=1" if target["instant"] else "start=0&end=3600&step=15"
                made.append(f"query{'' if target['instant'] else '_range'}?{text}&{times}")
    return made


def recorded(path: str, _body: bytes, _headers: Mapping[str, str]) -> Answer:
    """Prometheus' answer: some series, with all points of a graph where a range was asked."""
    return Answer(200, "application/json", "gzip", _RANGE if path.endswith("query_range") else _INSTANT)


def _answer(points: int) -> bytes:
    rng = np.random.default_rng(1)
    result = [
        {
            "metric": {"Hostname": f"node{n}", "gpu": str(n)},
            "values": [[15 * i, f"{rng.uniform(0, 100):.3f}"] for i in range(points)],
        }
        for n in range(SERIES_OF_AN_ANSWER)
    ]
    return gzip.compress(json.dumps({"status": "success", "data": {"result": result}}).encode())


_RANGE, _INSTANT = _answer(POINTS), _answer(1)


def pages_cpu_seconds(count: int) -> float:
    """Processor seconds of one request, without those of the clients, which run on this thread."""
    settings = PagesSettings(prometheus_url="http://prometheus:9090")
    proxy = PrometheusProxy(settings, ask=recorded)
    site = Site(settings, models.load(), prometheus=proxy)
    asked = list(islice(cycle(requests()), count))
    web = WebSettings(listen_address="127.0.0.1:0")
    with WebServer(web, title="bridge", metrics=CollectorRegistry(), routes=site.routes()) as server:
        began, own = time.process_time(), time.thread_time()
        asyncio.run(_replay(server.url, asked))
        return (time.process_time() - began - (time.thread_time() - own)) / count


async def _replay(url: str, asked: list[str]) -> None:
    """The requests of all clients, spread over them; plain sockets, so that the clients cost little."""

    async def client(mine: list[str]) -> None:
        host, port = url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        for path in mine:
            writer.write(f"GET /pages/api/v1/{path} HTTP/1.1\r\nhost: b\r\naccept-encoding: gzip\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(head.decode())
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.split(b":")[1]))
        writer.close()

    await asyncio.gather(*(client(asked[number::CLIENTS]) for number in range(CLIENTS)))


def scrape_cpu_seconds(series: int) -> float:
    """Processor seconds of one scrape of a changed store, in the format and coding that Prometheus asks for."""
    store = filled_store(np.random.default_rng(1).uniform(0, 1e6, series))
    times = []
    for _ in range(3):
        began = time.process_time()
        packing = Packing(Coding.GZIP)
        total = sum(len(piece) for piece in packing.pieces(encode(store.snapshot(), Format.TEXT, created=False)))
        times.append(time.process_time() - began)
        if not total:
            raise RuntimeError("the page is empty")
    return min(times)


def main() -> None:
    """Measure, print, and write the requested output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warm_up()
    warm_up_the_rest()
    page = len(requests()) / len(models.load())
    each = [pages_cpu_seconds(options.requests) for _ in range(3)]
    scrape = scrape_cpu_seconds(options.series)
    interval_cost = min(each) * CLIENTS * page * SCRAPE_SECONDS / REFRESH_SECONDS
    result = {
        "series": options.series,
        "clients": CLIENTS,
        "requests_of_a_page": page,
        "cpu_seconds_of_a_request": min(each),
        "cpu_seconds_of_the_clients_in_a_scrape_interval": interval_cost,
        "cpu_seconds_of_a_scrape": scrape,
        "ratio_of_a_scrape": interval_cost / scrape,
        "ratio_of_a_core": interval_cost / SCRAPE_SECONDS,
        "within_the_goal": interval_cost / scrape <= LIMIT_RATIO,
    }
    print(json.dumps(result, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

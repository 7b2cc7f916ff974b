"""First paint and refresh of a served page in Chromium: `python -m benchmarks.pages.browser [--nodes N]`.

A simulated fleet (two GPUs a node, some 400 series each) is written into a real Prometheus; the pages ask it through
the bridge's proxy. Times are the browser's own, in real time: first contentful paint, until every panel in view is
drawn, and both again for the second and the third visit.
"""

import argparse
import fcntl
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry
from tests.service.require import binary
from tests.service.servers import PrometheusServer, answers
from tests.support.exporter.simulated_series import Fleet

from kernelcast.bridge.browser import models
from kernelcast.bridge.browser.prometheus import PrometheusProxy
from kernelcast.bridge.browser.settings import PagesSettings
from kernelcast.bridge.browser.site import PageSite
from kernelcast.runtime.settings.service import WebSettings
from kernelcast.runtime.web.server import WebServer

EVERY_SECONDS: Final = 15
MOMENTS: Final = 40
"""Samples of each series: ten minutes."""
PAGES: Final = ("kernelcast-overview", "kernelcast-gpus", "kernelcast-kernels")
FLAGS: Final = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")
DRAWN: Final = """
(() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  const waiting = [...document.querySelectorAll("#main .quiet")].filter(
    (one) => one.textContent === "…" && one.getBoundingClientRect().top < innerHeight).length;
  const text = document.getElementById("head").textContent;
  return JSON.stringify({paint: paint ? paint.startTime : 0, now: performance.now(), waiting,
    empty: document.getElementById("main").textContent.split("No data").length - 1,
    answered: /Last answer/.test(text)});
})()
"""
"""Script that returns, as JSON: time of the first paint, panels in view without an answer, panels without data."""


class Browser:
    """Chromium, controlled over a pair of pipes with its DevTools protocol."""

    def __init__(self, profile: Path) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()

        def arrange() -> None:
            # Both pipes may have the numbers 3 and 4 already: dup2 would close one, or leave it closed on exec.
            pipes = [fcntl.fcntl(pipe, fcntl.F_DUPFD, 10) for pipe in (to_browser, from_browser)]
            for number, pipe in enumerate(pipes, 3):
                os.dup2(pipe, number)

        command = [binary("chromium", "chromium"), *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe"]
        quiet = subprocess.DEVNULL
        options: dict[str, Any] = {"close_fds": False, "stdout": quiet, "stderr": quiet}
        # The child only gives two pipes their numbers.
        self._process = subprocess.Popen(command, preexec_fn=arrange, **options)  # noqa: PLW1509
        self._number, self._rest = 0, b""

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters} | (
            {"sessionId": session} if session else {}
        )
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                self._rest += os.read(self._in, 65536)
            text, _, self._rest = self._rest.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") == self._number:
                result: dict[str, Any] = answer["result"]
                return result

    def close(self) -> None:
        """End the browser."""
        self._process.terminate()
        self._process.wait()


@contextmanager
def filled(directory: Path, nodes: int) -> Iterator[tuple[PrometheusServer, int]]:
    """A Prometheus with the last minutes of a fleet, and the number of its series."""
    start = int(time.time()) - MOMENTS * EVERY_SECONDS
    fleet = Fleet(start_ns=start * 10**9, nodes=nodes)
    history, series = directory / "history.om", set()
    with history.open("w") as file:
        for moment in range(1, MOMENTS + 8):
            at = start + moment * EVERY_SECONDS
            for name, value in fleet.lines(at * 10**9):
                series.add(name)
                file.write(f"{name} {value} {at}\n")
        file.write("# EOF\n")
    create = [binary("promtool", "prometheus"), "tsdb", "create-blocks-from", "openmetrics", "-q"]
    subprocess.run([*create, history, directory / "tsdb"], check=True)
    (directory / "prometheus.yaml").write_text("scrape_configs: []\n")
    server = PrometheusServer(directory, directory / "prometheus.yaml")
    server.start(lambda: answers(f"{server.url}/-/ready"))
    try:
        yield server, len(series)
    finally:
        server.stop()


def watched(browser: Browser, session: str) -> dict[str, float]:
    """Milliseconds until the first paint, and until all panels in view are drawn."""
    deadline = time.monotonic() + 60
    state: dict[str, Any] = {}
    while time.monotonic() < deadline:
        value = browser.call("Runtime.evaluate", session, expression=DRAWN)["result"].get("value")
        state = json.loads(value) if value else {"answered": False, "waiting": 1, "paint": 0.0, "now": 0.0}
        if state["answered"] and not state["waiting"]:
            return {"first_paint_ms": round(state["paint"]), "drawn_ms": round(state["now"]), "no_data": state["empty"]}
        time.sleep(0.02)
    raise SystemExit(f"the page was not drawn within 60 s: {state}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=13)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, filled(Path(folder), options.nodes) as (prometheus, series):
        settings = PagesSettings(prometheus_url=prometheus.url)
        site = PageSite(settings, models.load(), prometheus=PrometheusProxy(settings))
        web = WebSettings(listen_address="127.0.0.1:0")
        with WebServer(web, title="bridge", metrics=CollectorRegistry(), routes=site.routes()) as server:
            browser = Browser(Path(folder) / "profile")
            for page in PAGES:
                target = browser.call("Target.createTarget", url="about:blank")["targetId"]
                session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
                found = []
                for _ in range(3):
                    browser.call("Page.navigate", session, url=f"{server.url}/pages/{page}?from=now-10m")
                    time.sleep(0.05)
                    found.append(watched(browser, session))
                print(json.dumps({"page": page, "series": series, "first": found[0], "again": found[1:]}), flush=True)
            browser.close()


if __name__ == "__main__":
    main()

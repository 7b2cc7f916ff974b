"""Draws every page with Grafana's own components in Chromium: `python -m tests.nightly.grafana_components`.

`scenes/` bundles Grafana's npm packages with a page that makes a scene of a dashboard's JSON. The page asks a real
Prometheus with a simulated fleet, and reports for each panel what Grafana says of it. The same pages as the bridge
serves them are drawn beside it, and both must show the same figures.
State timelines and heat maps are in none of the packages: `scenes/src/substitutes.jsx` draws them, and Grafana's back
end is a double, `scenes/src/backend.js`.
"""

import argparse
import base64
import functools
import hashlib
import http.server
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.pages.browser import Browser
from prometheus_client import CollectorRegistry
from tests.nightly.shown_panels import differences, problems
from tests.service.built import cache
from tests.service.servers import PrometheusServer
from tests.support.exporter.simulated_series import Fleet

from kernelcast.bridge.browser import models
from kernelcast.bridge.browser.prometheus import PrometheusProxy
from kernelcast.bridge.browser.settings import PagesSettings
from kernelcast.bridge.browser.site import PageSite
from kernelcast.grafana import dashboards
from kernelcast.runtime.settings.service import WebSettings
from kernelcast.runtime.web.server import WebServer

SCENES: Final = Path(__file__).parent / "scenes"
PROGRAMS: Final = ("node", "npm", "chromium", "prometheus", "promtool")
EVERY_SECONDS: Final = 60
END: Final = 1_790_000_040
"""A whole minute, so that both pages ask about the same moment."""
HOUR: Final = 3600
DAY: Final = 24 * HOUR
DEAD_SECONDS: Final = 900
WIDTH: Final = 1366
DRAWN_SECONDS: Final = 120
MOST_HEIGHT: Final = 12_000
SERVED: Final = """
(() => {
  const closed = document.querySelectorAll('button.row[aria-expanded="false"]');
  closed.forEach((one) => one.click());
  const panels = [...document.querySelectorAll("article.panel:not(.text)")];
  const waiting = panels.filter((one) => one.querySelector(".body .quiet")?.textContent === "…").length;
  const beyond = (one) => { const it = one.querySelector(".scroll"); return it ? it.scrollWidth - it.clientWidth : 0; };
  const shown = panels.map((one) => ({title: one.querySelector("h3 > span").textContent, type: one.classList[1],
    beyond: one.classList[1] === "table" ? beyond(one) : 0,
    cells: [...one.querySelectorAll(".figure .name, .figure .value, th, td, .no-data, .error")].map(
      (each) => each.innerText)}));
  return JSON.stringify({closed: closed.length, waiting, panels: shown});
})()
"""


@dataclass(frozen=True, slots=True)
class State:
    """The data behind a drawn page.

    Attributes:
        name: Part of the picture's name.
        nodes: Nodes of two GPUs each.
        faults: Of the simulation.
        late_seconds: Time between the newest sample and the moment that the page is of.
        history_seconds: Length of the history; where it is an hour, the day before has the same hour.
    """

    name: str
    nodes: int = 2
    faults: tuple[str, ...] = ()
    late_seconds: int = 0
    history_seconds: int = HOUR


STATES: Final = (
    State("healthy"),
    State("fault", faults=("thermal-drift", "xid-79")),
    State("dead", late_seconds=DEAD_SECONDS),
    State("large", nodes=50, history_seconds=HOUR // 4),
)


def main(arguments: Sequence[str]) -> int:
    """Draw and compare; returns the exit code."""
    parser = argparse.ArgumentParser(
        "python -m tests.nightly.grafana_components", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--state", nargs="+", choices=[state.name for state in STATES], help="default: all")
    parser.add_argument("--page", nargs="+", metavar="WORD", default=[""], help="pages whose name contains a word")
    parser.add_argument("--output", type=Path, help="folder for pictures and reports; default: none are kept")
    options = parser.parse_args(arguments)
    absent = [program for program in PROGRAMS if shutil.which(program) is None]
    if absent:
        sys.stdout.write(f"skipped: {', '.join(absent)} not on PATH\n")
        return 0
    found: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kernelcast-scenes-") as folder:
        output = options.output or Path(folder) / "pictures"
        output.mkdir(parents=True, exist_ok=True)
        with pages(bundle(Path(folder))) as address, browser(Path(folder)) as chromium:
            for state in STATES:
                if options.state is None or state.name in options.state:
                    found += drawn(state, Path(folder) / state.name, chromium, address, options.page, output)
    sys.stdout.write("".join(f"{each}\n" for each in found))
    return 1 if found else 0


def bundle(folder: Path) -> Path:
    """Install the packages that are locked, once, and bundle the page; returns its folder."""
    lock = (SCENES / "package-lock.json").read_bytes()
    packages = cache() / f"scenes-{hashlib.sha256(lock).hexdigest()[:12]}"
    if not (packages / "complete").exists():
        packages.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(SCENES / name, packages / name)
        subprocess.run(["npm", "ci"], cwd=packages, check=True, stdout=subprocess.DEVNULL)
        (packages / "complete").touch()
    site = folder / "site"
    site.mkdir()
    subprocess.run(["node", str(SCENES / "build.mjs"), str(packages), str(site)], check=True)
    return site


class Files(http.server.SimpleHTTPRequestHandler):
    """Serves files and logs nothing."""

    def log_message(self, *_words: object) -> None:
        """Nothing is logged."""

    def send_error(self, *words: Any) -> None:
        """Answer, also where a closed tab no longer waits for one of Grafana's icons."""
        with suppress(BrokenPipeError):
            super().send_error(*words)


@contextmanager
def pages(folder: Path) -> Iterator[str]:
    """The bundled page on a port of its own; yields its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Files, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A Chromium with a fresh profile."""
    chromium = Browser(folder / "profile")
    try:
        yield chromium
    finally:
        chromium.close()


@contextmanager
def filled(directory: Path, state: State) -> Iterator[PrometheusServer]:
    """A Prometheus with the last hour of a fleet, and the same hour of the day before."""
    directory.mkdir()
    history = directory / "history.om"
    days = (DAY, 0) if state.history_seconds == HOUR else (0,)
    with history.open("w") as file:
        for back in days:
            start = END - back - state.history_seconds
            fleet = Fleet(*state.faults, start_ns=start * 10**9, nodes=state.nodes)
            for moment in range(EVERY_SECONDS, state.history_seconds + 1, EVERY_SECONDS):
                file.writelines(
                    f"{name} {value} {start + moment}\n" for name, value in fleet.lines((start + moment) * 10**9)
                )
        file.write("# EOF\n")
    create = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", str(history), str(directory / "tsdb")]
    subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
    configuration = directory / "prometheus.yaml"
    configuration.write_text("scrape_configs: []\n")
    server = PrometheusServer(directory, configuration, options=("--storage.tsdb.retention.time=100y",)).run()
    try:
        yield server
    finally:
        server.stop()


def drawn(state: State, folder: Path, chromium: Browser, address: str, words: Sequence[str], output: Path) -> list[str]:
    """Draw the pages of a state twice, and return what is wrong with them."""
    found: list[str] = []
    with filled(folder, state) as prometheus:
        settings = PagesSettings(prometheus_url=prometheus.url, scrape_interval_seconds=EVERY_SECONDS)
        site = PageSite(settings, models.load(), prometheus=PrometheusProxy(settings))
        web = WebSettings(listen_address="127.0.0.1:0")
        with WebServer(web, title="bridge", metrics=CollectorRegistry(), routes=site.routes()) as bridge:
            to = END + state.late_seconds
            for name, text in dashboards.render().items():
                model = json.loads(text)
                if not any(word in name for word in words):
                    continue
                began = time.monotonic()
                report = by_grafana(
                    chromium, address, model, prometheus.url, to, output / f"{state.name}-{model['uid']}.png"
                )
                (output / f"{state.name}-{model['uid']}.json").write_text(json.dumps(report, indent=1))
                url = f"{bridge.url}/pages/{model['uid']}?from={(to - HOUR) * 1000}&to={to * 1000}"
                served = by_us(chromium, url, output / f"{state.name}-{model['uid']}-served.png")
                wrong = [*problems(report, model, healthy=state.name == "healthy", dead=state.late_seconds > 0)]
                wrong += differences(report, served)
                seconds = time.monotonic() - began
                counts = f"{len(report['panels'])} panels, {len(wrong)} wrong, {seconds:.0f} s"
                sys.stdout.write(f"{state.name} {model['uid']}: {counts}\n")
                sys.stdout.flush()
                found += [f"{state.name} {model['uid']}: {each}" for each in wrong]
    return found


def by_grafana(
    chromium: Browser, address: str, model: Mapping[str, Any], prometheus: str, to: int, picture: Path
) -> dict[str, Any]:
    """Draw one dashboard with Grafana's components; returns their report."""
    with tab(chromium, address) as evaluate:
        _until(lambda: evaluate("Boolean(window.draw)"), "the bundle was not loaded")
        settings = {
            "prometheus": prometheus, "from": _iso(to - HOUR), "to": _iso(to), "interval": f"{EVERY_SECONDS}s",
            "width": WIDTH - 20, "chosen": {},
        }  # fmt: skip
        evaluate(f"window.draw({json.dumps(model)}, {json.dumps(settings)})")

        def settled() -> Any:
            return (found := evaluate("window.report()")) and not found["waiting"] and found

        _until(settled, "a panel still waits for its answer")
        time.sleep(1)  # the components draw once more when they know their size
        report: dict[str, Any] = evaluate("window.report()")
        evaluate.picture(picture, int(evaluate('document.querySelector("#root > div").scrollHeight')))
    return report


def by_us(chromium: Browser, url: str, picture: Path) -> dict[str, Any]:
    """Draw one dashboard as the bridge serves it, with every row open; returns what each panel shows."""
    with tab(chromium, url) as evaluate:

        def settled() -> Any:
            found = json.loads(evaluate(SERVED) or "{}")
            return found and found["panels"] and not found["closed"] and not found["waiting"] and found

        time.sleep(2)
        shown: dict[str, Any] = _until(settled, f"{url} was not drawn")
        evaluate.picture(picture, int(evaluate("document.documentElement.scrollHeight")))
    return shown


class Tab:
    """One tab of the browser."""

    def __init__(self, chromium: Browser, url: str) -> None:
        self._chromium = chromium
        self.target = chromium.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = chromium.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        self._size(MOST_HEIGHT)
        chromium.call("Page.navigate", self._session, url=url)

    def _size(self, height: int) -> None:
        size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._chromium.call("Emulation.setDeviceMetricsOverride", self._session, **size)

    def __call__(self, expression: str) -> Any:
        """The value of an expression, or of its promise."""
        options = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answer = self._chromium.call("Runtime.evaluate", self._session, **options)
        if "exceptionDetails" in answer:
            raise SystemExit(f"{expression[:60]} failed: {answer['result'].get('description')}")
        return answer["result"].get("value")

    def picture(self, file: Path, height: int) -> None:
        """Save what the tab shows."""
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": min(height, MOST_HEIGHT), "scale": 1}
        taken = self._chromium.call("Page.captureScreenshot", self._session, captureBeyondViewport=False, clip=clip)
        file.write_bytes(base64.b64decode(taken["data"]))


@contextmanager
def tab(chromium: Browser, url: str) -> Iterator[Tab]:
    """A tab that is closed in the end."""
    made = Tab(chromium, url)
    try:
        yield made
    finally:
        chromium.call("Target.closeTarget", targetId=made.target)


def _until(check: Any, complaint: str) -> Any:
    deadline = time.monotonic() + DRAWN_SECONDS
    while not (value := check()):
        if time.monotonic() > deadline:
            raise SystemExit(f"{complaint} within {DRAWN_SECONDS} s")
        time.sleep(0.3)
    return value


def _iso(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Every panel about nodes and programs shows something of a healthy simulated hour, in a real Prometheus."""

import json
import re
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.service.require import binary
from tests.service.servers import PrometheusServer, answers, get
from tests.support.exporter.attribution_forms import FORMS, OFF, simulated
from tests.support.exporter.simulated_series import simulate

from kernelcast.grafana import dashboards
from kernelcast.grafana.model.unanswered import MAX_UNANSWERED, UNANSWERED
from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME

pytestmark = pytest.mark.service

NOW = 1_790_000_000
HOUR = 3600
DAY = 24 * HOUR
EVERY = 60
RECORDING = Path(__file__).parents[3] / "grafana" / "rules" / "recording.yaml"
RECORDED = ("kernelcast-kernels", "kernelcast-baselines")
"""Groups of recording rules without which panels about nodes have no answer."""
RECORDED_FROM_RECORDED = 5
"""Times that they are evaluated: each reads what others have recorded, four rules deep, and a baseline is the last."""
METRIC = "DCGM_FI_DEV_GPU_TEMP"
VARIABLES = {
    "metric": METRIC,
    "horizon": "1h",
    "hpc_job": ".*",
    "__rate_interval": "4m",
    "__interval": "1m",
    "__range": "1h",
}
SERVICES = frozenset({"up", "ALERTS", "kernelcast_producer_up", "kernelcast_bridge_kafka_outage_seconds"})
_WORD = re.compile(r"[A-Za-z_]\w+")


def openmetrics(form: str) -> Iterator[str]:
    """The hour, and the same hour a day before."""
    for start in (NOW - DAY - HOUR, NOW - HOUR):
        with simulated(form):
            watched = simulate(seconds=HOUR, every=EVERY, start_ns=start * 1_000_000_000)
        for series, values in watched.values.items():
            for moment, value in enumerate(values):
                if value is not None:
                    yield f"{series} {value} {start + moment * EVERY}"
    yield "# EOF\n"


@pytest.fixture(scope="module", params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def prometheus(form: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    directory = tmp_path_factory.mktemp("hour")
    history = directory / "history.om"
    history.write_text("\n".join(openmetrics(form)))
    backfill = [binary("promtool", "prometheus"), "tsdb", "create-blocks-from", "openmetrics", "-q"]
    done = subprocess.run([*backfill, history, directory / "tsdb"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    configuration = directory / "prometheus.yaml"
    configuration.write_text("scrape_configs: []\n")
    server = PrometheusServer(directory, configuration, options=("--storage.tsdb.retention.time=100y",))
    server.start(lambda: answers(f"{server.url}/-/ready"))
    try:
        for _ in range(RECORDED_FROM_RECORDED):
            record(server, directory)
        yield server
    finally:
        server.stop()


def record(server: PrometheusServer, directory: Path) -> None:
    """Evaluate recording rules over both hours, from what the server has, and start it again with the results."""
    rules = directory / "recording.yaml"
    groups = [group for group in yaml.safe_load(RECORDING.read_text())["groups"] if group["name"] in RECORDED]
    assert len(groups) == len(RECORDED)
    rules.write_text(yaml.safe_dump({"groups": groups}))
    command = [binary("promtool", "prometheus"), "tsdb", "create-blocks-from", "rules", "--quiet"]
    where = [f"--url={server.url}", f"--output-dir={directory / 'tsdb'}", f"--eval-interval={EVERY}s"]
    for end in (NOW - DAY, NOW):
        span = (f"--start={end - HOUR}", f"--end={end}")
        done = subprocess.run([*command, *where, *span, rules], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    server.stop()
    server.start(lambda: answers(f"{server.url}/-/ready"))


def panels() -> Iterator[dict[str, Any]]:
    """Every panel that asks something, by the pages' order."""
    for text in dashboards.render().values():
        for each in json.loads(text)["panels"]:
            yield from (one for one in (each, *each.get("panels", ())) if one.get("targets"))


def substituted(expr: str) -> str:
    """The query as Grafana sends it with everything chosen; a `$1` is no variable."""
    # Where one series is chosen, a matcher is an equality.
    expr = re.sub(r'="\$(hostname|gpu|program|kernel)"', r'=~".*"', expr)
    return re.sub(
        r"\$(?:{([A-Za-z_]\w*)(?::\w+)?}|([A-Za-z_]\w*))", lambda found: VARIABLES.get(found[1] or found[2], ".+"), expr
    )


def of_nodes(expr: str) -> bool:
    """Whether a query asks only for what nodes write: no predictor, and no service about itself."""
    names = {
        re.sub(r"_(bucket|sum|count)$", "", word) if word not in BY_PROMETHEUS_NAME else word
        for word in _WORD.findall(expr)
    }
    rows = [BY_PROMETHEUS_NAME[name] for name in names if name in BY_PROMETHEUS_NAME and name not in SERVICES]
    return bool(rows) and all(row.otlp_name and row.source != "predictor" for row in rows)


def test_every_panel_about_nodes_answers_but_those_declared(prometheus: PrometheusServer) -> None:
    empty, asked = set(), set()
    for panel in panels():
        queries = [substituted(target["expr"]) for target in panel["targets"] if of_nodes(target["expr"])]
        if queries:
            asked.add(panel["title"])
            if not any(shown(prometheus, query) for query in queries):
                empty.add(panel["title"])
    assert len(asked) > 80
    assert empty == set(UNANSWERED)
    assert len(UNANSWERED) <= MAX_UNANSWERED


def test_the_table_of_owners_has_their_pods_in_either_form(prometheus: PrometheusServer, form: str) -> None:
    (table,) = {
        target["expr"] for panel in panels() if panel["title"] == "Pods and jobs" for target in panel["targets"][:1]
    }
    found = answer(prometheus, f"group by (pod) ({substituted(table)})")
    assert ({"sim-train-0-0", "sim-train-0-1"} <= {series["metric"].get("pod") for series in found}) is (form != OFF)


def shown(prometheus: PrometheusServer, query: str) -> bool:
    """Whether a query has a number as its answer."""
    return any(series["value"][1] != "NaN" for series in answer(prometheus, query))


def answer(prometheus: PrometheusServer, query: str) -> list[dict[str, Any]]:
    """What Prometheus answers at the end of the hour."""
    parameters = urllib.parse.urlencode({"query": query, "time": NOW - EVERY})
    try:
        found: list[dict[str, Any]] = json.loads(get(f"{prometheus.url}/api/v1/query?{parameters}"))["data"]["result"]
    except OSError as error:
        raise AssertionError(query) from error
    return found

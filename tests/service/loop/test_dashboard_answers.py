"""Every panel shows something where every metric of the catalogue is there: a real Prometheus answers its queries."""

import itertools
import json
import re
import subprocess
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.service.require import binary
from tests.service.servers import PrometheusServer, answers, get

from kernelcast.grafana import dashboards, node_exporter
from kernelcast.grafana.rules import hours, recording, serving, standing
from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME, CATALOGUE, Kind, Metric, exporter, forecast, kernel, predictor
from kernelcast.wire.catalogue.devices import accelerator, device, gpu, nvlink, profiling
from kernelcast.wire.catalogue.devices.device import DEVICE_LABELS, USER_LABELS
from kernelcast.wire.catalogue.kernel import KERNEL_LABELS

pytestmark = pytest.mark.service

NOW = 1_790_000_000
EMPTY = ("-1", "-2")
"""Values of a figure without a result while the measurement lives, and while the predictor learns."""
STEP_SECONDS = 60
HISTORY_SECONDS = 25 * 3600
RECENT_STEPS = 75
DEAD = NOW + 15 * 60
"""Everything has been stopped for 15 minutes: the newest sample is older than Prometheus looks back."""
CALM = NOW - 6 * 3600
"""Around this time everything lived and had nothing to report."""
LEARNING = NOW - 12 * 3600
"""Around this time, too, but the predictor had judged no series yet."""
STILL_LEARNING = "no forecast yet: still learning"
LIVING = (
    gpu.GPU_UP,
    predictor.SWEEPS,
    predictor.FINDINGS_TIME,
    forecast.JUDGED_SERIES,
    exporter.TICKS,
    exporter.KERNEL_LOG_ERRORS,
    kernel.LAUNCHES,
    kernel.DEVICE_TIME,
    nvlink.ERRORS,
    accelerator.MEMORY_USED,
)
"""Rows that exist at that time, each at 0 or at one value: they prove that something is measured."""
DEVICE_METRIC = "DCGM_FI_DEV_GPU_TEMP"
SUBJECTS = ("cuda_kernel_duration_seconds", "cuda_memcpy_seconds_total", DEVICE_METRIC)
DAEMON = {"job": "kernelcast-bridge", "instance": "b:1"}
WITHOUT_SPOOL = {"job": "kernelcast-predictor", "instance": "p:1", "topic": "t"}
"""A daemon whose messages are lost once Kafka does not take them; those of an exporter are in its spool."""
MEASURED = {"job": "kernelcast-exporter", "instance": "node-1"}
NODE_EXPORTER = {"job": "node", "instance": "n:9100"}
UNLESS_CROSSED = re.compile(r" unless (on \(\) )?1000 \* min")
"""A figure about the next breach is about those that were crossed, in another query, as soon as there is one."""
UNANSWERED = {"program": "p", "tunable": "batch", "Hostname": "a-Hostname", "gpu": "0"}
"""A tunable with a hint and without an outcome."""
VALUES: Mapping[str, tuple[str, ...]] = {
    "kernel": ("gemm<float>(int)#0a1b2c3d", "other"),
    "state": ("compute", "idle", "kept", "rolled_back", "used", "allocated", "running", "waiting"),
    "phase": ("data", "forward", "backward", "optimizer"),
    "kind": ("prompt", "generation"),
    "class": ("temperature", "memory", "kernel", "other"),
    "bound": ("mean", "lower", "upper"),
    "quantile": ("0.1", "0.5", "0.9"),
    "metric": SUBJECTS,
    "gpu": ("0",),
    "field": tuple(row.prometheus_name for row in (*device.ROWS, *profiling.ROWS)),
    "outcome": ("acknowledged", "failed", "sent"),
    "horizon": ("1h",),
    "level": ("0.5", "0.8", "0.95"),
    "reference": ("naive", "seasonal_naive"),
    "source": ("", "simulated"),
    "job": (MEASURED["job"],),
}


OF_RANK = MEASURED | {
    "Hostname": "a-Hostname",
    "gpu": "0",
    "program": "a-program",
    "rank": "a-rank",
    "job_id": "a-job_id",
}
OF_STANDING = OF_RANK | {"state": "compute", "stacks": "a-stacks"}
OF_SERVER = {"server": "a-server", "model_name": "a-model_name", "Hostname": "a-Hostname", "UUID": "a-UUID"}
RECORDED = (
    *((hours.HOURS, {"namespace": "a-namespace", "part": part}) for part in hours.PARTS),
    (hours.COST, {"namespace": "a-namespace", "part": hours.COMPUTING}),
    (hours.WATTS, {"namespace": "a-namespace"}),
    (hours.UTILIZATION, {"program": "a-program", "precision": "bf16"}),
    (hours.GPU_SECONDS_PER_ITEM, {"program": "a-program", "modelName": "a-modelName", "precision": "bf16"}),
    (hours.JOULES_PER_ITEM, {"program": "a-program", "modelName": "a-modelName", "precision": "bf16"}),
    *((recording.PROGRAM_BUSY, OF_RANK | {"rank": rank}) for rank in ("a-rank", "another-rank")),
    *(
        (name, OF_RANK | {"kernel": each, "kernel_class": "compute"})
        for name in (recording.KERNEL_BUSY, recording.KERNEL_MEAN, recording.KERNEL_BASELINE)
        for each in VALUES["kernel"]
    ),
    (standing.STILL, OF_STANDING),
    (standing.HOLDER, OF_STANDING),
    (serving.SHARED, OF_SERVER | {"gpu": "0", "program": "a-program"}),
    (serving.TOKENS_PER_JOULE, OF_SERVER),
    (serving.TOKENS_PER_GPU_SECOND, OF_SERVER),
)
"""What only recording rules give."""


def label_sets(row: Metric) -> Iterator[dict[str, str]]:
    """Some of the label sets that a metric can have; a forecast has no labels that its subject lacks."""
    seen = set()
    names = (*row.labels, *USER_LABELS) if {*DEVICE_LABELS} <= {*row.labels} else row.labels
    for values in itertools.product(*(VALUES.get(label, (f"a-{label}",)) for label in names)):
        labels = dict(zip(names, values, strict=True))
        if subject := labels.get("metric"):
            lacking = {*KERNEL_LABELS} - {*BY_PROMETHEUS_NAME[subject].labels}
            labels = {name: value for name, value in labels.items() if name not in lacking}
        identity = tuple(sorted(labels.items()))
        if identity not in seen:
            seen.add(identity)
            yield (MEASURED if row.otlp_name else DAEMON) | {name: value for name, value in labels.items() if value}


def line(name: str, labels: Mapping[str, str], value: float, at: int) -> str:
    inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value} {at}"


def samples(row: Metric, labels: Mapping[str, str], at: int, step: int) -> Iterator[str]:
    name, total = row.prometheus_name, float(step * 60)
    if row.kind is not Kind.HISTOGRAM:
        yield line(name, labels, total if row.kind is Kind.COUNTER else 0.9, at)
        return
    for bound, part in (("0.0078125", 0.5), ("0.015625", 1.0), ("+Inf", 1.0)):
        yield line(f"{name}_bucket", {**labels, "le": bound}, total * part, at)
    yield line(f"{name}_sum", labels, total * 0.01, at)
    yield line(f"{name}_count", labels, total, at)


def openmetrics() -> Iterator[str]:
    """The last hour of every exposed metric, of histograms also that of the day before; `up`, and alerts that fire."""
    moments = tuple(enumerate(range(NOW - HISTORY_SECONDS, NOW, STEP_SECONDS)))
    lately, day_before = moments[-RECENT_STEPS:], moments[:RECENT_STEPS]
    for row in (row for row in CATALOGUE if row.exposed):
        # Without metadata lines: a name without `_total`, such as DCGM's, is no counter to OpenMetrics.
        shown = (*day_before, *lately) if row.kind is Kind.HISTOGRAM else lately
        for labels, (step, at) in itertools.product(label_sets(row), shown):
            yield from samples(row, labels, at, step)
    yield from quiet(CALM, (gpu.GPU_UP, forecast.JUDGED_SERIES))
    yield from quiet(LEARNING, (gpu.GPU_UP,))
    for step, at in lately:
        yield line("kernelcast_hint_issued_total", MEASURED | UNANSWERED | {"rule": "r"}, step, at)
        yield line("kernelcast_producer_messages_total", WITHOUT_SPOOL | {"outcome": "failed"}, step, at)
        yield line("kernelcast_producer_dropped_messages_total", WITHOUT_SPOOL | {"cause": "queue_full"}, step, at)
        yield line("kernelcast_tunable_info", MEASURED | UNANSWERED | {"value": "64"}, 1, at)
    for _, at in moments[-10:]:
        yield line("up", DAEMON, 1, at)
        yield line(node_exporter.NODE_NAME, NODE_EXPORTER | {"nodename": "a-Hostname"}, 1, at)
        yield line(node_exporter.NODE_CPU, NODE_EXPORTER | {"cpu": "0", "mode": "idle"}, at - NOW + 6000, at)
        yield line(node_exporter.NODE_MEMORY_FREE, NODE_EXPORTER, 1, at)
        yield line(node_exporter.NODE_MEMORY, NODE_EXPORTER, 2, at)
        for name, own in node_exporter.LABELS.items():
            if "port" in own:
                yield line(name, NODE_EXPORTER | {"device": "mlx5_0", "port": "1"}, at - NOW + 6000, at)
        for name, labels in RECORDED:
            yield line(name, labels, 0.5, at)
        for name in ("KernelcastDeadLetters", "KernelcastGpuDown", "Watchdog"):
            gpu_labels = {"Hostname": "a-Hostname", "gpu": "0"} if name == "KernelcastGpuDown" else {}
            labels = {"alertname": name, "severity": "none" if name == "Watchdog" else "warning"} | gpu_labels
            yield line("ALERTS", labels | {"alertstate": "firing"}, 1, at)
            yield line("ALERTS_FOR_STATE", labels, at - 60, at)
    yield "# EOF\n"


def quiet(moment: int, at_one: tuple[Metric, ...]) -> Iterator[str]:
    """An hour in which everything lives and nothing happens."""
    for row in (*LIVING, device.ECC_DBE_VOLATILE, device.ROW_REMAP_FAILURE, device.RETIRED_PENDING):
        for labels, at in itertools.product(label_sets(row), range(moment - 3600, moment + 60, STEP_SECONDS)):
            yield line(row.prometheus_name, labels, float(row in at_one), at)
    for at in range(moment - 600, moment + 60, STEP_SECONDS):
        yield line("ALERTS", {"alertname": "Watchdog", "alertstate": "firing", "severity": "none"}, 1, at)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    directory = tmp_path_factory.mktemp("answers")
    history = directory / "history.om"
    history.write_text("\n".join(openmetrics()))
    backfill = [binary("promtool", "prometheus"), "tsdb", "create-blocks-from", "openmetrics", "-q"]
    done = subprocess.run([*backfill, history, directory / "tsdb"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    configuration = directory / "prometheus.yaml"
    configuration.write_text("scrape_configs: []\n")
    server = PrometheusServer(directory, configuration)
    server.command.append("--storage.tsdb.retention.time=100y")
    server.start(lambda: answers(f"{server.url}/-/ready"))
    try:
        yield server
    finally:
        server.stop()


def substituted(expr: str, metric: str) -> str:
    """The query as Grafana sends it with everything chosen, and one forecast."""
    chosen = {"metric": metric, "horizon": "1h", "__rate_interval": "4m", "__range": "1h", "__interval": "1m"}
    chosen |= {"hpc_job": ".*", "user": ".*"}
    # Where one series is chosen, a matcher is an equality.
    expr = re.sub(r'="\$(hostname|gpu|program|kernel)"', r'=~".*"', expr)
    return re.sub(r"\$\{?(\w+)\}?", lambda found: chosen.get(found[1], ".+"), expr)


def ask(prometheus: PrometheusServer, expr: str, *, at: int = NOW - STEP_SECONDS) -> list[dict[str, Any]]:
    query = urllib.parse.urlencode({"query": expr, "time": at})
    found: list[dict[str, Any]] = json.loads(get(f"{prometheus.url}/api/v1/query?{query}"))["data"]["result"]
    return found


def panels() -> Iterator[tuple[str, dict[str, Any]]]:
    boards = [json.loads(text) for text in dashboards.render().values()]
    for board in boards:
        for each in board["panels"]:
            yield from ((board["uid"], one) for one in (each, *each.get("panels", ())))


def targets() -> list[Any]:
    return [
        pytest.param(target["expr"], id=f"{uid}: {panel['title']} {target['refId']}")
        for uid, panel in panels()
        for target in one_series(panel)
    ]


def one_series(panel: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A panel's queries; a series with a forecast is a gauge, a counter or a histogram: one of three answers."""
    asked: list[dict[str, Any]] = panel.get("targets", [])
    if "as forecast" not in panel["title"]:
        return asked
    return [asked[0] | {"expr": " or ".join(f"({each['expr']})" for each in asked[:3])}, *asked[3:]]


@pytest.mark.parametrize("expr", targets())
def test_a_panel_is_not_empty_and_not_nan(prometheus: PrometheusServer, expr: str) -> None:
    if expr.startswith(("-1 * group(", "0 * group(", "(-1 * group(")) and " unless on () " in expr:
        answered = [not ask(prometheus, substituted(expr, metric)) for metric in SUBJECTS]
        assert any(answered), "words for an empty result beside a result"
        return
    subjects = SUBJECTS if "metric" in expr else SUBJECTS[:1]
    if until_crossed := UNLESS_CROSSED.search(expr):
        asked = (ask(prometheus, substituted(expr, metric)) for metric in subjects)
        assert not any(asked), "a prediction beside a limit that is crossed"
        expr = expr[: until_crossed.start()]
    found = [series for metric in subjects for series in ask(prometheus, substituted(expr, metric))]
    assert found, expr
    assert any(series["value"][1] != "NaN" for series in found), expr


def test_nothing_is_said_when_everything_is_dead(prometheus: PrometheusServer) -> None:
    said = {}
    for _, panel in panels():
        for expr in {substituted(target["expr"], metric) for target in panel.get("targets", ()) for metric in SUBJECTS}:
            found = [float(series["value"][1]) for series in ask(prometheus, expr, at=DEAD)]
            if expr.startswith("time() - (max("):
                assert found == pytest.approx([DEAD - NOW], abs=120), panel["title"]
            elif found:
                said[panel["title"]] = expr
    assert said == {}


@pytest.mark.parametrize("at", [NOW - STEP_SECONDS, DEAD])
def test_the_page_of_gpus_is_about_a_node_also_where_everything_has_ended(
    prometheus: PrometheusServer, at: int
) -> None:
    """Without one its line about the data would be about no series, and not say how old they are."""
    board = json.loads(dashboards.render()["kernelcast-gpus.json"])
    exprs = {each["name"]: each.get("definition", "") for each in board["templating"]["list"]}
    anyone = exprs["hostname"].replace('user=~"$user"', 'user=~".*"')
    expr = substituted(anyone.removeprefix("query_result(").removesuffix(")"), DEVICE_METRIC)
    assert [series["metric"]["Hostname"] for series in ask(prometheus, expr, at=at)]


def test_words_for_an_empty_result_are_shown_while_the_measurement_lives(prometheus: PrometheusServer) -> None:
    calm, learning, every = (set[str]() for _ in range(3))
    for _, panel in panels():
        for value, words in calm_words(panel):
            every.add(words)
            for at, shown in ((CALM, calm), (LEARNING, learning)):
                answers = (
                    ask(prometheus, substituted(each["expr"], DEVICE_METRIC), at=at) for each in panel["targets"]
                )
                series = itertools.chain.from_iterable(answers)
                if any(one["value"][1] == value or words in one["metric"].values() for one in series):
                    shown.add(words)
    assert every >= {"none predicted", "no hint", "none", STILL_LEARNING}
    assert calm == every - {STILL_LEARNING}
    assert STILL_LEARNING in learning
    assert not learning & {"none predicted", "no breach predicted", "No breach is predicted"}


def test_a_graph_of_forecasts_says_that_the_predictor_learns_until_it_has_judged(prometheus: PrometheusServer) -> None:
    of_graphs = {
        panel["title"]: target["expr"]
        for _, panel in panels()
        for target in panel.get("targets", ())
        if target.get("legendFormat") == STILL_LEARNING
    }
    assert of_graphs.keys() >= {"Coverage of past intervals"}
    assert len(of_graphs) == 2
    for title, expr in of_graphs.items():
        answers = {
            at: len(ask(prometheus, substituted(expr, DEVICE_METRIC), at=at)) for at in (LEARNING, CALM, NOW, DEAD)
        }
        assert answers == {LEARNING: 1, CALM: 0, NOW: 0, DEAD: 0}, title


def calm_words(panel: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Value and words that a panel shows for an empty result."""
    if panel["type"] == "stat":
        for mapping in panel["fieldConfig"]["defaults"].get("mappings", ()):
            yield from ((value, words["text"]) for value, words in mapping["options"].items() if value in EMPTY)
    for target in panel.get("targets", ()):
        yield from (("", words) for words in re.findall(r'group\(.*\), "\w+", "([^"]+)", "", ""\)$', target["expr"]))


def panel(prometheus: PrometheusServer, title: str, page: str = "kernels") -> list[float]:
    (expr,) = (parameter.values[0] for parameter in targets() if parameter.id == f"kernelcast-{page}: {title} A")
    return [float(series["value"][1]) for series in ask(prometheus, substituted(str(expr), DEVICE_METRIC))]


def test_shares_of_device_time_add_up_to_one(prometheus: PrometheusServer) -> None:
    assert sum(panel(prometheus, "Device time by activity", "kernels")) == pytest.approx(1)


def test_shares_of_all_kernels_add_up_to_one(prometheus: PrometheusServer) -> None:
    assert sum(panel(prometheus, "Hottest kernels (25)")) == pytest.approx(1)


def test_a_kernel_as_fast_as_a_day_before_has_the_ratio_1(prometheus: PrometheusServer) -> None:
    assert panel(prometheus, "Mean duration against usual") == pytest.approx([1, 1])

"""NVIDIA's own dashboard for dcgm-exporter (grafana.com 12239) shows our series, over Kafka and scraped directly.

Its queries and variables, as facts: NVIDIA/dcgm-exporter, grafana/dcgm-exporter-dashboard.json, of commit 068798b
(Grafana 9, label Hostname as in the releases up to 4.8.2) and of commit 1f7abdb (Grafana 6, label instance, the first).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from tests.service.conftest import Broker
from tests.service.servers import PrometheusServer, stopping, wait_for
from tests.service.stack import Stack
from tests.support.exporter.nvml_double import DRIVER, divided, gpu, instance
from tests.support.service.programs import topics

from kernelcast.exporter.nvml.recordings.recording import NODE, Answers, RecordedChanges, write

pytestmark = pytest.mark.service

NODE_NAME: Final = "node-a"
WHOLE: Final = frozenset({("gpu", "0")})
DIVIDED: Final = frozenset({("gpu", "1")})
FIRST: Final = DIVIDED | {("GPU_I_ID", "3"), ("GPU_I_PROFILE", "1g.18gb")}
SECOND: Final = DIVIDED | {("GPU_I_ID", "4"), ("GPU_I_PROFILE", "3g.71gb")}
OF_INSTANCES: Final = (WHOLE, DIVIDED, FIRST, SECOND)
"""Rows of instances: the divided GPU as a whole has a series beside them, without GPU_I_ID."""

ON_NODE: Final = frozenset({("Hostname", NODE_NAME)})
UUIDS: Final = (frozenset({("UUID", "GPU-whole")}), frozenset({("UUID", "GPU-divided")}))
ONE: Final = frozenset({frozenset[tuple[str, str]]()})
"""One series without labels."""

Series = frozenset[frozenset[tuple[str, str]]]
CHOSEN: Final = {"Hostname": NODE_NAME, "gpu": "0|1", "instance": ".+"}
"""Values of Grafana's variables where everything is chosen."""


@dataclass(frozen=True)
class Panel:
    """A panel's query.

    Attributes:
        title: The panel's.
        expr: Its query.
        series: The label sets that must come: none missing, none too many.
    """

    title: str
    expr: str
    series: Series


def each(*labels: frozenset[tuple[str, str]]) -> Series:
    return frozenset(ON_NODE | one for one in labels)


PANELS: Final = (
    Panel(
        "GPU Temperature",
        'max(DCGM_FI_DEV_GPU_TEMP{Hostname=~"$Hostname", gpu=~"$gpu"}) by (Hostname, gpu, uuid)',
        each(WHOLE, DIVIDED),
    ),
    Panel("GPU Avg. Temp", 'avg(DCGM_FI_DEV_GPU_TEMP{Hostname=~"$Hostname", gpu=~"$gpu"})', ONE),
    Panel(
        "GPU Power Usage",
        'max(DCGM_FI_DEV_POWER_USAGE{Hostname=~"$Hostname", gpu=~"$gpu"}) by (Hostname, gpu, uuid)',
        each(WHOLE, DIVIDED),
    ),
    Panel("GPU Power Total", 'sum(max(DCGM_FI_DEV_POWER_USAGE{Hostname=~"$Hostname", gpu=~"$gpu"}) by (gpu))', ONE),
    Panel(
        "GPU SM Clocks",
        'max(DCGM_FI_DEV_SM_CLOCK{Hostname=~"$Hostname", gpu=~"$gpu"} * 1000000) by (Hostname, UUID, gpu)',
        each(WHOLE | UUIDS[0], DIVIDED | UUIDS[1]),
    ),
    *(
        Panel(
            title,
            f'max({name}{{Hostname=~"$Hostname", gpu=~"$gpu"}}) by (Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)',
            each(*OF_INSTANCES),
        )
        for title, name in (
            ("GPU Utilization", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
            ("Tensor Core Utilization", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
            ("GPU Framebuffer Mem Used", "DCGM_FI_DEV_FB_USED"),
        )
    ),
)
"""Commit 068798b."""

OLDER: Final = (
    ("GPU Avg. Temp", 'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"$instance", gpu=~"$gpu"})', (frozenset[tuple[str, str]](),)),
    ("GPU Power Total", 'sum(DCGM_FI_DEV_POWER_USAGE{instance=~"$instance", gpu=~"$gpu"})', (frozenset(),)),
    *(
        (title, f'{name}{{instance=~"$instance", gpu=~"$gpu"}}{scale}', series)
        for title, name, scale, series in (
            ("GPU Temperature", "DCGM_FI_DEV_GPU_TEMP", "", (WHOLE, DIVIDED)),
            ("GPU Power Usage", "DCGM_FI_DEV_POWER_USAGE", "", (WHOLE, DIVIDED)),
            ("GPU SM Clocks", "DCGM_FI_DEV_SM_CLOCK", " * 1000000", (WHOLE, DIVIDED)),
            ("GPU Utilization", "DCGM_FI_DEV_GPU_UTIL", "", (WHOLE,)),
            ("GPU Framebuffer Mem Used", "DCGM_FI_DEV_FB_USED", "", OF_INSTANCES),
            ("Tensor Core Utilization", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "", OF_INSTANCES),
        )
    ),
)
"""Commit 1f7abdb: raw series, so their own labels are looked at."""

VARIABLES: Final = (
    ("DCGM_FI_DEV_FB_FREE", "Hostname", {NODE_NAME}),
    ('DCGM_FI_DEV_FB_FREE{Hostname=~"$Hostname"}', "gpu", {"0", "1"}),
    ("DCGM_FI_DEV_GPU_TEMP", "gpu", {"0", "1"}),
)
"""`label_values(selector, label)` of both."""

ALERTS: Final = (
    ("temperature above 80 °C", "DCGM_FI_DEV_GPU_TEMP > 80", 0),
    ("temperature above 40 °C, to see that it would fire", "DCGM_FI_DEV_GPU_TEMP > 40", 2),
    ("memory above 95 %", "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE) > 0.95", 0),
    ("memory above 10 %", "DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE) > 0.1", 4),
    ("an XID", "DCGM_FI_DEV_XID_ERRORS > 0", 0),
    ("a failed row remapping", "DCGM_FI_DEV_ROW_REMAP_FAILURE > 0", 2),
    ("PCIe retries", "rate(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[1m]) > 0", 0),
)
"""Expressions as people alert on dcgm-exporter's series with, and how many series they must find here."""


def two_gpus() -> Answers:
    """One whole GPU, and one in MIG mode with two instances."""
    instances = (instance("1g.18gb", 3, "MIG-a"), instance("3g.71gb", 4, "MIG-b"))
    parted = divided(*instances, uuid="GPU-divided")
    second = {owner.replace("0", "1", 1): answers for owner, answers in parted.items()}
    node = {
        "nvmlDeviceGetCount": 2,
        "nvmlSystemGetDriverVersion": DRIVER,
    }
    return {NODE: node, "0": gpu("GPU-whole"), **second}


def scraping(stack: Stack, directory: Path) -> PrometheusServer:
    """A Prometheus that reads the exporter itself, as one reads dcgm-exporter: no Kafka, no relabelling."""
    directory.mkdir()
    job = {"job_name": "gpus", "static_configs": [{"targets": [stack.addresses["exporter"]]}]}
    document = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
    configuration = directory / "prometheus.yml"
    configuration.write_text(yaml.safe_dump(document))
    return PrometheusServer(directory, configuration)


@pytest.fixture(scope="module")
def prometheuses(
    shared_kafka: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, PrometheusServer]]:
    directory = tmp_path_factory.mktemp("dcgm")
    write(directory / "gpus.nvml", [RecordedChanges(0, two_gpus())])
    exporter = {"nvml": "on", "device_metrics": "on", "hostname": NODE_NAME, "interval_seconds": 1.0}
    settings = {"exporter": {**exporter, "nvml_recording": str(directory / "gpus.nvml")}}
    bootstrap_servers = shared_kafka.bootstrap_servers
    with Stack(directory, bootstrap_servers, settings) as stack:
        topics(shared_kafka)
        stack.service("bridge")
        stack.service("exporter")
        direct = scraping(stack, directory / "direct")
        with stopping(direct):
            found = {"over Kafka": stack.prometheus(), "scraped": direct.run()}
            for way, server in found.items():
                # GPM needs two looks, so its rows come last.
                wait_for(f"profiling rows {way}", partial(server.query, "DCGM_FI_PROF_GR_ENGINE_ACTIVE"))
            yield found


@pytest.fixture(params=["over Kafka", "scraped"])
def prometheus(request: pytest.FixtureRequest, prometheuses: Mapping[str, PrometheusServer]) -> PrometheusServer:
    return prometheuses[request.param]


def filled_in(expr: str) -> str:
    for name, value in CHOSEN.items():
        expr = expr.replace(f"${name}", value)
    return expr


def label_sets(found: list[tuple[dict[str, str], float]]) -> Series:
    return frozenset(frozenset(labels.items()) for labels, _ in found)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_a_panel_shows_exactly_our_gpus(prometheus: PrometheusServer, panel: Panel) -> None:
    found = prometheus.query(filled_in(panel.expr))

    assert label_sets(found) == panel.series
    assert all(value == value for _, value in found), "no NaN"  # noqa: PLR0124


@pytest.mark.parametrize(("title", "expr", "series"), OLDER)
def test_a_panel_of_the_first_dashboard_shows_exactly_our_gpus(
    prometheus: PrometheusServer, title: str, expr: str, series: tuple[frozenset[tuple[str, str]], ...]
) -> None:
    found = prometheus.query(filled_in(expr))

    named = {"gpu", "GPU_I_ID", "GPU_I_PROFILE"}
    own = [frozenset((name, value) for name, value in labels.items() if name in named) for labels, _ in found]
    assert sorted(map(sorted, own)) == sorted(map(sorted, series)), title


@pytest.mark.parametrize(("selector", "label", "values"), VARIABLES)
def test_a_variable_offers_our_node_and_gpus(
    prometheus: PrometheusServer, selector: str, label: str, values: set[str]
) -> None:
    found: Any = prometheus.api(f"label/{label}/values", **{"match[]": filled_in(selector)})

    assert set(found) == values


@pytest.mark.parametrize(("what", "expr", "count"), ALERTS)
def test_what_people_alert_on_finds_our_series(prometheus: PrometheusServer, what: str, expr: str, count: int) -> None:
    assert len(prometheus.query(expr)) == count, what


def test_both_ways_show_the_same_values(prometheuses: Mapping[str, PrometheusServer]) -> None:
    for panel in PANELS:
        values = [
            {tuple(sorted(labels.items())): value for labels, value in server.query(filled_in(panel.expr))}
            for server in prometheuses.values()
        ]
        assert values[0] == values[1], panel.title


def test_the_values_are_in_dcgms_units(prometheus: PrometheusServer) -> None:
    """The panels scale and bound by unit: °C, W, MHz, MiB, and ratios up to 1."""
    one = f'{{gpu="0", Hostname="{NODE_NAME}"}}'
    expected = {
        "DCGM_FI_DEV_GPU_TEMP": 41,
        "DCGM_FI_DEV_POWER_USAGE": 77.67,
        "DCGM_FI_DEV_SM_CLOCK": 1980,
        "DCGM_FI_DEV_FB_USED": 20,
        "DCGM_FI_DEV_FB_FREE": 100,
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.5,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.5,
    }
    assert {name: prometheus.scalar(name + one) for name in expected} == pytest.approx(expected)

"""Faults on real servers: Prometheus and Alertmanager, with durations divided by 20, send one message for a cause."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.service.servers import AlertmanagerServer, PrometheusServer, stopping, wait_for
from tests.support.exporter.simulated_series import Fleet, asked_for

from kernelcast.grafana import alertmanager, rules
from kernelcast.grafana.faults import by_name

pytestmark = [pytest.mark.service, pytest.mark.nightly]

PROFILE = replace(rules.DEMO, shrink=20)
HEALTHY_SECONDS = 8
FAULTS = (
    "xid-79:gpu=1",
    "nvlink-down:gpu=1",
    "ecc-uncorrected:gpu=1",
    "xid-94:gpu=1",
    "ecc-burst:gpu=1",
    "xid:gpu=1",
    "power-brake:ratio=0.5",
    "pcie-replays:rate=600,gpu=1",
    "telemetry-lost:gpu=1",
    "nvml-hang",
)
"""One on each node; the node after them is healthy until its exporter is stopped."""
WATCHED_SECONDS = 75
EVENTS = {"KernelcastGpuXid", "KernelcastGpuXidApplication"}
"""Alerts about single events, which end by themselves; the other faults go on, so none of their alerts may end."""
SERVICES = (
    {"predictor": "KernelcastPredictorDown", "exporter": "KernelcastExporterStale"},
    {"kafka": "KernelcastKafkaUnreachable"},
    {"bridge": "KernelcastBridgeDown"},
)
"""Stopped in turn, and the alerts that say so."""


@dataclass(slots=True)
class Site:
    """A page that Prometheus scrapes, and a receiver that Alertmanager notifies.

    Attributes:
        fleet: The fleet on the page.
        down: Services that are stopped: `bridge`, `predictor`, `exporter`, `kafka`.
        messages: Notifications, in order.
        extra: Further series on the page, and their values.
    """

    fleet: Fleet
    down: set[str] = field(default_factory=set)
    messages: list[dict[str, Any]] = field(default_factory=list)
    extra: Callable[[], Mapping[str, float]] = dict
    page: bytes = b""
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Make the bridge's page once a second, so that no scrape waits for it."""
        while not self.stopping.wait(1.0):
            lines = [*self.fleet.lines(time.time_ns(), tuple(self.down)), *self.extra().items()]
            self.page = "".join(f"{series} {value}\n" for series, value in lines).encode()

    def has_sent(self, subjects: set[tuple[str, str]], since: int) -> bool:
        """Whether a message about each node and alert was sent after some messages."""
        return subjects <= self.sent("firing", since).keys()

    def sent(self, status: str, since: int = 0) -> Counter[tuple[str, str]]:
        """Messages by node and alert in which an alert has a status, after some messages."""
        found: Counter[tuple[str, str]] = Counter()
        for message in self.messages[since:]:
            subjects = {
                (alert["labels"].get("Hostname", ""), alert["labels"]["alertname"])
                for alert in message["alerts"]
                if alert["status"] == status
            }
            found.update(subjects)
        return found


@contextmanager
def serving(site: Site) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            service = "predictor" if self.path == "/predictor" else "bridge"
            self.answer(503, b"") if service in site.down else self.answer(
                200, site.page if service == "bridge" else b"predictor_lives 1\n"
            )

        def do_POST(self) -> None:
            site.messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.answer(200, b"")

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Scrapes are not logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threads = [threading.Thread(target=one, daemon=True) for one in (server.serve_forever, site.run)]
    for thread in threads:
        thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        site.stopping.set()
        server.shutdown()
        server.server_close()
        for thread in threads:
            thread.join(5)


@contextmanager
def watched(directory: Path, site: Site) -> Iterator[PrometheusServer]:
    """Prometheus and Alertmanager that watch a site."""
    for name, text in rules.render(PROFILE).items():
        (directory / name).write_text(text)
    with serving(site) as address:
        receiver = directory / "alertmanager.yaml"
        receiver.write_text(alertmanager.render(f"http://{address}/alerts", PROFILE))
        notifier = AlertmanagerServer(directory, receiver)
        scrapes = [("kernelcast-bridge", "/metrics"), ("kernelcast-predictor", "/predictor")]
        configuration = directory / "prometheus.yaml"
        configuration.write_text(
            yaml.safe_dump(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [rules.CLASSIC_FILE, rules.ALERTS_FILE],
                    "alerting": {"alertmanagers": [{"static_configs": [{"targets": [notifier.address]}]}]},
                    "scrape_configs": [
                        {
                            "job_name": job,
                            "metrics_path": path,
                            "honor_labels": True,
                            "static_configs": [{"targets": [address]}],
                        }
                        for job, path in scrapes
                    ],
                }
            )
        )
        prometheus = PrometheusServer(directory, configuration)
        with stopping(notifier, prometheus):
            notifier.run()
            prometheus.run()
            yield prometheus


def test_ten_faults_send_one_message_each_and_a_healthy_node_none(tmp_path: Path) -> None:
    start_ns = time.time_ns()
    started = tuple(
        f"{text}{',' if ':' in text else ':'}node={node},start={HEALTHY_SECONDS}s" for node, text in enumerate(FAULTS)
    )
    metrics = asked_for(PROFILE) - {"up"}
    site = Site(Fleet(*started, start_ns=start_ns, nodes=len(FAULTS) + 1, step_seconds=1.0, metrics=metrics))
    expected = {(f"sim-node-{node}", by_name()[text.partition(":")[0]].alert): 1 for node, text in enumerate(FAULTS)}
    with watched(tmp_path, site) as prometheus:
        wait_for("the first samples", lambda: prometheus.query("count(kernelcast_gpu_up) > 0"))
        wait_for("each fault's message", lambda: expected.keys() <= site.sent("firing").keys(), WATCHED_SECONDS)
        time.sleep(5)  # consequences come later; all of them are muted
        assert of_nodes(site.sent("firing")) == Counter(expected)

        for services in SERVICES:
            stopped = len(site.messages)
            site.down.update(services)
            subjects = {(site.fleet.hosts[-1] if one == "exporter" else "", alert) for one, alert in services.items()}
            wait_for(f"messages about {services}", partial(site.has_sent, subjects, stopped))
            time.sleep(3)
            assert site.sent("firing", stopped) == Counter(subjects)
            assert {alert for _, alert in of_nodes(site.sent("resolved"))} <= EVENTS


def of_nodes(sent: Counter[tuple[str, str]]) -> Counter[tuple[str, str]]:
    """Messages about a node; a scrape that fails on a busy machine is about none."""
    return Counter({subject: count for subject, count in sent.items() if subject[0]})

"""The predictor without Kafka beside a real Prometheus that scrapes dcgm-exporter's names: findings, jobs, restarts."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.predictor.test_alertmanager_posts import received
from tests.service.require import binary
from tests.service.servers import PrometheusServer, answers, get, stopping, wait_for
from tests.support.ports import free_ports
from tests.support.predictor.dcgm_fleet import DcgmFleet, DcgmPage

from kernelcast.grafana.rules import ALERTS_FILE, CLASSIC_FILE, DEMO, render

pytestmark = pytest.mark.service

SCRAPE_SECONDS = 1
HISTORY_SECONDS = 12 * 3600


class Site:
    """A Prometheus with half a day of eight GPUs, which scrapes them and the predictor, and the command's process."""

    def __init__(self, directory: Path, server: PrometheusServer, port: int) -> None:
        self.directory, self.server, self.port = directory, server, port
        self.url = f"http://127.0.0.1:{port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> None:
        command = [sys.executable, "-m", "kernelcast.cli", "predictor", "--prometheus", self.server.url]
        config = self.directory / "kernelcast.yaml"
        config.write_text(
            "predictor: {sweep_every_seconds: 1.0, interval_seconds: 10.0, prometheus: {delay_seconds: 1}}\n"
        )
        listen = ["--web.listen-address", f"127.0.0.1:{self.port}", "--config", str(config)]
        with (self.directory / "predictor.log").open("ab") as log:
            self.process = subprocess.Popen([*command, *listen, *more], stdout=log, stderr=log, env=dict(os.environ))

    def stop(self) -> int:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        self.process = None
        return code

    def series(self, name: str) -> list[str]:
        try:
            page = get(f"{self.url}/metrics", 5)
        except OSError:
            return []
        return [line for line in page.splitlines() if line.startswith(name)]

    def value(self, name: str, *parts: str) -> float:
        found = [line for line in self.series(name) if all(part in line for part in parts)]
        return float(found[0].rpartition(" ")[2]) if found else float("nan")

    def answered(self, path: str) -> int:
        """Status of the answer to a POST."""
        request = urllib.request.Request(f"{self.url}{path}", data=b"", method="POST")  # noqa: S310  loopback only
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def log(self) -> str:
        return (self.directory / "predictor.log").read_text()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("site")
    now = float(int(time.time()))
    fleet = DcgmFleet(8, now)
    fleet.write_history(binary("promtool", "prometheus"), directory, seconds=HISTORY_SECONDS, step_seconds=30.0)
    for name, text in render(DEMO).items():
        (directory / name).write_text(text)
    page_port, port = free_ports(2)
    configuration = directory / "prometheus.yml"
    target = f"static_configs: [{{targets: ['127.0.0.1:{page_port}'], labels: {{instance: 'dcgm:9400'}}}}]"
    own = f"static_configs: [{{targets: ['127.0.0.1:{port}']}}]"
    configuration.write_text(
        f"global: {{scrape_interval: {SCRAPE_SECONDS}s}}\nrule_files: [{CLASSIC_FILE}, {ALERTS_FILE}]\n"
        "scrape_configs:\n"
        f"- {{job_name: dcgm, {target}}}\n- {{job_name: kernelcast, {own}}}\n"
    )
    with DcgmPage(fleet, page_port):
        server = PrometheusServer(directory, configuration, options=["--storage.tsdb.retention.time=30d"])
        with stopping(server):
            site = Site(directory, server.run(), port)
            wait_for("samples", lambda: "node-0" in get(f"{server.url}/api/v1/query?query=DCGM_FI_DEV_GPU_TEMP"))
            yield site
            if site.process is not None:
                site.stop()


def test_a_limit_that_was_passed_before_the_start_and_one_that_will_be_are_findings_and_survive_a_restart(
    site: Site,
) -> None:
    site.start()
    wait_for("the finding", lambda: site.series("kernelcast_predictor_finding_opened_timestamp_seconds{"), 90)
    alert = "kernelcast_degradation_alert{"
    wait_for("the prediction", lambda: [line for line in site.series(alert) if 'state="predicted"' in line], 90)
    passed = [line for line in site.series(alert) if 'state="passed"' in line]
    assert len(passed) == 1
    assert 'UUID="GPU-00000000"' in passed[0]
    assert 'cause="thermal"' in passed[0]
    # The history shows since when: half an hour before the start, to a block of five minutes.
    wait_for("two days", lambda: site.value('kernelcast_predictor_prometheus_refilled_ratio{part="days"}') == 1, 60)
    crossed = site.value("kernelcast_degradation_crossed_timestamp_seconds")
    assert time.time() - 2400 < crossed < time.time() - 1200
    opened = sorted(site.series("kernelcast_predictor_finding_opened_timestamp_seconds{"))
    series = site.value("kernelcast_predictor_series ")
    # One GPU is over its limit, another will be in hours: two findings, of which neither speaks for the other.
    findings = json.loads(get(f"{site.url}/api/v1/findings"))["findings"]
    assert sorted((one["state"], one["scope"]) for one in findings) == [("passed", "gpu"), ("predicted", "gpu")]
    finding = next(one for one in findings if one["state"] == "passed")
    assert site.answered(f"/api/v1/findings/mark?id={finding['finding_id']}&verdict=repaired&by=ann") == 200
    assert site.answered(f"/api/v1/findings/mark?id={finding['finding_id']}&verdict=perhaps") == 400
    assert site.answered("/api/v1/findings/mark?id=0&verdict=repaired") == 404
    wait_for("the mark", lambda: site.series("kernelcast_predictor_finding_mark_timestamp_seconds{"), 30)
    time.sleep(3 * SCRAPE_SECONDS)  # Prometheus scrapes the findings

    assert site.stop() == 0
    assert "predictor stopped" in site.log()
    site.start()
    wait_for("findings again", lambda: site.series("kernelcast_predictor_finding_opened_timestamp_seconds{"), 90)
    assert sorted(site.series("kernelcast_predictor_finding_opened_timestamp_seconds{")) == opened
    assert "findings read back" in site.log()
    assert site.value("kernelcast_predictor_series ") == series
    assert site.value("kernelcast_predictor_pages_total") == 0
    assert site.value('kernelcast_predictor_finding_marks{verdict="repaired"}') == 1
    assert site.stop() == 0


def test_a_predictor_that_posts_findings_ends_what_the_rules_hold_and_posts_the_same_labels(site: Site) -> None:
    name = "KernelcastLimitPassed"

    def firing() -> list[dict[str, str]]:
        alerts = json.loads(get(f"{site.server.url}/api/v1/alerts"))["data"]["alerts"]
        return [one["labels"] for one in alerts if one["labels"]["alertname"] == name and one["state"] == "firing"]

    site.start()
    wait_for("the finding", lambda: site.series("kernelcast_predictor_finding_opened_timestamp_seconds{"), 90)
    wait_for("the rule's alert", firing, 120)
    (of_the_rule,) = firing()
    assert site.stop() == 0
    time.sleep(8)  # five minutes in production: the rule holds its alert as last known
    assert firing() == [of_the_rule]

    with received() as alertmanager:
        site.start("--alertmanager", alertmanager.url)
        wait_for("the post", lambda: alertmanager.posts, 120)
        wait_for("the end of the rule's alert", lambda: not firing(), 60)
        posted = [one["labels"] for _, _, alerts in alertmanager.posts for one in alerts]
        assert site.stop() == 0
    assert of_the_rule in posted


def test_a_restarted_prometheus_costs_no_interval_that_it_has(site: Site) -> None:
    site.start()
    wait_for("readiness", lambda: answers(f"{site.url}/-/ready"), 90)
    read = site.value("kernelcast_predictor_prometheus_read_timestamp_seconds")
    site.server.stop()
    time.sleep(12)
    site.server.run()
    wait_for(
        "newer intervals",
        lambda: site.value("kernelcast_predictor_prometheus_read_timestamp_seconds") > read + 20,
        90,
    )
    assert site.value('kernelcast_predictor_prometheus_queries_total{outcome="unreachable"}') > 0
    assert site.value('kernelcast_predictor_prometheus_missed_intervals_total{reason="outage"}') == 0
    assert site.stop() == 0


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("{server}/graph", 'is no Prometheus: it answered status 404 and "404 page not found"'),
        ("prometheus:9090", "write it as http://HOST:PORT"),
    ],
)
def test_a_wrong_address_is_said_with_its_remedy(site: Site, url: str, says: str) -> None:
    command = [sys.executable, "-m", "kernelcast.cli", "predictor", "--web.listen-address", "127.0.0.1:0"]
    given = [*command, "--prometheus", url.format(server=site.server.url)]
    ended = subprocess.run(given, check=False, capture_output=True, text=True, timeout=60)
    assert ended.returncode in {1, 2}
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr

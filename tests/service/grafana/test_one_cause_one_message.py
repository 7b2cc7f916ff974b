"""One cause is one message, and its end is one: Prometheus and Alertmanager, with durations divided by 20."""

import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.service.grafana.test_faults_in_real_time import PROFILE, Site, watched
from tests.service.servers import wait_for
from tests.support.exporter.simulated_series import Fleet, asked_for

pytestmark = [pytest.mark.service, pytest.mark.nightly]

LATER_SECONDS = 8
"""Longer than consequences need to follow, and than Alertmanager waits to send them."""


def site(*faults: str) -> Site:
    metrics = asked_for(PROFILE) - {"up"}
    return Site(Fleet(*faults, start_ns=time.time_ns(), nodes=2, step_seconds=1.0, metrics=metrics))


def messages(watched_site: Site) -> list[tuple[str, str, str]]:
    """Status, node and alert of what was sent: one for each message and alert in it."""
    return sorted(
        (status, node, alert)
        for status in ("firing", "resolved")
        for (node, alert), count in watched_site.sent(status).items()
        for _ in range(count)
    )


def once(node: str, alert: str) -> list[tuple[str, str, str]]:
    return [("firing", node, alert), ("resolved", node, alert)]


def test_a_fan_that_fails_and_is_replaced_is_one_message_for_all_gpus_of_the_node(tmp_path: Path) -> None:
    hot = site("thermal-drift:node=0,gpu=all,rate=240,start=8s,length=90s")
    with watched(tmp_path, hot):
        wait_for("the end", lambda: hot.sent("resolved"), 400)
        time.sleep(LATER_SECONDS)
        assert messages(hot) == once("sim-node-0", "KernelcastGpuThrottling")


def test_an_exporter_that_is_replaced_is_silence_and_a_node_that_is_away_is_one_message(tmp_path: Path) -> None:
    fleet = site()
    fleet.extra = Job(fleet)
    with watched(tmp_path, fleet) as prometheus:
        wait_for("the first samples", lambda: prometheus.query("count(kernelcast_gpu_up) > 0"))
        time.sleep(LATER_SECONDS)
        for _ in range(2):  # a minute each, in production
            fleet.down.add("exporter")
            time.sleep(3)
            fleet.down.clear()
            time.sleep(LATER_SECONDS)
        assert not messages(fleet)
        fleet.down.add("exporter")
        wait_for("the message", lambda: fleet.sent("firing"), 120)
        time.sleep(2 * LATER_SECONDS)
        fleet.down.clear()
        wait_for("the end", lambda: fleet.sent("resolved"), 400)
        time.sleep(LATER_SECONDS)
        assert messages(fleet) == once("sim-node-1", "KernelcastExporterStale")


@dataclass
class Job:
    """A job with ranks on both nodes; those that are left stand still while one node is away."""

    site: Site

    def __call__(self) -> dict[str, float]:
        away = bool(self.site.down)
        ranks = {0: ("sim-node-0", 0), 1: ("sim-node-0", 1), 2: ("sim-node-1", 0)}
        return {
            f'kernelcast_program_standing_still_seconds{{Hostname="{node}",gpu="{gpu}",program="train",rank="{rank}",'
            f'job_id="7",state="backward",job="kernelcast-exporter",instance="{node}"}}': 70.0 * away
            for rank, (node, gpu) in ranks.items()
            if not (away and node == "sim-node-1")
        }


def test_an_outage_of_kafka_is_one_message_with_late_and_lost_messages_and_spools_that_are_full(tmp_path: Path) -> None:
    fleet = site()
    fleet.extra = Pipeline(fleet)
    with watched(tmp_path, fleet) as prometheus:
        wait_for("the first samples", lambda: prometheus.query("count(kernelcast_gpu_up) > 0"))
        time.sleep(LATER_SECONDS)
        fleet.down.add("kafka")
        wait_for("the message", lambda: fleet.sent("firing"), 120)
        spools = 'ALERTS{alertname="KernelcastSpoolDropping", alertstate="firing"}'
        wait_for("full spools", lambda: prometheus.query(spools), 120)
        time.sleep(2 * LATER_SECONDS)
        fleet.down.clear()
        wait_for("the end", lambda: fleet.sent("resolved"), 400)
        time.sleep(LATER_SECONDS)
        assert prometheus.query("max_over_time(pipeline:late_messages:ratio5m[10m]) > 0.5")
        assert messages(fleet) == once("", "KernelcastKafkaUnreachable")


@dataclass
class Pipeline:
    """Counters of the pipeline: in an outage messages fail, and full spools drop the oldest; then many are late."""

    site: Site
    away_seconds: int = 0
    late: float = 0.0

    def __post_init__(self) -> None:
        self.counts = Counter[str]()

    def __call__(self) -> dict[str, float]:
        away = "kafka" in self.site.down
        self.away_seconds = self.away_seconds + 1 if away else 0
        self.late = self.late + 1 if away else max(0.0, self.late - 2)  # a spool is sent twice as fast as it filled
        fresh = 0 if away or self.late else 10
        arrived = 0 if away else 30 if self.late else 10
        bridge = 'job="kernelcast-bridge",instance="b:1",topic="kernelcast.device"'
        own = 'job="kernelcast-exporter",instance="sim-node-0:9400",topic="kernelcast.device"'
        self.counts.update(
            {
                f'kernelcast_bridge_event_to_store_seconds_bucket{{{bridge},le="30.0"}}': fresh,
                f"kernelcast_bridge_event_to_store_seconds_count{{{bridge}}}": arrived,
                f'kernelcast_producer_messages_total{{{own},outcome="acknowledged"}}': arrived,
                f'kernelcast_producer_messages_total{{{own},outcome="failed"}}': 10 * away,
                f'kernelcast_exporter_spool_dropped_total{{{own},reason="bound"}}': 10 * (self.away_seconds > 20),
            }
        )
        return {series: float(count) for series, count in self.counts.items()}

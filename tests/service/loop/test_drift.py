"""A simulated thermal drift: forecast, rule, alert, webhook, event on Kafka."""

import time
from pathlib import Path
from typing import Any

import pytest
from tests.service.conftest import Broker
from tests.service.servers import wait_for
from tests.service.stack import KERNELCAST, Stack
from tests.support.service.programs import topics

from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.events import Alert, alert_from
from kernelcast.wire.topics import ALERTS

pytestmark = pytest.mark.service

PREDICTED = "KernelcastDegradationPredicted"
IMMINENT = "KernelcastBreachImminent"
"""The second inhibits the first at Alertmanager once the breach is near; either one may arrive."""


def alerts_on_kafka(bootstrap_servers: str, seconds: float) -> list[Alert]:
    """Alerts that stand on the topic by then."""
    consumer = Consumer(KafkaSettings(bootstrap_servers=bootstrap_servers), group_id="test-alerts")
    partitions = consumer.partitions(ALERTS.name)
    for partition in partitions:
        partition.offset = 0
    consumer.assign(partitions)
    found: list[Alert] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not any(_is_ours(alert) for alert in found):
        messages, _ = consumer.consume(100, 0.5)
        found += [alert_from(decode_event(message.value() or b"")) for message in messages]
    consumer.close()
    return found


def _is_ours(alert: Alert) -> bool:
    return alert.labels.get("alertname") in (PREDICTED, IMMINENT) and alert.status == "firing"


def firing(alerts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of Prometheus' alerts, ours that fire."""
    return [each for each in alerts if each["labels"]["alertname"] == PREDICTED and each["state"] == "firing"]


def test_a_thermal_drift_is_forecast_announced_and_recorded(kafka: Broker, tmp_path: Path) -> None:
    topics(kafka)
    with Stack(tmp_path, kafka.bootstrap_servers) as stack:
        for name in ("bridge", "predictor"):
            stack.service(name)
        alertmanager = stack.alertmanager()
        prometheus = stack.prometheus(alertmanager=alertmanager.address)
        stack.background(
            "simulate", *KERNELCAST, "simulate", "--kafka.bootstrap-servers", kafka.bootstrap_servers,
            "--nodes", "1", "--gpus", "2", "--seed", "7", "--fault", "thermal-drift:node=0,gpu=1,start=5s,rate=12",
        )  # fmt: skip
        wait_for(
            "a forecast of the drifting GPU",
            lambda: stack.exposed("kernelcast_forecast_value", metric="DCGM_FI_DEV_GPU_TEMP", gpu="1"),
            180,
        )
        alerts = wait_for("a firing rule", lambda: firing(prometheus.api("alerts")["alerts"]))
        assert {alert["labels"]["gpu"] for alert in alerts} == {"1"}, "only the drifting GPU is announced"
        assert {alert["labels"]["cause"] for alert in alerts} == {"thermal"}
        recorded = [alert for alert in alerts_on_kafka(kafka.bootstrap_servers, 60) if _is_ours(alert)]
        assert recorded, "no alert on kernelcast.alerts"
        assert recorded[0].labels["gpu"] == "1"
        assert recorded[0].labels["cause"] == "thermal"
        assert recorded[0].annotations["summary"]

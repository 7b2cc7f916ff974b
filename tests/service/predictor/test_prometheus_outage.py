"""A Prometheus that fails while the predictor without Kafka reads it: log, readiness, and going on."""

import time
import urllib.error
from threading import Thread
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.service.predictor.test_prometheus import Answer, double, success
from tests.service.servers import get, wait_for

from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.without_kafka import service
from kernelcast.runtime.lifecycle import Shutdown

pytestmark = pytest.mark.service

LABELS = {"__name__": "DCGM_FI_DEV_GPU_TEMP", "Hostname": "n1", "UUID": "GPU-0", "gpu": "0"}


class Prometheus:
    """Has one series; answers with status 503 while it is away."""

    away = False

    def answer(self, _path: str, form: dict[str, list[str]]) -> Answer:
        if self.away:
            return 503, b"Service Unavailable"
        if "end" not in form:
            return success({"resultType": "vector", "result": []})
        values = [[float(form["end"][0]), "60"]]
        return success({"resultType": "matrix", "result": [{"metric": LABELS, "values": values}]})


def ready(predictor: service.PrometheusPredictor) -> str:
    """What `/-/ready` says; empty while the predictor is ready."""
    try:
        get(f"http://{predictor.web.address}/-/ready", 5)
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()
    return ""


def test_an_outage_has_one_line_at_its_begin_and_one_at_its_end_and_is_not_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service, "AGAIN_SECONDS", 0.2)
    prometheus, shutdown = Prometheus(), Shutdown()
    with double(prometheus.answer) as url, capture_logs() as lines:
        given: dict[str, Any] = {
            "interval_seconds": 1.0,
            "web": {"listen_address": "127.0.0.1:0"},
            "deep": {"enabled": False},
            "prometheus": {"without_kafka": True, "url": url, "delay_seconds": 0},
        }
        predictor = service.PrometheusPredictor(PredictorSettings.model_validate(given))
        thread = Thread(target=predictor.run, args=(shutdown,))
        thread.start()
        try:
            wait_for("readiness", lambda: predictor.web.address and not ready(predictor), 60)
            prometheus.away = True
            wait_for("the outage", lambda: "Service Unavailable" in ready(predictor), 20)
            time.sleep(1.5)  # several failed queries
            prometheus.away = False
            wait_for("readiness again", lambda: not ready(predictor), 20)
        finally:
            shutdown.request()
            thread.join(30)
    assert not thread.is_alive()
    of_reading = [line for line in lines if "Prometheus" in line["event"] and "interval" in line["event"]]
    assert [line["event"] for line in of_reading] == [
        "intervals not read from Prometheus",
        "intervals read again from Prometheus",
    ]
    assert of_reading[1]["after_seconds"] >= 1

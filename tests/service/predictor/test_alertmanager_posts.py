"""Findings that are posted to Alertmanager's API v2, received by a server on loopback."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry
from tests.support.predictor.finding_candidates import Run, candidate

from kernelcast.predictor.access import HttpAccess
from kernelcast.predictor.without_kafka.alertmanager import AlertSender, name_and_severity, summary
from kernelcast.predictor.without_kafka.remembered import REMEMBERED_SECONDS
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import FindingState, Severity

pytestmark = pytest.mark.service

NOW = 1_800_000_000.0


class Alertmanager:
    """Keeps what is posted to it; refuses with a status while it has one."""

    def __init__(self) -> None:
        self.posts: list[tuple[str, dict[str, str], list[dict[str, Any]]]] = []
        self.status = 200
        received = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
                received.posts.append((self.path, dict(self.headers), body))
                self.send_response(received.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextmanager
def received() -> Iterator[Alertmanager]:
    """An Alertmanager on loopback that keeps what is posted."""
    receiver = Alertmanager()
    thread = threading.Thread(target=receiver.server.serve_forever, daemon=True)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()
    thread.join()


@pytest.fixture
def alertmanager() -> Iterator[Alertmanager]:
    with received() as receiver:
        yield receiver


def lasting() -> Any:
    labels = (("Hostname", "n1"), ("UUID", "GPU-1"), ("gpu", "1"), ("modelName", "H100"))
    return replace(candidate(), labels=labels, state=FindingState.PASSED, value=93.0, limit=87.0)


def test_a_finding_is_posted_in_each_cycle_and_once_with_its_end(alertmanager: Alertmanager) -> None:
    sender = AlertSender(alertmanager.url, HttpAccess(tenant="a"), CollectorRegistry())
    for _ in range(2):
        sender.post([lasting()], {("GPU-1", ""): {"pod": "job-7"}}, NOW)
    sender.post([], {}, NOW + 60)
    sender.post([], {}, NOW + 90)
    assert [path for path, _, _ in alertmanager.posts] == ["/api/v2/alerts"] * 3
    assert alertmanager.posts[0][1]["X-Scope-Orgid"] == "a"
    first, _, last = (alerts[0] for _, _, alerts in alertmanager.posts)
    assert first["labels"] == last["labels"]
    of_the_rule = {"Hostname", "UUID", "gpu", "metric", "cause", "alertname", "severity"}
    assert set(first["labels"]) == of_the_rule
    assert first["annotations"]["action"].startswith("Check fans")
    assert (first["labels"]["gpu"], first["labels"]["alertname"]) == ("1", "KernelcastLimitPassed")
    assert first["annotations"]["pod"] == "job-7"
    lasts = datetime.fromisoformat(first["endsAt"]).timestamp() - NOW
    assert lasts == REMEMBERED_SECONDS  # a predictor that is stopped sends no all-clear while another may go on
    assert last["endsAt"].startswith("2027-01-15T08:01:00")


def test_two_replicas_post_equal_labels(alertmanager: Alertmanager) -> None:
    for finding_id in ("a1", "b2"):
        sender = AlertSender(alertmanager.url, HttpAccess(), CollectorRegistry())
        sender.post([replace(lasting(), finding_id=finding_id)], {}, NOW)
    one, other = (alerts[0]["labels"] for _, _, alerts in alertmanager.posts)
    assert one == other


def test_a_page_beyond_the_budget_is_not_posted(alertmanager: Alertmanager) -> None:
    sender = AlertSender(alertmanager.url, HttpAccess(), CollectorRegistry())
    sender.post([replace(lasting(), held=True)], {}, NOW)
    assert not alertmanager.posts


def test_an_end_that_was_not_taken_is_posted_again_and_failures_are_counted(alertmanager: Alertmanager) -> None:
    registry = CollectorRegistry()
    sender = AlertSender(alertmanager.url, HttpAccess(), registry)
    sender.post([lasting()], {}, NOW)
    alertmanager.status = 503
    sender.post([], {}, NOW + 30)
    alertmanager.status = 200
    sender.post([], {}, NOW + 60)
    assert len(alertmanager.posts) == 3
    name = "kernelcast_predictor_alerts_posted_total"
    assert registry.get_sample_value(name, {"outcome": "failed"}) == 1
    assert registry.get_sample_value(name, {"outcome": "sent"}) == 2


def test_a_token_is_read_for_each_request(alertmanager: Alertmanager, tmp_path: Path) -> None:
    token = tmp_path / "token"
    sender = AlertSender(alertmanager.url, HttpAccess(bearer_token_file=token), CollectorRegistry())
    sender.post([lasting()], {}, NOW)
    assert not alertmanager.posts
    token.write_text("first\n")
    sender.post([lasting()], {}, NOW)
    token.write_text("second\n")
    sender.post([lasting()], {}, NOW)
    assert [headers["Authorization"] for _, headers, _ in alertmanager.posts] == ["Bearer first", "Bearer second"]


def test_the_summary_says_where_how_much_and_for_how_long() -> None:
    finding = replace(lasting(), passed_ns=round((NOW - 17 * 60) * 1e9))
    assert summary(finding, NOW) == "GPU 1 of n1 is 93 °C, limit 87 °C, for 17 min: fan or airflow"
    predicted = replace(
        finding,
        state=FindingState.PREDICTED,
        seconds_to_limit=(600.0, 9060.0, None),
        metric="DCGM_FI_DEV_FB_USED",
        cause=Cause.MEMORY_LEAK,
        value=67491.6,
        limit=78101.5,
    )
    text = summary(predicted, NOW)
    assert text == "GPU 1 of n1 uses 67492 MiB, limit 78102 MiB, reached in about 2.5 h: memory grows"
    wide = summary(replace(predicted, seconds_to_limit=(8640.0, 43200.0, 77760.0)), NOW)
    assert wide == "GPU 1 of n1 uses 67492 MiB, limit 78102 MiB, reached within 21.6 h: memory grows"
    due = summary(replace(predicted, seconds_to_limit=(0.0, 20.0, 90.0)), NOW)
    assert due == "GPU 1 of n1 uses 67492 MiB, limit 78102 MiB, reached any minute: memory grows"
    slower = replace(
        finding,
        metric="cuda_kernel_duration_seconds",
        labels=(("Hostname", "n1"), ("gpu", "1"), ("kernel", "gemm"), ("program", "train")),
        value=0.0123,
        limit=0.01,
    )
    assert summary(slower, NOW).startswith(
        "Kernel gemm of train on GPU 1 of n1 takes 12.30 ms, limit 10.00 ms, for 17 min"
    )
    run = Run()
    (node,) = run.step(candidate(1), candidate(3, passed_ns=run.now_ns - 120 * 10**9, value=90.0))
    assert summary(node, run.now_ns / 1e9).startswith("Node r1-n1 (GPU 3) is 90 °C, limit 87 °C, for 7 min: ")


@pytest.mark.parametrize(
    ("changed", "name", "severity"),
    [
        ({}, "KernelcastLimitPassed", "critical"),
        ({"severity": Severity.TICKET}, "KernelcastTicketOpen", "info"),
        ({"state": FindingState.OBSERVED}, "KernelcastFaultObserved", "warning"),
        ({"metric": "cuda_kernel_duration_seconds"}, "KernelcastWorkSlower", "warning"),
        (
            {"state": FindingState.PREDICTED, "seconds_to_limit": (1.0, 2.0, 3000.0)},
            "KernelcastBreachImminent",
            "critical",
        ),
        (
            {"state": FindingState.PREDICTED, "seconds_to_limit": (1.0, 2.0, None)},
            "KernelcastDegradationPredicted",
            "warning",
        ),
    ],
)
def test_an_alert_has_name_and_severity_of_the_rule_that_would_fire(
    changed: dict[str, Any], name: str, severity: str
) -> None:
    assert name_and_severity(replace(lasting(), **changed)) == (name, severity)

"""Findings that are posted to Alertmanager's API v2, received by a server on loopback."""

import http.server
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from prometheus_client import CollectorRegistry
from tests.support.predictor.finding_candidates import Run, candidate

from kernelcast.predictor.access import HttpAccess
from kernelcast.predictor.without_kafka.alertmanager import AlertSender, name_and_severity, summary
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


@pytest.fixture
def alertmanager() -> Iterator[Alertmanager]:
    receiver = Alertmanager()
    thread = threading.Thread(target=receiver.server.serve_forever, daemon=True)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    receiver.server.server_close()
    thread.join()


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
    assert "finding_id" not in first["labels"]
    assert (first["labels"]["gpu"], first["labels"]["alertname"]) == ("1", "KernelcastLimitPassed")
    assert first["annotations"]["pod"] == "job-7"
    assert first["endsAt"] > first["startsAt"]
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
    finding = replace(lasting(), began_ns=round((NOW - 17 * 60) * 1e9))
    text = summary(finding, NOW)
    assert text.startswith("GPU 1 of n1: ")
    assert "is 93, limit 87, for 17 min; cause " in text
    run = Run()
    (node,) = run.step(candidate(1), candidate(3, passed_ns=run.now_ns - 120 * 10**9, value=90.0))
    text = summary(node, run.now_ns / 1e9)
    assert text.startswith("r1-n1 (GPU 3): DCGM_FI_DEV_GPU_TEMP is 90, limit 87, for 7 min; ")
    predicted = replace(finding, state=FindingState.PREDICTED, seconds_to_limit=(600.0, 1800.0, None))
    assert "reached in 30 min (median)" in summary(predicted, NOW)


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

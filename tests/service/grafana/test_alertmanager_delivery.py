"""A real Alertmanager mutes declared consequences, and sends each severity to its receiver with texts for people."""

import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.service.servers import AlertmanagerServer, get, stopping, wait_for
from tests.unit.grafana.rules.test_inhibitions import labels_of as matched

from kernelcast.grafana import people, rules
from kernelcast.grafana.consequences import Consequences, declared

pytestmark = pytest.mark.service

TEXTS = {
    "summary": "GPU 0 runs at reduced clocks",
    "description": "d",
    "action": "compare temperatures",
    "dashboard_url": "http://grafana/d/kernelcast-gpus",
    "runbook_url": "http://wiki/runbooks#kernelcastgputhrottling",
}


@dataclass
class Receiver:
    """An HTTP server that keeps the messages of Alertmanager, by path."""

    messages: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        messages = self.messages

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                messages.setdefault(self.path, []).append(text)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *_: Any) -> None:
                """Keep the output of the tests short."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def alertmanager(receiver: Receiver, tmp_path: Path) -> Iterator[AlertmanagerServer]:
    """The example for people with the waits of the demo, its addresses replaced by the receiver's."""
    text = people.render(f"{receiver.url}/bridge", rules.DEMO)
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "slack-url").write_text(f"{receiver.url}/slack")
    (secrets / "smtp-password").write_text("none")
    (secrets / "pagerduty-routing-key").write_text("none")
    for example, here in (
        ("/etc/alertmanager/secrets", str(secrets)),
        ("mail.example:587", "127.0.0.1:1"),
        ("https://heartbeat.example/kernelcast", f"{receiver.url}/heartbeat"),
        ("smtp_smarthost", f"pagerduty_url: {receiver.url}/pagerduty\n  smtp_smarthost"),
    ):
        assert example in text
        text = text.replace(example, here)
    (tmp_path / people.TEMPLATE_FILE).write_text(people.TEMPLATE)
    configuration = tmp_path / "people.yaml"
    configuration.write_text(text)
    server = AlertmanagerServer(tmp_path, configuration)
    with stopping(server):
        server.run()
        yield server


def post(server: AlertmanagerServer, *alerts: dict[str, str], ended: bool = False) -> None:
    end = {"endsAt": datetime.now(UTC).isoformat()} if ended else {}
    body = json.dumps([{"labels": labels, "annotations": TEXTS, **end} for labels in alerts]).encode()
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{server.url}/api/v2/alerts", body, kind)  # noqa: S310  loopback only
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        assert answer.status == 200


def inhibited(server: AlertmanagerServer) -> list[dict[str, str]]:
    alerts = json.loads(get(f"{server.url}/api/v2/alerts"))
    return [one["labels"] for one in alerts if one["status"]["inhibitedBy"]]


def labels_of(one: Consequences, name: str, place: int) -> dict[str, str]:
    subject = {label: f"{place}-{label}" for label in one.subject}
    return {"alertname": name, "severity": "none", **subject}


def test_every_declared_consequence_is_muted_by_a_real_alertmanager(alertmanager: AlertmanagerServer) -> None:
    rows = [one for one in declared(rules.PRODUCTION) if one.subject]
    causes = [labels_of(one, one.cause, place) | matched(one.matcher) for place, one in enumerate(rows)]
    silenced = [
        labels_of(one, name, place) | matched(one.about) for place, one in enumerate(rows) for name in one.silenced
    ]
    elsewhere = {"alertname": "KernelcastGpuThrottling", "severity": "none", "Hostname": "another", "gpu": "0"}
    post(alertmanager, *causes)
    post(alertmanager, *silenced, elsewhere)
    wait_for(
        "all consequences muted",
        lambda: all(labels in inhibited(alertmanager) for labels in silenced),
    )
    assert elsewhere not in inhibited(alertmanager)


def test_one_cause_is_one_message_with_what_to_do_and_where_to_look(
    alertmanager: AlertmanagerServer, receiver: Receiver
) -> None:
    dead = {"alertname": "KernelcastGpuDown", "severity": "critical", "Hostname": "n1", "gpu": "0"}
    follows = {"alertname": "KernelcastGpuThrottling", "severity": "warning", "Hostname": "n1", "gpu": "0"}
    other = {"alertname": "KernelcastGpuThrottling", "severity": "warning", "Hostname": "n2", "gpu": "0"}
    heartbeat = {"alertname": "Watchdog", "severity": "none"}
    post(alertmanager, dead, heartbeat)
    post(alertmanager, follows, other)
    wait_for("both messages on Slack", lambda: len(receiver.messages.get("/slack", ())) >= 2)
    wait_for("the page", lambda: receiver.messages.get("/pagerduty"))
    wait_for("the heartbeat", lambda: receiver.messages.get("/heartbeat"))
    slack = [json.loads(text)["attachments"][0] for text in receiver.messages["/slack"]]
    titles = sorted(one["title"] for one in slack)
    assert titles == [
        "[FIRING 1] critical: KernelcastGpuDown on n1",
        "[FIRING 1] warning: KernelcastGpuThrottling on n2",
    ]
    for one in slack:
        summary, since, *rest = one["text"].strip().splitlines()
        assert (summary, since[:17]) == (TEXTS["summary"], f"Alert since: {datetime.now(UTC):%Y}")
        assert rest == [
            TEXTS["description"],
            f"First: {TEXTS['action']}",
            f"Page: {TEXTS['dashboard_url']}",
            f"Runbook: {TEXTS['runbook_url']}",
        ]
    (page,) = receiver.messages["/pagerduty"]
    assert "KernelcastGpuDown on n1" in page
    assert TEXTS["runbook_url"] in page
    assert all("Watchdog" not in text for text in receiver.messages["/slack"])
    wait_for("the bridge's copy of both", lambda: len(receiver.messages.get("/bridge", ())) >= 2)
    sent = [alert["labels"] for text in receiver.messages["/bridge"] for alert in json.loads(text)["alerts"]]
    assert {one["alertname"] for one in sent} == {"KernelcastGpuDown", "KernelcastGpuThrottling"}


def test_kernels_of_a_gpu_that_begin_and_end_a_second_apart_are_one_message_each_time(
    alertmanager: AlertmanagerServer, receiver: Receiver
) -> None:
    one = {"alertname": "KernelcastKernelSlower", "severity": "warning", "Hostname": "n", "program": "p", "gpu": "1"}
    kernels = [{**one, "kernel": kernel} for kernel in ("gemm", "copy")]
    for ended, messages in ((False, 1), (True, 2)):
        for kernel in kernels:
            post(alertmanager, kernel, ended=ended)
            time.sleep(rules.DEMO.evaluation_seconds)
        wait_for("the message", partial(reached, receiver, messages))
    sent = [[alert["status"] for alert in json.loads(text)["alerts"]] for text in receiver.messages["/bridge"]]
    assert sent == [["firing", "firing"], ["resolved", "resolved"]]


def reached(receiver: Receiver, messages: int) -> bool:
    return len(receiver.messages.get("/bridge", ())) >= messages

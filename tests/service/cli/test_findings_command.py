"""`kernelcast findings` against the broker inside the process."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.support.ports import free_ports
from tests.support.wire.findings import FINDING, HOUR_NS

from kernelcast.cli.app import run
from kernelcast.runtime.kafka import admin
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.events import to_event
from kernelcast.wire.findings import Finding, FindingState, Scope, Severity
from kernelcast.wire.topics import FINDINGS

NOW_NS = time.time_ns()
LASTING = replace(FINDING, finding_id="lasting", ended_ns=0, held=False, updated_ns=NOW_NS, end_reason=None)
TICKET = Finding(
    "ticket",
    Cause.DEPLOY,
    FindingState.OBSERVED,
    Severity.TICKET,
    Scope.PROGRAM,
    (("program", "train"),),
    "seconds",
    updated_ns=NOW_NS,
)
ABANDONED = replace(LASTING, finding_id="abandoned", updated_ns=NOW_NS - 30 * HOUR_NS)
PAST = replace(FINDING, finding_id="past", state=FindingState.OVER)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with EmbeddedBroker(topics=[FINDINGS.name]) as broker:
        producer = Producer(KafkaSettings(bootstrap_servers=broker.bootstrap_servers), client_id="test")
        for one in (PAST, TICKET, ABANDONED, replace(LASTING, updated_ns=HOUR_NS, value=80.0), LASTING):
            event = to_event(one, source="/test", time_ns=1)
            producer.send(FINDINGS.name, key=one.finding_id.encode(), value=encode_event(event))
        producer.send(FINDINGS.name, key=b"?", value=b"no event")
        producer.close(5.0)
        yield broker.bootstrap_servers


def findings(servers: str, *arguments: str) -> int:
    return run(["findings", *arguments, "--kafka.bootstrap-servers", servers])


def test_list_shows_lasting_findings_with_pages_first(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert findings(servers, "list") == 0
    shown = capsys.readouterr()
    rows = [line.split("\t") for line in shown.out.splitlines()]
    assert [row[0] for row in rows] == ["id", "lasting", "ticket"]
    place = "Hostname=node1 gpu=3"
    assert rows[1][1:8] == ["page", "predicted", "thermal", place, "2 series", "81 of 87", "1970-01-01T01:00Z"]
    assert "1 messages on kernelcast.findings are neither findings nor marks" in shown.err


def test_a_mark_is_written_and_shown(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert findings(servers, "mark", "pas", "false-alarm", "--by", "ana", "--note", "fan") == 0
    assert capsys.readouterr().out == "past is marked false-alarm\n"
    assert findings(servers, "list", "--all", "--json") == 0
    found = {one["finding_id"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
    assert set(found) == {"lasting", "ticket", "past", "abandoned"}
    assert found["past"]["mark"]["verdict"] == "false-alarm"
    assert (found["past"]["mark"]["by"], found["past"]["mark"]["note"]) == ("ana", "fan")
    assert found["past"]["labels"] == {"Hostname": "node1", "UUID": "GPU-1", "gpu": "3"}
    assert found["lasting"]["mark"] is None


def test_only_a_deploy_is_accepted(servers: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert findings(servers, "mark", "lasting", "accepted") == 2
    assert "only slower kernels after a deploy can be accepted" in capsys.readouterr().err
    assert findings(servers, "mark", "ticket", "accepted", "--by", "ana") == 0
    assert findings(servers, "list", "--all") == 0
    rows = {row[0]: row for row in (line.split("\t") for line in capsys.readouterr().out.splitlines()) if len(row) > 1}
    assert (rows["ticket"][8], rows["past"][2]) == ("accepted ana", "over, cleared")


@pytest.mark.parametrize(
    ("wanted", "message"), [("nothing", "has 4 findings, none with the id 'nothing'"), ("", "none with the id ''")]
)
def test_a_mark_of_an_unknown_finding_is_refused(
    servers: str, capsys: pytest.CaptureFixture[str], wanted: str, message: str
) -> None:
    assert findings(servers, "mark", wanted, "repaired") == 2
    assert message in capsys.readouterr().err


def test_a_missing_topic_is_an_error_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, servers: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kernelcast.cli.findings.Consumer.partitions", lambda _self, _topic: [])
    assert findings(servers, "list") == 1
    assert "create it with `kernelcast topics apply`" in capsys.readouterr().err


def test_an_unreachable_kafka_is_named_in_one_line_with_the_remedy(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "REQUEST_TIMEOUT_SECONDS", 2.0)
    (port,) = free_ports(1)
    assert findings(f"127.0.0.1:{port}", "list") == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"127.0.0.1:{port}" in line
    assert "start Kafka, or correct the port in kafka.bootstrap_servers; a predictor without Kafka" in line
    assert line.endswith("/api/v1/findings")

"""Findings through a broker to a person, and the answer back."""

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry
from tests.support.predictor.finding_candidates import HOUR, START_NS, predicted

from kernelcast.cli.app import run as command
from kernelcast.predictor.alarms.finding_log import FindingLog
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.findings import Verdict, mark_key
from kernelcast.wire.topics import FINDINGS

CYCLE_NS = 300 * 10**9


pytestmark = pytest.mark.service


@pytest.fixture
def kafka() -> Iterator[KafkaSettings]:
    with EmbeddedBroker(topics=[FINDINGS.name]) as broker:
        yield KafkaSettings(bootstrap_servers=broker.bootstrap_servers)


def test_a_finding_goes_through_kafka_to_a_person_and_the_answer_comes_back(
    kafka: KafkaSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    producer = Producer(kafka, client_id="p1")
    reader = Consumer(kafka, group_id="test-reader")
    findings = FindingLog(AlarmSettings(), producer, reader, client_id="p1", registry=CollectorRegistry())
    for number in range(round(4 * HOUR / 300)):
        findings.cycle([predicted()], watched=10, time_ns=START_NS + number * CYCLE_NS)
    producer.flush(10.0)
    (lasting,) = findings.alarms.lasting
    servers = ["--kafka.bootstrap-servers", kafka.bootstrap_servers]
    assert command(["findings", "mark", lasting.finding_id, "false-alarm", "--by", "ana", *servers]) == 0
    assert lasting.finding_id in capsys.readouterr().out
    while not findings.alarms.known.marks:
        findings.poll(0.2)
    assert findings.alarms.known.marks[lasting.finding_id].verdict is Verdict.FALSE_ALARM
    (opened,) = findings.alarms._open.values()
    assert findings.alarms.known.findings[lasting.finding_id] == opened.published
    assert mark_key(lasting.finding_id) == f"mark|{lasting.finding_id}"
    findings.close(5.0)
    producer.close(5.0)

"""A hint that changes results waits for a person, and an alert pauses its trial, through Kafka and the exporter."""

import time
from pathlib import Path

import pytest
from tests.service.conftest import Broker
from tests.service.loop.test_stop import PROGRAM, Training, order, send
from tests.service.stack import Stack
from tests.support.service.programs import topics
from tests.support.waiting import eventually

from kernelcast.probe.tunables import Terms
from kernelcast.probe.tuned.space import SpaceTerms
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.events import Alert, Hint, HintMode, OutcomeState, to_event
from kernelcast.wire.topics import ALERTS
from kernelcast.wire.tuning.approvals import REQUIRED
from kernelcast.wire.tuning.pauses import PAUSED_FILE

pytestmark = pytest.mark.service

WAIT_SECONDS = 2.0


def alert(kafka: Broker, status: str) -> None:
    producer = Producer(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers), client_id="test")
    fired = Alert("f1", status, "2026-01-01T00:00:00Z", labels={"alertname": "TooHot", "program": PROGRAM})
    producer.send(ALERTS.name, key=b"f1", value=encode_event(to_event(fired, source="/test", time_ns=time.time_ns())))
    producer.close(5.0)


def test_an_unapproved_value_waits_and_an_alert_pauses_the_trial_of_an_approved_one(
    kafka: Broker, tmp_path: Path
) -> None:
    topics(kafka)
    expires_ns = time.time_ns() + 600_000_000_000
    with Stack(tmp_path, kafka.bootstrap_servers) as stack:
        stack.service("exporter")
        training = Training(tmp_path, stack.socket)
        batch = training.probe.tunable("batch", [32, 64], 32, Terms(kind="batch_size", kernels=("stencil",)))
        training.step_until(lambda: training.probe.connected)
        hint = Hint("batch-1", PROGRAM, "batch", "64", expires_ns, mode=HintMode.DRY_RUN, approval=REQUIRED)
        send(kafka, hint)
        began = time.monotonic()
        training.step_until(lambda: time.monotonic() - began > WAIT_SECONDS)
        assert (training.probe.outcomes, batch.value) == ((), 32)

        order(kafka, "approve", "batch-1", "--by", "ana")
        training.step_until(lambda: training.outcome("batch-1", OutcomeState.APPLIED) is not None)
        training.step_until(lambda: batch.value == 64)

        alert(kafka, "firing")
        training.step_until((tmp_path / PAUSED_FILE).exists)
        assert "alert TooHot fires" in (tmp_path / PAUSED_FILE).read_text()
        training.step_until(lambda: training.probe.outcomes[-1].state is OutcomeState.APPLIED and batch.value == 32)
        time.sleep(1.0)  # programs look for the file twice a second
        training.step_until(lambda: batch.value == 32)
        for _ in range(50):
            training.step_until(lambda: True)
            training.probe.step()
            assert batch.value == 32
        alert(kafka, "resolved")
        training.step_until(lambda: batch.value == 64)

        order(kafka, "reject", "batch-1", "--by", "bo")
        training.step_until(lambda: training.outcome("batch-1", OutcomeState.ROLLED_BACK) is not None)
        assert batch.value == 32
        training.probe.stop()


def test_one_approval_lets_a_program_search_a_space_that_changes_results_until_it_is_withdrawn(
    kafka: Broker, tmp_path: Path
) -> None:
    topics(kafka)
    with Stack(tmp_path, kafka.bootstrap_servers) as stack:
        stack.service("exporter")
        training = Training(tmp_path, stack.socket)
        terms = SpaceTerms(per="step", changes_results=True)
        batch = training.probe.space("sizes", {"size": [32, 64, 96]}, start={"size": 32}, terms=terms, share=1.0)
        training.step_until(lambda: training.probe.connected)
        began = time.monotonic()
        training.step_until(lambda: time.monotonic() - began > WAIT_SECONDS)
        assert batch.size == 32
        order(kafka, "approve-search", PROGRAM, "sizes", "--most", "2", "--by", "ana")
        training.step_until(lambda: batch.size != 32)
        said = training.probe.outcomes[-1].reason
        assert said.startswith("searched, as ana has approved: at most 2 candidates; a verdict is expected after"), said
        # No step is made meanwhile, as the search would end by itself.
        order(kafka, "reject-search", PROGRAM, "sizes", "--by", "bo")
        eventually(lambda: training.probe._receiver.approvals.of("sizes") is None)
        training.step_until(lambda: "approval of its search has ended" in training.probe.outcomes[-1].reason)
        kept = batch.size
        began = time.monotonic()
        training.step_until(lambda: time.monotonic() - began > WAIT_SECONDS or batch.size != kept)
        assert batch.size == kept
        training.probe.stop()

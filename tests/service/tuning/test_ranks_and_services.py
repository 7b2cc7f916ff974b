"""Ranks with an exporter and a broker, one of which is killed in the middle of a trial of all ranks."""

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.faults.ranks.real import Job, findings
from tests.service.servers import wait_for
from tests.service.stack import Stack
from tests.support.predictor.node import read_all

from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.cloudevents import decode_event, encode_event
from kernelcast.wire.events import Hint, OutcomeState, outcome_from, to_event
from kernelcast.wire.topics import HINTS, OUTCOMES

pytestmark = pytest.mark.service

STEPS = 10_000
"""More than any trial needs: the job ends when the trial has."""
SLOWNESS = 5.0
"""Steps of 20 ms: the trial lasts some seconds, in which a service is killed."""
ENDS = (OutcomeState.KEPT, OutcomeState.ROLLED_BACK)


def issue(settings: KafkaSettings) -> None:
    hint = Hint("h1", "ranks", "batch", "32", time.time_ns() + 600 * 10**9)
    producer = Producer(settings, client_id="test")
    event = to_event(hint, source="/test", time_ns=time.time_ns())
    producer.send(HINTS.name, key=hint.key.encode(), value=encode_event(event))
    producer.close(5.0)


def has_begun(file: Path) -> bool:
    """Whether a rank has run some steps."""
    return file.exists() and file.stat().st_size > 100


def tried(file: Path) -> bool:
    """Whether a rank has run the hinted value."""
    return any(line.startswith("32") for line in file.read_text().splitlines())


@pytest.mark.parametrize("victim", ["exporter", "kafka"])
def test_the_kill_of_a_service_in_a_trial_leaves_the_ranks_together(victim: str, tmp_path: Path) -> None:
    with EmbeddedBroker() as broker, Stack(tmp_path, broker.bootstrap_servers) as stack:
        settings = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
        exporter = stack.service("exporter")

        def meanwhile(job: Job) -> None:
            wait_for("the first steps", lambda: job.intact() and all(map(has_begun, job.files)))
            issue(settings)
            wait_for("the trial", lambda: job.intact() and tried(job.files[0]))
            if victim == "kafka":
                broker.stop()
                return
            exporter.kill()
            stack.start(exporter)

        environ = {
            "KERNELCAST_SOCKET": str(stack.socket),
            "KERNELCAST_PROBE_INTERVAL_SECONDS": "0.1",
            "RANKS_STEPS": str(STEPS),
            "RANKS_SLOWNESS": str(SLOWNESS),
            "RANKS_UNTIL_DECIDED": "1",
        }
        assert findings(f"services {victim}", tmp_path, kill=False, environ=environ, meanwhile=meanwhile) == []
        for rank in range(4):
            end = json.loads((tmp_path / f"services {victim}-{rank}.txt").read_text().splitlines()[-1])
            assert sum(state in ENDS for state, _ in end["outcomes"]) == 1, "kept, or on a busy machine inconclusive"
        if victim == "exporter":
            wait_for("the outcomes of all ranks", lambda: len(ends(settings)) == 4)
            assert set(ends(settings).values()) == {1}


def ends(settings: KafkaSettings) -> Counter[str]:
    """Count the ends of the hint's trial on Kafka, by rank."""
    events = [outcome_from(decode_event(value)) for _, value in read_all(settings, OUTCOMES.name)]
    return Counter(one.rank for one in events if one.hint_id == "h1" and one.state in ENDS)

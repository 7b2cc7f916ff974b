"""`kernelcast hints stop` ends a running trial at once; nothing begins until `kernelcast hints resume`."""

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.service.conftest import Broker
from tests.service.stack import Stack
from tests.support.service.programs import topics
from tests.support.waiting import LONGEST_SECONDS, Stopwatch

from kernelcast.cli.app import run
from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.tunables import Terms
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.tuning.experiment import Rules
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.events import Hint, Outcome, OutcomeState, to_event
from kernelcast.wire.frames import DeviceClaim
from kernelcast.wire.topics import HINTS

pytestmark = pytest.mark.service

PROGRAM = "stopped-training"
STEP_SECONDS = 0.01
LIMIT_SECONDS = 2.0
NEVER_DECIDES = Rules(maximum_new=1_000_000, minimum_blocks=100_000, race_ratio=1000.0, harmful_ratio=1000.0)


class Training:
    """A program with two tunables, whose steps take the same time with every value; the test makes its steps."""

    def __init__(self, directory: Path, socket: Path) -> None:
        settings = ProbeSettings(
            PROGRAM, "0", str(socket), 0.1, source="simulated", devices=(DeviceClaim("cpu", model_name="CPU"),),
            state_directory=str(directory / "tuning"), rules=NEVER_DECIDES,
        )  # fmt: skip
        self.probe = Probe(settings)
        self.block = self.probe.tunable("block_size", [48, 128], 48, Terms(kernels=("stencil",)))
        self.tile = self.probe.tunable("tile", [1, 2], 1, Terms(kernels=("stencil",)))
        self.noise = random.Random(1)
        self.probe.start()

    def step_until(self, condition: Callable[[], bool]) -> None:
        """Make steps until a condition holds."""
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < LONGEST_SECONDS, [one.reason for one in self.probe.outcomes]
            self.probe.observe("stencil", round(1e6 * self.noise.uniform(0.9, 1.1)))
            time.sleep(STEP_SECONDS)
            self.probe.step()

    def outcome(self, hint_id: str, state: OutcomeState) -> Outcome | None:
        found = (one for one in self.probe.outcomes if (one.hint_id, one.state) == (hint_id, state))
        return next(found, None)


def send(kafka: Broker, hint: Hint) -> None:
    producer = Producer(KafkaSettings(bootstrap_servers=kafka.bootstrap_servers), client_id="test")
    event = to_event(hint, source="/test", time_ns=time.time_ns())
    producer.send(HINTS.name, key=hint.key.encode(), value=encode_event(event))
    producer.close(5.0)


def order(kafka: Broker, *arguments: str) -> None:
    assert run(["hints", *arguments, "--kafka.bootstrap-servers", kafka.bootstrap_servers]) == 0


def test_a_stop_ends_a_running_trial_within_two_seconds_and_nothing_begins_before_resume(
    kafka: Broker, tmp_path: Path
) -> None:
    topics(kafka)
    expires_ns = time.time_ns() + 600_000_000_000
    with Stack(tmp_path, kafka.bootstrap_servers) as stack:
        stack.service("exporter")
        training = Training(tmp_path, stack.socket)
        training.step_until(lambda: training.probe.connected)
        send(kafka, Hint("tried", PROGRAM, "block_size", "128", expires_ns))
        training.step_until(lambda: training.outcome("tried", OutcomeState.APPLIED) is not None)

        order(kafka, "stop", "--program", PROGRAM, "--reason", "driver update", "--by", "ana")
        with Stopwatch() as took:
            training.step_until(lambda: training.outcome("tried", OutcomeState.ROLLED_BACK) is not None)
        ended = training.outcome("tried", OutcomeState.ROLLED_BACK)
        assert ended is not None
        assert (ended.decision, training.block.value) == ("inconclusive", 48)
        assert took.seconds < LIMIT_SECONDS
        assert "stopped by ana: driver update" in (tmp_path / "hints.stopped").read_text()

        send(kafka, Hint("held", PROGRAM, "tile", "2", expires_ns))
        began = time.monotonic()
        training.step_until(lambda: time.monotonic() - began > LIMIT_SECONDS)
        assert training.outcome("held", OutcomeState.APPLIED) is None

        order(kafka, "resume", "--program", PROGRAM)
        training.step_until(lambda: training.outcome("held", OutcomeState.APPLIED) is not None)
        assert not (tmp_path / "hints.stopped").exists()
        training.probe.stop()

"""One campaign: the program with planted faults, and the hints that mend them or make them worse."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.cnn.program import Epoch, Launcher, Settings, epochs_of
from benchmarks.cnn.statistics import Ratio
from tests.service.servers import ServerProcess
from tests.service.stack import Stack, kernelcast

from kernelcast.cli.hints.known import KnownHints
from kernelcast.cli.hints.reading import read_known
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.errors import BrokerError
from kernelcast.wire.events import Hint, Outcome, OutcomeState, to_event
from kernelcast.wire.topics import HINTS, OUTCOMES

EXPIRES_NS: Final = 3600 * 1_000_000_000
"""Time for which a hint is valid: longer than its trial."""
DIAGNOSED: Final = "loader_workers"
"""The tunable whose hints come from the predictor's diagnosis; the others' are written here, as a person would."""

WORSE: Final = (DIAGNOSED, "0")
"""A planted regression: the loader without workers again, which the diagnosis has just mended."""
ENDS: Final = (OutcomeState.KEPT, OutcomeState.ROLLED_BACK, OutcomeState.REJECTED, OutcomeState.EXPIRED)
"""States after which the outcome of a hint does not change."""
POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Claim:
    """A kept outcome.

    Attributes:
        settings: The other parameters at its time, with the old value.
        outcome: The outcome.
        from_diagnosis: Whether the predictor's diagnosis gave its hint.
    """

    settings: Settings
    outcome: Outcome
    from_diagnosis: bool

    @property
    def changed(self) -> Settings:
        """The parameters with the kept value."""
        return self.settings.with_value(self.outcome.tunable, self.outcome.value)

    @property
    def ratio(self) -> Ratio | None:
        """The claimed ratio of times; None where the outcome has no interval."""
        if self.outcome.measured_ratio is None or self.outcome.measured_interval is None:
            return None
        return Ratio(self.outcome.measured_ratio, *self.outcome.measured_interval)


@dataclass(slots=True)
class CampaignResult:
    """Everything that a campaign showed.

    Attributes:
        claims: The kept outcomes in order.
        outcomes: The last outcome of each hint.
        seconds: Time to the last verdict.
        before, after: Samples a second in the first and last epochs.
        restarted: First epoch after a restart without exporter and Kafka.
        stop_seconds: Time from the order to stop until the trial's outcome; None where no trial ran.
    """

    claims: list[Claim] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    before: float = 0.0
    after: float = 0.0
    restarted: Epoch | None = None
    stop_seconds: float | None = None


class Campaign:
    """Runs the program beside an exporter and a predictor.

    Args:
        stack: The services; exporter and predictor run.
        launcher: Starts the program.
        name: Name of the program, so that campaigns do not mix.
        patience_seconds: Longest wait for one verdict.
    """

    def __init__(self, stack: Stack, launcher: Launcher, name: str, patience_seconds: float) -> None:
        self._stack = stack
        self._launcher = launcher
        self._name = name
        self._patience_seconds = patience_seconds
        self._kafka = KafkaSettings(bootstrap_servers=stack.bootstrap_servers)
        self._memory = Path(stack.directory) / f"tuning-{name}"
        self._sent: set[str] = set()

    def run(self, planted: Settings) -> CampaignResult:
        """Run one campaign from a set of planted faults."""
        result, began = CampaignResult(), time.monotonic()
        environ = self._launcher.environ(str(self._memory))
        command = self._launcher.command(planted, "--epochs", "1000000", "--program", self._name)
        program = self._stack.background(self._name, *command, environ=environ)
        try:
            self._wait_for(lambda: self._ended(DIAGNOSED))
            self._propose_and_wait("threads", "1")
            self._propose_and_wait(*WORSE)
            self._wait_for(lambda: self._hint_on_trial() is None)
            result.seconds = time.monotonic() - began
            result.stop_seconds = self._stop_in_the_middle()
            epochs = self._epochs(program)
        finally:
            program.stop()
        result.outcomes = self._last_outcomes()
        result.claims = claims(planted, result.outcomes, self._sent)
        rates = [one.samples_per_second for one in epochs]
        result.before, result.after = _mean(rates[1:11]), _mean(rates[-10:])
        result.restarted = self._launcher.run(planted, 1, program=self._name, tuning_directory=str(self._memory))[0]
        return result

    def _propose_and_wait(self, tunable: str, value: str) -> None:
        """Propose a value, and wait for the end of its trial."""
        hint_id = self._send(tunable, value)
        self._wait_for(lambda: self._state(hint_id) in ENDS)

    def _stop_in_the_middle(self) -> float | None:
        """Stop the trial that is open, of any hint; returns the seconds until its outcome."""
        self._send("bucket_mb", "5.0")
        self._wait_for(lambda: self._hint_on_trial() is not None)
        hint_id = self._hint_on_trial()
        if hint_id is None:
            return None
        began = time.monotonic()
        bootstrap = ("--kafka.bootstrap-servers", self._stack.bootstrap_servers)
        kernelcast("hints", "stop", "--program", self._name, *bootstrap)
        self._wait_for(lambda: self._state(hint_id) in ENDS)
        return time.monotonic() - began

    def _send(self, tunable: str, value: str) -> str:
        hint = Hint(f"{self._name}-{tunable}-{value}", self._name, tunable, value, time.time_ns() + EXPIRES_NS)
        event = to_event(hint, source="/benchmarks/cnn", time_ns=time.time_ns())
        producer = Producer(self._kafka, client_id="benchmark")
        producer.send(HINTS.name, key=hint.key.encode(), value=encode_event(event))
        producer.close(5.0)
        self._sent.add(hint.hint_id)
        return hint.hint_id

    def _known(self) -> KnownHints:
        try:
            return read_known(self._kafka, HINTS, OUTCOMES)
        except BrokerError:
            return KnownHints()

    def _state(self, hint_id: str) -> OutcomeState | None:
        """Return the last state of a hint; of several ranks, the one that is behind."""
        record = self._known().records.get(hint_id)
        states = [one.outcome.state for one in record.newest()] if record else []
        if len(states) < 1:
            return None
        return next((state for state in states if state not in ENDS), states[0])

    def _hint_on_trial(self) -> str | None:
        """Return the hint that is being tried."""
        records = [one for one in self._known().records.values() if one.program == self._name]
        tried = [one.hint_id for one in records if self._state(one.hint_id) is OutcomeState.APPLIED]
        return tried[-1] if tried else None

    def _ended(self, tunable: str) -> bool:
        """Whether a hint for a tunable has come to a verdict."""
        records = [one for one in self._known().records.values() if one.program == self._name]
        return any(one.tunable == tunable and self._state(one.hint_id) in ENDS for one in records)

    def _last_outcomes(self) -> list[Outcome]:
        records = [one for one in self._known().records.values() if one.program == self._name and one.answers]
        return [one.newest()[-1].outcome for one in sorted(records, key=lambda one: one.last_ns)]

    def _epochs(self, program: ServerProcess) -> list[Epoch]:
        return epochs_of(program.log.read_text(errors="replace")) if program.log.exists() else []

    def _wait_for(self, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + self._patience_seconds
        while time.monotonic() < deadline:
            if condition():
                return True
            time.sleep(POLL_SECONDS)
        return False


def claims(planted: Settings, outcomes: list[Outcome], sent: set[str]) -> list[Claim]:
    """Return the kept outcomes, each with the parameters that were in force when it was tried."""
    found, settings = [], planted
    for outcome in outcomes:
        if outcome.state is OutcomeState.KEPT:
            found.append(Claim(settings, outcome, outcome.hint_id not in sent))
            settings = settings.with_value(outcome.tunable, outcome.value)
    return found


def result_of(fields: dict[str, Any]) -> CampaignResult:
    """Return a campaign from the JSON that was written of it."""
    claimed = [
        Claim(Settings(**one["settings"]), _outcome(one["outcome"]), one["from_diagnosis"]) for one in fields["claims"]
    ]
    restarted = Epoch(**fields["restarted"]) if fields["restarted"] else None
    changed = {"claims": claimed, "outcomes": [_outcome(one) for one in fields["outcomes"]], "restarted": restarted}
    return CampaignResult(**fields | changed)


def _outcome(fields: dict[str, Any]) -> Outcome:
    interval = fields["measured_interval"]
    changed = {"state": OutcomeState(fields["state"]), "measured_interval": interval and tuple(interval)}
    return Outcome(**fields | changed)


def _mean(rates: list[float]) -> float:
    return sum(rates) / len(rates) if rates else 0.0

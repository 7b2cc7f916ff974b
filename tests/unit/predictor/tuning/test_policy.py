"""The site's policy in the predictor: which hints it issues, and when; it changes while the predictor runs."""

from dataclasses import dataclass, field

import pytest
from pydantic import ValidationError
from tests.support.predictor.tunables import BUSY, NOW_NS, SECOND_NS, tunable

from kernelcast.columnar import Decoder
from kernelcast.predictor.engine import Engine
from kernelcast.predictor.publish import ForecastPublisher
from kernelcast.predictor.reloading import RELOADED
from kernelcast.predictor.settings import HintSettings, PredictorSettings
from kernelcast.predictor.tuning.hints import HintBook, Withheld
from kernelcast.runtime.kafka.producer import DeliveryListener, Undelivered
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.events import HintMode
from kernelcast.wire.topics import POLICY
from kernelcast.wire.tuning.approvals import REQUIRED
from kernelcast.wire.tuning.policy import Mode, Policy, policy_from

HOUR_NS = 3600 * SECOND_NS
MIDNIGHT_NS = NOW_NS - NOW_NS % (24 * HOUR_NS)
QUIET = HintSettings(quiet_hours=("22:00-06:00",))


def test_nothing_is_issued_in_quiet_hours() -> None:
    book = HintBook(QUIET)
    assert not book.propose([tunable("33")], BUSY, now_ns=MIDNIGHT_NS + HOUR_NS)
    assert book.withheld[Withheld.QUIET_HOURS] == 1
    assert book.propose([tunable("33")], BUSY, now_ns=MIDNIGHT_NS + 7 * HOUR_NS)


@pytest.mark.parametrize(
    ("policy", "mode"),
    [({"train": Mode.OFF}, None), ({"*": Mode.PROPOSE}, HintMode.DRY_RUN), ({"serve": Mode.OFF}, HintMode.CANARY)],
)
def test_the_mode_of_a_program_decides_whether_it_is_hinted_and_whether_a_person_approves(
    policy: dict[str, Mode], mode: HintMode | None
) -> None:
    book = HintBook(HintSettings(policy=policy))
    found = book.propose([tunable("33")], BUSY, now_ns=NOW_NS)
    assert [one.hint.mode for one in found] == ([] if mode is None else [mode])
    assert [one.hint.approval == REQUIRED for one in found] == ([] if mode is None else [mode is HintMode.DRY_RUN])
    assert book.withheld[Withheld.POLICY] == (mode is None)


def test_a_policy_that_cannot_be_used_is_refused_with_the_remedy() -> None:
    with pytest.raises(ValidationError, match="write HH:MM-HH:MM in UTC"):
        HintSettings(quiet_hours=("at night",))
    with pytest.raises(ValidationError, match="tune"):
        HintSettings.model_validate({"policy": {"train": "maybe"}})


def test_settings_of_hints_are_read_again() -> None:
    assert "hints" in RELOADED
    settings = PredictorSettings()
    engine = Engine(settings, clock_ns=lambda: NOW_NS, decoder=Decoder())
    assert engine.policy == Policy()
    engine.change(settings.model_copy(update={"hints": QUIET}))
    assert engine.policy.quiet_hours == ("22:00-06:00",)
    assert not engine.hints.propose([tunable("33")], BUSY, now_ns=MIDNIGHT_NS + HOUR_NS)


@dataclass
class Producer:
    sent: list[tuple[str, bytes]] = field(default_factory=list)
    is_full: bool = False

    def send(
        self, topic: str, *, key: bytes | None, value: bytes | None, on_delivery: DeliveryListener | None = None
    ) -> None:
        del key
        if not self.is_full:
            self.sent.append((topic, value or b""))
        if on_delivery is not None:
            on_delivery(Undelivered("the queue is full") if self.is_full else None)


def test_the_policy_is_written_at_the_start_and_when_it_changes() -> None:
    producer = Producer()
    publisher = ForecastPublisher(PredictorSettings(), producer, clock_ns=lambda: NOW_NS)
    for policy in (Policy(), Policy(), QUIET.site_policy(), QUIET.site_policy()):
        publisher.policy(policy)
    assert [topic for topic, _ in producer.sent] == [POLICY.name] * 2
    written = [policy_from(decode_event(value)) for _, value in producer.sent]
    assert [one.quiet_hours for one in written] == [(), ("22:00-06:00",)]
    assert written[1].time_ns == NOW_NS


def test_a_policy_that_kafka_did_not_take_is_written_again() -> None:
    producer = Producer(is_full=True)
    publisher = ForecastPublisher(PredictorSettings(), producer, clock_ns=lambda: NOW_NS)
    publisher.policy(QUIET.site_policy())
    producer.is_full = False
    for _ in range(2):
        publisher.policy(QUIET.site_policy())
    assert len(producer.sent) == 1

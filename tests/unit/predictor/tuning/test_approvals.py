"""Hints that change results wait for a person, and the predictor learns the answers."""

from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from tests.support.predictor.tunables import BUSY, NOW_NS, SECOND_NS
from tests.support.runtime.kafka_record import Record
from tests.unit.predictor.test_hint_log import FakeReader, RejectedMessages, message
from tests.unit.predictor.tuning.test_hints_by_diagnosis import diagnosis

from kernelcast.predictor.hint_samples import open_hints
from kernelcast.predictor.settings import HintSettings
from kernelcast.predictor.tuning.hint_log import HintLog
from kernelcast.predictor.tuning.hints import HintBook, HintState, Withheld
from kernelcast.predictor.tuning.tunables import ReportedTunable, TunableReports
from kernelcast.runtime.kafka.connect import broker_errors
from kernelcast.runtime.kafka.follow import RETRY_SECONDS
from kernelcast.wire.catalogue.diagnosis.rules import RULES
from kernelcast.wire.catalogue.forecast import APPROVAL_PENDING, HINT_OPEN
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.errors import BrokerError
from kernelcast.wire.events import Hint, HintMode, hint_from, to_event
from kernelcast.wire.topics import HINTS, ORDERS
from kernelcast.wire.tuning.approvals import REQUIRED, RESULT_KINDS, ApprovalState, answer_to, approval_event

DAY_NS = 86_400 * SECOND_NS
BATCH = ReportedTunable("train", "batch", "32", ("32", "64", "128"), "batch_size", "", "A100", "v1")
ROOM = [diagnosis("room_for_larger_batch")]


def book() -> HintBook:
    return HintBook(HintSettings(expires_seconds=60.0, approval_seconds=86_400.0))


def propose(hints: HintBook, tunable: ReportedTunable = BATCH, now_ns: int = NOW_NS) -> Hint | None:
    found = hints.propose([tunable], BUSY, now_ns=now_ns, diagnoses=ROOM)
    return found[0].hint if found else None


def proposed(hints: HintBook) -> Hint:
    hint = propose(hints)
    assert hint is not None
    return hint


@pytest.mark.parametrize(
    ("rule", "kind", "values"),
    [
        ("room_for_larger_batch", "batch_size", ("32", "64")),
        ("memory_nearly_full", "batch_size", ("64", "32")),
        ("tensor_cores_unused", "precision", ("off", "on")),
    ],
)
def test_advice_that_changes_results_is_proposed_and_waits(rule: str, kind: str, values: tuple[str, str]) -> None:
    tunable = ReportedTunable("train", "knob", values[0], values, kind)
    (issued,) = book().propose([tunable], BUSY, now_ns=NOW_NS, diagnoses=[diagnosis(rule)])
    hint = issued.hint
    assert (hint.value, hint.approval, hint.approved_by) == (values[1], REQUIRED, "")
    assert hint.mode is HintMode.DRY_RUN, "nothing tries it before its approval"
    assert hint.expires_at_ns == NOW_NS + DAY_NS
    assert hint_from(to_event(hint, source="/test", time_ns=1)) == hint


def test_a_declaration_of_the_program_comes_before_the_kind() -> None:
    assert propose(book(), replace(BATCH, changes_results=False)).approval == ""  # type: ignore[union-attr]
    block = ReportedTunable("train", "block", "33", ("33", "128"), "block_size", "", changes_results=True)
    assert book().propose([block], BUSY, now_ns=NOW_NS)[0].hint.approval == REQUIRED


def test_the_declaration_travels_as_a_label_of_the_tunable() -> None:
    reports = TunableReports()
    for word in ("", "true", "false"):
        reports.observe((("tunable", f"t{word}"), ("changes_results", word)), time_ns=1, owner=0, now_ns=1)
    assert [one.changes_results for one in reports.current()] == [None, True, False]


def test_every_kind_that_advice_changes_results_by_counts_as_changing_them() -> None:
    kinds = {kind for rule in RULES if rule.advice.changes_results for kind in rule.advice.kinds}
    assert kinds <= RESULT_KINDS
    assert not {kind for rule in RULES if not rule.advice.changes_results for kind in rule.advice.kinds} & RESULT_KINDS


def test_a_proposal_is_pending_until_a_person_answers_or_the_tunable_changes() -> None:
    hints = book()
    hint = proposed(hints)
    later_ns = NOW_NS + 3600 * SECOND_NS
    (pending,) = hints.open_hints([BATCH], now_ns=later_ns)
    assert (pending.hint, pending.issued_ns, pending.state) == (hint, NOW_NS, HintState.APPROVAL)
    one_open, one_pending, *_ = open_hints([pending], time_ns=later_ns)[b"train"]
    for sample, metric in ((one_open, HINT_OPEN), (one_pending, APPROVAL_PENDING)):
        found = sample.metric, sample.value, dict(sample.attributes)["hint_id"]
        assert found == (metric, NOW_NS / SECOND_NS, hint.hint_id)
    assert propose(hints, now_ns=later_ns) is None, "it is still open"
    assert not hints.open_hints([], now_ns=later_ns), "its program has ended"
    assert not hints.open_hints([replace(BATCH, value="64")], now_ns=later_ns)
    assert not hints.open_hints([BATCH], now_ns=NOW_NS + DAY_NS)
    hints.approvals.learn(answer_to(hint, ApprovalState.APPROVED, by="ana", reason="", time_ns=later_ns))
    (approved,) = hints.open_hints([BATCH], now_ns=later_ns)
    assert approved.state is HintState.ISSUED


def test_a_value_that_a_person_rejected_is_not_proposed_again_for_the_same_code() -> None:
    hints = book()
    rejection = answer_to(proposed(hints), ApprovalState.WITHDRAWN, by="ana", reason="paper", time_ns=NOW_NS)
    hints.approvals.learn(rejection)
    assert propose(hints, now_ns=NOW_NS + 30 * DAY_NS) is None
    assert hints.withheld[Withheld.REJECTED_BY_PERSON] == 1
    assert propose(hints, replace(BATCH, code_version="v2"), now_ns=NOW_NS + DAY_NS) is not None
    hints.approvals.forget(rejection.hint_id)
    assert propose(hints, now_ns=NOW_NS + 30 * DAY_NS) is not None


def test_answers_are_read_before_anything_is_proposed() -> None:
    hints, orders, rejected = book(), FakeReader(), RejectedMessages()
    hint = proposed(book())
    answer = answer_to(hint, ApprovalState.WITHDRAWN, by="ana", reason="", time_ns=NOW_NS)
    body = encode_event(approval_event(answer, source="/test"))
    messages: list[Any] = [
        Record((ORDERS.name, 0, offset), value, keyed=key.encode())
        for offset, (key, value) in enumerate({"stop|*|*": b"{}", "approval|x": b"{}", answer.key: body}.items())
    ]
    orders.waiting = messages
    log = HintLog(FakeReader(), hints, rejected, orders, clock_ns=lambda: NOW_NS, monotonic=lambda: 0.0)
    caught_up = []
    for _ in range(4):
        log.poll(0.0)
        caught_up.append(log.caught_up)
    assert caught_up == [False, False, True, True]
    assert len(rejected.errors) == 1, "an order to stop is none of its messages; other content is a dead letter"
    assert propose(hints) is None
    orders.waiting = [Record((ORDERS.name, 0, 3), None, keyed=answer.key.encode())]
    log.poll(0.0)
    assert propose(hints) is not None


class Refusing(FakeReader):
    """A reader of a topic whose partitions Kafka does not tell, as long as it has an error."""

    def __init__(self, code: int | None) -> None:
        super().__init__()
        self.code = code

    def partitions(self, topic: str) -> list[Any]:
        with broker_errors(f"asking for the partitions of {topic}"):
            if self.code is not None:
                raise KafkaException(KafkaError(self.code))
        return super().partitions(topic)


def test_hints_are_issued_without_the_right_to_read_orders() -> None:
    """Exporters hold those that need an approval; after an upgrade the permission may be missing."""
    reader, orders = FakeReader(), Refusing(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    reader.waiting = [message(HINTS.name, 0, None)]
    log = HintLog(reader, book(), RejectedMessages(), orders, clock_ns=lambda: NOW_NS, monotonic=lambda: 0.0)
    with pytest.raises(BrokerError, match="failed: Broker: Topic authorization failed"):
        log.poll(0.0)
    assert log.caught_up


def test_no_hint_is_issued_before_the_answers_are_read_when_kafka_is_slow() -> None:
    hints, now = book(), [0.0]
    hint = proposed(book())
    answer = answer_to(hint, ApprovalState.WITHDRAWN, by="ana", reason="", time_ns=NOW_NS)
    reader, orders = FakeReader(), Refusing(KafkaError._TIMED_OUT)
    reader.waiting = [message(HINTS.name, 0, None)]
    log = HintLog(reader, hints, RejectedMessages(), orders, clock_ns=lambda: NOW_NS, monotonic=lambda: now[0])
    with pytest.raises(BrokerError, match="imed out"):
        log.poll(0.0)
    caught_up = [log.caught_up]
    orders.code = None
    body = encode_event(approval_event(answer, source="/test"))
    orders.waiting = [Record((ORDERS.name, 0, 0), body, keyed=answer.key.encode())]
    now[0] = RETRY_SECONDS
    log.poll(0.0)
    caught_up.append(log.caught_up)
    assert caught_up == [False, True]
    assert propose(hints) is None, "a person has withdrawn it"


def test_both_readers_close_within_one_time_limit() -> None:
    now, limits = [0.0], []

    class Slow(FakeReader):
        def close(self, timeout_seconds: float = 0.0) -> None:
            limits.append(timeout_seconds)
            now[0] += timeout_seconds

    log = HintLog(Slow(), book(), RejectedMessages(), Slow(), clock_ns=lambda: NOW_NS, monotonic=lambda: now[0])
    log.close(3.0)
    assert (now[0], len(limits)) == (3.0, 2)

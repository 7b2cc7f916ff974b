"""Snapshots on the topic of states: which one is read, and which ones a writer drops when."""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tests.support.bridge.list_kafka import ManualClock, StateLog

from kernelcast.bridge.delta.persistence import snapshot as snapshot_module
from kernelcast.bridge.delta.persistence.snapshot import ADDITIONS, COLUMNS, PART_BYTES, TAILS, TotalsSnapshot
from kernelcast.bridge.delta.persistence.state import RECENT_SECONDS, StateTopic
from kernelcast.runtime.kafka.producer import DeliveryListener, Undelivered

NAME = "kernels/0"
OLD, NEW = {"kernels": "old"}, {"kernels": "new"}


def totals(offset: int, topic_ids: Mapping[str, str] = NEW, *, parts: int = 1) -> TotalsSnapshot:
    """A snapshot as of an offset, which takes this many parts: its hashes of keys do not compress."""
    hashes = np.frombuffer(secrets.token_bytes((parts - 1) * PART_BYTES), "<i8")
    columns = {name: np.zeros(len(hashes), kind) for name, kind in (COLUMNS | ADDITIONS).items()}
    columns |= {name: np.zeros(0, kind) for name, kind in TAILS.items()}
    columns |= {"digest": np.zeros((len(hashes), 16), np.uint8), "key_hash": hashes}
    return TotalsSnapshot(secrets.token_bytes(8), offset, ((("kernels", 0), offset),), columns, topic_ids)


def of_new(one: TotalsSnapshot) -> bool:
    return one.matches_topics(NEW)


def ignore(_trouble: str | None) -> None:
    pass


@dataclass
class LateLog(StateLog):
    """A topic of states that acknowledges nothing before `answer`, and loses messages that `loses` selects."""

    loses: Callable[[bytes | None], bool] = lambda _value: False
    waiting: list[tuple[DeliveryListener, Undelivered | None]] = field(default_factory=list)

    def send(self, _topic: str, *, on_delivery: DeliveryListener | None = None, **message: Any) -> None:
        lost = self.loses(message["value"])
        if not lost:
            super().send(_topic, **message)
        if on_delivery is not None:
            self.waiting.append((on_delivery, Undelivered("lost") if lost else None))

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for listener, trouble in waiting:
            listener(trouble)

    def flush(self, _timeout_seconds: float) -> int:
        self.answer()
        return 0


def offset_read(log: StateLog) -> int | None:
    """The offset of the snapshot that a bridge reads which starts now; None if it can use none."""
    found = StateTopic("group", log, log.open, now_ns=log.clock.now_ns).read([NAME], of_new).get(NAME)
    return found.progress if isinstance(found, TotalsSnapshot) else None


def writer(log: StateLog) -> StateTopic:
    return StateTopic("group", log, log.open, now_ns=log.clock.now_ns)


def test_an_older_snapshot_of_the_present_log_is_read_beside_a_recent_one_of_a_deleted_log() -> None:
    log = StateLog(ManualClock())
    writer(log).write(NAME, totals(5), ignore)
    log.clock.seconds += RECENT_SECONDS + 60
    writer(log).write(NAME, totals(900, OLD), ignore)
    assert offset_read(log) == 5


def test_a_snapshot_that_another_bridge_was_still_writing_is_not_dropped() -> None:
    log = LateLog(ManualClock())
    other = writer(log)
    other.write(NAME, totals(7, parts=3), ignore)
    partition = next(iter(log.logs))
    *rest, last = log.logs[partition]
    log.logs[partition] = rest
    late = writer(log)
    late.read([NAME], of_new)
    log.logs[partition].append(last)
    late.write(NAME, totals(1), ignore)
    late.flush(1)
    late.write(NAME, totals(2), ignore)
    assert offset_read(log) == 7


def test_the_former_owners_snapshot_stays_until_kafka_has_the_new_one() -> None:
    log = LateLog(ManualClock())
    writer(log).write(NAME, totals(7), ignore)
    log.answer()
    owner = writer(log)
    owner.read([NAME], of_new)
    log.loses = lambda value: value is not None
    troubles: list[str | None] = []
    for offset in (8, 9):
        owner.write(NAME, totals(offset), troubles.append)
        owner.flush(1)
    assert (troubles, offset_read(log)) == (["lost", "lost"], 7)
    log.loses = lambda _value: False
    owner.write(NAME, totals(10), troubles.append)
    owner.flush(1)
    log.compact()
    assert (offset_read(log), sum(map(len, log.logs.values()))) == (10, 1)


def test_a_writer_overwrites_no_snapshot_before_kafka_has_the_next_one() -> None:
    log = LateLog(ManualClock())
    owner = writer(log)
    owner.write(NAME, totals(1, parts=2), ignore)
    log.answer()
    log.loses = lambda value: value is not None and len(value) > PART_BYTES
    for offset in (2, 3, 4):
        owner.write(NAME, totals(offset, parts=2), ignore)
        log.answer()
    log.compact()
    assert offset_read(log) == 1


def test_a_writer_that_gets_its_answers_late_keeps_the_acknowledged_snapshot() -> None:
    log = LateLog(ManualClock())
    owner = writer(log)
    owner.write(NAME, totals(1, parts=2), ignore)
    log.answer()
    owner.write(NAME, totals(2, parts=2), ignore)
    log.loses = lambda value: value is not None and len(value) > PART_BYTES
    owner.write(NAME, totals(3, parts=2), ignore)
    log.answer()
    owner.write(NAME, totals(4, parts=2), ignore)
    log.answer()
    log.compact()
    assert offset_read(log) == 1


def test_a_missing_topic_is_looked_for_once_however_many_names_are_read() -> None:
    log = StateLog(ManualClock(), partitions_made=0)
    assert writer(log).read([f"kernels/{number}" for number in range(9)], of_new) == {}
    assert log.opened == 1


def test_a_snapshot_that_no_bridge_could_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    log = StateLog(ManualClock())
    owner = writer(log)
    owner.write(NAME, totals(1), ignore)
    monkeypatch.setattr(snapshot_module, "LONGEST_BYTES", 100)
    troubles: list[str | None] = []
    assert owner.write(NAME, totals(2), troubles.append) == 0
    monkeypatch.undo()
    assert offset_read(log) == 1
    assert [trouble for trouble in troubles if trouble and "the limit is 100" in trouble] == troubles
    assert troubles

"""Outcomes of ended programs stay on the exporter's disk until Kafka has them."""

from pathlib import Path

from kernelcast.exporter.hints.outcome_log import OutcomeLog
from kernelcast.exporter.hints.received import ReceivedOutcome
from kernelcast.exporter.programs.last.final_reports import sync
from kernelcast.wire.events import Outcome, OutcomeState


def received(number: int) -> ReceivedOutcome:
    outcome = Outcome(f"h{number}", "train", "block", OutcomeState.KEPT, hostname="n1", measured_interval=(0.8, 0.9))
    return ReceivedOutcome(outcome, f"e{number}", "nonce")


def write(log: OutcomeLog, *numbers: int) -> list[str]:
    ids, file = log.append(map(received, numbers), now_ns=1)
    sync(file)
    return ids


def test_the_next_run_has_the_outcomes_that_kafka_has_not_acknowledged(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path).open()
    assert log.restore() == []
    assert write(log, 1, 2, 3) == ["e1", "e2", "e3"]
    assert write(log, 2) == ["e2"], "it is on disk already"
    log.settle(["e1", "e3", "unknown"])
    again = OutcomeLog(tmp_path).open()  # as after kill -9
    assert again.restore() == [received(2), received(3)], "the log knows the first that Kafka does not have"
    again.settle(["e2", "e3"])
    last = OutcomeLog(tmp_path).open()
    assert (last.restore(), last.errors) == ([], 0)
    assert write(last, 4) == ["e4"]
    for one in (log, again, last):
        one.close()


def test_what_has_no_room_is_not_confirmed_and_counted(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path, max_bytes=1_000).open()
    assert write(log, 1, 2, 3) == ["e1"]
    assert log.errors == 2
    log.settle(["e1"])
    log.close()


def test_a_record_that_cannot_be_read_is_left_out_and_counted(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path).open()
    write(log, 1, 2)
    log.close()
    (segment,) = (tmp_path / "outcomes").glob("*.segment")
    content = segment.read_bytes()
    segment.write_bytes(content.replace(b'"state":"kept"', b'"state":"gone"', 1))
    again = OutcomeLog(tmp_path).open()
    assert [one.event_id for one in again.restore()] == ["e2"]
    again.close()

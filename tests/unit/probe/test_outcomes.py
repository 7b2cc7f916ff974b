"""Outcomes are kept by the program until the exporter confirms them."""

import socket
from pathlib import Path

from kernelcast.probe.outcomes import MAX_KEPT, OutcomeQueue
from kernelcast.probe.reporting.left_outcomes import LIFE_NS, LeftOutcomes, Origin
from kernelcast.tuning.journal import lines
from kernelcast.wire.cloudevents import decode_event, encode_event
from kernelcast.wire.events import OutcomeState, outcome_from
from kernelcast.wire.frames import OutcomeFrame, encode
from kernelcast.wire.tuning.pauses import LATER

ORIGIN = Origin("A100", "v3")


def queue_of(count: int) -> OutcomeQueue:
    queue = OutcomeQueue("training", "", lambda: 1, lambda: None)
    for number in range(count):
        add(queue, number)
    return queue


def add(queue: OutcomeQueue, number: int) -> None:
    queue.add_trial(f"h{number}", "block", OutcomeState.KEPT, "")


def send(queue: OutcomeQueue) -> dict[str, str]:
    """Send everything; returns event ids by the id of the hint, in the order of sending."""
    found = {}
    while event := queue.first():
        found[event["subject"]] = event["id"]
        queue.sent(event)
    return found


def test_what_is_not_confirmed_is_sent_again_after_a_reconnect_with_the_same_id_and_before_younger_ones() -> None:
    queue = queue_of(3)
    sent = send(queue)
    queue.confirmed([sent["h1"]])
    add(queue, 3)
    assert queue.unconfirmed == 2
    queue.reconnected()
    again = send(queue)
    assert list(again) == ["h0", "h2", "h3"]
    assert (again["h0"], again["h2"]) == (sent["h0"], sent["h2"])
    queue.confirmed([*again.values(), "unknown"])
    queue.reconnected()
    assert (send(queue), queue.unconfirmed, queue.dropped) == ({}, 0, 0)


def test_the_log_of_a_compiler_as_reason_neither_holds_back_later_outcomes_nor_hides_the_end_of_the_sentence() -> None:
    queue = queue_of(0)
    log = "CompileException: kernel.cu(7): error\n" + '"\t\x1b[0m\u2026' * 40_000
    queue.add_trial("search-1", "conv.run", OutcomeState.ROLLED_BACK, f"{log}; {LATER}", decision="failed")
    event = queue.first()
    assert event is not None
    assert len(list(encode(OutcomeFrame(event)))) == 1
    received = outcome_from(decode_event(encode_event(event)))  # as the exporter sends it to Kafka
    assert received.reason.startswith("CompileException: kernel.cu(7): error\n")
    assert received.reason.endswith(LATER)


def test_what_a_process_leaves_is_all_that_no_exporter_has_confirmed() -> None:
    queue = queue_of(2)
    send(queue)
    add(queue, 2)
    assert [event["subject"] for event in queue.left()] == ["h0", "h1", "h2"]


def test_the_next_run_on_the_node_sends_what_an_earlier_one_left_once_with_the_same_id(tmp_path: Path) -> None:
    def file(rank: str = "0") -> LeftOutcomes:
        return LeftOutcomes(tmp_path / "train-1.jsonl", rank, lambda: 1)

    first, second = queue_of(2), queue_of(0)
    file().update(first.left(), ORIGIN)
    others = (file("1").restore(ORIGIN), file().restore(Origin("A100", "v4")), file().restore(Origin("H100", "v3")))
    assert others == ([], [], [])
    again = file()
    second.restore(again.restore(ORIGIN))
    second.restore(again.restore(ORIGIN))
    assert second.left() == first.left()
    delivered, kept = send(second).values()
    second.confirmed([delivered])
    again.update(second.left(), ORIGIN)
    assert [event["id"] for event in file().restore(ORIGIN)] == [kept]


def test_lines_of_other_nodes_old_ones_and_damaged_ones_are_left_out(tmp_path: Path) -> None:
    file = LeftOutcomes(tmp_path / "train-1.jsonl", "", lambda: 1)
    file.update(queue_of(1).left(), ORIGIN)
    text = file.path.read_text()
    file.path.write_text(text.replace(socket.gethostname(), "elsewhere") + "{\n[]\n{}\n")
    assert file.restore(ORIGIN) == []
    file.path.write_text(text)
    assert LeftOutcomes(tmp_path / "train-1.jsonl", "", lambda: LIFE_NS + 1).restore(ORIGIN) == []
    assert (len(file.restore(ORIGIN)), file.failures) == (1, 0)


def test_a_reason_with_half_a_surrogate_pair_can_be_sent() -> None:
    """Python names a file so whose name is not UTF-8, also in the text of an error."""
    queue = queue_of(0)
    queue.add_trial("h0", "block", OutcomeState.ROLLED_BACK, "FileNotFoundError: 'data\udcff'")
    event = queue.first()
    assert event is not None
    assert list(encode(OutcomeFrame(event)))
    assert event["data"]["reason"] == "FileNotFoundError: 'data?'"


def test_the_file_stays_small_where_no_exporter_ever_takes_the_outcomes(tmp_path: Path) -> None:
    path = tmp_path / "train-1.jsonl"
    sizes, newest = [], ""
    for _run in range(12):
        left = queue_of(MAX_KEPT).left()
        newest = left[-1]["id"]
        file = LeftOutcomes(path, "", lambda: 1)
        file.update(left, ORIGIN)
        sizes.append(file.path.stat().st_size)
        assert file.failures == 0
    assert max(sizes) <= lines.LARGEST_BYTES
    restored = LeftOutcomes(path, "", lambda: 1).restore(ORIGIN)
    assert (len(restored), restored[-1]["id"]) == (MAX_KEPT, newest)


def test_unconfirmed_and_unsent_outcomes_share_one_bound_and_the_oldest_is_dropped_and_counted() -> None:
    queue = queue_of(2)
    send(queue)
    for number in range(2, MAX_KEPT + 1):
        add(queue, number)
    assert (queue.dropped, queue.unconfirmed) == (1, 1)
    queue.reconnected()
    assert list(send(queue)) == [f"h{number}" for number in range(1, MAX_KEPT + 1)]

"""Outcomes are kept by the program until the exporter confirms them."""

from kernelcast.probe.outcomes import MAX_WAITING, OutcomeQueue
from kernelcast.wire.events import OutcomeState


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
    queue.confirmed(())
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


def test_for_an_exporter_that_confirms_nothing_sent_is_delivered() -> None:
    queue = queue_of(MAX_WAITING)
    send(queue)
    add(queue, MAX_WAITING)
    assert (queue.unconfirmed, queue.dropped) == (0, 0)
    queue.reconnected()
    assert list(send(queue)) == [f"h{MAX_WAITING}"]


def test_unconfirmed_and_unsent_outcomes_share_one_bound_and_the_oldest_is_dropped_and_counted() -> None:
    queue = queue_of(2)
    queue.confirmed(())
    send(queue)
    for number in range(2, MAX_WAITING + 1):
        add(queue, number)
    assert (queue.dropped, queue.unconfirmed) == (1, 1)
    queue.reconnected()
    assert list(send(queue)) == [f"h{number}" for number in range(1, MAX_WAITING + 1)]

"""Judgement of a total that was excused for a while, by bridges that read a moment later than producers write."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.faults.model.cluster import Cluster
from tests.faults.model.invariants import Seen, Violation, Watcher
from tests.faults.model.producers import COUNTERS, DELTAS, GAUGE, TOTALS, Producer

TOTAL = ("orders_total", 0)


def excused_after(points: int, *, unread: int) -> tuple[Watcher, Any]:
    """A watcher that has excused a total while `points` were written, and a bridge that may not have read the last."""
    cluster = Cluster()
    cluster.create(DELTAS, 1)
    producer = Producer(cluster, 0)
    for _ in range(points):
        producer.write()
    bridge = SimpleNamespace(number=0, mode="replica", cluster=cluster, drops=0.0, ready=bool, shown=0.0)
    bridge.scrape = lambda: {TOTAL: bridge.shown}
    bridge.has_read_all, bridge.unread = lambda _producer: True, lambda _producer: unread
    bridge.overtaken = lambda _producer: 0
    watcher = Watcher([cast("Any", bridge)], [producer])
    watcher.seen[0, TOTAL] = Seen(value=3, increase=3, excused=True, topic_id=1)
    return watcher, bridge


def scraped(watcher: Watcher, bridge: Any, value: float) -> float:
    """Scrape a value of the total; returns how far it has risen at most."""
    bridge.shown = value
    watcher.scrape(bridge)
    return watcher.seen[0, TOTAL].increase


def test_a_point_that_was_not_read_when_an_excuse_ended_is_not_counted_twice() -> None:
    watcher, bridge = excused_after(10, unread=2)
    assert scraped(watcher, bridge, 9) == 8
    assert scraped(watcher, bridge, 10) == 9
    assert watcher.seen[0, TOTAL].missing == 2


def test_more_than_was_unread_is_found() -> None:
    watcher, bridge = excused_after(10, unread=2)
    scraped(watcher, bridge, 9)
    with pytest.raises(Violation, match="more is counted than was written"):
        scraped(watcher, bridge, 12)


def test_points_of_the_last_seconds_may_be_unread() -> None:
    watcher, bridge = excused_after(3, unread=0)
    (producer,) = watcher.producers
    bridge.cluster.clock.seconds += 5
    producer.write()
    assert producer.written_since(bridge.cluster.clock.seconds - 2) == 1
    assert producer.written_since(bridge.cluster.clock.seconds - 20) == 4


def restarted(value: float, *, new: int, lost: int) -> tuple[Watcher, str]:
    """A watcher of a bridge that exposed 6 of 6 points of a deleted topic and was restarted; the reason at the end."""
    watcher, bridge = excused_after(6, unread=0)
    watcher.seen = {(0, (name, 0)): Seen(value=6, increase=6, topic_id=1) for name in (*TOTALS, *COUNTERS, GAUGE)}
    bridge.lost, bridge.new_points = lambda _producer: lost, lambda _producer: new
    watcher.topic_deleted()
    (producer,) = watcher.producers
    bridge.cluster.delete(DELTAS)
    bridge.cluster.create(DELTAS, 1)
    for _ in range(new):
        producer.write()
    scraped(watcher, bridge, value)
    for name in TOTALS[1:]:
        watcher.seen[0, (name, 0)] = watcher.seen[0, TOTAL]
    return watcher, reason_at_the_end(watcher, value)


def reason_at_the_end(watcher: Watcher, value: float) -> str:
    """How a watcher finds its producer to differ from a page with the right counters and gauge, and these totals."""
    (producer,) = watcher.producers
    (run,) = producer.alive
    counters = dict.fromkeys(((name, 0) for name in COUNTERS), 64.0 * run.written + run.number)
    totals = dict.fromkeys(((name, 0) for name in TOTALS), value)
    return watcher.settled({0: {**counters, (GAUGE, 0): producer.gauges[-1], **totals}})


@pytest.mark.parametrize(("value", "new", "missing"), [(5, 1, 0), (7, 3, 2), (8, 3, 1), (9, 3, 0)])
def test_a_total_may_lack_the_points_that_are_lost_with_a_deleted_topic(value: int, new: int, missing: int) -> None:
    watcher, reason = restarted(value, new=new, lost=2)
    assert reason == ""
    assert watcher.seen[0, TOTAL].missing == missing
    assert watcher.seen[0, TOTAL].increase == 6 + new - missing


def test_a_total_that_lacks_one_point_more_than_are_lost_is_found() -> None:
    with pytest.raises(Violation, match="more is counted than was written"):
        restarted(4, new=1, lost=2)
    assert "has risen by 6, the truth is 9" in restarted(6, new=3, lost=2)[1]


@pytest.mark.parametrize(("value", "reason"), [(6, ""), (4, ""), (3, "producer 0: orders_total has risen by 3")])
def test_a_total_may_lack_the_points_that_were_overtaken_before_a_clock_was_corrected_and_no_more(
    value: int, reason: str
) -> None:
    watcher, bridge = excused_after(6, unread=0)
    bridge.overtaken = lambda _producer: 2
    watcher.seen = dict.fromkeys(((0, (name, 0)) for name in TOTALS), Seen(value=value, increase=value))
    assert reason_at_the_end(watcher, value).partition(",")[0] == reason


def test_what_is_lost_is_excused_once() -> None:
    watcher, _ = restarted(5, new=1, lost=2)
    with pytest.raises(Violation, match="more is counted than was written"):
        scraped(watcher, cast("Any", watcher.replicas[0]), 4)

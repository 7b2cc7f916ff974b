"""Totals across crashes, takeovers and snapshots: exact, and never falling within one start."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bridge.delta_streams import Delta
from tests.support.bridge.delta_world import ORDERS, P0, P1, STEP_NS, World
from tests.support.bridge.fleet import page, samples, values


def test_deltas_show_as_a_counter() -> None:
    world = World()
    world.start()
    for value in (3, 4, 5):
        world.produce(value)
    world.read()
    assert values(world.site.store, ORDERS) == [12]
    assert world.own("points_total", outcome="added") == 2


def test_a_crash_loses_nothing_and_counts_nothing_twice() -> None:
    world = World()
    world.start()
    for value in range(10):
        world.produce(value)
        world.wait(3)
    (start,) = world.starts()
    world.produce(100)
    world.crash()
    world.produce(1000)
    world.read()
    assert values(world.site.store, ORDERS) == [45 + 1100]
    assert world.starts() == [start]
    assert world.own("beginnings_total", cause="restored") == 1


def test_a_restart_reads_on_from_a_snapshot_that_is_older_than_one_time_to_live() -> None:
    world = World(ttl_seconds=10)
    world.start()
    world.produce(1)
    world.wait(1)
    for value in (2, 4, 8):
        world.clock.seconds += 9
        world.produce(value)
    world.crash()
    world.read()
    assert values(world.site.store, ORDERS) == [15]


def test_what_came_while_no_bridge_ran_is_counted_without_a_snapshot_too_but_once() -> None:
    world = World()
    world.start()
    world.produce(1)
    world.wait(6)
    world.state.logs.clear()
    world.kafka.commits.update(world.site.kafka.commits)
    world.produce(2)
    world.crash()
    world.produce(4)
    world.read()
    assert values(world.site.store, ORDERS) == [6]
    assert world.own("beginnings_total", cause="missing") == 1


def test_the_next_owner_of_a_partition_continues_where_the_last_one_stopped() -> None:
    world = World()
    world.start()
    world.produce(1)
    world.read()
    world.site.kafka.revoke(world.site.intake, P0)
    assert page(world.site.store) == ""
    world.produce(2)
    world.crash()
    world.read()
    assert values(world.site.store, ORDERS) == [3]


def test_an_owner_that_lost_its_partition_writes_nothing_over_the_new_owners_snapshot() -> None:
    world = World()
    world.start()
    world.produce(1)
    world.wait(1)
    old = world.site
    world.produce(2)
    world.crash()
    world.wait(1)
    written = sum(len(log) for log in world.state.logs.values())
    old.kafka.revoke(old.intake, P0, lost=True)
    assert sum(len(log) for log in world.state.logs.values()) == written


@pytest.mark.parametrize("fenced", [True, False])
def test_a_suspended_bridge_writes_no_snapshot_before_the_group_has_confirmed_it(*, fenced: bool) -> None:
    world = World()
    world.start()
    world.produce(1)
    world.wait(1)
    written = sum(len(log) for log in world.state.logs.values())
    world.clock.seconds += 20
    world.site.kafka.fenced = fenced
    world.produce(2)
    world.step()
    assert (sum(len(log) for log in world.state.logs.values()) == written) == fenced


@pytest.mark.parametrize("revoked", [True, False])
@pytest.mark.parametrize("fenced", [True, False])
def test_a_bridge_that_stops_right_after_a_pause_writes_its_totals_only_as_a_member(
    *, fenced: bool, revoked: bool
) -> None:
    world = World()
    world.start()
    world.produce(1)
    world.wait(1)
    written = sum(len(log) for log in world.state.logs.values())
    world.clock.seconds += 20
    world.site.kafka.fenced = fenced
    if revoked:
        world.site.kafka.revoke(world.site.intake, P0)
    world.site.intake.close()
    assert (sum(len(log) for log in world.state.logs.values()) > written) == (revoked and not fenced)


def test_a_bridge_that_has_lost_its_partition_counts_again_what_is_in_no_snapshot() -> None:
    world = World()
    world.start()
    world.wait(1)
    world.clock.seconds += 20
    world.site.kafka.fenced = True
    for value in (1, 2):
        world.produce(value)
    world.step()
    world.site.kafka.revoke(world.site.intake, P0, lost=True)
    world.site.kafka.fenced = False
    world.start()
    world.wait(1)
    assert values(world.site.store, ORDERS) == [3]


def test_half_a_snapshot_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelcast.bridge.delta.persistence.snapshot.PART_BYTES", 40)
    world = World()
    world.start()
    for value in (1, 2, 4, 8):
        world.produce(value)
        world.wait(11)
    for log in world.state.logs.values():
        newest = (log[-1].key() or b"").rpartition(b"/")[0]
        named = [(i, record) for i, record in enumerate(log) if (record.key() or b"").startswith(newest)]
        at = max(i for i, record in named if record.value() is not None)
        del log[at:]
    world.crash()
    world.read()
    assert values(world.site.store, ORDERS) == [15]
    assert world.own("beginnings_total", cause="restored") == 1


def test_compaction_leaves_the_newest_snapshot_and_no_more_than_one_before_it() -> None:
    world = World()
    world.start()
    for value in range(10):
        world.produce(value)
        world.wait(11)
    for _ in range(3):
        world.crash()
        world.wait(11)
    world.state.compact()
    assert sum(len(log) for log in world.state.logs.values()) <= 2
    world.crash()
    world.read()
    assert values(world.site.store, ORDERS) == [45]


def test_a_snapshot_of_another_topic_of_the_same_name_is_not_used() -> None:
    world = World()
    world.start()
    for value in range(5):
        world.produce(value)
    world.wait(1)
    world.kafka.logs[P0].clear()
    world.kafka.commits.clear()
    world.send(Delta(100 * STEP_NS, 101 * STEP_NS, 7))
    world.crash()
    world.read()
    assert values(world.site.store, ORDERS) == [7]
    assert world.own("beginnings_total", cause="other_log") == 1


def test_a_snapshot_that_is_too_old_is_not_used_and_logged() -> None:
    world = World()
    world.start()
    world.produce(1)
    world.wait(1)
    world.clock.seconds += 4000
    world.produce(2)
    world.crash()
    world.read()
    assert values(world.site.store, ORDERS) == [2]
    assert world.own("beginnings_total", cause="too_old") == 1


@pytest.mark.parametrize("hours", [-2, 2])
def test_a_bridge_whose_clock_is_wrong_at_its_start_uses_a_snapshot_by_kafkas_times(hours: int) -> None:
    world = World()
    world.start()
    world.produce(1)
    world.wait(1)
    world.produce(2)
    world.clock.offset_ns = hours * 3600 * STEP_NS
    world.crash()
    world.produce(4)
    world.read()
    assert values(world.site.store, ORDERS) == [7]
    assert world.own("beginnings_total", cause="restored") == 1


def test_a_snapshot_stays_of_use_while_nothing_is_written_after_it() -> None:
    world = World()
    world.start()
    world.produce(1)
    world.wait(1)
    world.clock.seconds += 4000
    world.crash()
    world.produce(2)
    world.read()
    assert values(world.site.store, ORDERS) == [3]


@pytest.mark.parametrize("grouped", [True, False])
def test_a_partition_that_was_added_while_no_bridge_ran_is_read_from_its_first_message(grouped: bool) -> None:  # noqa: FBT001  parameter
    world = World(grouped=grouped, ttl_seconds=10)
    world.start()
    world.produce(1)
    world.wait(1)
    for value in (2, 4, 8):
        world.clock.seconds += 9
        world.produce(value, partition=1)
    world.crash(P0, P1)
    world.read()
    assert values(world.site.store, ORDERS) == [15]


def test_a_replica_reads_an_added_partition_from_its_first_message_if_others_hold_the_topics_totals() -> None:
    world = World(ttl_seconds=10)
    world.start()
    world.produce(1)
    world.wait(1)
    for value in (2, 4, 8):
        world.clock.seconds += 9
        world.produce(value, series="b", partition=1)
    second = world.new_site()
    second.kafka.assign(second.intake, P1)
    second.read_all()
    assert second.own("kernelcast_bridge_delta_points_total", outcome="added") == 2


def test_an_unreadable_snapshot_is_not_used_and_logged() -> None:
    world = World()
    world.start()
    world.produce(1)
    world.wait(1)
    world.state.answers = False
    world.crash()
    world.produce(2)
    world.read()
    assert world.own("beginnings_total", cause="unread") == 1
    assert values(world.site.store, ORDERS)[0] >= 2


def test_snapshots_that_do_not_arrive_are_counted() -> None:
    world = World()
    world.start()
    world.state.fails = True
    world.produce(1)
    world.wait(1)
    assert world.own("snapshots_total", outcome="failed") == 1
    assert world.own("snapshots_total", outcome="written") == 0


def test_partitions_without_deltas_write_no_snapshots() -> None:
    world = World()
    world.start()
    world.wait(100)
    assert world.state.logs == {}


def test_the_total_of_a_series_that_has_ended_rests_and_is_dropped_with_its_snapshot_after_an_hour() -> None:
    world = World()
    world.start()
    world.produce(1)
    world.wait(1)
    world.idle(330)
    assert (values(world.site.store, ORDERS), world.own("series")) == ([], 1)
    world.idle(3400)
    assert world.own("series") == 0
    world.state.compact()
    assert not any(world.state.logs.values())
    world.produce(2)
    world.read()
    assert values(world.site.store, ORDERS) == [2]


@pytest.mark.parametrize("restarted", [True, False])
def test_a_series_that_returns_after_its_end_continues_its_total(restarted: bool) -> None:  # noqa: FBT001  parameter
    world = World()
    world.start()
    world.produce(1)
    world.wait(1)
    world.idle(400)
    if restarted:
        world.crash()
    world.produce(2, skip=400)
    world.read()
    assert values(world.site.store, ORDERS) == [3]


def test_a_message_that_is_sent_again_after_its_series_has_ended_is_not_counted_again() -> None:
    world = World()
    world.start()
    point = world.produce(1)
    world.wait(1)
    world.idle(400)
    world.send(point)
    world.wait(1)
    world.produce(2)
    world.read()
    assert values(world.site.store, ORDERS) == [3]
    assert world.own("points_total", outcome="duplicate") == 1


def test_a_series_that_may_have_continued_on_another_replica_restarts_when_it_returns() -> None:
    world = World()
    world.kafka.logs[P0], world.kafka.logs[P1] = [], []
    world.start(P0)
    world.produce(5)
    world.wait(1)
    world.idle(400)
    world.produce(2, skip=400)
    world.read()
    assert values(world.site.store, ORDERS) == [2]


def test_a_batch_that_failed_half_way_is_in_no_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.start()
    world.produce(1)
    world.wait(1)
    world.produce(2)

    def failing(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(world.site.store, "apply", failing)
    with pytest.raises(MemoryError):
        world.site.intake.step()
    world.site.kafka.revoke(world.site.intake, P0)
    world.crash()
    world.read()
    assert values(world.site.store, ORDERS) == [3]


def test_series_in_several_partitions_are_one_total_where_all_are_read() -> None:
    world = World(grouped=False)
    world.start(P0, P1)
    for i in range(20):
        world.produce(1, partition=i % 2)
    world.wait(1)
    assert values(world.site.store, ORDERS) == [20]
    for i in range(7):
        world.produce(1, partition=i % 2)
    world.crash(P0, P1)
    world.read()
    assert values(world.site.store, ORDERS) == [27]


def test_closing_keeps_what_no_group_takes_away() -> None:
    world = World(grouped=False)
    world.start()
    world.produce(1)
    world.read()
    world.site.intake.close()
    world.produce(2)
    world.crash()
    world.read()
    assert values(world.site.store, ORDERS) == [3]


ACTIONS = ("produce", "lose", "late", "again", "wait", "step", "crash", "move", "restart_producer")


@given(st.lists(st.sampled_from(ACTIONS), min_size=10, max_size=60), st.integers(0, 2**32), st.booleans())
def test_totals_are_exact_and_never_fall_in_any_schedule(actions: list[str], seed: int, grouped: bool) -> None:  # noqa: FBT001  hypothesis
    choose = random.Random(seed)
    world = World(grouped=grouped)
    partitions = (P0,) if grouped else (P0, P1)
    world.start(*partitions)
    world.produce(1, series="b")
    world.produce(1)
    world.read()
    world.wait(1)

    def anywhere() -> int:
        return choose.randrange(len(partitions))

    held: list[Delta] = []
    seen: dict[str, float] = {}
    does: dict[str, Any] = {
        "produce": lambda: world.produce(choose.randrange(1, 100), series=choose.choice("ab"), partition=anywhere()),
        "lose": lambda: world.produce(choose.randrange(100), skip=choose.randrange(1, 3), partition=anywhere()),
        "again": lambda: world.send(choose.choice(world.made), partition=anywhere()),
        "wait": lambda: world.wait(choose.choice((1, 11))),
        "step": world.step,
        "crash": lambda: world.crash(*partitions),
        "move": lambda: world.move(*partitions),
        "restart_producer": lambda: world.produce(1, skip=choose.randrange(5, 50), partition=anywhere()),
    }
    for action in actions:
        world.clock.seconds += 0.1
        if action == "late":
            held.append(world.produce(choose.randrange(100)))
            world.kafka.logs[P0].pop()
        else:
            does[action]()
        if held and choose.random() < 0.3:
            world.send(held.pop(0), partition=anywhere())
        for key, value in samples(page(world.site.store)).items():
            kind = dict(key[1])["kind"]
            assert value >= seen.get(kind, 0)
            seen[kind] = value
    for point in held:
        world.send(point, partition=anywhere())
    for series in "ab":  # a series that was silent for a minute has ended; its total goes on with its next point
        world.produce(1, series=series, partition=anywhere())
    world.read()
    for series in "ab":
        truth = sum(int(point.value or 0) for point in world.made if point.series == series)
        assert values_of(world, series) == truth


def values_of(world: World, series: str) -> float:
    found = [value for key, value in samples(page(world.site.store)).items() if dict(key[1])["kind"] == series]
    assert len(found) == 1
    return found[0]

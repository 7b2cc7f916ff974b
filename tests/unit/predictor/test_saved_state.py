"""State written a little at a time comes back as it was, whatever is missing of it."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kernelcast.predictor.arrays import Ints
from kernelcast.predictor.series.histories import Histories
from kernelcast.predictor.series.saved.parts import StatePart, pack, unpack
from kernelcast.predictor.series.saved.reader import Restored, StateReader
from kernelcast.predictor.series.saved.rows import RowColumn, SavedRows, StateTable
from kernelcast.predictor.series.saved.states import States
from kernelcast.predictor.series.saved.writer import StateWriter
from kernelcast.predictor.series.subjects import DURATION, Form, Subject
from kernelcast.predictor.series.windows import Windows

Array = NDArray[Any]

SECOND_NS = 1_000_000_000
START = 1_800_000_000
POINTS = 240


class Memory:
    """Series with their histories, a column and a table, and the writer of their state."""

    def __init__(self, *, points: int = POINTS, columns: Sequence[RowColumn] = ()) -> None:
        self.lock = threading.RLock()
        self.windows = Windows(interval_ns=15 * SECOND_NS, points=points, max_series=10_000)
        self.histories = Histories(self.windows, self.lock)
        self.alarms = np.zeros(10_000, np.int16)
        self.scores = np.zeros(3)
        self.rows = SavedRows(
            self.windows,
            self.lock,
            histories=self.histories,
            columns=[
                RowColumn("alarms", lambda rows: self.alarms[rows], self._restore_alarms),
                RowColumn("heavy", lambda rows: self.alarms[rows] * 2, lambda *_: None, in_increments=False),
                *columns,
            ],
        )
        self.rows.tables["scores"] = StateTable("scores", lambda: self.scores, self._restore_scores)
        self.writer = StateWriter(self.rows, epoch=1, sequence=0, every_seconds=60.0)
        self.second = START

    def _restore_alarms(self, rows: Ints, values: Array) -> None:
        self.alarms[rows] = values

    def _restore_scores(self, values: Array) -> None:
        self.scores = values

    def minutes(self, count: int, names: Sequence[str], *, seed: int = 1) -> None:
        """Write a value every 30 seconds to each series."""
        rng = np.random.default_rng(seed)
        for _ in range(2 * count):
            rows = np.array([self.windows.admit(subject(name), owner=0) for name in names])
            times = np.full(len(rows), self.second * SECOND_NS)
            self.windows.put_levels(rows, times, rng.normal(70, 1, len(rows)), now_seconds=0.0)
            self.second += 30
        self.histories.advance(self.windows.rows())

    def save(self, offset: int) -> dict[str, bytes | None]:
        return dict(self.writer.save(self.windows.owned_by([0]), offset))

    def content(self, names: Sequence[str], newest: int) -> list[Array]:
        """All that is known of series, an array each."""
        found = [self.windows.row(subject(name)) for name in names]
        rows = np.array([row for row in found if row is not None])
        parts = [
            self.windows.matrix(rows),
            np.stack([self.windows.newest[rows], self.windows.last_ns[rows], self.alarms[rows]], axis=1),
            *self.histories.blocks(rows, newest),
            self.histories.hours(rows, newest),
            self.histories.processes(rows, newest),
        ]
        blanks = np.array([row is None for row in found])
        return [_spread(part, blanks) for part in parts]


def _spread(part: Array, blanks: Array) -> Array:
    whole = np.full((len(blanks), part.shape[1]), np.nan)
    whole[~blanks] = part
    return whole


def subject(name: str) -> Subject:
    return Subject(DURATION, Form.MEAN, (("Hostname", "n1"), ("kernel", name)))


def restore(*snapshots: dict[str, bytes | None], into: Memory | None = None) -> tuple[Memory, Restored]:
    target, reader = into or Memory(), StateReader()
    for snapshot in snapshots:
        for key, value in snapshot.items():
            reader.put(key, value)
    return target, reader.restore(target.rows, 0, now_seconds=5.0)


def same(one: Memory, other: Memory, names: Sequence[str]) -> Array:
    """Of each series, whether both know the same."""
    newest = max(one.second, other.second) // 300
    pairs = zip(one.content(names, newest), other.content(names, newest), strict=True)
    equal: Array = np.logical_and.reduce([((a == b) | (np.isnan(a) & np.isnan(b))).all(axis=1) for a, b in pairs])
    return equal


NAMES = [f"k{number}" for number in range(130)]


def test_additions_upon_pages_give_the_same_state_as_a_whole_snapshot() -> None:
    before = Memory()
    snapshots = []
    for turn in range(12):
        before.minutes(7, NAMES, seed=turn)
        before.alarms[turn] = turn
        before.scores = np.array([turn, 2, 3.0])
        snapshots.append(before.save(100 + turn))
    assert sum(key.startswith("page") for key in snapshots[-1]) <= 1, "whole pages are written in turn"
    after, restored = restore(*snapshots)
    assert (restored.series, restored.offset, restored.reasons) == (len(NAMES), 111, [])
    assert same(before, after, NAMES).all()
    assert after.scores.tolist() == [11, 2, 3]


def test_a_restored_series_goes_on() -> None:
    before = Memory()
    before.minutes(90, NAMES[:3])
    after, _ = restore(before.save(1))
    after.second = before.second
    before.minutes(30, NAMES[:3], seed=2)
    after.minutes(30, NAMES[:3], seed=2)
    assert same(before, after, NAMES[:3]).all()


def test_a_crash_between_two_messages_leaves_each_page_at_one_of_two_snapshots() -> None:
    before = Memory()
    before.minutes(30, NAMES)
    first = before.save(10)
    before.minutes(5, NAMES, seed=2)
    whole = before.save(20)
    old, _ = restore(first)
    for sent in range(len(whole) + 1):
        after, restored = restore(first, dict(list(whole.items())[:sent]))
        assert restored.offset in {10, 20}
        assert (same(old, after, NAMES) | same(before, after, NAMES)).all()
        if restored.offset == 20:
            assert same(before, after, NAMES).all()


def test_a_missing_addition_leaves_the_state_before_it() -> None:
    before = Memory()
    snapshots = []
    for turn in range(4):
        before.minutes(10, NAMES[:5], seed=turn)
        snapshots.append(before.save(turn))
    old, _ = restore(*snapshots[:2])
    lost = {key: value for key, value in snapshots[2].items() if not key.startswith("added")}
    after, restored = restore(*snapshots[:2], lost, snapshots[3])
    assert restored.offset == 1
    assert same(old, after, NAMES[:5]).all()


@pytest.mark.parametrize("kind", ["page|1", "added|0"])
def test_a_corrupt_message_costs_its_series_only_and_the_past_is_read_again(kind: str) -> None:
    before = Memory()
    before.minutes(30, NAMES)
    first = before.save(10)
    before.minutes(5, NAMES, seed=2)
    second = before.save(20)
    snapshots = [first, second]
    for snapshot in snapshots[:1] if kind.startswith("page") else snapshots[1:]:
        for key, value in snapshot.items():
            if key.startswith(kind) and value is not None:
                snapshot[key] = value[:-5] + b"x" + value[-4:]
    after, restored = restore(*snapshots)
    assert restored.offset is None
    assert "checksum" in restored.reasons[0]
    old, _ = restore(first)
    absent = np.array([after.windows.row(subject(name)) is None for name in NAMES])
    assert (absent | same(old, after, NAMES) | same(before, after, NAMES)).all()
    assert restored.series == len(NAMES) - (48 if kind.startswith("page") else 0)


def test_a_message_that_kafka_did_not_take_is_made_good_by_the_next_snapshot() -> None:
    before = Memory()
    before.minutes(30, NAMES)
    first = before.save(10)
    before.minutes(5, NAMES, seed=2)
    lost = [key for key in before.save(20) if key.startswith("added")]
    before.writer.undelivered(lost[0])
    before.minutes(5, NAMES, seed=3)
    after, restored = restore(first, before.save(30))
    assert restored.offset == 30
    assert same(before, after, NAMES).all()


def test_series_that_ended_are_not_restored_and_their_place_is_used_again() -> None:
    before = Memory()
    before.minutes(30, NAMES)
    first = before.save(10)
    gone = np.array([before.windows.row(subject(name)) for name in NAMES[:60]])
    before.windows.drop(gone)
    before.minutes(5, [*NAMES[60:], "new"], seed=2)
    second = before.save(20)
    after, restored = restore(first, second)
    assert restored.series == len(NAMES) - 60 + 1
    assert same(before, after, ["new"]).all()
    assert same(before, after, NAMES[60:]).all()
    before.windows.drop(before.windows.rows())
    before.minutes(5, ["new"], seed=3)
    third = before.save(30)
    assert [key for key, value in third.items() if value is None] == ["page|1", "page|2"]
    _, restored = restore(first, second, {key: value for key, value in third.items() if value is not None})
    assert (restored.series, restored.offset) == (1, 30), "a crash before the deletion"
    before.writer.undelivered("page|2")
    assert [key for key, value in before.save(31).items() if value is None] == ["page|2"]


def test_a_page_whose_series_all_ended_does_not_spoil_the_others_until_it_is_deleted() -> None:
    names = [f"k{number}" for number in range(600)]
    before = Memory()
    before.minutes(1, names)
    topic = before.save(10) | before.save(11)
    ended = [name for number, name in enumerate(names) if number >= 430 or number % 40 == 0]
    before.windows.drop(np.array([before.windows.row(subject(name)) for name in ended]))
    names = [name for name in names if name not in ended]
    before.minutes(1, names, seed=2)
    changed = before.save(12)
    assert None not in changed.values(), "more pages have changed than a snapshot writes"
    after, restored = restore(topic, changed)
    assert (restored.series, restored.reasons) == (len(names) + 3, [])  # three of a page that is not written again yet
    known = same(before, after, names)
    assert (known | same(restore(topic)[0], after, names)).all()
    assert known.sum() > 0.8 * len(names)


def test_a_series_whose_clock_was_set_back_is_saved_whole() -> None:
    before = Memory()
    before.minutes(300, NAMES[:2])
    first = before.save(10)
    before.second -= 100 * 60
    before.minutes(30, NAMES[:2], seed=2)
    after, _ = restore(first, before.save(20))
    assert same(before, after, NAMES[:2]).all()


def test_a_later_writer_goes_over_an_earlier_one_page_by_page() -> None:
    before = Memory()
    before.minutes(30, NAMES)
    first = before.save(10)
    second, restored = restore(first)
    second.second = before.second
    second.writer = StateWriter(second.rows, epoch=2, sequence=restored.sequence, every_seconds=60.0, known=set(first))
    second.minutes(20, NAMES, seed=2)
    whole = second.save(20)
    after, restored = restore(first, dict(list(whole.items())[:1]))
    assert restored.series == len(NAMES)
    assert restored.offset == 10
    assert (same(before, after, NAMES) | same(second, after, NAMES)).all()
    after, restored = restore(first, whole)
    assert restored.offset == 20
    assert same(second, after, NAMES).all()


def test_no_series_is_lost_by_restarts_that_follow_before_all_pages_are_written_again() -> None:
    names = [f"k{number}" for number in range(600)]
    before = Memory()
    topic: dict[str, bytes | None] = {}
    for turn in range(30):  # pages of different snapshots
        before.minutes(1, names, seed=turn)
        topic |= before.save(turn)
    for _ in range(3):
        after, reader = Memory(), StateReader()
        for key, value in topic.items():
            reader.put(key, value)
        states = States(after.rows, every_seconds=60.0, clock_ns=lambda: 1)
        assert states.restore(("kernels", 0), reader, owner=0, now_seconds=5.0).series == len(names)
        assert same(before, after, names).all()
        topic |= dict(states.save(("kernels", 0), after.windows.owned_by([0]), 30))


@pytest.mark.slow
def test_every_page_is_written_again_before_an_addition_that_it_needs_is_replaced() -> None:
    before = Memory()
    before.writer = StateWriter(before.rows, epoch=1, sequence=0, every_seconds=1800.0)
    topic: dict[str, bytes | None] = {}
    for turn in range(80):
        before.minutes(3, NAMES, seed=turn)
        topic |= before.save(turn)
        if turn % 9 == 0:
            after, restored = restore(topic)
            assert restored.offset == turn
            assert same(before, after, NAMES).all()
    assert len(topic) <= 3 + (4 + 30) + 1


def test_state_on_another_grid_is_not_used() -> None:
    before = Memory()
    before.minutes(30, NAMES)
    after, restored = restore(before.save(1), into=Memory(points=120))
    assert (restored.series, restored.offset, restored.other_grid) == (0, None, True)
    assert len(after.windows) == 0


def test_each_message_is_small_enough_for_any_broker_and_the_lock_is_held_for_each_by_itself() -> None:
    before = Memory(points=2000)
    before.minutes(10, [f"series-{number}" for number in range(500)])
    held = []
    for _, value in before.writer.save(before.windows.owned_by([0]), 1):
        assert value is not None
        assert len(value) < 900_000
        held.append(before.lock.acquire(blocking=False))
        before.lock.release()
    assert all(held)


@pytest.mark.parametrize("written", [0, 1])
@pytest.mark.parametrize("owner", [None, 1])
def test_a_series_dropped_during_a_snapshot_does_not_shift_the_others(written: int, owner: int | None) -> None:
    before = Memory()
    before.minutes(30, NAMES)
    messages = before.writer.save(before.windows.owned_by([0]), 10)
    saved = dict(next(messages) for _ in range(written))
    dropped = before.windows.row(subject("k60"))
    before.windows.drop(np.array([dropped]))
    if owner is not None:
        assert before.windows.admit(subject("of another partition"), owner=owner) == dropped
    after, restored = restore({**saved, **dict(messages)})
    assert (restored.series, restored.offset, restored.reasons) == (len(NAMES) - 1, 10, [])
    assert same(before, after, [name for name in NAMES if name != "k60"]).all()
    assert after.windows.row(subject("k60")) is None
    assert after.windows.row(subject("of another partition")) is None


def test_a_page_with_fewer_series_than_slots_is_refused() -> None:
    before = Memory()
    before.minutes(30, NAMES[:5])
    saved = before.save(10)
    page = unpack(saved["page|0"] or b"")
    saved["page|0"] = pack(replace(page, text={**page.text, "series": page.text["series"][1:]}))
    after, restored = restore(saved)
    assert (restored.series, restored.offset, len(after.windows)) == (0, None, 0)
    assert "4 series in 5 slots" in restored.reasons[0]


def test_a_table_of_a_later_revision_does_not_prevent_a_restart() -> None:
    def restore_versions(_saved: Array) -> None:
        raise TypeError("Versions.__init__() takes from 1 to 8 positional arguments but 9 were given")

    before, after = Memory(), Memory()
    before.minutes(30, NAMES[:5])
    after.rows.tables["scores"] = StateTable("scores", lambda: np.zeros(1), restore_versions)
    after, restored = restore(before.save(10), into=after)
    assert (restored.series, restored.offset) == (5, None)
    assert "9 were given" in restored.reasons[0]


def test_a_page_of_a_later_revision_is_refused_and_its_head_means_nothing() -> None:
    before = Memory()
    before.minutes(30, NAMES[:5])
    saved = before.save(10)
    reader = StateReader()
    for key, value in {**saved, "page|1": b"KCPW" + b"\3\0" + b"\xff" * 60}.items():
        reader.put(key, value)
    states = States(Memory().rows, every_seconds=60.0, clock_ns=lambda: 1)
    restored = states.restore(("kernels", 0), reader, owner=0, now_seconds=5.0)
    assert (restored.series, restored.offset, restored.epoch) == (5, None, 1)
    assert "version 3; expected b'KCPW' version 2" in restored.reasons[0]
    windows = states.rows.windows
    assert "0" in dict(states.save(("kernels", 0), windows.owned_by([0]), 11)), "the next snapshot is written"


@pytest.mark.parametrize("key", ["added", "added|x|1", "page|", "foo|bar", "foo", "|", "page|x", "page|" + "9" * 5000])
def test_a_key_of_another_program_neither_stops_the_restoration_nor_the_next_snapshots(key: str) -> None:
    before = Memory()
    before.minutes(30, NAMES[:5])
    saved = before.save(10)
    reader = StateReader()
    for each, value in {**saved, key: pack(StatePart(1, 1, {}, {}))}.items():
        reader.put(each, value)
    known, after = reader.keys, Memory()
    restored = reader.restore(after.rows, 0, now_seconds=5.0)
    assert restored.series == 5
    assert same(before, after, NAMES[:5]).all()
    writer = StateWriter(after.rows, epoch=2, sequence=1, every_seconds=60.0, known=known)
    messages = [message for offset in (11, 12) for message in writer.save(after.windows.owned_by([0]), offset)]
    assert "0" in dict(messages), "the head is written"
    assert key not in dict(messages), "a message of another program stays"

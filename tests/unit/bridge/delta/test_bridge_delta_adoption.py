"""When a pending total is exposed: the former owner's snapshot must have what came before it."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from tests.support.bridge.list_kafka import ManualClock, StateLog

from kernelcast.bridge.delta.adoption import READ_SECONDS, Adoption
from kernelcast.bridge.delta.columns import INTEGER, MONOTONIC, NUMBER, PENDING
from kernelcast.bridge.delta.persistence.background import SnapshotReads, Starter, run_at_once
from kernelcast.bridge.delta.persistence.freeze import Columns, as_table, freeze
from kernelcast.bridge.delta.persistence.snapshot import TotalsSnapshot
from kernelcast.bridge.delta.persistence.state import StateTopic, name_of
from kernelcast.bridge.delta.rows import TotalRows
from kernelcast.bridge.partitions.partition import Key
from kernelcast.bridge.tables.columns import Int64Array

SECOND_NS = 1_000_000_000
OURS, FORMER = ("kernels", 1), ("kernels", 0)
OUR_ORDERS, OTHER_ORDERS = ("orders", 1), ("orders", 0)
SERIES, ORDER_SERIES = b"a" * 16, b"b" * 16


def add_total(rows: TotalRows, digest: bytes, partition: int, total: int, seconds: tuple[int, int], flags: int) -> int:
    """Add a total that began at one second and had its newest point at another."""
    row = rows.new(digest, NUMBER, monotonic=True)
    columns = rows.columns
    columns.flags[row] = MONOTONIC | INTEGER | flags
    columns.partition[row], columns.integer[row] = partition, total
    columns.moved_ms[row], columns.append_ms[row] = (second * 1_000 for second in seconds)
    columns.start_ns[row] = columns.begin_ns[row] = seconds[0] * SECOND_NS
    columns.last_ns[row] = seconds[1] * SECOND_NS
    return row


@dataclass
class Replica:
    """A replica with a pending total of 7, whose former owner has counted 50; seconds are those of Kafka's clock.

    Attributes:
        needed: What Kafka answers: the first offset of each partition after the move.
    """

    clock: ManualClock = field(default_factory=ManualClock)
    needed: dict[Key, int] = field(default_factory=lambda: {FORMER: 5, OTHER_ORDERS: 5})
    others: tuple[Key, ...] = (FORMER, OTHER_ORDERS)
    starter: Starter = run_at_once

    def __post_init__(self) -> None:
        self.log = StateLog(self.clock)
        self.state = StateTopic("group", self.log, self.log.open, now_ns=self.clock.now_ns)
        self.rows = TotalRows(9)
        self.row = add_total(self.rows, SERIES, 1, 7, (105, 180), PENDING)
        reads = SnapshotReads(self.state.for_other_thread(), self.starter)
        self.adoption = Adoption(self.rows, reads, self.clock, hold_seconds=60, ttl_seconds=300)

    def write(self, key: Key, position: int, *totals: tuple[bytes, int], damaged: int | None = None) -> None:
        """Write another replica's snapshot as of an offset, with totals that ended at second 90, one maybe damaged."""
        rows = TotalRows(9)
        for digest, total in totals:
            add_total(rows, digest, 0, total, (1, 90), 0)
        columns = freeze(rows, rows.in_use(), {0: 0})
        if damaged is not None:
            columns["kind"][damaged] = 77
        snapshot = TotalsSnapshot(secrets.token_bytes(8), position, ((key, position),), columns)
        self.state.write(name_of(key), snapshot, lambda _error: None)

    def settle(self, second: int) -> None:
        self.clock.seconds += READ_SECONDS

        def offsets_since(keys: Sequence[Key], _since_ms: int) -> Mapping[Key, int]:
            return {key: self.needed[key] for key in keys if key in self.needed}

        self.adoption.continue_totals({OURS: 1, OUR_ORDERS: 2}, self.others, {}, second * 1_000, (), offsets_since)

    def exposed(self, row: int) -> int | None:
        """The exposed total of a row; None while it is pending."""
        return None if self.rows.columns.flags[row] & PENDING else int(self.rows.columns.integer[row])


def test_a_pending_total_gets_the_former_owners_total() -> None:
    replica = Replica()
    replica.write(FORMER, 5, (SERIES, 50))
    replica.settle(186)
    assert replica.exposed(replica.row) == 57


def test_a_damaged_total_of_a_snapshot_costs_only_its_own_series() -> None:
    replica = Replica()
    other = add_total(replica.rows, ORDER_SERIES, 1, 7, (105, 180), PENDING)
    replica.write(FORMER, 5, (SERIES, 50), (ORDER_SERIES, 60), damaged=1)
    replica.settle(186)
    assert (replica.exposed(replica.row), replica.exposed(other)) == (57, 7)


def test_of_a_snapshot_only_the_totals_of_pending_series_are_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    converted: list[int] = []

    def counted(columns: Columns) -> TotalRows:
        converted.append(len(columns["kind"]))
        return as_table(columns)

    monkeypatch.setattr("kernelcast.bridge.delta.former.as_table", counted)
    replica = Replica()
    other = add_total(replica.rows, ORDER_SERIES, 1, 7, (105, 180), PENDING)
    strangers = [(i.to_bytes(16, "big"), i) for i in range(6)]
    replica.write(FORMER, 5, *strangers[:3], (SERIES, 50), *strangers[3:], (ORDER_SERIES, 60))
    replica.settle(186)
    assert (replica.exposed(replica.row), replica.exposed(other)) == (57, 67)
    assert converted == [2]


def test_a_pending_total_waits_while_kafka_does_not_say_whether_the_former_owner_lags() -> None:
    """The former partition has no leader, while Kafka answers for the others; the snapshot is of before the series."""
    replica = Replica(needed={OTHER_ORDERS: 5})
    replica.write(FORMER, 1)
    replica.write(OTHER_ORDERS, 9)
    replica.settle(186)
    assert replica.exposed(replica.row) is None
    replica.needed[FORMER] = 5
    replica.write(FORMER, 5, (SERIES, 50))
    for second in (196, 226):
        replica.settle(second)
    assert replica.exposed(replica.row) == 57


def test_a_pending_total_waits_one_time_to_live_at_most_for_a_partition_without_a_leader() -> None:
    replica = Replica(needed={})
    replica.write(FORMER, 1)
    replica.settle(400)
    assert replica.exposed(replica.row) is None
    replica.settle(406)
    assert replica.exposed(replica.row) == 7


def test_a_replica_that_lags_in_one_topic_delays_no_new_series_of_another() -> None:
    replica = Replica(needed={FORMER: 5, OTHER_ORDERS: 5})
    new = add_total(replica.rows, ORDER_SERIES, 2, 3, (105, 180), PENDING)
    replica.write(FORMER, 1)
    replica.write(OTHER_ORDERS, 9)
    replica.settle(186)
    assert (replica.exposed(replica.row), replica.exposed(new)) == (None, 3)


@pytest.mark.parametrize("ends_between", [False, True])
def test_a_slow_read_for_one_topic_says_nothing_about_a_series_of_another(*, ends_between: bool) -> None:
    """The read of the first topic ends after a series of the second one is overdue, at the worst moment or later."""
    reads: list[Callable[[], None]] = []
    replica = Replica(starter=reads.append)
    replica.write(FORMER, 5, (SERIES, 50))
    replica.write(OTHER_ORDERS, 5, (ORDER_SERIES, 60))
    replica.settle(186)
    moved = add_total(replica.rows, ORDER_SERIES, 2, 3, (105, 180), PENDING)
    if ends_between:
        overdue = replica.adoption._overdue

        def ends(newest_append_ms: int) -> Int64Array:
            reads.pop()()
            replica.adoption._overdue = overdue  # type: ignore[method-assign]
            return overdue(newest_append_ms)

        replica.adoption._overdue = ends  # type: ignore[method-assign]
        replica.settle(196)
    else:
        replica.settle(196)
        reads.pop()()
        replica.settle(197)
    assert (replica.exposed(replica.row), replica.exposed(moved)) == (57, None)
    replica.settle(207)
    reads.pop()()
    replica.settle(208)
    assert replica.exposed(moved) == 63

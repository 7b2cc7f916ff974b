"""Orders to stop trials on a node: the file of stopped programs, and the hints of connected programs."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs
from tests.support.runtime.kafka_record import Record

from kernelcast.exporter.hints.orders import MAX_ORDERS, OrderInbox, StoppedFile
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.topics import ORDERS
from kernelcast.wire.tuning.approvals import Approval
from kernelcast.wire.tuning.orders import StopOrder, stop_event


def message(order: StopOrder, raw: bytes | None = b"") -> Record:
    body = encode_event(stop_event(order, source="/test")) if raw == b"" else raw
    return Record((ORDERS.name, 0, 0), body, keyed=order.key.encode())


@dataclass
class Node:
    """A node with the name `node1`, and what its programs and dead letters received."""

    directory: Path
    stopped: list[set[str]] = field(default_factory=list)
    dead_letters: list[str] = field(default_factory=list)
    approved: list[list[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.file = StoppedFile(self.directory)
        self.inbox = OrderInbox("node1", self, self.file, self)

    def stop(self, programs: Collection[str]) -> None:
        self.stopped.append(set(programs))

    def approve(self, approvals: Iterable[Approval]) -> None:
        self.approved.append([one.hint_id for one in approvals])

    def send(self, message: Any, error: Exception) -> None:  # noqa: ARG002  the protocol's
        self.dead_letters.append(str(error))


def test_the_orders_of_this_node_are_applied_once_all_were_read(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.inbox.receive(message(StopOrder("train", by="ana", reason="driver")))
    node.inbox.receive(message(StopOrder("serve", "node1")))
    node.inbox.receive(message(StopOrder("other", "node2")))
    assert not node.stopped
    assert not node.file.path.exists()
    node.inbox.caught_up()
    assert node.stopped == [{"train", "serve"}]
    assert node.file.read() == {"train": "stopped by ana: driver", "serve": "stopped"}
    assert node.file.path.stat().st_mode & 0o777 == 0o644


def test_an_order_is_lifted_by_a_newer_one_or_by_an_empty_message(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.inbox.caught_up()
    for order in (StopOrder("train"), StopOrder("serve"), StopOrder("train", in_force=False)):
        node.inbox.receive(message(order))
    assert node.file.read() == {"serve": "stopped"}
    node.inbox.receive(message(StopOrder("serve"), raw=None))
    assert node.stopped[-1] == set()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_an_earlier_run_without_an_order_is_removed(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.file.write({"train": "stopped"})
    node.inbox.caught_up()
    assert not node.file.path.exists()


def test_a_name_of_several_lines_does_not_rewrite_the_file_with_every_order(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.inbox.caught_up()
    with capture_logs() as logs:
        node.inbox.receive(message(StopOrder("train", by="ana\n  of  the night shift")))
        node.inbox.receive(message(StopOrder("other", "node2")))
    assert node.file.read() == {"train": "stopped by ana of the night shift"}
    assert [one["event"] for one in logs] == ["stopped programs changed"]


def test_long_names_do_not_stop_programs_without_an_order(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for number in range(10):
        node.inbox.receive(message(StopOrder(f"p{number}", by="a" * 40_000)))
    node.inbox.caught_up()
    assert node.file.read().keys() == {f"p{number}" for number in range(10)}


def test_what_is_no_order_goes_to_the_dead_letters(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.inbox.caught_up()
    node.inbox.receive(message(StopOrder(), raw=b"{}"))
    assert "specversion" in node.dead_letters[0]
    assert node.stopped == [set()]


def test_orders_beyond_the_limit_go_to_the_dead_letters(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for number in range(MAX_ORDERS + 1):
        node.inbox.receive(message(StopOrder(f"p{number}")))
    node.inbox.caught_up()
    assert len(node.stopped[0]) == MAX_ORDERS
    assert "the limit is 1024" in node.dead_letters[0]


def test_a_folder_that_cannot_be_written_is_logged_and_hints_are_withdrawn(tmp_path: Path) -> None:
    node = Node(tmp_path / "missing")
    node.inbox.caught_up()
    with capture_logs() as logs:
        node.inbox.receive(message(StopOrder("train")))
    assert node.stopped[-1] == {"train"}
    assert [one["event"].partition(":")[0] for one in logs] == ["file of stopped programs cannot be written"]

from typing import Any

import pytest
import structlog

from kernelcast.exporter.programs import refusal_log
from kernelcast.exporter.programs.places import ConnectionPlaces, ProgramConnection
from kernelcast.exporter.programs.refusal_log import RefusalLog
from kernelcast.exporter.programs.socket import Peer


class Socket:
    """A file descriptor, and nothing behind it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def fileno(self) -> int:
        return self.number


class Door:
    """Places with a clock that a test moves."""

    def __init__(self, limit: int) -> None:
        self.now = 100.0
        self.places = ConnectionPlaces(limit, 5.0, lambda: self.now)
        self.next = 0

    def enter(self, uid: int, *, greeted: bool = True) -> int | None:
        """Connect as a user; the number of the connection that went for it, or None."""
        displaced = None
        if self.places.is_full:
            displaced = self.places.to_displace(uid)
            if displaced is None:
                return None
            self.places.remove(displaced)
        self.next += 1
        socket: Any = Socket(self.next)
        self.places.add(ProgramConnection(socket, Peer(self.next, uid)))
        if greeted:
            self.places.greeted(self.next)
        return displaced

    def held(self, uid: int) -> int:
        found = (self.places.get(number) for number in self.places.numbers)
        return sum(connection is not None and connection.peer.uid == uid for connection in found)


def test_one_user_may_have_every_place_and_no_more() -> None:
    door = Door(4)
    for _ in range(6):
        door.enter(1)
    assert door.held(1) == 4


def test_users_end_with_equal_shares_and_take_no_places_back_and_forth() -> None:
    door = Door(8)
    for _ in range(8):
        door.enter(1)
    for _ in range(20):
        door.enter(2)
    assert (door.held(1), door.held(2)) == (4, 4)
    for _ in range(20):
        door.enter(1)
    assert (door.held(1), door.held(2)) == (4, 4)
    door.enter(3)
    assert door.held(3) == 1


def test_the_first_to_go_is_silent_then_the_newest_so_that_old_programs_stay() -> None:
    door = Door(4)
    for greeted in (True, True, False, False):
        door.enter(1, greeted=greeted)
    assert door.enter(2) == 3
    assert door.enter(2) == 4
    assert door.enter(3) is not None
    assert door.places.get(1) is not None


def test_within_one_user_only_a_silent_connection_gives_way() -> None:
    door = Door(2)
    door.enter(1, greeted=True)
    door.enter(1, greeted=False)
    assert door.enter(1) == 2
    assert door.enter(1) is None


def test_a_silent_connection_is_overdue_after_five_seconds_and_the_wait_ends_then() -> None:
    door = Door(4)
    assert door.places.wait_seconds() is None
    door.enter(1, greeted=False)
    door.enter(1, greeted=True)
    door.now += 2
    door.enter(1, greeted=False)
    assert door.places.wait_seconds() == pytest.approx(3)
    assert door.places.overdue() == []
    door.now += 3
    assert door.places.overdue() == [1]


def test_refusals_are_logged_once_in_ten_seconds_with_how_many_were_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    log = RefusalLog(lambda: now[0])
    with structlog.testing.capture_logs() as lines:
        monkeypatch.setattr(refusal_log, "_log", structlog.get_logger())
        for number in range(50):
            log.write("frames", f"bad frame {'x' * number}", uid=1000, pid=number)
        log.write("limit", "256 programs are connected", uid=1000, pid=1)
        now[0] = 10.0
        log.write("frames", "bad frame", uid=1000, pid=1)
    said: list[Any] = [(line["reason"], line["suppressed"]) for line in lines]
    assert said == [("frames", 0), ("limit", 0), ("frames", 49)]

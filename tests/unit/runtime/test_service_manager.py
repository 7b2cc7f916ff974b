"""Notifications to systemd: when each is sent, and which hung part ends them."""

from kernelcast.runtime.service_manager import STATUS_SECONDS, ServiceManager


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Manager:
    """A service manager with a watchdog of 40 s, whose datagrams are kept."""

    def __init__(self, watchdog_seconds: float = 40.0) -> None:
        self.clock = Clock()
        self.sent: list[str] = []
        self.service = ServiceManager(
            lambda datagram: self.sent.append(datagram.decode()), watchdog_seconds=watchdog_seconds, clock=self.clock
        )

    def take(self) -> list[str]:
        taken, self.sent[:] = list(self.sent), []
        return taken


def test_ready_is_sent_once_each_part_has_completed_a_pass() -> None:
    manager = Manager()
    reading, web = manager.service.part("reading"), manager.service.part("web")

    web.progressed()
    web.progressed()
    assert manager.take() == []

    reading.progressed()
    assert manager.take() == ["READY=1\nWATCHDOG=1"]


def test_what_systemd_did_not_receive_is_sent_again_soon() -> None:
    manager = Manager()
    sent, full = manager.sent, True

    def send(datagram: bytes) -> None:
        if full:
            raise BlockingIOError("the socket's queue is full")
        sent.append(datagram.decode())

    manager.service = ServiceManager(send, watchdog_seconds=600.0, clock=manager.clock)
    reading = manager.service.part("reading")
    reading.progressed()
    manager.service.report(lambda: (True, ""))
    assert manager.take() == []

    full = False
    manager.clock.seconds = STATUS_SECONDS
    reading.progressed()
    manager.service.report(lambda: (True, ""))
    assert manager.take() == ["READY=1\nWATCHDOG=1", "STATUS=ready"]


def test_the_watchdog_is_fed_four_times_a_period_however_often_the_parts_report() -> None:
    manager = Manager()
    reading = manager.service.part("reading")
    for _ in range(400):
        reading.progressed()
        manager.clock.seconds += 0.1

    assert [note for note in manager.take() if "WATCHDOG=1" in note] == ["READY=1\nWATCHDOG=1", *3 * ["WATCHDOG=1"]]


def test_one_hung_part_ends_the_notes_while_the_others_go_on() -> None:
    manager = Manager()
    reading, web = manager.service.part("reading"), manager.service.part("web")
    for part in (reading, web):
        part.progressed()
    manager.take()

    for _ in range(100):
        manager.clock.seconds += 1
        web.progressed()
    assert manager.take() == []

    reading.progressed()
    assert manager.take() == ["WATCHDOG=1"]


def test_a_part_that_waits_for_longer_than_the_period_reports_meanwhile() -> None:
    manager = Manager()
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        manager.clock.seconds += seconds
        return False

    part = manager.service.part("cycles")
    part.progressed()
    manager.take()

    assert part.wait(wait, 95.0) is False
    assert (sum(waits), max(waits)) == (95.0, 10.0)
    assert manager.take() == 9 * ["WATCHDOG=1"]


def test_a_wait_ends_when_its_event_is_set() -> None:
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) == 2

    assert Manager().service.part("cycles").wait(wait, 95.0) is True
    assert len(waits) == 2


def test_without_a_watchdog_only_readiness_is_sent() -> None:
    manager = Manager(watchdog_seconds=0.0)
    part = manager.service.part("reading")
    for _ in range(100):
        part.progressed()
        manager.clock.seconds += 10

    assert manager.take() == ["READY=1"]


def test_the_state_is_one_line_and_sent_when_it_changes_but_not_more_often_than_every_5_seconds() -> None:
    manager = Manager()
    manager.service.report(lambda: (False, "Kafka\nis away"))
    manager.service.report(lambda: (True, ""))
    assert manager.take() == ["STATUS=not ready: Kafka is away"]

    for _ in range(3):
        manager.clock.seconds += STATUS_SECONDS
        manager.service.report(lambda: (True, ""))
    manager.service.stopping()
    assert manager.take() == ["STATUS=ready", "STOPPING=1"]


def test_a_check_that_fails_is_a_state_and_no_error() -> None:
    def fail() -> tuple[bool, str]:
        raise RuntimeError("dictionary changed size during iteration")

    manager = Manager()
    manager.service.report(fail)
    assert manager.take() == ["STATUS=not ready: RuntimeError('dictionary changed size during iteration')"]


def test_a_socket_that_is_gone_does_not_disturb_the_service() -> None:
    attempts: list[bytes] = []

    def refuse(datagram: bytes) -> None:
        attempts.append(datagram)
        raise FileNotFoundError(2, "No such file or directory")

    service = ServiceManager(refuse)
    service.part("reading").progressed()
    service.stopping()
    assert any(b"READY=1" in one for one in attempts)
    assert b"STOPPING=1" in attempts[-1]


def test_the_variables_are_taken_from_the_environment_so_that_no_child_inherits_them() -> None:
    environ = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "40000000", "WATCHDOG_PID": "7", "PATH": "/bin"}

    assert ServiceManager.from_environ(environ, pid=7).slice_seconds == 10.0
    assert environ == {"PATH": "/bin"}


def test_a_watchdog_for_another_process_is_not_fed() -> None:
    environ = {"NOTIFY_SOCKET": "@x", "WATCHDOG_USEC": "20000000", "WATCHDOG_PID": "7"}

    assert ServiceManager.from_environ(environ, pid=8).slice_seconds == 10.0, "the default, not a quarter of 20 s"

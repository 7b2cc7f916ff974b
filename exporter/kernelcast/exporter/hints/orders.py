"""Applies people's orders from Kafka to the programs of this node: stop orders, and approvals of hints.

The exporter writes the names of stopped programs to a file beside its socket, which programs read, and withdraws their
hints. The file outlives the exporter: an order stays in force while the exporter or Kafka is down.
"""

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from kernelcast.exporter.hints.approvals import Approvals
from kernelcast.runtime.kafka.clients import DeadLetterSink, ReceivedMessage
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.tuning.approvals import APPROVAL_TYPE, Approval, approval_from, approval_key
from kernelcast.wire.tuning.orders import MAX_FILE_BYTES, STOPPED_FILE, StopOrder, file_text, reasons_in, stop_from

MAX_ORDERS: Final = 1024
"""Bound of memory; one order can stop all programs, so few are needed."""
FILE_MODE: Final = 0o644
"""Programs of every user read the file; only the exporter writes it."""

_log = get_logger(__name__)


class OrderedPrograms(Protocol):
    """The node's processes; `programs.server.ProbeServer` in the daemon."""

    def stop(self, programs: Collection[str]) -> None:
        """Withdraw every hint from processes of these programs, and queue none for them; release all other programs."""
        ...

    def approve(self, approvals: Iterable[Approval]) -> None:
        """Deliver the hints that these answers approve, and withdraw those whose approval is gone."""
        ...


class StoppedFile:
    """A file that lists programs and reasons, by default the stopped ones; without programs the file does not exist.

    It is replaced as a whole, because programs read it at any time. `OrderInbox` and `PausedPrograms` write one each.

    Args:
        directory: The folder of the probe's socket.
        name: Name of the file.
    """

    def __init__(self, directory: Path, name: str = STOPPED_FILE) -> None:
        self.path = directory / name

    def read(self) -> dict[str, str]:
        """Return the reasons by program; empty without a readable file."""
        with contextlib.suppress(OSError), self.path.open(encoding="utf-8", errors="replace") as file:
            return reasons_in(file.read(MAX_FILE_BYTES))
        return {}

    def update(self, reasons: Mapping[str, str]) -> bool:
        """Replace or remove the file unless it says the same already; returns whether it did.

        Raises:
            OSError: The folder cannot be written.
        """
        if reasons_in(file_text(reasons)) == self.read():
            return False
        self.write(reasons)
        return True

    def write(self, reasons: Mapping[str, str]) -> None:
        """Replace the file, or remove it if no program is stopped.

        Raises:
            OSError: The folder cannot be written.
        """
        if not reasons:
            self.path.unlink(missing_ok=True)
            return
        temporary = self.path.with_name(f"{self.path.name}.new")
        temporary.unlink(missing_ok=True)
        with temporary.open("x", encoding="utf-8", errors="replace") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            file.write(file_text(reasons))
        temporary.replace(self.path)


class OrderInbox:
    """Keeps the orders in force on this node, and applies them to its programs. The thread of its reader uses it.

    Args:
        node: Name of the node in orders.
        programs: Are stopped, and receive approved hints.
        file: Lists the stopped programs.
        dead_letters: Receives messages that cannot be decoded, and orders beyond `MAX_ORDERS`.
        clock: Unix nanoseconds.
    """

    def __init__(
        self,
        node: str,
        programs: OrderedPrograms,
        file: StoppedFile,
        dead_letters: DeadLetterSink,
        *,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._node = node
        self._programs = programs
        self._file = file
        self._dead_letters = dead_letters
        self._clock = clock
        self._orders: dict[str, StopOrder] = {}
        self._approvals = Approvals()
        self._is_open = False

    def receive(self, message: ReceivedMessage) -> None:
        """Process one message; until `caught_up` is called nothing is applied."""
        key, value = (message.key() or b"").decode(errors="replace"), message.value()
        try:
            if value is None:
                self._remove(key)
            else:
                self._receive_event(key, decode_event(value))
        except EventError as error:
            self._dead_letters.send(message, error)
            return
        if self._is_open:
            self._apply()

    def _receive_event(self, key: str, event: dict[str, Any]) -> None:
        if event["type"] == APPROVAL_TYPE:
            self._approvals.add(approval_from(event), self._clock())
            return
        order = stop_from(event)
        self._keep(key or order.key, order)

    def _remove(self, key: str) -> None:
        self._orders.pop(key, None)
        if key.startswith(approval_key("")):
            self._approvals.remove(key.removeprefix(approval_key("")))

    def caught_up(self) -> None:
        """Apply the orders read so far, and from now on every order when it comes."""
        self._is_open = True
        self._apply()

    def _keep(self, key: str, order: StopOrder) -> None:
        self._orders.pop(key, None)
        if not order.applies_to(self._node):
            return
        if len(self._orders) >= MAX_ORDERS:
            raise EventError(
                f"node {self._node} has {len(self._orders)} stop orders; the limit is {MAX_ORDERS}; "
                "lift some, or stop all programs with one order"
            )
        self._orders[key] = order

    def _apply(self) -> None:
        reasons = {order.program: order.sentence for order in self._orders.values()}
        try:
            if self._file.update(reasons):
                _log.info("stopped programs changed", programs=len(reasons), file=str(self._file.path))
        except OSError as error:
            _log.warning(
                "file of stopped programs cannot be written: hints are withdrawn, but programs may try values of "
                "their own",
                file=str(self._file.path),
                error=str(error),
            )
        self._programs.stop(reasons)
        self._programs.approve(self._approvals.all())

"""Reads snapshots of other replicas while the consuming thread goes on reading messages."""

import threading
from collections.abc import Callable, Iterable, Mapping

import structlog

from kernelcast.bridge.delta.persistence.snapshot import Key, TotalsSnapshot
from kernelcast.bridge.delta.persistence.state import StateTopic, name_of
from kernelcast.wire.errors import BrokerError

Starter = Callable[[Callable[[], None]], None]
"""Runs a function, at once or on another thread."""


def run_at_once(function: Callable[[], None]) -> None:
    """Run a function and wait for it."""
    function()


def run_on_thread(function: Callable[[], None]) -> None:
    """Run a function on a thread of its own."""
    threading.Thread(target=function, name="delta-snapshots", daemon=True).start()


class SnapshotReads:
    """Reads snapshots, one read at a time. The consuming thread starts a read and takes its result later."""

    def __init__(self, state: StateTopic, starter: Starter) -> None:
        """Start without a read.

        Args:
            state: The topic of snapshots; no other thread uses this object.
            starter: Runs a read.
        """
        self._state, self._starter = state, starter
        self._running = False
        self._found: dict[Key, TotalsSnapshot] | None = None
        self._log = structlog.stdlib.get_logger("bridge.delta")

    def begin(self, keys: Iterable[Key], topic_ids: Mapping[str, str]) -> bool:
        """Start to read the snapshots of partitions, of topics with these ids.

        Returns:
            Whether the read was started: not while another one is running, or its result has not been taken.
        """
        if self._running or self._found is not None:  # in this order: a read sets its result before it ends
            return False
        self._running, wanted, ids = True, {name_of(key): key for key in keys}, dict(topic_ids)
        self._starter(lambda: self._read(wanted, ids))
        return True

    def take(self) -> dict[Key, TotalsSnapshot] | None:
        """Return the snapshots of a read that has ended since the last call; None if none has, or if it failed."""
        found, self._found = self._found, None
        return found

    def _read(self, wanted: dict[str, Key], topic_ids: dict[str, str]) -> None:
        try:
            found = self._state.read(list(wanted), lambda one: one.matches_topics(topic_ids)) if wanted else {}
            self._found = {wanted[name]: one for name, one in found.items() if isinstance(one, TotalsSnapshot)}
        except BrokerError as error:
            self._log.warning("totals of other replicas not read", reason=str(error))
        finally:
            self._running = False

"""The thread that runs a backlog: serves Kafka's answers, syncs the disk, replays. `kafka_output` starts it."""

from types import TracebackType
from typing import Final, Self

from kernelcast.exporter.delivery.spool.backlog import SpoolBacklog
from kernelcast.runtime.logging import get_logger
from kernelcast.runtime.threads import Worker

POLL_SECONDS: Final = 1.0
"""Longest wait for an answer of Kafka, and so between two syncs of the disk."""
REPLAY_POLL_SECONDS: Final = 0.1
"""The same while messages wait on disk, because the throttle allows more of them as time passes."""
STOP_SECONDS: Final = 5.0
"""Longest wait for the thread at the end; a sync of a slow disk may take seconds."""

_log = get_logger(__name__)


class Pump:
    """Polls a backlog for the duration of a block, and sleeps while Kafka has confirmed everything."""

    def __init__(self, backlog: SpoolBacklog) -> None:
        self._backlog = backlog
        self._thread = Worker("backlog", self._run)
        self._stopping = self._thread.stopping

    def __enter__(self) -> Self:
        self._backlog.wake.set()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._backlog.wake.set()
        self._thread.stop(STOP_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._backlog.wake.wait()
            self._backlog.wake.clear()
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001  it must go on, or everything waits for ever
                _log.error("backlog failed", error_type=type(error).__name__, reason=str(error))
                self._stopping.wait(POLL_SECONDS)
                self._backlog.wake.set()

    def _turn(self) -> None:
        while not (self._stopping.is_set() or self._backlog.idle):
            self._backlog.poll(REPLAY_POLL_SECONDS if self._backlog.behind else POLL_SECONDS)

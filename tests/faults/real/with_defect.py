"""Runs kernelcast's command with a defect put back: `python -m tests.faults.real.with_defect NAME bridge …`.

The invariants of real schedules are shown to fail with it.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import TopicPartition

from kernelcast.bridge.intake.consume import Intake
from kernelcast.cli.__main__ import main
from kernelcast.runtime.web.config import WebConfig
from kernelcast.runtime.web.watched import WatchedConfig, WatchedContext
from kernelcast.wire.errors import ConfigurationError

SLOW_SECONDS: Final = 5.0


def handshakes_hang() -> None:
    """`wrap_bio` raises while the web configuration is wrong, and asyncio leaves the connection open."""
    original = WatchedContext.wrap_bio

    def wrap_bio(self: WatchedContext, *arguments: Any, **named: Any) -> Any:
        self.watched.current()
        return original(self, *arguments, **named)

    WatchedContext.wrap_bio = wrap_bio  # type: ignore[method-assign]


def the_door_is_open() -> None:
    """Under a wrong web configuration requests are served as if there were none."""
    original = WatchedConfig.current

    def current(self: WatchedConfig) -> WebConfig:
        try:
            return original(self)
        except ConfigurationError:
            return WebConfig()

    WatchedConfig.current = current  # type: ignore[method-assign]


def ready_at_once() -> None:
    """A bridge is ready before it has caught up, and catches up slowly, as with much on Kafka."""
    original = Intake.assigned

    def assigned(self: Intake, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        time.sleep(SLOW_SECONDS)
        return original(self, partitions)

    def readiness(self: Intake) -> tuple[bool, str]:
        return True, ""

    Intake.assigned = assigned  # type: ignore[method-assign]
    Intake.readiness = readiness  # type: ignore[method-assign]


DEFECTS: Final[Mapping[str, Callable[[], None]]] = {
    "handshakes_hang": handshakes_hang,
    "the_door_is_open": the_door_is_open,
    "ready_at_once": ready_at_once,
}

if __name__ == "__main__":
    DEFECTS[sys.argv.pop(1)]()
    main()

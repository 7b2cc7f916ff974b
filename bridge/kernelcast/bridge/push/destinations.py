"""All destinations of the push: `Bridge` starts and stops them, and `GET /api/v1/push` shows their state."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.push.instruments import DestinationMetrics, PushMetrics
from kernelcast.bridge.push.member import MemberTask, PushMember
from kernelcast.bridge.push.reading import ReaderSettings
from kernelcast.bridge.push.settings import PushSettings
from kernelcast.runtime.settings.service import KafkaSettings

STOP_SECONDS: Final = 5.0
"""Time limit of a request in flight at shutdown. Beyond it the request is abandoned; the next reader sends it again."""
STATUS_PATH: Final = "/api/v1/push"


class Destinations:
    """The members of every destination; each has its own thread. The main thread starts and stops them."""

    def __init__(
        self,
        settings: Sequence[PushSettings],
        kafka: KafkaSettings,
        *,
        reading: ReaderSettings,
        registry: CollectorRegistry,
        clock: Clock,
    ) -> None:
        """Put the parts together; nothing connects yet.

        Args:
            settings: One for each destination.
            kafka: Where the backlog is.
            reading: Their topics, and the settings of their consumers.
            registry: Where the metrics go.
            clock: The clock.

        Raises:
            ConfigurationError: A certificate cannot be used.
        """
        self._members: dict[str, list[PushMember]] = {}
        metrics = PushMetrics(registry) if settings else None
        for each in settings:
            assert metrics is not None  # noqa: S101  made above, as there is one to be made for
            task = MemberTask(each, kafka, reading, DestinationMetrics(metrics, each.name), clock)
            members = [PushMember(task, number) for number in range(each.consumers)]
            task.metrics.lag_seconds(partial(_oldest_seconds, members))
            self._members[each.name] = members

    def start(self) -> None:
        """Begin, in the background."""
        for member in self._all():
            member.start()

    def stop(self) -> None:
        """Stop within seconds; unacknowledged messages are not committed."""
        for member in self._all():
            member.stop()
        deadline = time.monotonic() + STOP_SECONDS
        for member in self._all():
            member.join(deadline - time.monotonic())

    def readiness(self) -> tuple[bool, str]:
        """Return whether every member has joined its group; an unavailable receiver does not make the bridge unready.

        Taking the bridge out of service would not repair a receiver, and would stop scrapes, alerts and the other
        destinations. `kernelcast_bridge_push_up` and the lag show the fault.
        """
        waiting = [name for name, members in self._members.items() if not all(member.joined for member in members)]
        return not waiting, f"destinations that have not joined their group: {', '.join(waiting)}" if waiting else ""

    async def answer(self, _request: Request) -> Response:
        """Every destination of the push with its lag and its last error."""
        return JSONResponse(
            [
                {
                    "name": name,
                    "joined": all(member.joined for member in members),
                    "lag_messages": sum(member.lag for member in members),
                    "trouble": next((member.last_error for member in members if member.last_error), ""),
                }
                for name, members in self._members.items()
            ]
        )

    def _all(self) -> list[PushMember]:
        return [member for members in self._members.values() for member in members]


def _oldest_seconds(members: Sequence[PushMember]) -> float:
    return max(member.age_seconds for member in members)

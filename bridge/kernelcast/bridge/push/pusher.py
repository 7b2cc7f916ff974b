"""The loop of one member: read a batch, send it, commit it. `PushMember` calls `step` repeatedly, on its thread."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from kernelcast.bridge.push.backlog import PushBacklog, UnacknowledgedBatch
from kernelcast.bridge.push.delivery import AbandonedError, Delivery
from kernelcast.bridge.push.instruments import DestinationMetrics
from kernelcast.bridge.push.settings import PushSettings
from kernelcast.runtime.kafka.clients import StampedMessage


@dataclass(frozen=True, slots=True)
class Stages:
    """Stages of a message, in order.

    Attributes:
        backlog: Reads it, and commits it at the end.
        payloads: Yields, by part of a batch of messages, their indices and their requests, to be sent in order.
        delivery: Sends them.
    """

    backlog: PushBacklog
    payloads: Callable[[Sequence[StampedMessage]], Iterator[tuple[list[int], list[Any]]]]
    delivery: Delivery[Any]


class Pusher:
    """Moves batches through the stages; for one thread, on which rebalances run as well."""

    def __init__(
        self, stages: Stages, settings: PushSettings, metrics: DestinationMetrics, stopping: Callable[[], bool]
    ) -> None:
        """Connect the stages.

        Args:
            stages: Stages of a message.
            settings: The destination's.
            metrics: The destination's.
            stopping: Whether to come to an end.
        """
        self.stages = stages
        self._settings, self._metrics, self._stopping = settings, metrics, stopping
        self._log = structlog.stdlib.get_logger("bridge.push")

    def step(self) -> int:
        """Read, send and commit one batch; returns how many messages it had, 0 if it was abandoned.

        Raises:
            BrokerError: An error that will not pass.
        """
        backlog = self.stages.backlog
        batch = backlog.read(
            max_bytes=self._settings.max_request_bytes,
            linger_seconds=self._settings.linger_seconds,
            stopping=self._stopping,
        )
        try:
            for payloads in self._parts(batch):
                backlog.wait(0, stopping=self._stopping)  # polls if due: a part may make no requests
                while payloads:  # sent ones are not in memory together with the next part
                    self.stages.delivery.deliver(payloads.pop(0))
        except AbandonedError:
            if not self._stopping():
                backlog.rewind()
            return 0
        if batch.messages or batch.ends:
            backlog.acknowledge(batch)
        return len(batch.messages)

    def _parts(self, batch: UnacknowledgedBatch) -> Iterator[list[Any]]:
        """Yield the batch's requests, part by part; a message that makes our own code fail costs only itself."""
        messages = [message for message in batch.messages if message.value() is not None]
        waiting = set(range(len(messages)))
        try:
            for indices, payloads in self.stages.payloads(messages):
                waiting.difference_update(indices)
                yield payloads
        except Exception:  # noqa: BLE001  a fault of ours must not stop what comes after
            self._log.exception("a batch cannot be prepared", destination=self._metrics.name, messages=len(waiting))
        for index in sorted(waiting):
            yield self._alone(messages[index])

    def _alone(self, message: StampedMessage) -> list[Any]:
        try:
            return [payload for _, payloads in self.stages.payloads([message]) for payload in payloads]
        except Exception:  # noqa: BLE001  logged above
            self._metrics.undecodable("internal")
            return []

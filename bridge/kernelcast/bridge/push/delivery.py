"""Delivers one batch: retries until the receiver accepts or rejects it, and loses only the rejected part."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, Self, TypeVar

import structlog

from kernelcast.bridge.clock import Clock
from kernelcast.bridge.push.answer import PushAnswer, RetryDecision
from kernelcast.bridge.push.backoff import Backoff
from kernelcast.bridge.push.instruments import DestinationMetrics

MAX_PARTS: Final = 2000
"""Requests that one rejected request may be divided into; parts rejected beyond them are lost whole."""

ORDERING: Final = frozenset({"out_of_order", "duplicate", "too_old", "out_of_bounds"})
"""Causes that concern a point's time, not its series."""


class Payload(Protocol):
    """Points that make one request, and can be divided."""

    @property
    def points(self) -> int:
        """Number of points."""

    def by_series(self) -> Sequence[Self]:
        """A few parts, each series whole in one; a single part where there is only one series."""

    def by_message(self) -> Sequence[Self]:
        """One part for each message, in order."""

    def by_point(self) -> Sequence[Self]:
        """One part for each point, in order of time."""


P = TypeVar("P", bound=Payload)


class AbandonedError(Exception):
    """The batch is abandoned: the process stops, or another member has its partitions."""


@dataclass(frozen=True, slots=True)
class DeliveryServices:
    """Dependencies of a delivery besides its receiver.

    Attributes:
        metrics: The destination's.
        backoff: How long to wait.
        clock: For the time of the last success.
        wait: Waits the given seconds, 0 between requests; False when the batch is to be abandoned.
    """

    metrics: DestinationMetrics
    backoff: Backoff
    clock: Clock
    wait: Callable[[float], bool]


class Delivery(Generic[P]):
    """Delivers payloads one after the other; for one thread.

    Args:
        send: Encodes a payload and makes one attempt; returns the answer, and how many bytes were sent.
        services: Dependencies besides.

    Attributes:
        last_error: The last error of a receiver that takes nothing; empty without one.
    """

    def __init__(self, send: Callable[[P], tuple[PushAnswer, int]], services: DeliveryServices) -> None:
        self._send = send
        self._metrics, self._backoff = services.metrics, services.backoff
        self._clock, self._wait = services.clock, services.wait
        self._log = structlog.stdlib.get_logger("bridge.push")
        self._parts_left = 0
        self.last_error = ""

    def deliver(self, payload: P) -> None:
        """Return when every point of it has been taken or refused for good.

        Raises:
            AbandonedError: The batch was abandoned; nothing may be committed.
        """
        self._parts_left = MAX_PARTS
        answer = self._send_until_decided(payload)
        if answer.decision is not RetryDecision.ACKNOWLEDGED:
            self._divide(payload, answer)

    def _divide(self, payload: P, answer: PushAnswer) -> None:
        """Find what in a refused payload is at fault, and deliver the rest.

        First by series: most often a few of them are at fault. Where none of the parts is taken and the cause is the
        order of time, it is whole messages: they were delivered before a crash and are read again. Each message then
        goes by itself, oldest first; to skip ahead would make those between too old.
        """
        parts = payload.by_series() if payload.points > 1 and self._parts_left > 0 else ()
        if len(parts) > 1:
            refused = [(part, refusal) for part in parts if (refusal := self._deliver_part(part)) is not None]
            ordering = all(refusal.cause in ORDERING for _, refusal in refused)
            if len(refused) < len(parts) or not ordering:
                for part, refusal in refused:
                    self._divide(part, refusal)
                return
            parts = payload.by_message()
        elif parts:
            parts = payload.by_point()
        if len(parts) <= 1:
            self._discard(payload, answer)
        for part in parts if len(parts) > 1 else ():
            refusal = self._deliver_part(part)
            if refusal is not None:
                self._divide(part, refusal)

    def _deliver_part(self, part: P) -> PushAnswer | None:
        """Deliver a part; the answer where it is refused."""
        self._parts_left -= 1
        if self._parts_left < 0:
            return PushAnswer(
                RetryDecision.REFUSED, "refused", f"a request of this message was divided into {MAX_PARTS} parts"
            )
        answer = self._send_until_decided(part)
        return None if answer.decision is RetryDecision.ACKNOWLEDGED else answer

    def _discard(self, payload: P, answer: PushAnswer) -> None:
        self._metrics.discarded(answer.cause or "refused", payload.points)
        self._log.warning("points refused", destination=self._metrics.name, points=payload.points, reason=answer.detail)

    def _send_until_decided(self, payload: P) -> PushAnswer:
        """Send until the receiver has decided."""
        while self._wait(0):
            answer, sent_bytes = self._send(payload)
            if answer.decision is RetryDecision.ACKNOWLEDGED:
                self._acknowledged(payload, answer, sent_bytes)
                return answer
            if answer.decision is RetryDecision.REFUSED:
                self._backoff.reset()
                self.last_error = ""
                self._metrics.refused()
                return answer
            self._metrics.retried(answer.cause)
            self.last_error = answer.detail
            seconds = self._backoff.next_seconds(answer.retry_after_seconds)
            self._log.warning(
                "not sent, will be sent again",
                destination=self._metrics.name,
                cause=answer.cause,
                reason=answer.detail,
                wait_seconds=round(seconds, 3),
            )
            if not self._wait(seconds):
                break
        raise AbandonedError

    def _acknowledged(self, payload: P, answer: PushAnswer, sent_bytes: int) -> None:
        self._backoff.reset()
        self.last_error = ""
        discarded = min(answer.discarded, payload.points)
        self._metrics.acknowledged(payload.points - discarded, sent_bytes, self._clock.now_ns() / 1e9)
        if discarded:
            self._metrics.discarded(answer.cause or "rejected", discarded)
            self._log.warning("points rejected", destination=self._metrics.name, points=discarded, reason=answer.detail)

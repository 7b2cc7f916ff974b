"""Delivers one batch, for `Pusher`: retries until the receiver has decided, and loses only the rejected points."""

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
"""Causes that depend on a point's time, not on its series: the points may have been delivered before."""


class Payload(Protocol):
    """Points that make one request, and can be divided."""

    @property
    def points(self) -> int:
        """Number of points."""

    def by_series(self) -> Sequence[Self]:
        """Divide by series: a few parts, each with all points of its series; one part if there is one series."""

    def by_message(self) -> Sequence[Self]:
        """Divide by message, in order."""

    def by_point(self) -> Sequence[Self]:
        """Divide into points, in order of time."""


P = TypeVar("P", bound=Payload)


class AbandonedError(Exception):
    """The batch is abandoned: the process stops, or another member has its partitions."""


@dataclass(frozen=True, slots=True)
class DeliveryServices:
    """Dependencies of a delivery besides its receiver.

    Attributes:
        metrics: The destination's.
        backoff: Gives the pauses.
        clock: Gives the time of the last success.
        wait: `PushBacklog.wait`: waits some seconds, 0 before each request; False if the batch must be abandoned.
    """

    metrics: DestinationMetrics
    backoff: Backoff
    clock: Clock
    wait: Callable[[float], bool]


class Delivery(Generic[P]):
    """Delivers payloads one after the other; for one thread.

    Args:
        send: Encodes a payload and makes one attempt; returns the answer, and how many bytes were sent.
        services: Its other dependencies.

    Attributes:
        last_error: The error of the last retried request; empty after a decision.
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

        First by series: most often a few of them are at fault. If all parts are rejected because of the order of
        time, whole messages are at fault: they were delivered before a crash, and are read again. Then each message is
        sent alone, oldest first: a newer one sent earlier would make those between too old.
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
        """Deliver a part; returns the answer if it is refused, else None."""
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

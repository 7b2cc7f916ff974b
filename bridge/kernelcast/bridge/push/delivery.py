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
"""After this many requests for parts of one rejected request, a part that is rejected is lost whole. Parts that are
sent in order of time are all sent, however many they are."""

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
        answer = self._refusal(payload)
        if answer is not None:
            self._divide(payload, answer)

    def _divide(self, payload: P, answer: PushAnswer) -> bool:
        """Find what in a refused payload causes the rejection, and deliver the rest; returns whether a part was taken.

        First by series: most often a few of them are the cause. If all parts are rejected because of the order of
        time, whole messages are the cause: they were delivered before a crash, and are read again. Then each message is
        sent alone, oldest first: a newer one sent earlier would make those between too old.
        """
        series = payload.by_series() if payload.points > 1 and self._parts_left > 0 else ()
        if len(series) < 2:
            points = payload.by_point() if series else ()
            return self._deliver_in_order(points) if len(points) > 1 else self._discard(payload, answer)
        refused = [(part, refusal) for part in series if (refusal := self._deliver_part(part)) is not None]
        if len(refused) < len(series) or any(refusal.cause not in ORDERING for _, refusal in refused):
            taken = [self._divide(part, refusal) for part, refusal in refused]
            return len(refused) < len(series) or any(taken)
        messages = payload.by_message()
        return self._deliver_in_order(messages) if len(messages) > 1 else self._divide_message(refused)

    def _divide_message(self, refused: Sequence[tuple[P, PushAnswer]]) -> bool:
        """Divide the parts of one message, all refused because of the order of time; returns whether any was taken.

        If nothing of the first part is taken, the message was delivered before a crash, and the rest is discarded:
        finding that by dividing all parts would take as many requests as the message has points.
        """
        (first, refusal), *others = refused
        taken = self._divide(first, refusal)
        for part, answer in others:
            (self._divide if taken else self._discard)(part, answer)
        return taken

    def _deliver_in_order(self, parts: Sequence[P]) -> bool:
        """Send each message or point at least once, even if dividing the others has used up MAX_PARTS."""
        self._parts_left -= len(parts)
        taken = False
        for part in parts:
            refusal = self._refusal(part)
            taken |= refusal is None or self._divide(part, refusal)
        return taken

    def _deliver_part(self, part: P) -> PushAnswer | None:
        """Deliver a part by series; returns the answer if it is refused, else None."""
        self._parts_left -= 1
        if self._parts_left < 0:
            return PushAnswer(
                RetryDecision.REFUSED, "refused", f"a request of this message was divided into {MAX_PARTS} parts"
            )
        return self._refusal(part)

    def _refusal(self, payload: P) -> PushAnswer | None:
        answer = self._send_until_decided(payload)
        return None if answer.decision is RetryDecision.ACKNOWLEDGED else answer

    def _discard(self, payload: P, answer: PushAnswer) -> bool:
        self._metrics.discarded(answer.cause or "refused", payload.points)
        self._log.warning("points refused", destination=self._metrics.name, points=payload.points, reason=answer.detail)
        return False

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

"""Outcomes of hints: counted here, written to Kafka for the predictor, and confirmed to the programs."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from kernelcast.exporter.hints.received import ReceivedOutcome
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.runtime.kafka.clients import ConfirmingSender
from kernelcast.runtime.kafka.producer import Undelivered
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import to_event
from kernelcast.wire.recent_ids import RecentIds
from kernelcast.wire.topics import OUTCOMES

MAX_PENDING: Final = 4_096
"""Outcomes that wait for Kafka; beyond it the oldest is forgotten here, and its program sends it again later."""

_log = get_logger(__name__)


class OutcomeSource(Protocol):
    """A source of outcomes: the probe socket."""

    def outcomes(self) -> Iterable[ReceivedOutcome]:
        """Those since the last call."""
        ...

    def confirm(self, outcomes: Iterable[ReceivedOutcome]) -> None:
        """Confirm these to their programs, which then forget them."""
        ...


class OutcomeRelay:
    """Passes outcomes from programs to the aggregator and to Kafka, and confirmations back.

    The pipeline calls `relay` on the daemon's thread, once an interval.

    An outcome is confirmed one interval or more after it was counted, so that the counts on disk include it. One that
    comes again is not counted again. If Kafka did not take it, it is sent again in the next interval.

    Args:
        source: Where they come from.
        aggregator: Counts them into the programs' series.
        producer: Writes them to Kafka.
        hostname: Name of the exporter's node.
        count: Called with the result of each outcome.
    """

    def __init__(
        self,
        source: OutcomeSource,
        aggregator: Aggregator,
        producer: ConfirmingSender,
        *,
        hostname: str,
        count: Callable[[str], None],
    ) -> None:
        self._source = source
        self._aggregator = aggregator
        self._producer = producer
        self._origin = f"/kernelcast/exporter/{hostname}"
        self._count = count
        self._pending: OrderedDict[str, ReceivedOutcome] = OrderedDict()
        self._answers: deque[tuple[str, Undelivered | None]] = deque()
        self._settled = RecentIds()

    def relay(self, now_ns: int) -> None:
        """Confirm the outcomes that Kafka has acknowledged; count and write those since the last call."""
        confirmed = self._settle(now_ns)
        for received in self._source.outcomes():
            if received.event_id in self._settled:
                confirmed.append(received)
            elif received.event_id not in self._pending:
                self._take(received, now_ns)
        if confirmed:
            self._source.confirm(confirmed)

    def _settle(self, now_ns: int) -> list[ReceivedOutcome]:
        """Process Kafka's answers; returns the outcomes that need no other attempt."""
        found = []
        for _ in range(len(self._answers)):
            event_id, reason = self._answers.popleft()
            received = self._pending.pop(event_id, None)
            if received is None:
                continue
            if reason is not None and not reason.final:
                self._send(received, now_ns)
            else:
                self._settled.add(event_id)
                found.append(received)
        return found

    def _take(self, received: ReceivedOutcome, now_ns: int) -> None:
        unmatched = self._aggregator.counts.unmatched
        self._aggregator.outcome(received.outcome, received.event_id)
        if self._send(received, now_ns):
            self._count("unmatched" if self._aggregator.counts.unmatched > unmatched else "published")

    def _send(self, received: ReceivedOutcome, now_ns: int) -> bool:
        """Write an outcome to Kafka; False if it is too long for an event, which is final."""
        outcome, event_id = received.outcome, received.event_id
        self._pending[event_id] = received
        if len(self._pending) > MAX_PENDING:
            self._pending.popitem(last=False)
        try:
            value = encode_event(to_event(outcome, source=self._origin, time_ns=now_ns, event_id=event_id))
        except EventError as error:
            self._count("dropped")
            _log.warning("outcome dropped", program=outcome.program, reason=str(error))
            self._answers.append((event_id, Undelivered(str(error), final=True)))
            return False
        key = outcome.hint_id.encode(errors="replace")
        self._producer.send(OUTCOMES.name, key=key, value=value, on_delivery=partial(self._answered, event_id))
        return True

    def _answered(self, event_id: str, reason: Undelivered | None) -> None:
        """Note Kafka's answer; librdkafka may call this on any thread."""
        self._answers.append((event_id, reason))

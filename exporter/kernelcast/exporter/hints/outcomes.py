"""Outcomes of hints: counted here, and written to Kafka for the predictor."""

from collections.abc import Callable, Iterable
from typing import Protocol

from kernelcast.exporter.programs.outcomes import ReceivedOutcome
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.runtime.kafka.clients import Sender
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.events import to_event
from kernelcast.wire.topics import OUTCOMES

_log = get_logger(__name__)


class OutcomeSource(Protocol):
    """A source of outcomes: the probe socket."""

    def outcomes(self) -> Iterable[ReceivedOutcome]:
        """Those since the last call."""
        ...


class OutcomeRelay:
    """Takes outcomes from programs to the aggregator and to Kafka.

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
        producer: Sender,
        *,
        hostname: str,
        count: Callable[[str], None],
    ) -> None:
        self._source = source
        self._aggregator = aggregator
        self._producer = producer
        self._origin = f"/kernelcast/exporter/{hostname}"
        self._count = count

    def relay(self, now_ns: int) -> None:
        """Count and write the outcomes since the last call."""
        for received in self._source.outcomes():
            outcome = received.outcome
            unmatched = self._aggregator.counts.unmatched
            self._aggregator.outcome(outcome, received.event_id)
            try:
                event = to_event(outcome, source=self._origin, time_ns=now_ns, event_id=received.event_id)
                value = encode_event(event)
            except EventError as error:
                self._count("dropped")
                _log.warning("outcome dropped", program=outcome.program, reason=str(error))
                continue
            self._producer.send(OUTCOMES.name, key=outcome.hint_id.encode(errors="replace"), value=value)
            self._count("unmatched" if self._aggregator.counts.unmatched > unmatched else "published")

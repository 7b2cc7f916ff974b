"""Shared baselines on `kernelcast.baselines`: read whole at the start and from then on, written when they change."""

from collections.abc import Callable
from typing import Any, Final

from prometheus_client import CollectorRegistry

from kernelcast.predictor.causes.shared_baselines import RefusedBaseline, SharedBaselines
from kernelcast.predictor.cycle.faults.fleet_comparison import FleetComparison
from kernelcast.predictor.state.state_topic import if_failed
from kernelcast.runtime.instruments import counter, gauge
from kernelcast.runtime.kafka.clients import ConfirmingSender, DeadLetterSink
from kernelcast.runtime.kafka.follow import TopicFollower
from kernelcast.runtime.kafka.replay import ReplayConsumer
from kernelcast.wire.baselines import KernelBaseline, baseline_event, baseline_from
from kernelcast.wire.catalogue import predictor as rows
from kernelcast.wire.cloudevents import decode_event, encode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.topics import BASELINES

RECORDS: Final = ("written", "withdrawn")


class BaselineMeasures:
    """The predictor's own metrics about shared baselines."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._known = gauge(rows.BASELINES, registry)
        self._compared = gauge(rows.BASELINE_REFERENCES, registry)
        self._parts = counter(rows.BASELINE_PARTS, registry)
        self._records = counter(rows.BASELINE_RECORDS, registry)
        self._refused = counter(rows.BASELINES_REFUSED, registry)
        self._before = dict.fromkeys(RefusedBaseline, 0)
        self._parts_before = 0
        for outcome in RECORDS:
            self._records.labels(outcome)
        for reason in RefusedBaseline:
            self._refused.labels(reason)

    def sent(self, outcome: str) -> None:
        """Count a record that was handed to the producer."""
        self._records.labels(outcome).inc()

    def update(self, fleet: FleetComparison) -> None:
        """Copy the present state into the metrics."""
        shared = fleet.shared
        self._known.set(len(shared))
        self._compared.set(fleet.compared)
        self._parts.inc(shared.parts_shared - self._parts_before)
        self._parts_before = shared.parts_shared
        for reason in RefusedBaseline:
            self._refused.labels(reason).inc(shared.refused[reason] - self._before[reason])
            self._before[reason] = shared.refused[reason]


class BaselineLog:
    """Keeps the shared baselines of a predictor up to date; one thread may read while another writes."""

    def __init__(  # noqa: PLR0913
        self,
        fleet: FleetComparison,
        producer: ConfirmingSender,
        reader: ReplayConsumer,
        rejected: DeadLetterSink,
        *,
        client_id: str,
        clock_ns: Callable[[], int],
        registry: CollectorRegistry,
    ) -> None:
        """Prepare to read and to write.

        Args:
            fleet: The comparison that uses them.
            producer: Writes them.
            reader: Reads the topic; this is its only user.
            rejected: Receives messages that are no baselines.
            client_id: Name of this predictor as a writer.
            clock_ns: Time of this machine.
            registry: Of its own metrics.
        """
        self._fleet = fleet
        self._shared: SharedBaselines = fleet.shared
        self._producer = producer
        self._rejected = rejected
        self._source = f"/kernelcast/predictor/{client_id}"
        self._clock_ns = clock_ns
        self._measures = BaselineMeasures(registry)
        self._follower = TopicFollower(reader, (BASELINES.name,), self._take)

    def poll(self, timeout_seconds: float) -> int:
        """Read one batch; returns the number of messages.

        Raises:
            BrokerError: Kafka does not answer.
        """
        count = self._follower.poll(timeout_seconds)
        self._shared.caught_up = self._follower.caught_up
        return count

    def write(self) -> int:
        """Write the records that are due; returns their number."""
        now_ns = self._clock_ns()
        due = self._shared.take_due(now_ns)
        for key, baseline in due:
            try:
                value = None if baseline is None else self._encoded(baseline, now_ns)
            except EventError:
                # Parts of other writers may be longer than ours.
                self._shared.refused[RefusedBaseline.TOO_LONG] += 1
                continue
            on_delivery = if_failed(self._shared.undelivered, key)
            self._producer.send(BASELINES.name, key=key.encode(), value=value, on_delivery=on_delivery)
            self._measures.sent("written" if value is not None else "withdrawn")
        self._measures.update(self._fleet)
        return len(due)

    def close(self, timeout_seconds: float) -> None:
        """Stop reading; waits for the client at most this long."""
        self._follower.close(timeout_seconds)

    def _encoded(self, baseline: KernelBaseline, now_ns: int) -> bytes:
        return encode_event(baseline_event(baseline, source=self._source, time_ns=now_ns))

    def _take(self, message: Any) -> None:
        key, value = (message.key() or b"").decode(errors="replace"), message.value()
        if value is None:
            self._shared.withdrawn(key)
            return
        try:
            self._shared.learn(key, baseline_from(decode_event(value)), now_ns=self._clock_ns())
        except EventError as error:
            self._shared.refused[RefusedBaseline.UNUSABLE] += 1
            self._rejected.send(message, error)

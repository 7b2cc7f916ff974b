"""The predictor as a daemon: one thread reads Kafka, one runs cycles (`cycle_loop`); both share the engine.

`command` runs it.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from confluent_kafka import TopicPartition
from prometheus_client import CollectorRegistry

from kernelcast.predictor.cycle_loop import CycleLoop
from kernelcast.predictor.engine import Engine, Partition
from kernelcast.predictor.forecasting.deep.pool import FitPool
from kernelcast.predictor.kafka_outputs import KafkaOutputs
from kernelcast.predictor.measures import TOPICS, KafkaMeasures
from kernelcast.predictor.pages import Pages
from kernelcast.predictor.prometheus import PrometheusClient
from kernelcast.predictor.publish import ForecastPublisher
from kernelcast.predictor.reloading import reload
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND, PredictorSettings
from kernelcast.predictor.state.partitions import Partitions
from kernelcast.predictor.state.past import Past, fill_or_warn
from kernelcast.predictor.state.state_topic import SnapshotStore
from kernelcast.predictor.topic_logs import TopicLogs, reader_to_the_end
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.consumer_metrics import ConsumerMetrics
from kernelcast.runtime.kafka.deadletter import DeadLetters
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.logging import get_logger
from kernelcast.runtime.service_manager import ServiceManager
from kernelcast.runtime.threads import Worker
from kernelcast.wire.errors import BrokerError
from kernelcast.wire.topics import BASELINES, FINDINGS, FORECASTS, HINTS, ORDERS, OUTCOMES, POLICY, STATE

MAX_MESSAGES: Final = 500
"""Messages that are decoded together: more would hold the lock for longer."""
POLL_SECONDS: Final = 0.2
"""Longest wait for messages."""
TASK_SECONDS: Final = 10.0
"""Time between two runs of tasks that ask Kafka: lag, group, commit; and of the expiry of silent series."""
PAST_EVERY_SECONDS: Final = 15.0
"""Time between two attempts to fill series without a past from Prometheus."""
PAST_FOR_SECONDS: Final = 900.0
"""Time after the start in which series without a past are filled from Prometheus, once all partitions are read."""
STOP_SECONDS: Final = 10.0
"""Limit for stopping: ending the cycle, committing, leaving the group and sending the last messages, together."""
LEAST_STEP_SECONDS: Final = 0.5
"""Minimum time for each of these steps."""

Steps = deque[tuple[str, Callable[[], Any]]]
"""Names of troubles, and the steps that may have them."""

_log = get_logger(__name__)


class Predictor:
    """The daemon; `run` blocks until asked to stop.

    Attributes:
        registry: Its own metrics.
        web: The server of these metrics.
    """

    def __init__(
        self,
        settings: PredictorSettings,
        *,
        clock_ns: Callable[[], int] = time.time_ns,
        read: Callable[[], PredictorSettings] | None = None,
        manager: ServiceManager | None = None,
    ) -> None:
        """Prepare to run.

        Args:
            settings: As they are at the start.
            clock_ns: The time of this machine.
            read: Reads the settings again on SIGHUP; None if they never change.
            manager: systemd, where it started this process.
        """
        self._manager = manager or ServiceManager()
        self._reading, self._cycling = self._manager.part("reading"), self._manager.part("cycles")
        self._read = read
        self._settings = settings
        self._clock_ns = clock_ns
        self.registry = CollectorRegistry()
        self._measures = KafkaMeasures(self.registry)
        self._consumers = ConsumerMetrics(self.registry)
        self._producer = Producer(
            settings.kafka,
            client_id=settings.client_id,
            registry=self.registry,
            topics=(FORECASTS.name, HINTS.name, STATE.name, FINDINGS.name, POLICY.name, BASELINES.name),
        )
        self._dead = DeadLetters(self._producer, registry=self.registry)
        self._dead.expect(*TOPICS, OUTCOMES.name, HINTS.name, ORDERS.name, BASELINES.name)
        self._pool = FitPool(settings.deep.workers) if settings.deep.enabled else None
        self._engine = Engine(settings, clock_ns=clock_ns, pool=self._pool)
        self._logs = TopicLogs.opened(
            settings,
            self._engine,
            self._producer,
            self._dead,
            clock_ns=clock_ns,
            registry=self.registry,
            consumers=self._consumers,
        )
        store = SnapshotStore(settings.group_id, self._producer, partial(reader_to_the_end, settings))
        self._partitions = Partitions(settings, self._engine, store, self._measures, clock_ns=clock_ns)
        publisher = ForecastPublisher(settings, self._producer, clock_ns=clock_ns)
        outputs = KafkaOutputs(self._engine, publisher, self._logs, self._partitions, self._measures)
        self._cycles = CycleLoop(settings, self._engine, outputs, measures=self._measures)
        self._ending = threading.Event()
        self.web = Pages(settings, self.registry, self._engine, self._cycles).server(self._ready)
        self.web.progressed = self._manager.part("web").progressed

    def run(self, shutdown: Shutdown) -> None:
        """Read, run cycles and write until asked to stop, then save the windows and leave the group."""
        if self._read is not None:
            shutdown.on_reload(partial(reload, self._engine, self._settings, self._read))
        consumer = Consumer(self._settings.kafka, group_id=self._settings.group_id, metrics=self._consumers)
        self._partitions.use(consumer)
        consumer.subscribe(TOPICS, self._partitions)
        cycles = Worker("cycles", self._cycles.run, self._ending, self._cycling)
        with self.web:
            cycles.start()
            if self._settings.prometheus.url:
                Worker("past", self._fill_past).start()
            try:
                self._read_forever(consumer, shutdown)
            finally:
                self._stop(consumer, cycles)

    def _stop(self, consumer: Consumer, cycles: threading.Thread) -> None:
        """Save, commit, leave and flush, within `STOP_SECONDS` even where Kafka does not answer."""
        deadline = time.monotonic() + STOP_SECONDS

        def seconds_left(share: float = 1.0) -> float:
            return max(share * (deadline - time.monotonic()), LEAST_STEP_SECONDS)

        self._manager.stopping()
        self._ending.set()
        if self._pool is not None:
            self._pool.close(seconds_left(0.3))
        cycles.join(seconds_left(0.5))
        if cycles.is_alive():
            # A cycle changes the scores while they would be saved; closing the consumer saves the partitions.
            _log.warning("scores not saved at the stop", reason="the present cycle has not ended")
        else:
            self._cycles.save()
        self._try("offsets not committed", lambda: self._commit(consumer))
        consumer.close(seconds_left(0.5))
        self._logs.close(lambda: seconds_left(0.5))
        self._producer.close(seconds_left())

    def _read_forever(self, consumer: Consumer, shutdown: Shutdown) -> None:
        steps: Steps = deque(
            (
                ("hints not read", lambda: self._logs.hints.poll(0.0)),
                ("marks not read", lambda: self._logs.findings.poll(0.0)),
                ("baselines not read", lambda: self._logs.baselines.poll(0.0)),
                ("lag not measured", _at_intervals(self._partitions.watch_lag)),
                ("offsets not committed", _at_intervals(lambda: self._commit(consumer))),
            )
        )
        expire = _at_intervals(self._engine.expire)
        while not shutdown.requested:
            shutdown.reload_if_asked()
            messages, _ = consumer.consume(MAX_MESSAGES, POLL_SECONDS)
            if messages:
                self._process(messages)
            expire()
            self._partitions.watch_group()
            self._try_all(steps, shutdown)
            self._producer.poll()
            self._manager.report(self._ready)
            self._reading.progressed()

    def _ready(self) -> tuple[bool, str]:
        """Whether the past is read and Kafka takes what is predicted; any thread may ask."""
        good, reason = self._partitions.ready()
        return self._producer.ready() if good else (good, reason)

    def _process(self, messages: list[Any]) -> None:
        used = [message for message in messages if message.value() is not None]
        offsets: dict[Partition, int] = {}
        for message in messages:
            offsets[message.topic(), message.partition()] = message.offset() + 1
        partitions = [(message.topic(), message.partition()) for message in used]
        decoded = self._engine.take([message.value() for message in used], partitions, offsets)
        failed = dict(decoded.failures)
        for index, error in failed.items():
            self._dead.send(used[index], error)
        self._count(messages, used, failed)
        for columns in (decoded.numbers, decoded.histograms):
            for index, count in zip(*_count_by_message(columns.message), strict=True):
                self._measures.points.labels(used[index].topic()).inc(count)

    def _count(self, messages: list[Any], used: list[Any], failed: dict[int, Any]) -> None:
        for message in messages:
            if message.value() is None:
                self._measures.messages.labels(message.topic(), "empty").inc()
        for index, message in enumerate(used):
            outcome = "unusable" if index in failed else "used"
            self._measures.messages.labels(message.topic(), outcome).inc()

    def _fill_past(self) -> None:
        engine, source = self._engine, self._settings.prometheus
        past = Past(
            lambda points: PrometheusClient(source.url, points_per_page=points, access=source.access),
            engine.windows,
            engine.cycle.histories,
            engine.states.rows.lock,
            filled=engine.states.rows.rewrite,
        )
        end = time.monotonic() + PAST_FOR_SECONDS
        while not self._ending.wait(PAST_EVERY_SECONDS) and time.monotonic() < end:
            if self._partitions.ready()[0]:
                try:
                    fill_or_warn(past, self._clock_ns() / NANOSECONDS_PER_SECOND)
                except Exception:  # noqa: BLE001  predictions go on without a past from there
                    _log.exception("the past is not read from Prometheus")
                    return

    def _commit(self, consumer: Consumer) -> None:
        offsets = dict(self._engine.offsets)
        held = self._partitions.held
        consumer.commit(
            [TopicPartition(*partition, offsets[partition]) for partition in held if offsets.get(partition, -1) >= 0]
        )

    def _try_all(self, steps: Steps, shutdown: Shutdown) -> None:
        """Take steps that ask Kafka, until one fails, as it may have waited for its time-out; go on behind it later."""
        for _ in range(len(steps)):
            steps.rotate(-1)
            if shutdown.requested or not self._try(*steps[-1]):
                return

    def _try(self, trouble: str, task: Callable[[], Any]) -> bool:
        try:
            task()
        except BrokerError as error:
            _log.warning(trouble, reason=str(error))
            return False
        return True


def _at_intervals(task: Callable[[], Any]) -> Callable[[], None]:
    """Return a function that runs a task when it is called, at most every `TASK_SECONDS`."""
    due = 0.0

    def do_if_due() -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + TASK_SECONDS
            task()

    return do_if_due


def _count_by_message(messages: Any) -> tuple[list[int], list[int]]:
    numbers, counts = np.unique(messages, return_counts=True)
    return numbers.tolist(), counts.tolist()

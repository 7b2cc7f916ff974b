"""Logs and states that a predictor keeps on Kafka and reads whole: findings, baselines, hints, and scores.

`service` opens and polls them on the thread that reads Kafka; `cycle_loop` writes to them after each cycle.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

from prometheus_client import CollectorRegistry

from kernelcast.predictor.alarms.finding_log import FindingLog
from kernelcast.predictor.engine import Engine
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.state.baselines_topic import BaselineLog
from kernelcast.predictor.state.own_state import OwnState
from kernelcast.predictor.tuning.hint_log import HintLog
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.consumer_metrics import ConsumerMetrics
from kernelcast.runtime.kafka.deadletter import DeadLetters
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.kafka.replay import TO_THE_END


@dataclass(frozen=True, slots=True)
class TopicLogs:
    """The logs and states of one predictor; each class says which thread may use it.

    Attributes:
        findings: Findings, and people's marks.
        baselines: Baselines of all predictors.
        hints: Hints, their outcomes, and people's orders.
        scores: Scores of this predictor's forecasts.
        alarms: Its open findings.
    """

    findings: FindingLog
    baselines: BaselineLog
    hints: HintLog
    scores: OwnState
    alarms: OwnState

    @classmethod
    def opened(  # noqa: PLR0913  the parts of the service
        cls,
        settings: PredictorSettings,
        engine: Engine,
        producer: Producer,
        dead: DeadLetters,
        *,
        clock_ns: Callable[[], int],
        registry: CollectorRegistry,
        consumers: ConsumerMetrics,
    ) -> Self:
        """Open all.

        Args:
            settings: As they are at the start.
            engine: Has the baselines and the hints.
            producer: Sends additions.
            dead: Takes messages that cannot be read.
            clock_ns: The time of this machine.
            registry: For their own metrics.
            consumers: The metrics of the process's consumers.
        """
        own, client_id = partial(reader, settings, consumers), settings.client_id
        states = (
            OwnState(name, settings.group_id, client_id, producer, partial(reader_to_the_end, settings))
            for name in ("scores", "alarms")
        )
        return cls(
            FindingLog(settings.alarms, producer, own(), client_id=client_id, registry=registry),
            BaselineLog(
                engine.cycle.fleet, producer, own(), dead, client_id=client_id, clock_ns=clock_ns, registry=registry
            ),
            HintLog(own(), engine.hints, dead, own(), clock_ns=clock_ns, lock=engine.states.rows.lock),
            *states,
        )

    def close(self, seconds_left: Callable[[], float]) -> None:
        """Close the logs, each within the time that is left then."""
        self.hints.close(seconds_left())
        self.findings.close(seconds_left())
        self.baselines.close(seconds_left())


def reader(settings: PredictorSettings, metrics: ConsumerMetrics | None = None) -> Consumer:
    """Return a consumer for a topic that is read whole and followed; it commits nothing and joins no group."""
    return Consumer(settings.kafka, group_id=f"{settings.group_id}-reader", metrics=metrics)


def reader_to_the_end(settings: PredictorSettings) -> Consumer:
    """Return one for a topic that is read once."""
    return Consumer(settings.kafka, group_id=f"{settings.group_id}-reader", overrides=TO_THE_END)

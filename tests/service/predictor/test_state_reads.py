"""Stored state is read from the embedded broker without waiting for fetches."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.service.predictors import RunningPredictor
from tests.support.waiting import eventually

from kernelcast.predictor import service as predictor_service
from kernelcast.predictor import topic_logs
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.kafka.admin import apply_topics
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.kafka.replay import TO_THE_END
from kernelcast.runtime.settings.service import KafkaSettings, WebSettings

STORED = 2
"""Reads of state at a predictor's start: one of its scores, and one of the windows of its partitions."""


@pytest.fixture
def kafka() -> Iterator[KafkaSettings]:
    with EmbeddedBroker() as broker:
        yield KafkaSettings(bootstrap_servers=broker.bootstrap_servers)


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Properties of each consumer that a predictor opens from now on, with its group's name."""
    opened: list[dict[str, Any]] = []

    def consumer(settings: KafkaSettings, *, group_id: str, **options: Any) -> Consumer:
        opened.append({"group.id": group_id, **(options.get("overrides") or {})})
        return Consumer(settings, group_id=group_id, **options)

    for module in (predictor_service, topic_logs):
        monkeypatch.setattr(module, "Consumer", consumer)
    return opened


def test_a_predictor_that_starts_opens_such_readers(kafka: KafkaSettings, readers: list[dict[str, Any]]) -> None:
    apply_topics(kafka)
    settings = PredictorSettings(kafka=kafka, web=WebSettings(listen_address="127.0.0.1:0"))
    running = RunningPredictor(settings)
    readers.clear()  # those that follow a topic, and may wait for its next message, are open
    with running:
        eventually(running.ready)
        eventually(lambda: len(readers) > STORED)
    of_state = [one for one in readers if one["group.id"] != settings.group_id]
    assert len(of_state) >= STORED
    assert all(one.items() >= TO_THE_END.items() for one in of_state), of_state

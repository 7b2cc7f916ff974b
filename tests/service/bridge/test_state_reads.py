"""Stored state is read from the embedded broker without waiting for fetches."""

from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import pytest
from tests.service.servers import answers
from tests.support.service.predictors import RunningPredictor
from tests.support.service.watermarks import LIMIT_SECONDS, timed_watermarks
from tests.support.waiting import eventually

from kernelcast.bridge import service as bridge_service
from kernelcast.bridge.delta.persistence.freeze import freeze
from kernelcast.bridge.delta.persistence.snapshot import TotalsSnapshot
from kernelcast.bridge.delta.persistence.state import StateTopic, name_of
from kernelcast.bridge.delta.rows import TotalRows
from kernelcast.bridge.service import Bridge
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.predictor import service as predictor_service
from kernelcast.predictor import topic_logs
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.kafka.admin import apply_topics
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.kafka.replay import TO_THE_END
from kernelcast.runtime.settings.service import KafkaSettings, WebSettings

KEYS = [("kernels", number) for number in range(24)]
STORED = 2
"""Reads of state at a predictor's start: one of its scores, and one of the windows of its partitions."""
EMPTY = freeze(TotalRows(1), np.zeros(0, np.int64), {})


@pytest.fixture
def kafka() -> Iterator[KafkaSettings]:
    with EmbeddedBroker() as broker:
        yield KafkaSettings(bootstrap_servers=broker.bootstrap_servers)


def test_snapshots_of_many_partitions_are_read_without_a_wait_for_each(
    kafka: KafkaSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = StateTopic(
        "readers", Producer(kafka, client_id="reader"), lambda: Consumer(kafka, group_id="state", overrides=TO_THE_END)
    )
    writer = StateTopic("readers", Producer(kafka, client_id="writer"), state._open_reader)
    for number, key in enumerate(KEYS):
        writer.write(name_of(key), TotalsSnapshot(bytes([number]) * 16, 1, ((key, 5),), EMPTY, {}), _written)
    writer.flush(10)
    seconds = timed_watermarks(monkeypatch)
    assert len(state.read([name_of(key) for key in KEYS], lambda _one: True)) == len(KEYS)
    assert median(seconds) < LIMIT_SECONDS


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Properties of each consumer that a bridge or a predictor opens from now on, with its group's name."""
    opened: list[dict[str, Any]] = []

    def consumer(settings: KafkaSettings, *, group_id: str, **options: Any) -> Consumer:
        opened.append({"group.id": group_id, **(options.get("overrides") or {})})
        return Consumer(settings, group_id=group_id, **options)

    for module in (bridge_service, predictor_service, topic_logs):
        monkeypatch.setattr(module, "Consumer", consumer)
    return opened


def test_a_bridge_that_is_assigned_partitions_opens_such_a_reader(
    kafka: KafkaSettings, loaded: None, readers: list[dict[str, Any]]
) -> None:
    apply_topics(kafka)
    settings = BridgeSettings(kafka=kafka, web=WebSettings(listen_address="127.0.0.1:0"))
    with Bridge(settings) as bridge:
        eventually(lambda: answers(f"{bridge.url}/-/ready"))
        of_state = [one for one in readers if one["group.id"].endswith("-state")]
    assert of_state
    assert all(one.items() >= TO_THE_END.items() for one in of_state), of_state


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


def _written(trouble: str | None) -> None:
    assert trouble is None

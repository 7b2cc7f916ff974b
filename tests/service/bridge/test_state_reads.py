"""Snapshots of totals are read from the embedded broker without waiting for fetches."""

from collections.abc import Iterator
from statistics import median

import numpy as np
import pytest
from tests.support.service.watermarks import LIMIT_SECONDS, timed_watermarks

from kernelcast.bridge.delta.persistence.freeze import freeze
from kernelcast.bridge.delta.persistence.snapshot import TotalsSnapshot
from kernelcast.bridge.delta.persistence.state import StateTopic, name_of
from kernelcast.bridge.delta.rows import TotalRows
from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.kafka.replay import TO_THE_END
from kernelcast.runtime.settings.service import KafkaSettings

KEYS = [("kernels", number) for number in range(24)]
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


def _written(trouble: str | None) -> None:
    assert trouble is None

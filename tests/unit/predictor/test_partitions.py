"""Readiness of a predictor whose group gives it no partitions."""

import time
from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from prometheus_client import CollectorRegistry

from kernelcast.predictor.engine import Engine
from kernelcast.predictor.measures import KafkaMeasures
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.state.partitions import Partitions
from kernelcast.predictor.state.state_topic import SnapshotStore


class SpareMember:
    """A member to which a KIP-848 group gives nothing, without a word."""

    settles = False

    def settled(self) -> bool:
        return self.settles

    def watermarks(self, partition: TopicPartition) -> tuple[int, int]:
        raise AssertionError(partition)

    def offsets_for_time(self, partitions: Sequence[Any], time_ns: int) -> list[Any]:
        raise AssertionError(partitions, time_ns)

    def seek(self, partition: Any) -> None:
        raise AssertionError(partition)


class NoKafka:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def test_a_member_without_partitions_is_ready_once_its_group_has_settled() -> None:
    settings = PredictorSettings()
    store = SnapshotStore("group", NoKafka(), NoKafka)
    engine = Engine(settings, clock_ns=time.time_ns)
    partitions = Partitions(settings, engine, store, KafkaMeasures(CollectorRegistry()), clock_ns=time.time_ns)
    member = SpareMember()
    partitions.use(member)

    partitions.watch_group()
    assert partitions.ready() == (False, "no partitions assigned yet")
    member.settles = True
    partitions.watch_group()
    assert partitions.ready() == (True, "")


class RevokedWhileRead(dict[Any, int]):
    """Offsets during whose reading another thread gives a partition back."""

    partitions: Partitions

    def get(self, key: Any, default: Any = None) -> Any:
        self.partitions.revoked([TopicPartition(*key)], lost=True)
        return super().get(key, default)


def test_readiness_is_known_while_partitions_are_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = PredictorSettings()
    engine = Engine(settings, clock_ns=time.time_ns)
    store = SnapshotStore("group", NoKafka(), NoKafka)
    partitions = Partitions(settings, engine, store, KafkaMeasures(CollectorRegistry()), clock_ns=time.time_ns)
    engine.offsets = RevokedWhileRead()
    engine.offsets.partitions = partitions
    member = SpareMember()
    monkeypatch.setattr(member, "watermarks", lambda _partition: (0, 9))
    monkeypatch.setattr(member, "offsets_for_time", lambda partitions, _time_ns: partitions)
    monkeypatch.setattr(store, "read", lambda _partitions: {})
    partitions.use(member)
    partitions.assigned([TopicPartition("t", number, 0) for number in range(3)])

    assert partitions.ready() == (False, "reading the past of 3 partitions")
    assert partitions.held == []

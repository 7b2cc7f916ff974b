"""A member of a destination that fails and starts over."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.support.bridge.list_kafka import ManualClock

from kernelcast.bridge.push import member as module
from kernelcast.bridge.push.instruments import DestinationMetrics, PushMetrics
from kernelcast.bridge.push.member import MemberTask, PushMember
from kernelcast.bridge.push.reading import ReaderSettings
from kernelcast.bridge.push.settings import PushSettings
from kernelcast.runtime.settings.service import KafkaSettings


def test_a_destination_is_not_up_while_its_member_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = CollectorRegistry()
    metrics = DestinationMetrics(PushMetrics(registry), "d")
    settings = PushSettings(name="d", kind="otlp", url="http://receiver/")
    member = PushMember(MemberTask(settings, KafkaSettings(), ReaderSettings(), metrics, ManualClock()), 0)

    def fail(*_arguments: Any, **_options: Any) -> None:
        member.stop()
        raise ValueError("a fault")

    monkeypatch.setattr(module, "warm_up", lambda: None)
    monkeypatch.setattr(module, "Consumer", fail)
    metrics.acknowledged(1, 100, 0.0)
    member.start()
    member.join(60)
    assert registry.get_sample_value("kernelcast_bridge_push_restarts_total", {"destination": "d"}) == 1
    assert registry.get_sample_value("kernelcast_bridge_push_up", {"destination": "d"}) == 0

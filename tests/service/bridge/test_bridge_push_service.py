"""Pushing as part of the bridge, on the broker inside this process: threads, groups, status, faults."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.service.bridge.test_bridge_service import broker, export, fetch, settings_for, write
from tests.support.push.receivers import Behaviour, answer_with, server
from tests.support.waiting import Stopwatch, eventually

from kernelcast.bridge.push import member
from kernelcast.bridge.push.pusher import Pusher
from kernelcast.bridge.push.settings import PushSettings
from kernelcast.bridge.service import Bridge
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.wire.errors import ConfigurationError

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("loaded")]
__all__ = ["broker"]


class Counted:
    """A receiver that counts its requests, and fails on demand."""

    def __init__(self) -> None:
        self.requests = 0
        self.works = threading.Event()
        self.works.set()

    def __call__(self, handler: Any) -> None:
        answer: Behaviour = answer_with(200 if self.works.is_set() else 503)
        self.requests += self.works.is_set()
        answer(handler)


@pytest.fixture
def counted() -> Iterator[tuple[Counted, str]]:
    receiver = Counted()
    with server(receiver) as url:
        yield receiver, url


def destination(url: str, name: str, **changes: Any) -> PushSettings:
    given = {"name": name, "kind": "otlp", "url": url, "start": "beginning", "linger_seconds": 0, **changes}
    return PushSettings.model_validate(given)


def status(bridge: Bridge) -> list[dict[str, Any]]:
    code, body = fetch(f"{bridge.url}/api/v1/push")
    assert code == 200
    found: list[dict[str, Any]] = json.loads(body)
    return found


def test_a_bridge_that_only_pushes_is_ready_shows_no_series_and_says_how_it_goes(
    broker: EmbeddedBroker, counted: tuple[Counted, str]
) -> None:
    receiver, url = counted
    write(broker, export(1), export(2))
    with Bridge(settings_for(broker, scraping=False, push=(destination(url, "only"),))) as bridge:
        eventually(lambda: fetch(f"{bridge.url}/-/ready")[0] == 200)
        eventually(lambda: receiver.requests >= 1)
        receiver.works.clear()
        write(broker, export(3))
        eventually(lambda: "HTTP 503" in status(bridge)[0]["trouble"])
        assert fetch(f"{bridge.url}/-/ready")[0] == 200
        assert status(bridge)[0]["joined"] is True
        page = fetch(f"{bridge.url}/metrics")[1]
        assert "cuda_kernel_launches_total" not in page
        assert 'kernelcast_bridge_push_up{destination="only"} 0.0' in page
        receiver.works.set()
        eventually(lambda: not status(bridge)[0]["trouble"])


def test_a_fault_in_one_destination_starts_it_over_and_leaves_scraping_and_the_other_alone(
    broker: EmbeddedBroker, counted: tuple[Counted, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver, url = counted
    monkeypatch.setattr(member, "RESTART_SECONDS", 0.2)
    faults = iter([ZeroDivisionError("a fault of ours")])
    step = Pusher.step

    def fragile(self: Pusher) -> int:
        if self._settings.name == "fragile":
            for fault in faults:
                raise fault
        return step(self)

    monkeypatch.setattr(Pusher, "step", fragile)
    write(broker, export(1))
    push = (destination(url, "fragile"), destination(url, "sound"))
    with Bridge(settings_for(broker, group_id="beside", push=push)) as bridge:
        eventually(lambda: fetch(f"{bridge.url}/-/ready")[0] == 200)
        eventually(lambda: receiver.requests >= 2)
        page = fetch(f"{bridge.url}/metrics")[1]
        assert 'kernelcast_bridge_push_restarts_total{destination="fragile"} 1.0' in page
        assert 'kernelcast_bridge_push_restarts_total{destination="sound"} 0.0' in page
        assert "cuda_kernel_launches_total{" in page


def test_a_receiver_that_hangs_does_not_keep_the_bridge_from_stopping_within_seconds(
    broker: EmbeddedBroker,
) -> None:
    reached, ended = threading.Event(), threading.Event()

    def hang(_handler: Any) -> None:
        reached.set()
        ended.wait(60)

    write(broker, export(1))
    with server(hang) as url:
        bridge = Bridge(settings_for(broker, scraping=False, push=(destination(url, "hangs", timeout_seconds=60),)))
        bridge.start()
        eventually(reached.is_set)
        with Stopwatch() as took:
            bridge.stop()
        assert took.seconds < 15
        ended.set()


def test_certificates_that_cannot_be_read_are_known_before_anything_starts(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    wrong = destination("https://receiver/", "tls", tls={"ca_file": tmp_path / "none.pem"})
    with pytest.raises(ConfigurationError, match=r"none\.pem"):
        Bridge(settings_for(broker, push=(wrong,)))

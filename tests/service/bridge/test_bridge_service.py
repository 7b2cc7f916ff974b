"""The bridge as a whole, on the broker inside this process."""

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.support.bridge.fleet import RESOURCE, samples
from tests.support.waiting import LONGEST_SECONDS, eventually

from kernelcast.bridge.service import Bridge
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.columnar import Resource, Sample, encode
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.settings.service import KafkaSettings, WebSettings
from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME, kernel
from kernelcast.wire.errors import KernelcastError
from kernelcast.wire.topics import DEADLETTER, KERNELS

pytestmark = [pytest.mark.service, pytest.mark.usefixtures("loaded")]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as started:
        yield started


def settings_for(broker: EmbeddedBroker, **changes: Any) -> BridgeSettings:
    quick = {"session.timeout.ms": "5000", "heartbeat.interval.ms": "300"}  # in the mock, a rebalance takes 1 s less
    kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers, properties=quick)
    return BridgeSettings(kafka=kafka, web=WebSettings(listen_address="127.0.0.1:0"), **changes)


def fetch(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=LONGEST_SECONDS) as answer:  # noqa: S310  our own server
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def shows(bridge: Bridge, text: str) -> bool:
    return text in fetch(f"{bridge.url}/metrics")[1]


def write(broker: EmbeddedBroker, *bodies: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for body in bodies:
        producer.produce(KERNELS.name, value=body, key=b"program")
    assert producer.flush(10) == 0


def has_put_aside(bridge: Bridge, count: int) -> bool:
    """Whether Kafka has answered for that number of dead letters."""
    page = samples(fetch(f"{bridge.url}/metrics")[1])
    return count == max(value for (_, labels), value in page.items() if DEADLETTER.name in dict(labels).values())


def export(launches: int) -> bytes:
    now_ns = time.time_ns()
    sample = Sample(kernel.LAUNCHES, (("kernel", "gemm"),), now_ns, launches, 1)
    return next(iter(encode(Resource(RESOURCE), [sample], scope="test"))).body


def test_from_kafka_to_a_page_with_poison_in_between_and_again_after_a_restart(broker: EmbeddedBroker) -> None:
    write(broker, export(1), b"poison\xff", export(2))
    for expected, put_aside in ((2, 1), (3, 0)):
        with Bridge(settings_for(broker, group_id="whole")) as bridge:
            eventually(lambda: fetch(f"{bridge.url}/-/ready")[0] == 200)
            status, body = fetch(f"{bridge.url}/metrics")
            found = {name: value for (name, _), value in samples(body).items()}
            assert (status, found["cuda_kernel_launches_total"]) == (200, expected)
            failures = {key: value for key, value in samples(body).items() if "decode_failures" in key[0]}
            assert sum(failures.values()) == 1
            eventually(partial(has_put_aside, bridge, put_aside))
            unknown = {name for name, _ in samples(body)} - set(BY_PROMETHEUS_NAME)
            assert not {name for name in unknown if not name.endswith(("_bucket", "_sum", "_count"))}
            write(broker, export(expected + 1))
            eventually(partial(shows, bridge, f"}} {expected + 1}\n"))


def test_until_it_is_compiled_it_is_healthy_not_ready_and_answers_scrapes_about_itself(broker: EmbeddedBroker) -> None:
    bridge = Bridge(settings_for(broker, group_id="cold"))
    bridge._web.start()
    try:
        answers = {path: fetch(f"{bridge.url}{path}") for path in ("/-/healthy", "/-/ready", "/metrics", "/sd")}
    finally:
        bridge.stop()
        bridge._consumer.close()

    assert {path: code for path, (code, _) in answers.items()} == {
        "/-/healthy": 200,
        "/-/ready": 503,
        "/metrics": 200,
        "/sd": 200,
    }
    assert "it is compiling" in answers["/-/ready"][1]
    assert "kernelcast_bridge_ready 0.0\n" in answers["/metrics"][1]


def test_a_bridge_that_reads_no_topic_is_ready_and_accepts_alerts(broker: EmbeddedBroker) -> None:
    write(broker, export(1))
    with Bridge(settings_for(broker, scraping=False)) as bridge:
        eventually(lambda: fetch(f"{bridge.url}/-/ready")[0] == 200)
        assert "cuda_kernel_launches_total" not in fetch(f"{bridge.url}/metrics")[1]
        assert "none: bridge.scraping is false" in fetch(f"{bridge.url}/")[1]
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{bridge.url}/api/v1/alerts", b'{"version": "4", "alerts": []}', headers)  # noqa: S310
        with urllib.request.urlopen(request, timeout=LONGEST_SECONDS) as answer:  # noqa: S310  our own server
            assert answer.status == 200


def test_of_two_replicas_each_series_is_on_one_and_the_other_takes_over(broker: EmbeddedBroker) -> None:
    write(broker, export(10))
    with Bridge(settings_for(broker, group_id="pair")) as first:
        eventually(lambda: fetch(f"{first.url}/-/ready")[0] == 200)
        with Bridge(settings_for(broker, group_id="pair")) as second:
            eventually(lambda: fetch(f"{second.url}/-/ready")[0] == fetch(f"{first.url}/-/ready")[0] == 200)
            pages = [fetch(f"{bridge.url}/metrics")[1] for bridge in (first, second)]
            assert sum("cuda_kernel_launches_total{" in body for body in pages) == 1
        eventually(lambda: "cuda_kernel_launches_total{" in fetch(f"{first.url}/metrics")[1])


def test_a_consumer_that_ends_makes_the_process_unhealthy_and_then_end(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = Bridge(settings_for(broker, group_id="broken"))

    def fail() -> int:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(bridge._intake, "step", fail)
    with bridge:
        eventually(lambda: fetch(f"{bridge.url}/-/healthy")[0] == 503)
        assert "a fault of ours" in fetch(f"{bridge.url}/-/ready")[1]
        with pytest.raises(KernelcastError, match="a fault of ours"):
            bridge.wait(1)


def test_a_consumer_that_cannot_be_closed_ends_the_bridge_all_the_same(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = Bridge(settings_for(broker))

    def fail() -> int:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(bridge._intake, "step", fail)
    close = bridge._consumer.close

    def close_and_fail() -> None:
        close()
        raise RuntimeError("another")

    monkeypatch.setattr(bridge._consumer, "close", close_and_fail)
    with bridge, pytest.raises(KernelcastError, match="a fault of ours"):
        bridge.wait(LONGEST_SECONDS)


def test_the_command_stops_cleanly_on_sigterm(broker: EmbeddedBroker, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kernelcast.cli", "bridge"]
    flags = ["--kafka.bootstrap-servers", broker.bootstrap_servers, "--web.listen-address", "127.0.0.1:0"]
    log = tmp_path / "log"
    with log.open("w") as stream, subprocess.Popen([*command, *flags], stderr=stream) as process:
        eventually(lambda: "reading" in log.read_text())
        process.terminate()
        assert process.wait(LONGEST_SECONDS) == 0
    assert "Traceback" not in log.read_text()
    assert "bridge stopped" in log.read_text().splitlines()[-1]


def test_a_wrong_setting_is_named_and_ends_with_2(tmp_path: Path) -> None:
    config = tmp_path / "kernelcast.yaml"
    config.write_text("bridge:\n  ttl_seconds: 0\n  colour: red\n")
    command = [sys.executable, "-m", "kernelcast.cli", "bridge", "--config", str(config), "--check-config"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "bridge.ttl_seconds" in answer.stderr
    assert "bridge.colour" in answer.stderr

"""A demo with real recordings: Prometheus holds exactly the trace's values."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.service.conftest import Broker
from tests.service.emptying import emptied
from tests.service.loop import truth
from tests.service.loop.truth import Truth
from tests.service.nursery import ForkedServer
from tests.service.require import binary, shared_data
from tests.service.servers import PrometheusServer, ServerProcess, stopping, wait_for
from tests.service.stack import KERNELCAST, Stack, kernelcast
from tests.support.exporter import recording_truth
from tests.support.service.programs import topics

from kernelcast.wire.kernels import label, normalise

pytestmark = pytest.mark.service

PATIENCE_SECONDS = 180
"""Longest wait: three workers share two cores, and a demo starts six processes."""
Samples = list[tuple[dict[str, str], float]]

RECORDINGS = {
    "a100": ("kineto", ("kineto", "control.json.gz")),
    "amd": ("kineto", ("kineto", "mi250_minitoy.json.gz")),
    "nsys": ("nsys", ("nsys", "cloverleaf-a100.sqlite")),
}
BY_A_DEMO = "nsys"
"""The recording of this kind that a demo replays; another test's demo replays one of the other kind."""
PUBLISHED = "published.json"


def recording(name: str) -> tuple[str, Path, Truth]:
    kind, parts = RECORDINGS[name]
    path = shared_data(*parts)
    return kind, path, (truth.kineto if kind == "kineto" else truth.nsys)(path)


def value(prometheus: PrometheusServer, expression: str) -> float | None:
    """The one value that an expression has; None before Prometheus is up."""
    try:
        return prometheus.scalar(expression)
    except OSError:
        return None


class RunningDemo:
    """`kernelcast demo` as a person starts it, and the Prometheus it started."""

    def __init__(self, directory: Path, broker: Broker, source: str, *options: str) -> None:
        self.summary = directory / "summary.json"
        arguments = ["--source", source, "--broker", broker.bootstrap_servers, "--summary", str(self.summary)]
        command = [*KERNELCAST, "demo", *arguments, "--directory", str(directory / "demo"), *options]
        self.process = ServerProcess("demo", command, directory)
        self.prometheus = object.__new__(PrometheusServer)

    def start(self) -> "RunningDemo":
        self.process.start(lambda: self._address() is not None)
        self.prometheus.url = str(self._address())
        return self

    def _address(self) -> str | None:
        found = re.search(r"^\s*prometheus\s+(http://\S+)$", self.process.tail(100_000), re.MULTILINE)
        return found.group(1) if found else None

    def value(self, expression: str) -> float | None:
        return value(self.prometheus, expression)

    def stop(self) -> dict[str, object]:
        assert self.process.stop(60) == 0, self.process.tail()
        result: dict[str, object] = json.loads(self.summary.read_text())
        return result


@pytest.mark.nightly
def test_launches_and_gpu_time_in_prometheus_equal_those_in_the_trace_at_its_speed_with_some_kernels_as_other(
    kafka: Broker, tmp_path: Path
) -> None:
    binary("prometheus", "prometheus")
    kind, path, expected = recording("a100")
    assert len(expected.by_name) > 100, "the default limit of kernels"
    demo = RunningDemo(tmp_path, kafka, f"{kind}:{path}")
    with stopping(demo.process):
        demo.start()
        wait_for(
            "all launches in Prometheus",
            lambda: demo.value("sum(cuda_kernel_launches_total)") == expected.launches,
            PATIENCE_SECONDS,
        )
        assert demo.value("sum(cuda_kernel_duration_seconds_count)") == expected.launches
        seconds = demo.value("sum(cuda_kernel_duration_seconds_sum)")
        assert seconds is not None
        assert math.isclose(seconds, expected.seconds, rel_tol=1e-9)
        assert (
            demo.value("count(cuda_kernel_launches_total) - count(cuda_kernel_launches_total{source='replayed'})") == 0
        )
        summary = demo.stop()
    assert summary["kernels"]["prometheus_launches"] == expected.launches  # type: ignore[index]


@dataclass(frozen=True)
class Replayed:
    """A recording, and what Prometheus held once all of it had been replayed at full speed."""

    kind: str
    path: Path
    expected: Truth
    published: Mapping[str, object]
    printed: str
    counts: Samples
    sums: Samples
    states: Samples
    totals: Mapping[str, float | None]
    beside_kernels: Mapping[str, float | None]


@contextmanager
def demo_of(directory: Path, broker: Broker, kind: str, path: Path) -> Iterator[tuple[PrometheusServer, ServerProcess]]:
    """A demo that replays a recording at full speed; its Prometheus, and the demo."""
    demo = RunningDemo(directory, broker, f"{kind}:{path}", "--kernels", "all", "--speed", "max")
    with stopping(demo.process):
        demo.start()
        yield demo.prometheus, demo.process
        summary = demo.stop()
    assert summary["kernels"]["prometheus_launches"] == summary["published"]["kernels"]  # type: ignore[index]


@contextmanager
def parts_of(
    directory: Path, broker: Broker, kind: str, path: Path
) -> Iterator[tuple[PrometheusServer, ServerProcess]]:
    """The command `replay`, Kafka and a bridge: the parts that carry a demo's replay to Prometheus."""
    topics(broker)
    with Stack(directory, broker.bootstrap_servers) as stack:
        stack.service("bridge")
        prometheus = stack.prometheus(rules=False)
        options = ["--speed", "max", "--kernels", "all", "--summary", str(directory / PUBLISHED)]
        command = ["replay", kind, str(path), *options, "--kafka.bootstrap-servers", broker.bootstrap_servers]
        replay = ForkedServer("replay", command, directory)
        with stopping(replay):
            replay.start()
            yield prometheus, replay
            wait_for("the end of the replay", lambda: replay.poll() is not None)
        assert replay.poll() == 0, replay.tail()


@pytest.fixture(scope="module", params=list(RECORDINGS))
def replayed(
    request: pytest.FixtureRequest, thawed_kafka: Broker, tmp_path_factory: pytest.TempPathFactory
) -> Replayed:
    """Each recording; one by a demo, which takes as long to start as the rest of a replay."""
    binary("prometheus", "prometheus")
    kind, path, expected = recording(request.param)
    emptied(thawed_kafka.bootstrap_servers)
    directory = tmp_path_factory.mktemp("replayed")
    replaying = demo_of if request.param == BY_A_DEMO else parts_of
    with replaying(directory, thawed_kafka, kind, path) as (prometheus, process):
        wait_for(
            "all launches in Prometheus",
            lambda: value(prometheus, "sum(cuda_kernel_launches_total)") == expected.launches,
            PATIENCE_SECONDS,
        )
        found = measured(prometheus)
    folder = directory / "demo" if request.param == BY_A_DEMO else directory
    published = json.loads((folder / PUBLISHED).read_text())
    return Replayed(kind, path, expected, published, process.tail(100_000), **found)


def measured(prometheus: PrometheusServer) -> dict[str, Any]:
    """Read the values that the tests compare with a recording from Prometheus, all at one time."""
    found = partial(value, prometheus)
    return {
        "counts": prometheus.query("sum by (kernel) (cuda_kernel_launches_total)"),
        "sums": prometheus.query("sum by (kernel) (cuda_kernel_duration_seconds_sum)"),
        "states": prometheus.query("sum by (state) (cuda_device_time_seconds_total)"),
        "totals": {
            "observed": found("sum(cuda_kernel_duration_seconds_count)"),
            "seconds": found("sum(cuda_kernel_duration_seconds_sum)"),
            "replayed": found("sum(cuda_kernel_launches_total{source='replayed'})"),
        },
        "beside_kernels": {
            "copied": found("sum(cuda_memcpy_bytes_total)"),
            "waits": found("sum(cuda_sync_calls_total)") or 0,
            "gaps": found("sum(cuda_launch_gap_seconds_count)"),
            "idle": round((found("sum(cuda_launch_gap_seconds_sum)") or 0) * 1e9),
            "delays": found("sum(cuda_kernel_queue_delays_total)"),
        },
    }


def test_launches_and_gpu_time_in_prometheus_equal_those_in_the_trace(replayed: Replayed) -> None:
    launches = replayed.expected.launches
    seconds = pytest.approx(replayed.expected.seconds, rel=1e-9)
    assert replayed.totals == {"observed": launches, "seconds": seconds, "replayed": launches}


def test_each_kernel_in_prometheus_equals_its_own_in_the_trace(replayed: Replayed) -> None:
    by_label: dict[str, tuple[int, float]] = {}
    for kernel, (count, seconds) in replayed.expected.by_name.items():
        before = by_label.get(label(normalise(kernel)), (0, 0.0))
        by_label[label(normalise(kernel))] = (before[0] + count, before[1] + seconds)
    assert {labels["kernel"]: int(value) for labels, value in replayed.counts} == {
        kernel: count for kernel, (count, _) in by_label.items()
    }
    assert len(replayed.sums) == len(by_label)
    for labels, value in replayed.sums:
        assert math.isclose(value, by_label[labels["kernel"]][1], rel_tol=1e-9), labels


def test_copies_and_waits_in_prometheus_equal_those_in_the_trace(replayed: Replayed) -> None:
    truths = recording_truth.kineto if replayed.kind == "kineto" else recording_truth.nsys
    whole = truths(replayed.path)
    assert replayed.beside_kernels == {
        "copied": sum(size_bytes for _, size_bytes, _ in whole.copies) + sum(whole.fill_bytes),
        "waits": len(whole.syncs),
        "gaps": len(whole.gaps()),
        "idle": sum(whole.gaps()),
        "delays": replayed.expected.launches,
    }
    assert {labels["state"]: round(seconds * 1e9) for labels, seconds in replayed.states} == whole.states()


def test_a_trace_without_gpu_activity_is_said_to_have_no_kernels(kafka: Broker, tmp_path: Path) -> None:
    path = shared_data("kineto", "cpu_only.json.gz")
    demo = RunningDemo(tmp_path, kafka, f"kineto:{path}", "--no-servers")
    with stopping(demo.process):
        demo.process.start((tmp_path / "demo" / PUBLISHED).exists, PATIENCE_SECONDS)
        summary = demo.stop()
    assert "no kernels: the recording shows no GPU activity" in demo.process.tail()
    assert summary["kernels"]["launches"] == 0  # type: ignore[index]


def test_the_replay_prints_its_totals_and_publishes_as_many_launches(replayed: Replayed) -> None:
    launches = replayed.expected.launches
    assert replayed.published["kernels"] == launches
    assert replayed.published["messages"] > 0  # type: ignore[operator]
    assert re.search(rf"\b({launches}|{launches:,})\b", replayed.printed)


def test_a_replay_towards_a_broker_that_is_not_there_fails(tmp_path: Path) -> None:
    kind, path, _ = recording("amd")
    properties = tmp_path / "kernelcast.yaml"
    properties.write_text("kafka: {properties: {message.timeout.ms: 2000, delivery.timeout.ms: 2000}}\n")
    done = kernelcast(
        "replay", kind, str(path), "--speed", "max", "--config", str(properties),
        "--kafka.bootstrap-servers", "127.0.0.1:1",
    )  # fmt: skip
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr or "not acknowledged" in done.stderr.lower()

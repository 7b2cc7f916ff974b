"""Describes the services as they are put together: own metrics, HTTP paths, names on Kafka.

Kafka's clients and the web server's threads are replaced by ones that do nothing: no broker, port or process is used.
"""

import itertools
import json
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import yaml
from confluent_kafka import KafkaError, KafkaException
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.routing import Route
from structlog.testing import capture_logs
from tests.support.runtime.kafka_record import Record
from tests.surface.commands import quietly

from kernelcast.bridge import service as bridge_service
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.cli import app
from kernelcast.cli.demo.event_log import EventLog
from kernelcast.cli.demo.workspace import Endpoints, Workspace
from kernelcast.columnar import Decoder
from kernelcast.exporter import assembly
from kernelcast.exporter.settings import ExporterSettings, SpoolSettings
from kernelcast.predictor.service import Predictor
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime import logging
from kernelcast.runtime.kafka import consumer, deadletter, producer
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.settings.service import KafkaSettings, WebSettings
from kernelcast.runtime.web import server as web
from kernelcast.wire.errors import BrokerError
from kernelcast.wire.topics import TOPICS

HOSTNAME: Final = "HOSTNAME"
WAIT_SECONDS: Final = 10.0
OWN_PREFIXES: Final = ("kernelcast_", "target_info")
"""Our metrics; the Python client adds others about the process."""

_ADDRESS: Final = WebSettings(listen_address="127.0.0.1:0")
_HARMLESS: Final = frozenset({"assignment", "poll", "flush", "purge", "close", "produce", "unsubscribe"})


class IdleClient:
    """A client of Kafka that is never connected."""

    def __len__(self) -> int:
        return 0

    def __getattr__(self, name: str) -> Any:
        def answer(*_arguments: object, **_named: object) -> int:
            if name in _HARMLESS:
                return 0
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))

        return answer


class Recorder:
    """Notes what services ask for while they are put together.

    Attributes:
        names: Pairs of client id and consumer group, the latter empty for producers.
        routes: HTTP paths, with their methods.
        registries: Every registry of metrics.
    """

    def __init__(self) -> None:
        self.names: set[tuple[str, str]] = set()
        self.routes: dict[str, list[str]] = {}
        self.registries: list[CollectorRegistry] = []
        self._changed = threading.Condition()

    def connect(self, _client: object, _settings: object, *, properties: Mapping[str, Any]) -> IdleClient:
        """Replace `kernelcast.runtime.kafka.connect.connect`."""
        with self._changed:
            self.names.add((properties.get("client.id", ""), properties.get("group.id", "")))
            self._changed.notify_all()
        return IdleClient()

    def wait_for(self, count: int) -> None:
        """Wait until that number of clients with different names were made, one of them on a thread."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.names) >= count, WAIT_SECONDS), self.names

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Note what happens in the block."""
        started, registered, prepared = Starlette.__init__, CollectorRegistry.__init__, consumer.Consumer.__init__
        consumers: list[consumer.Consumer] = []

        def serve(application: Any, *arguments: Any, **named: Any) -> None:
            for route in named["routes"]:
                assert isinstance(route, Route), "describe this kind of route, too"
                self.routes[route.path] = sorted((route.methods or set()) - {"HEAD"})
            started(application, *arguments, **named)

        def register(registry: Any, *arguments: Any, **named: Any) -> None:
            registered(registry, *arguments, **named)
            self.registries.append(registry)

        def prepare(made: Any, *arguments: Any, **named: Any) -> None:
            prepared(made, *arguments, **named)
            consumers.append(made)

        with ExitStack() as stack:
            for module in (consumer, producer):
                stack.enter_context(patch.object(module, "connect", self.connect))
            stack.enter_context(patch.object(Starlette, "__init__", serve))
            stack.enter_context(patch.object(web.WebServer, "start", lambda server: server))
            stack.enter_context(patch.object(web.WebServer, "stop", lambda server: None))
            stack.enter_context(patch.object(CollectorRegistry, "__init__", register))
            stack.enter_context(patch.object(consumer.Consumer, "__init__", prepare))
            stack.enter_context(patch.object(logging, "configure", lambda settings: None))
            stack.enter_context(capture_logs())
            yield
            for made in consumers:
                made.close()

    def metrics(self) -> dict[str, Any]:
        """The service's own metrics: of the registry that its web server shows."""
        shown = [one for one in self.registries if "kernelcast_build_info" in one._names_to_collectors]
        (registry,) = shown
        return dict(sorted(_metrics(registry)))


def services() -> dict[str, Any]:
    """Own metrics and HTTP paths by service."""
    recorders = {"exporter": _exporter(), "bridge": _bridges()[0], "predictor": _predictor()}
    return {name: {"metrics": one.metrics(), "paths": one.routes} for name, one in recorders.items()}


def kafka() -> dict[str, Any]:
    """Topics with their settings, and the names under which services read and write."""
    bridges = {f"bridge, mode {mode}": one for mode, one in zip(MODES, _bridges(), strict=True)}
    recorders = {"exporter": _exporter(), **bridges, "predictor": _predictor(), "demo": _demo()}
    names = {name: _names(one) for name, one in recorders.items()}
    names |= {f"kernelcast {command[0]}": _names(_of_command(*command)) for command in _PUBLISHING}
    return {"topics": {topic.name: _topic(topic) for topic in TOPICS}, "names": names, "dead letters": _dead_letter()}


MODES: Final = ("group", "replica")
_PUBLISHING: Final = (("simulate", "--duration", "1"), ("replay", "kineto", "RECORDING"))


@cache
def _exporter() -> Recorder:
    recorder, shutdown = Recorder(), Shutdown()
    with tempfile.TemporaryDirectory() as folder, recorder.recording():
        settings = ExporterSettings(
            web=_ADDRESS,
            hostname=HOSTNAME,
            socket_path=Path(folder) / "probe.sock",
            state_directory=Path(folder) / "state",
            spool=SpoolSettings(),
            nvml="off",
            device_metrics="on",
            kubernetes="off",
            tpu="off",
        )
        with assembly.assembled(settings, shutdown):
            recorder.wait_for(2)
            shutdown.request()
    return recorder


@cache
def _bridges() -> list[Recorder]:
    """One in each mode, with a Prometheus for its pages."""
    recorders = []
    for mode in MODES:
        pages = {"prometheus_url": "http://localhost:9090"}
        settings = BridgeSettings.model_validate({"web": _ADDRESS, "mode": mode, "pages": pages})
        recorder = Recorder()
        with recorder.recording():
            bridge_service.Bridge(settings)
        recorders.append(recorder)
    return recorders


@cache
def _predictor() -> Recorder:
    recorder = Recorder()
    with recorder.recording(), patch.object(Decoder, "warm_up"), suppress(BrokerError):
        Predictor(PredictorSettings(web=_ADDRESS, client_id=HOSTNAME)).run(Shutdown())  # ends when it would subscribe
    return recorder


def _demo() -> Recorder:
    recorder = Recorder()
    with recorder.recording(), tempfile.TemporaryDirectory() as folder:
        log = EventLog(KafkaSettings(), 0)
        log.start()
        recorder.wait_for(1)
        log.stop()
        workspace = Workspace(Path(folder), Endpoints("a:1", "b:2", "c:3"), "d:4")
        workspace.write_config(nvml="off", kernels="all")
        content = yaml.safe_load(workspace.config.read_text())
    recorder.names.update(("", section["group_id"]) for section in content.values() if "group_id" in section)
    return recorder


def _of_command(*command: str) -> Recorder:
    """The names of a command that publishes; it ends when it would connect."""
    recorder = Recorder()

    def connect(*arguments: Any, **named: Any) -> None:
        recorder.connect(*arguments, **named)
        raise KeyboardInterrupt

    with tempfile.TemporaryDirectory() as folder, recorder.recording(), patch.object(producer, "connect", connect):
        recording = Path(folder) / "recording.json"
        kernel = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "args": {"device": 0, "stream": 7}}
        recording.write_text(json.dumps({"traceEvents": [kernel]}))
        try:
            code = quietly(lambda: app.run([str(recording) if part == "RECORDING" else part for part in command]))
        except KeyboardInterrupt:
            code = 0
    assert recorder.names, (command, code)
    return recorder


def _names(recorder: Recorder) -> dict[str, Any]:
    """Client ids and groups; a random part of an id is replaced."""
    clients = {client for client, group in recorder.names if client and client != group}
    groups = {group for _, group in recorder.names if group}
    return {"client ids": sorted(map(_without_chance, clients)), "groups": sorted(groups)}


def _without_chance(client: str) -> str:
    head, dash, tail = client.rpartition("-")
    return f"{head}{dash}RANDOM" if len(tail) >= 16 and all(one in "0123456789abcdef" for one in tail) else client


def _metrics(registry: CollectorRegistry) -> Iterator[tuple[str, dict[str, Any]]]:
    for collector in registry._collector_to_names:
        for family in collector.collect():
            name = f"{family.name}_total" if family.type == "counter" else family.name
            if not name.startswith(OWN_PREFIXES):
                continue
            shown = [sample.labels for sample in family.samples if not sample.name.endswith("_created")]
            named = getattr(collector, "_labelnames", None) or dict.fromkeys(itertools.chain.from_iterable(shown))
            labels = {label: sorted({one[label] for one in shown if label in one} - {HOSTNAME}) for label in named}
            yield name, {"kind": family.type, "labels": {**labels, **({"version": []} if "version" in labels else {})}}


def _topic(topic: Any) -> dict[str, Any]:
    return {"key": topic.key, "value": topic.value, "partitions": topic.partitions, "config": topic.config}


def _dead_letter() -> dict[str, Any]:
    """The headers of a dead letter that was too long to be kept whole."""
    kept: list[dict[str, Any]] = []

    class Sender:
        def send(self, topic: str, **parts: Any) -> None:
            kept.append({"topic": topic, **parts})

    with capture_logs():
        deadletter.DeadLetters(Sender(), max_value_bytes=1).send(
            Record(("kernelcast.kernels", 3, 42), b"long", keyed=b"program"), ValueError("broken")
        )
    (letter,) = kept
    return {"headers": [name for name, _ in letter["headers"]], "topic": letter["topic"]}

"""Each real service stopped and started in turn: `python -m tests.nightly.services_in_turn [--output FILE]`.

A real Kafka, bridge, exporter and predictor run under a real Prometheus and Alertmanager in the demo's profile (minutes
are seconds), with a webhook of the test's. The table says how long after the end of the process its alert was sent,
which other alerts were sent until it ran again, and when the alert ended. While it is stopped, every panel of every
page is asked: one that names a metric of the service and shows something must be declared, with the reason.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import yaml
from tests.service.conftest import Broker
from tests.service.grafana.panels_without import present_metrics, still_shown
from tests.service.servers import AlertmanagerServer, KafkaServer, ServerProcess, stopping, wait_for
from tests.service.stack import KERNELCAST, Stack
from tests.support.service.programs import topics

from kernelcast.grafana import alertmanager, rules

ALERTS: Final = {
    "predictor": "KernelcastPredictorDown",
    "bridge": "KernelcastBridgeDown",
    "simulate": "KernelcastExporterStale",
    "kafka": "KernelcastKafkaUnreachable",
}
"""`simulate` publishes as the exporter of a node with GPUs does."""
MODEL_NAMES: Final = {"simulate": "exporter"}
"""Names of services in the panels' model, by the name of their process where it differs."""
SETTINGS: Final = {"bridge": {"ttl_seconds": 40.0, "ttl_floor_seconds": 20.0}}
QUIET_SECONDS: Final = 20
"""Consequences come up to 13 s after their cause."""
STALE_SECONDS: Final = 60
"""After this time the bridge has withdrawn the series of a producer that is silent (`SETTINGS`)."""
LIMIT_SECONDS: Final = 120
NEVER: Final = f"not within {LIMIT_SECONDS} s"
Sent = list[tuple[float, dict[str, Any]]]
"""Messages, with the time of each."""


def main() -> int:
    """Stop and start each service, and print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="file for the table")
    output: Path | None = parser.parse_args().output
    sent: Sent = []
    with tempfile.TemporaryDirectory() as folder, receiving(sent) as webhook:
        directory = Path(folder)
        kafka = KafkaServer(directory)
        with stopping(kafka), Stack(directory, kafka.bootstrap_servers, SETTINGS) as stack:
            kafka.run()
            topics(Broker("kafka", kafka.bootstrap_servers))
            rows = []
            for line, good in in_turn(stack, kafka, webhook, sent):
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
                rows.append((line, good))
    if output is not None:
        output.write_text("".join(f"{line}\n" for line, _ in rows))
    return 0 if all(good for _, good in rows) else 1


@contextmanager
def receiving(sent: Sent) -> Iterator[str]:
    """A webhook; yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append((time.time(), json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Messages are not logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def in_turn(stack: Stack, kafka: KafkaServer, webhook: str, sent: Sent) -> Iterator[tuple[str, bool]]:
    """A line for each service, and whether one message was sent and nothing was resolved too early."""
    running: dict[str, ServerProcess] = {name: stack.service(name) for name in ("bridge", "exporter", "predictor")}
    simulate = ("simulate", "--kafka.bootstrap-servers", kafka.bootstrap_servers)
    simulation = stack.background("simulate", *KERNELCAST, *simulate)
    notifier = AlertmanagerServer(stack.directory, _receiver(stack.directory, webhook))
    running |= {"kafka": kafka, "simulate": simulation}
    restart: dict[str, Callable[[], object]] = {"kafka": kafka.run, "simulate": simulation.start}
    with stopping(simulation, notifier):
        notifier.run()
        prometheus = stack.prometheus(alertmanager=notifier.address)
        wait_for("simulated GPUs", lambda: stack.exposed("DCGM_FI_DEV_GPU_TEMP"), LIMIT_SECONDS)
        time.sleep(QUIET_SECONDS)
        for name, alert in ALERTS.items():
            healthy = present_metrics(prometheus)
            before, stopped = len(sent), time.time()
            running[name].stop()
            fired = _after(stopped, sent, before, "firing", alert)
            time.sleep(QUIET_SECONDS)
            others = _names(sent[before:], "firing") - Counter({alert: 1})
            early = _names(sent[before:], "resolved")
            time.sleep(max(0.0, stopped + STALE_SECONDS - time.time()))
            showing = still_shown(prometheus, healthy, MODEL_NAMES.get(name, name))
            for title, queries in sorted(showing.items()):
                sys.stderr.write(f"{name}: {title!r} still shows {queries}\n")
            started = time.time()
            restart.get(name, partial(stack.start, running[name]))()
            ended = _after(started, sent, before, "resolved", alert) if fired != NEVER else NEVER
            time.sleep(QUIET_SECONDS)
            calm = ", ".join(sorted(showing)) or "none"
            line = f"| {name} | {alert} | {fired} | {_words(others)} | {_words(early)} | {ended} | {calm} |"
            yield line, NEVER not in (fired, ended) and not (others or early or showing)


def _after(moment: float, sent: Sent, before: int, status: str, alert: str) -> str:
    """Time from a moment to the first message with an alert in a status, in words."""
    try:
        found = wait_for(alert, lambda: _first(sent[before:], status, alert), LIMIT_SECONDS)
    except AssertionError:
        return NEVER
    return f"{found - moment:.0f} s"


def _receiver(directory: Path, webhook: str) -> Path:
    settings = yaml.safe_load(alertmanager.render(webhook, rules.DEMO))
    settings["route"]["repeat_interval"] = "1h"
    path = directory / "receiver.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def _first(sent: Sequence[tuple[float, dict[str, Any]]], status: str, alert: str) -> float | None:
    return next((seconds for seconds, message in sent if alert in _of(message, status)), None)


def _names(sent: Sequence[tuple[float, dict[str, Any]]], status: str) -> Counter[str]:
    """Alerts with a status, once for each message."""
    return Counter(name for _, message in sent for name in _of(message, status))


def _of(message: dict[str, Any], status: str) -> set[str]:
    found = {alert["labels"]["alertname"] for alert in message["alerts"] if alert["status"] == status}
    return found - {"Watchdog"}


def _words(counted: Counter[str]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(counted.items())) or "none"


if __name__ == "__main__":
    sys.exit(main())

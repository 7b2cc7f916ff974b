"""The services of kernelcast as real processes, wired to a broker, Prometheus and Alertmanager."""

import contextlib
import io
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import yaml
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from tests.service.nursery import ForkedServer
from tests.service.servers import (
    START_SECONDS,
    AlertmanagerServer,
    PrometheusServer,
    ServerProcess,
    answers,
    free_ports,
    get,
    stopping,
)

from kernelcast.cli.app import run

KERNELCAST = (sys.executable, "-m", "kernelcast.cli")
SERVICES = ("bridge", "exporter", "predictor")
FAST: dict[str, dict[str, Any]] = {
    "exporter": {"interval_seconds": 0.5, "nvml": "off"},
    "bridge": {},
    "predictor": {
        "interval_seconds": 1.0,
        "window_points": 180,
        "sweep_every_seconds": 3.0,
        "horizons_seconds": [60.0, 300.0],
        "snapshot_every_seconds": 5.0,
    },
}
"""Seconds instead of minutes."""


def kernelcast(*arguments: str, timeout_seconds: float = START_SECONDS) -> "subprocess.CompletedProcess[str]":
    """Run one command to its end."""
    command = [*KERNELCAST, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)


def samples(page: str, name: str, labels: Mapping[str, str]) -> Iterator[Sample]:
    """Samples of a page with a name and labels; other lines are not parsed, as tests ask again and again."""
    lines = "".join(line for line in page.splitlines(keepends=True) if line.startswith((f"{name}{{", f"{name} ")))
    for family in text_string_to_metric_families(lines):
        yield from (sample for sample in family.samples if labels.items() <= sample.labels.items())


class Stack:
    """Some services on one broker; `with Stack(…) as stack` stops whatever was started."""

    def __init__(
        self, directory: Path, bootstrap_servers: str, settings: Mapping[str, Mapping[str, Any]] | None = None
    ) -> None:
        self.directory = directory
        self.bootstrap_servers = bootstrap_servers
        self.socket = directory / "probe.sock"
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(SERVICES, free_ports(3), strict=True)}
        self._servers: list[ServerProcess] = []
        self._group_id = uuid.uuid4().hex
        self._write(settings or {})

    def _write(self, settings: Mapping[str, Mapping[str, Any]]) -> None:
        content: dict[str, Any] = {"kafka": {"bootstrap_servers": self.bootstrap_servers}, "log": {"level": "info"}}
        for name in SERVICES:
            content[name] = {"web": {"listen_address": self.addresses[name]}, **FAST[name], **settings.get(name, {})}
        for name in ("bridge", "predictor"):
            content[name].setdefault("group_id", f"{name}-{self._group_id}")
        content["exporter"].setdefault("socket_path", str(self.socket))
        content["exporter"].setdefault("state_directory", str(self.directory / "state"))
        self.config = self.directory / "kernelcast.yaml"
        self.config.write_text(yaml.safe_dump(content))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with stopping(*self._servers):
            pass

    def service(self, name: str) -> ServerProcess:
        """A service, started and ready."""
        server = ForkedServer(name, [name, "--config", str(self.config)], self.directory)
        self._servers.append(server)
        return self.start(server)

    def start(self, server: ServerProcess) -> ServerProcess:
        """Start a service again (after `kill`) and wait until it is ready."""
        return server.start(lambda: answers(f"http://{self.addresses[server.name]}/-/ready"))

    def background(self, name: str, *command: str, environ: Mapping[str, str] | None = None) -> ServerProcess:
        """Any other program of the test, with its output in a file."""
        own = {"KERNELCAST_SOCKET": str(self.socket), **(environ or {})}
        server = ServerProcess(name, command, self.directory, own)
        self._servers.append(server)
        return server.start()

    def exposition(self) -> str:
        """The bridge's present page."""
        return get(f"http://{self.addresses['bridge']}/metrics")

    def exposed(self, name: str, **labels: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Samples of one name that the bridge exposes now: sorted labels to value."""
        return {tuple(sorted(found.labels.items())): found.value for found in samples(self.exposition(), name, labels)}

    def total(self, name: str, **labels: str) -> float:
        """The sum of these samples."""
        return sum(self.exposed(name, **labels).values())

    def own(self, service: str, name: str, **labels: str) -> float:
        """A service's metric about itself, summed over the labels that are not given."""
        page = get(f"http://{self.addresses[service]}/metrics")
        return sum(found.value for found in samples(page, name, labels))

    def prometheus(self, *, scrape_interval: int = 1, alertmanager: str = "", rules: bool = True) -> PrometheusServer:
        """A Prometheus that scrapes what runs; with rules, it evaluates ours each second, in the demo's profile."""
        if rules:
            site = self.directory / "site.yaml"
            site.write_text("profile: demo\n")
            _checked("rules", "files", "--output", str(self.directory / "rules"), "--site", str(site))
        arguments = [f"--{name}={self.addresses[name]}" for name in SERVICES]
        arguments += ["--rules", str(self.directory / "rules"), "--scrape-interval", str(scrape_interval)]
        arguments += ["--alertmanager", alertmanager] if alertmanager else []
        configuration = self.directory / "prometheus.yml"
        configuration.write_text(_checked("grafana", "prometheus-config", *arguments))
        server = PrometheusServer(self.directory, configuration)
        self._servers.append(server)
        return server.run()

    def alertmanager(self) -> AlertmanagerServer:
        """An Alertmanager whose webhook is the bridge."""
        webhook = f"http://{self.addresses['bridge']}/api/v1/alerts"
        configuration = self.directory / "alertmanager.yml"
        configuration.write_text(
            _checked("grafana", "alertmanager-config", "--webhook-url", webhook, "--profile", "demo")
        )
        server = AlertmanagerServer(self.directory, configuration)
        self._servers.append(server)
        return server.run()


def _checked(*arguments: str) -> str:
    """The output of a kernelcast command, run in this process because a new process needs a second to import it."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = run(arguments)
    assert code == 0, f"kernelcast {' '.join(arguments)} ended with {code}"
    return printed.getvalue()


def environment(**values: str) -> dict[str, str]:
    """The test's own environment with some more."""
    return {**os.environ, **values}

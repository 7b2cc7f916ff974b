"""The demo's folder: free ports, one `kernelcast.yaml` for all services, rules and configurations for the servers.

`run.Demo` and `lab.tune_replay` write it before they start a service.
"""

import shutil
import socket
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Final

import yaml

from kernelcast.cli.app import run
from kernelcast.wire.errors import KernelcastError

SCRAPE_SECONDS: Final = 1
"""Prometheus' scrape interval in the demo."""
GRAPH_STEP_SECONDS: Final = 5.0
"""Shortest step of a graph; a rate is of four steps, and must see several messages of the sources."""
PROMETHEUS: Final = ("prometheus",)
ALERTMANAGER: Final = ("prometheus-alertmanager", "alertmanager")
"""Debian's name first: a distribution's package or the project's own archive, whichever is there."""

FAST: Final[dict[str, dict[str, Any]]] = {
    "exporter": {"interval_seconds": 1.0},
    "bridge": {"ttl_seconds": 120.0},
    "predictor": {
        "interval_seconds": 1.0,
        "window_points": 180,
        "sweep_every_seconds": 3.0,
        "horizons_seconds": [60.0, 300.0],
        "snapshot_every_seconds": 15.0,
        "hints": {"cooldown_seconds": 60.0},
    },
}
"""Seconds instead of minutes: a demonstration is short."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of the services, `HOST:PORT`; empty for a service that does not run."""

    exporter: str
    bridge: str
    predictor: str
    prometheus: str = ""
    alertmanager: str = ""

    def urls(self) -> dict[str, str]:
        """A URL a person can open, for each that runs."""
        pages = {"exporter": "/metrics", "bridge": "/metrics", "predictor": "/metrics"}
        addresses = {name: getattr(self, name) for name in self.__slots__}
        return {name: f"http://{address}{pages.get(name, '')}" for name, address in addresses.items() if address}

    @property
    def page(self) -> str:
        """The URL of the bridge's first page, which leads to its dashboards."""
        return f"http://{self.bridge}/"


@dataclass(frozen=True, slots=True)
class Workspace:
    """The demo's folder, and the paths in it."""

    directory: Path
    endpoints: Endpoints
    bootstrap_servers: str

    @property
    def config(self) -> Path:
        """Settings of every service."""
        return self.directory / "kernelcast.yaml"

    @property
    def socket(self) -> Path:
        """Path of the exporter's socket, to which programs report their kernels."""
        return self.directory / "probe.sock"

    def log(self, name: str) -> Path:
        """Return the path of a process's output."""
        return self.directory / f"{name}.log"

    def write_config(self, *, nvml: str, kernels: str) -> None:
        """Write `kernelcast.yaml`."""
        own: dict[str, dict[str, Any]] = {
            "exporter": {
                "socket_path": str(self.socket),
                "state_directory": str(self.directory / "state"),
                "nvml": nvml,
                "kernels": kernels,
            },
            # Groups of its own: on a user's Kafka it must not take partitions away from the services that run there.
            # The bridge joins none: the first member of a group waits for seconds.
            "bridge": {"mode": "replica", "group_id": "kernelcast-demo-bridge", "pages": self._pages()},
            "predictor": {"group_id": "kernelcast-demo-predictor"},
        }
        content: dict[str, Any] = {
            "kafka": {"bootstrap_servers": self.bootstrap_servers},
            "log": {"level": "info", "format": "logfmt"},
        }
        for service, fields in own.items():
            web = {"listen_address": getattr(self.endpoints, service)}
            content[service] = {"web": web, **FAST[service], **fields}
        self.config.write_text(yaml.safe_dump(content, sort_keys=False))

    def _pages(self) -> dict[str, Any]:
        """Settings of the pages that the bridge serves."""
        if not self.endpoints.prometheus:
            return {}
        url = f"http://{self.endpoints.prometheus}"
        return {"prometheus_url": url, "scrape_interval_seconds": GRAPH_STEP_SECONDS}

    def write_observability(self) -> None:
        """Write rules, `prometheus.yml` and `alertmanager.yml`, as `kernelcast grafana` renders them.

        Raises:
            KernelcastError: The grafana extra is not installed, or refused.
        """
        rules, site = self.directory / "rules", self.directory / "site.yaml"
        bridge = f"http://{self.endpoints.bridge}"
        links = {"runbooks_url": f"{bridge}/runbooks/", "dashboard_url": f"{bridge}/pages/kernelcast-kernels"}
        site.write_text(yaml.safe_dump({"profile": "demo", **links}))
        _output_of("rules", "files", "--output", str(rules), "--site", str(site))
        provisioned = ("--flavor", "provisioning", "--output", str(self.directory), "--site", str(site))
        _output_of("grafana", "files", *provisioned)
        webhook = ("--webhook-url", f"{bridge}/api/v1/alerts")
        alertmanager = _output_of("grafana", "alertmanager-config", *webhook, "--profile", "demo")
        (self.directory / "alertmanager.yml").write_text(alertmanager)
        targets = (self.endpoints.exporter, self.endpoints.bridge, self.endpoints.predictor)
        options = (*_target_options(*targets), *self._server_options(rules))
        prometheus = _output_of("grafana", "prometheus-config", *options)
        (self.directory / "prometheus.yml").write_text(prometheus)

    def how_to_import(self) -> list[str]:
        """Return the folder of the same dashboards for Grafana, and the two steps of importing them."""
        if not self.endpoints.prometheus:
            return []
        return [
            f"The same dashboards for Grafana are in {self.directory / 'dashboards'}; to import them:",
            f"  1. Connections, Add new connection, Prometheus: http://{self.endpoints.prometheus}",
            "  2. Dashboards, New, Import: upload each file, and choose that data source",
        ]

    def _server_options(self, rules: Path) -> list[str]:
        alertmanager = ["--alertmanager", self.endpoints.alertmanager] if self.endpoints.alertmanager else []
        return ["--rules", str(rules), "--scrape-interval", str(SCRAPE_SECONDS), *alertmanager]


def find(names: Iterable[str]) -> str | None:
    """The first of these programs that is on PATH."""
    return next((path for name in names if (path := shutil.which(name))), None)


@contextmanager
def reserved_addresses(count: int) -> Iterator[list[str]]:
    """Reserve loopback addresses until the block ends; yields `HOST:PORT` of each.

    A socket that does not listen is bound to each port, so the kernel gives it to no other program that asks for any
    port. A server that sets SO_REUSEADDR, as ours and those written in Go do, can still listen there.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            each.bind(("127.0.0.1", 0))
        yield [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def _target_options(exporter: str, bridge: str, predictor: str) -> list[str]:
    return ["--exporter", exporter, "--bridge", bridge, "--predictor", predictor]


def _output_of(*arguments: str) -> str:
    """The output of a kernelcast command, run in this process because a new one needs a second to import it."""
    with redirect_stdout(StringIO()) as printed, redirect_stderr(StringIO()) as complaint:
        code = run(arguments)
    if code:
        raise KernelcastError(f"kernelcast {' '.join(arguments[:2])} failed: {complaint.getvalue().strip()[-500:]}")
    return printed.getvalue()

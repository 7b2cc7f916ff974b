"""The bridge behind TLS, client certificates and passwords: Prometheus scrapes it, Alertmanager delivers to it."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.service.servers import AlertmanagerServer, PrometheusServer, ServerProcess, stopping, wait_for
from tests.service.stack import KERNELCAST, Stack
from tests.support.runtime.certificates import self_signed

from kernelcast.runtime.kafka.consumer import Consumer
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.events import Alert, alert_from
from kernelcast.wire.topics import ALERTS

pytestmark = pytest.mark.service

USER, PASSWORD = "prometheus", "change-me"
HASH = "$2b$10$KA7maWjKTztl6nZO84niv.J7n2I/xGjYN28WnEnULltB.nEkB/Sy6"
"""Of PASSWORD; the hash of deploy/web-config.example.yml."""
RULE = {"alert": "Always", "expr": "vector(1)", "for": "10s", "labels": {"gpu": "0"}}
"""Fires once Prometheus has found its Alertmanager; before, it would be lost, and sent again only a minute later."""
ALWAYS = {"groups": [{"name": "test", "rules": [RULE]}]}


@dataclass(frozen=True)
class Door:
    """Certificates and password of a secured web server and its clients."""

    folder: Path

    def web_config(self) -> Path:
        """The bridge's own file."""
        path = self.folder / "web.yml"
        tls = {"cert_file": "server.crt", "key_file": "server.key", "client_ca_file": "client.crt"}
        tls["client_auth_type"] = "RequireAndVerifyClientCert"
        path.write_text(yaml.safe_dump({"tls_server_config": tls, "basic_auth_users": {USER: HASH}}))
        return path

    def http_config(self, password: str = PASSWORD) -> dict[str, Any]:
        """The client's configuration for Prometheus and Alertmanager."""
        tls = {"ca_file": "server.crt", "cert_file": "client.crt", "key_file": "client.key"}
        files = {name: str(self.folder / file) for name, file in tls.items()}
        return {"tls_config": files, "basic_auth": {"username": USER, "password": password}}

    def status(self, url: str, password: str, *, certificate: bool = True) -> int:
        """The status of the answer to a request; 0 without an answer."""
        trusting = ssl.create_default_context(cafile=str(self.folder / "server.crt"))
        if certificate:
            trusting.load_cert_chain(self.folder / "client.crt", self.folder / "client.key")
        try:
            return httpx.get(url, verify=trusting, auth=(USER, password), timeout=5).status_code
        except httpx.TransportError:
            return 0


def prometheus(directory: Path, door: Door, bridge: str, alertmanager: str) -> PrometheusServer:
    """One that scrapes the bridge twice: with the right password, and with a wrong one."""
    (directory / "rules.yml").write_text(yaml.safe_dump(ALWAYS))
    jobs = [
        {"job_name": name, "scheme": "https", "static_configs": [{"targets": [bridge]}], **door.http_config(password)}
        for name, password in (("bridge", PASSWORD), ("stranger", "guess"))
    ]
    content = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yml"],
        "scrape_configs": jobs,
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
    }
    path = directory / "prometheus.yml"
    path.write_text(yaml.safe_dump(content))
    return PrometheusServer(directory, path)


def alertmanager(directory: Path, door: Door, bridge: str) -> AlertmanagerServer:
    """One whose only receiver is the bridge."""
    webhook = {"url": f"https://{bridge}/api/v1/alerts", "http_config": door.http_config()}
    route = {"receiver": "kernelcast", "group_wait": "1s", "group_interval": "1s", "repeat_interval": "1h"}
    content = {"route": route, "receivers": [{"name": "kernelcast", "webhook_configs": [webhook]}]}
    path = directory / "alertmanager.yml"
    path.write_text(yaml.safe_dump(content))
    return AlertmanagerServer(directory, path)


def first_alert(bootstrap_servers: str) -> Alert:
    """The first on the topic."""
    consumer = Consumer(KafkaSettings(bootstrap_servers=bootstrap_servers), group_id="test-alerts")
    partitions = consumer.partitions(ALERTS.name)
    for partition in partitions:
        partition.offset = 0
    consumer.assign(partitions)
    try:
        message = wait_for("an alert on Kafka", lambda: consumer.consume(1, 0.5)[0])[0]
        return alert_from(decode_event(message.value() or b""))
    finally:
        consumer.close()


def test_only_clients_with_certificate_and_password_such_as_prometheus_and_alertmanager_get_in(tmp_path: Path) -> None:
    for name in ("server", "client"):
        self_signed(tmp_path, name)
    door = Door(tmp_path)
    with EmbeddedBroker() as broker, Stack(tmp_path, broker.bootstrap_servers) as stack:
        address = stack.addresses["bridge"]
        url = f"https://{address}/-/ready"
        flags = ["--config", str(stack.config), "--web.config.file", str(door.web_config())]
        bridge = ServerProcess("bridge", [*KERNELCAST, "bridge", *flags], tmp_path)
        receiver = alertmanager(tmp_path, door, address)
        scraper = prometheus(tmp_path, door, address, receiver.address)
        with stopping(bridge, receiver, scraper):
            bridge.start(lambda: door.status(url, PASSWORD) == 200)
            assert door.status(url, "guess") == 401
            assert door.status(url, PASSWORD, certificate=False) == 0

            receiver.run()
            scraper.run()
            alert = first_alert(broker.bootstrap_servers)
            assert (alert.labels["alertname"], alert.labels["gpu"], alert.status) == ("Always", "0", "firing")
            up = wait_for("both scrapes", lambda: up_by_job(scraper))
            assert up == {"bridge": 1.0, "stranger": 0.0}


def up_by_job(scraper: PrometheusServer) -> dict[str, float] | None:
    """Whether each scrape works, once both were tried."""
    found = {labels["job"]: value for labels, value in scraper.query("up")}
    return found if len(found) == 2 else None

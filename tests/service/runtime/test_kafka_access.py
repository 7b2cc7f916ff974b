"""Kafka that cannot be reached or refuses us: the reason and one remedy, and services that end to be restarted."""

from collections.abc import Iterator
from typing import Any, Literal

import pytest
import yaml
from tests.service.secured_kafka import PASSWORD, USER, SecuredKafka
from tests.service.servers import free_ports
from tests.support.waiting import LONGEST_SECONDS, Stopwatch

from kernelcast.bridge.service import Bridge
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.cli.app import run
from kernelcast.cli.doctor.broker import check_broker
from kernelcast.cli.doctor.result import CheckLevel
from kernelcast.predictor import service
from kernelcast.predictor.service import Predictor
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.kafka import admin, connection_errors, offsets
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.settings.service import KafkaSettings, WebSettings
from kernelcast.wire.errors import KernelcastError
from kernelcast.wire.topics import DEVICE

pytestmark = pytest.mark.service

REFUSED = "Invalid username or password"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    server = SecuredKafka(tmp_path_factory.mktemp("secured"))
    try:
        yield server.run()
    finally:
        server.kill()


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "REQUEST_TIMEOUT_SECONDS", 2.0)
    monkeypatch.setattr(connection_errors, "LOGIN_PATIENCE_SECONDS", 3.0)


def login(kafka: SecuredKafka, **changes: str | None) -> KafkaSettings:
    """Settings that Kafka accepts, but for the changes."""
    properties = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(kafka.authority),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    given = {name: value for name, value in properties.items() if value is not None}
    return KafkaSettings(bootstrap_servers=kafka.secured, properties=given)


def tls(address: str, authority: object) -> KafkaSettings:
    properties = {"security.protocol": "SSL", "ssl.ca.location": str(authority)}
    return KafkaSettings(bootstrap_servers=address, properties=properties)


CASES: dict[str, tuple[Any, str, str]] = {
    "wrong password": (lambda kafka: login(kafka, sasl_password="wrong"), REFUSED, "set sasl.username and sasl.pass"),
    "wrong mechanism": (lambda kafka: login(kafka, sasl_mechanism="SCRAM-SHA-256"), "mechanism", "set sasl.mechanism"),
    "missing CA": (lambda kafka: login(kafka, ssl_ca_location=None), "self-signed", "set ssl.ca.location"),
    "expired": (lambda kafka: tls(kafka.expired, kafka.expired_authority), "expired", "renew the broker's certificate"),
    "plaintext to TLS": (
        lambda kafka: KafkaSettings(bootstrap_servers=kafka.expired),
        "speaks TLS and we do not",
        "to SSL or SASL_SSL",
    ),
    "TLS to plaintext": (
        lambda kafka: tls(kafka.plaintext, kafka.authority),
        "PLAINTEXT",
        "to PLAINTEXT or SASL_PLAINTEXT",
    ),
    "dead port": (
        lambda _kafka: KafkaSettings(bootstrap_servers=f"127.0.0.1:{free_ports(1)[0]}"),
        "Connection refused",
        "start Kafka, or correct the port",
    ),
    "unknown host": (
        lambda _kafka: KafkaSettings(bootstrap_servers="no-such-host.invalid:9092"),
        "Failed to resolve",
        "correct the host",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_failure_has_its_own_reason_and_remedy_and_exits_with_2(
    case: str, kafka: SecuredKafka, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    make, reason, remedy = CASES[case]
    settings: KafkaSettings = make(kafka)
    config = tmp_path / "kernelcast.yaml"
    content = {"bootstrap_servers": settings.bootstrap_servers, "properties": dict(settings.properties)}
    config.write_text(yaml.safe_dump({"kafka": content}))

    code, said = run(["topics", "list", "--config", str(config)]), capsys.readouterr().err

    assert (code, len(said.splitlines())) == (2, 1), said
    assert reason in said
    assert remedy in said
    others = {words for _, _, words in CASES.values()} - {remedy}
    assert not [words for words in others if words in said]
    assert PASSWORD not in said


def test_the_right_login_is_accepted_and_the_doctor_names_a_wrong_one(kafka: SecuredKafka) -> None:
    assert next(check_broker(login(kafka), probe_clock=False)).level is CheckLevel.OK
    (finding,) = check_broker(login(kafka, sasl_password="wrong"), probe_clock=False)
    assert finding.wrong_settings
    assert REFUSED in finding.found
    assert finding.remedy.startswith("set sasl.username and sasl.password")


@pytest.mark.parametrize("mode", ["group", "replica"])
def test_a_bridge_whose_login_is_refused_ends(kafka: SecuredKafka, mode: Literal["group", "replica"]) -> None:
    settings = BridgeSettings(
        kafka=login(kafka, sasl_password="wrong"),
        web=WebSettings(listen_address="127.0.0.1:0"),
        mode=mode,
    )
    with Bridge(settings) as bridge, pytest.raises(KernelcastError, match=f"refused our login.*{REFUSED}.*set sasl"):
        bridge.wait(LONGEST_SECONDS)


def test_a_predictor_whose_login_is_refused_ends_after_one_query_without_an_answer(
    kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "STOP_SECONDS", 2.0)
    web = WebSettings(listen_address="127.0.0.1:0")
    settings = PredictorSettings(kafka=login(kafka, sasl_password="wrong"), web=web)
    with Stopwatch() as took, pytest.raises(KernelcastError, match=f"refused our login.*{REFUSED}.*set sasl"):
        Predictor(settings).run(Shutdown())
    assert took.seconds < 4 * offsets.REQUEST_TIMEOUT_SECONDS, "it asks about five topics"


@pytest.mark.parametrize(
    ("changes", "words"), [({"sasl_password": "wrong"}, REFUSED), ({"ssl_ca_location": None}, "certificate")]
)
def test_a_producer_says_why_it_is_not_ready(kafka: SecuredKafka, changes: dict[str, str | None], words: str) -> None:
    producer = Producer(login(kafka, **changes), client_id="test")
    producer.send(DEVICE.name, key=b"node", value=b"value")
    producer.flush(3)
    ready, reason = producer.ready()
    producer.close(0.1)
    assert not ready
    assert words in reason

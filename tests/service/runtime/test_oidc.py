"""Kafka's tokens of an OIDC provider: librdkafka asks for one with the id and secret from the environment."""

import json
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from tests.support.http_double import answer_with, server
from tests.support.waiting import eventually

from kernelcast.bridge.settings import BridgeSettings
from kernelcast.runtime.kafka.connect import connect
from kernelcast.runtime.settings.service import load


def token() -> bytes:
    parts = ({"alg": "none"}, {"iat": int(time.time()), "exp": int(time.time()) + 300, "sub": "bridge"})
    text = ".".join(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return json.dumps({"access_token": f"{text}.", "token_type": "bearer", "expires_in": 300}).encode()


@pytest.mark.parametrize(
    ("client", "properties"),
    [(confluent_kafka.Producer, {}), (confluent_kafka.Consumer, {"group.id": "bridge"}), (AdminClient, {})],
    ids=["producer", "consumer", "administrator"],
)
def test_each_client_asks_the_provider_with_its_id_and_secret(
    client: Any, properties: Mapping[str, str], tmp_path: Path
) -> None:
    asked: list[str] = []
    answer = answer_with(200, token())

    def behave(handler: BaseHTTPRequestHandler) -> None:
        asked.append(handler.headers["Authorization"])
        answer(handler)

    with server(behave) as url:
        named = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": f"{url}/token",
        }
        path = tmp_path / "kernelcast.yaml"
        path.write_text(json.dumps({"kafka": {"bootstrap_servers": "127.0.0.1:1", "properties": named}}))
        prefix = "KERNELCAST_KAFKA__PROPERTIES__SASL_OAUTHBEARER_CLIENT"
        environ = {f"{prefix}_ID": "bridge", f"{prefix}_SECRET": "confidential"}
        settings = load("bridge", BridgeSettings, path=path, flags={}, environ=environ)
        made = connect(client, settings.kafka, properties={**properties, "log_level": "0"})
        eventually(lambda: bool(asked))
        del made
    assert b64decode(asked[0].removeprefix("Basic ")) == b"bridge:confidential"

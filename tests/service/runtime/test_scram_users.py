"""The commands of deploy/kafka/README.md, run against a real Kafka: users with SCRAM, and their rights."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.service import require
from tests.service.kafka_installation import kafka_libraries
from tests.service.secured_kafka import SecuredKafka

from kernelcast.runtime.kafka.admin import TopicResult, apply_topics
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.topics import DEVICE, HINTS

pytestmark = pytest.mark.service

README: Final = Path(__file__).resolve().parents[3] / "deploy" / "kafka" / "README.md"
ACLS: Final = """
import argparse, sys
from confluent_kafka.admin import (AclBinding, AclOperation, AclPermissionType, AdminClient, ResourcePatternType,
                                   ResourceType)
parser = argparse.ArgumentParser()
for one in ("--bootstrap-server", "--command-config", "--allow-principal"):
    parser.add_argument(one, required=True)
for one in ("--operation", "--topic", "--group"):
    parser.add_argument(one, action="append", default=[])
parser.add_argument("--resource-pattern-type", default="literal")
for one in ("--add", "--cluster"):
    parser.add_argument(one, action="store_true")
given = parser.parse_args()
things = [(ResourceType.TOPIC, name) for name in given.topic] + [(ResourceType.GROUP, name) for name in given.group]
things += [(ResourceType.BROKER, "kafka-cluster")] if given.cluster else []
pattern = ResourcePatternType[given.resource_pattern_type.upper() if not given.cluster else "LITERAL"]
words = {"Write": "WRITE", "Read": "READ", "Create": "CREATE", "Describe": "DESCRIBE",
         "DescribeConfigs": "DESCRIBE_CONFIGS", "AlterConfigs": "ALTER_CONFIGS"}
rights = [AclBinding(kind, name, pattern, given.allow_principal, "*", AclOperation[words[operation]],
                     AclPermissionType.ALLOW) for kind, name in things for operation in given.operation]
client = AdminClient({"bootstrap.servers": given.bootstrap_server})
for made in client.create_acls(rights).values():
    made.result(30)
"""
"""Kafka's program for rights is not among the jars of the tests; this one has its options."""


class ScramKafka(SecuredKafka):
    """Takes SCRAM in place of a fixed password, and asks for rights; whoever comes without TLS is its administrator."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        text = self._properties.read_text().partition("sasl.enabled.mechanisms=")[0]
        (login,) = re.findall(r"scram-sha-512\.sasl\.jaas\.config=(.*)", README.read_text())
        self._properties.write_text(f"""{text}
listener.name.secured.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secured.scram-sha-512.sasl.jaas.config={login}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
""")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScramKafka]:
    server = ScramKafka(tmp_path_factory.mktemp("scram"))
    try:
        yield server.run()
    finally:
        server.kill()


@pytest.fixture(scope="module")
def folder(kafka: ScramKafka, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the README's commands were run."""
    folder = tmp_path_factory.mktemp("commands")
    java = require.binary("java", "openjdk-17-jre-headless")
    for name, program in {
        "kafka-configs.sh": f"{java} -cp '{kafka_libraries()}/*' kafka.admin.ConfigCommand",
        "kafka-acls.sh": f"{sys.executable} {folder / 'acls.py'}",
    }.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        (folder / name).chmod(0o755)
    (folder / "acls.py").write_text(ACLS)
    (folder / "admin.properties").touch()
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL))
    assert script.count("BROKERS=kafka-1:9093") == 2
    script = script.replace("BROKERS=kafka-1:9093", f"BROKERS={kafka.plaintext}")
    environ = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    shell = shutil.which("bash")
    assert shell is not None
    done = subprocess.run(
        [shell, "-eu", "-c", script], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def login(kafka: ScramKafka, folder: Path, user: str, password: str = "") -> KafkaSettings:
    """The settings of a user, with the password that the commands wrote for it."""
    written = (folder / f"{user}.env").read_text().strip().partition("=")[2]
    properties = {
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(kafka.authority),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": f"kernelcast-{user}",
        "sasl.password": password or written,
    }
    return KafkaSettings(bootstrap_servers=kafka.secured, properties=properties)


def test_the_users_log_in_with_scram_and_have_their_rights_and_no_others(kafka: ScramKafka, folder: Path) -> None:
    assert (folder / "exporter.env").stat().st_mode & 0o077 == 0, "passwords are for their owner"
    changes = apply_topics(login(kafka, folder, "admin"), [DEVICE, HINTS])
    assert [(change.result, change.remark) for change in changes] == 2 * [
        (TopicResult.CREATED, "1 replica, as Kafka has 1 broker; --replication-factor sets another number")
    ]

    exporter = Producer(login(kafka, folder, "exporter"), client_id="test")
    exporter.send(DEVICE.name, key=b"node", value=b"value")
    exporter.flush(30)
    exporter.send(HINTS.name, key=b"node", value=b"remote control")
    exporter.flush(30)
    exporter.close(1)
    assert (exporter.sent, exporter.acknowledged) == (2, 1), "hints are for predictors only"


def test_a_wrong_password_is_refused(kafka: ScramKafka, folder: Path) -> None:
    stranger = Producer(login(kafka, folder, "exporter", password="guess"), client_id="test")
    stranger.send(DEVICE.name, key=b"node", value=b"value")
    stranger.flush(5)
    ready, reason = stranger.ready()
    stranger.close(0.1)
    assert not ready
    assert "Authentication failed" in reason

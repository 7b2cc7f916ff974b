"""Properties of librdkafka's clients that must fit each other."""

import pytest

from kernelcast.runtime.kafka.connect import CONSUMER_PROPERTIES, PRODUCER_PROPERTIES, check
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import ConfigurationError

LIBRDKAFKA_RECONNECT_MS = "10000"
"""Its longest pause between two attempts to connect, where a client has no own: `reconnect.backoff.max.ms`."""
BROKER_REPLACED_MS = 9_000
"""Time after which Kafka's defaults give a dead broker's partitions to another: `broker.session.timeout.ms`."""
COORDINATOR_QUERY_MS = 1_000
"""Interval of librdkafka's questions for the coordinator of its group."""


def test_a_member_finds_its_new_coordinator_before_its_session_ends() -> None:
    pause = int(CONSUMER_PROPERTIES.get("reconnect.backoff.max.ms", LIBRDKAFKA_RECONNECT_MS))
    heartbeat = int(CONSUMER_PROPERTIES["heartbeat.interval.ms"])
    longest = heartbeat + BROKER_REPLACED_MS + COORDINATOR_QUERY_MS + pause
    assert longest < int(CONSUMER_PROPERTIES["session.timeout.ms"])


@pytest.mark.parametrize("properties", [CONSUMER_PROPERTIES, PRODUCER_PROPERTIES])
def test_a_client_is_back_soon_after_its_broker(properties: dict[str, str]) -> None:
    assert int(properties.get("reconnect.backoff.max.ms", LIBRDKAFKA_RECONNECT_MS)) <= 1_000


@pytest.mark.parametrize("name", ["delivery.report.only.error", "oauth_cb", "throttle_cb", "default.topic.config"])
def test_a_property_that_confluent_kafka_takes_in_another_type_is_refused_as_a_setting(name: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"kafka\.properties\.{name} .*remove it"):
        check(KafkaSettings(properties={name: "true"}))


@pytest.mark.parametrize("group", ["", "mine"])
def test_one_group_for_all_consumers_is_refused_as_a_setting(group: str) -> None:
    with pytest.raises(ConfigurationError, match=r"kafka\.properties\.group\.id .*set group_id"):
        check(KafkaSettings(properties={"group.id": group}))


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"])
def test_a_file_that_is_missing_is_named_with_its_property(name: str) -> None:
    words = rf"kafka\.properties\.{name} is /nope\.pem; there is no such file .*; name the file"
    with pytest.raises(ConfigurationError, match=words):
        check(KafkaSettings(properties={"security.protocol": "SSL", name: "/nope.pem"}))


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("sasl.mechanizm", r"did you mean sasl\.mechanism\?"),
        ("secruity.protocol", r"did you mean security\.protocol\?"),
        ("something.else.entirely", r"CONFIGURATION\.md of librdkafka lists the names"),
    ],
)
def test_a_property_that_librdkafka_does_not_know_has_a_remedy(name: str, remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=rf'No such configuration property: "{name}"; {remedy}'):
        check(KafkaSettings(properties={name: "x"}))

"""Selection among librdkafka's reasons for a failed connection, and the end of retries after a refused login."""

import pytest
from confluent_kafka import KafkaError

from kernelcast.runtime.kafka.connection_errors import LOGIN_PATIENCE_SECONDS, ConnectionErrors
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import BrokerError

LOGIN = KafkaError(
    KafkaError._AUTHENTICATION, "sasl_ssl://k:1/bootstrap: Invalid password (after 3ms in state AUTH_REQ)"
)
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down")
CLOSED = KafkaError(KafkaError._TRANSPORT, "k:1/bootstrap: Disconnected (after 1ms in state APIVERSION_QUERY)")
NO_PORT = KafkaSettings(bootstrap_servers="127.0.0.1:1")


def test_what_follows_a_refusal_does_not_replace_it() -> None:
    errors = ConnectionErrors()
    for error in (CLOSED, LOGIN, CLOSED, DOWN):
        errors.note(error)
    assert errors.reason == "sasl_ssl://k:1/bootstrap: Invalid password"
    assert str(errors.error("asking", NO_PORT)) == (
        "asking failed: sasl_ssl://k:1/bootstrap: Invalid password; "
        "set sasl.username and sasl.password in kafka.properties to a user that the broker knows"
    )


def test_librdkafkas_note_on_the_attempt_is_left_out_whole() -> None:
    errors = ConnectionErrors()
    note = "(after 0ms in state CONNECT, 1 identical error(s) suppressed)"
    errors.note(KafkaError(KafkaError._TRANSPORT, f"k:1/bootstrap: Connect failed: Connection refused {note}"))
    assert errors.reason == "k:1/bootstrap: Connect failed: Connection refused"


def test_without_a_reason_the_address_and_the_usual_causes_are_named() -> None:
    errors = ConnectionErrors()
    errors.note(DOWN)
    assert str(errors.error("asking", NO_PORT)).startswith(
        "asking failed: 127.0.0.1:1 does not answer; check that Kafka"
    )


def test_a_login_that_is_refused_for_a_minute_is_given_up_unless_kafka_answers_in_between() -> None:
    now = [100.0]
    errors = ConnectionErrors(monotonic=lambda: now[0])
    errors.note(LOGIN)
    now[0] += LOGIN_PATIENCE_SECONDS - 1
    errors.check_login()
    errors.clear()
    errors.note(LOGIN)
    now[0] += LOGIN_PATIENCE_SECONDS / 2
    errors.note(LOGIN)
    now[0] += LOGIN_PATIENCE_SECONDS / 2 - 1
    errors.check_login()
    now[0] += 1
    with pytest.raises(BrokerError, match=r"refused our login for 60 s: .*Invalid password; set sasl\.username"):
        errors.check_login()


def test_one_refusal_while_a_broker_starts_ends_no_idle_service() -> None:
    now = [100.0]
    errors = ConnectionErrors(monotonic=lambda: now[0])
    errors.note(LOGIN)
    now[0] += LOGIN_PATIENCE_SECONDS
    errors.check_login()
    errors.note(LOGIN)
    errors.check_login()


def test_an_unreachable_broker_is_waited_for() -> None:
    now = [100.0]
    errors = ConnectionErrors(monotonic=lambda: now[0])
    errors.note(CLOSED)
    now[0] += 10 * LOGIN_PATIENCE_SECONDS
    errors.check_login()
    assert errors.reason == "k:1/bootstrap: Disconnected"

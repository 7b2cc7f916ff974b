"""What becomes of librdkafka's own log lines."""

import logging

import pytest

from kernelcast.runtime.kafka import connect as _  # noqa: F401  it prepares the logger

LOGGER = logging.getLogger("kafka")
FAIL = (
    "FAIL [kernelcast-bridge#consumer-2] [thrd:a:9092/{0}]: a:9092/{0}: Connect to ipv4#10.0.0.1:9092 failed: "
    "Connection refused (after 0ms in state CONNECT)"
)


@pytest.mark.parametrize(("level", "shown"), [(logging.INFO, []), (logging.DEBUG, ["DEBUG"])])
def test_a_failed_first_connection_is_shown_at_level_debug_alone(
    caplog: pytest.LogCaptureFixture, level: int, shown: list[str]
) -> None:
    with caplog.at_level(level, "kafka"):
        LOGGER.error(FAIL.format("bootstrap"))
    assert [record.levelname for record in caplog.records] == shown


def test_a_broker_of_the_cluster_that_is_lost_is_named_with_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kafka"):
        LOGGER.error(FAIL.format("7"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    (sentence,) = caplog.messages
    assert sentence.startswith("no connection to broker 7 at a:9092: Connect to ipv4#10.0.0.1:9092 failed: ")
    assert sentence.endswith("Connection refused; check that it runs")


def test_other_lines_are_shown_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kafka"):
        LOGGER.error("MAXPOLL [bridge#consumer-2] [thrd:main]: Application maximum poll interval exceeded")
    assert [record.levelname for record in caplog.records] == ["ERROR"]

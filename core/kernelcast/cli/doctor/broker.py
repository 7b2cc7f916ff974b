"""Checks of Kafka: whether it can be reached, has our topics, and agrees with this machine about the time."""

import time
from collections.abc import Callable, Iterator
from typing import Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message, Producer

from kernelcast.cli.doctor.result import CheckLevel, CheckResult, fail, ok, warn
from kernelcast.runtime.kafka.admin import Admin, TopicState, differences
from kernelcast.runtime.kafka.connect import PRODUCER_PROPERTIES, broker_errors, connect
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import BrokerAccessError, BrokerError, ConfigurationError, KernelcastError
from kernelcast.wire.topics import STATE, TOPICS

MAX_SKEW_SECONDS: Final = 2.0
"""Difference of the clocks up to which event times and append times can be compared."""
REMEDY: Final = (
    "check --kafka.bootstrap-servers, kafka.properties and the network; a node without Kafka: kernelcast doctor "
    "--kafka off"
)
_CLOCK_TIMEOUT_SECONDS: Final = 10.0


def check_broker(settings: KafkaSettings, *, probe_clock: bool) -> Iterator[CheckResult]:
    """Check Kafka.

    Args:
        settings: Settings of the connection.
        probe_clock: Whether to write one tombstone to the state topic, where compaction removes it; its append time
            shows the skew. The embedded broker stamps none.
    """
    try:
        admin = Admin(settings)
        administrates, found = admin.can_administrate(), admin.topics()
    except BrokerAccessError as error:
        yield CheckResult("kafka", CheckLevel.FAIL, error.found, error.remedy, wrong_settings=True)
        return
    except ConfigurationError as error:
        yield CheckResult("kafka", CheckLevel.FAIL, f"{error}", "correct kafka.properties", wrong_settings=True)
        return
    except KernelcastError as error:
        yield fail("kafka", f"{error}", REMEDY)
        return
    yield ok("kafka", f"{settings.bootstrap_servers} answers" + ("" if administrates else " (no administration)"))
    yield from check_topics(found)
    if probe_clock and administrates and STATE.name in found:
        yield check_clock(lambda: broker_time_seconds(settings))


def check_topics(found: dict[str, TopicState]) -> Iterator[CheckResult]:
    """Compare the broker's topics with the contract."""
    missing = [topic.name for topic in TOPICS if topic.name not in found]
    if missing:
        yield fail("topics", f"missing: {', '.join(missing)}", "kernelcast topics apply")
    differing = [
        f"{topic.name} {one.setting}={one.found} (should be {one.wanted})"
        for topic in TOPICS
        if topic.name in found
        for one in differences(topic, found[topic.name])
    ]
    if differing:
        yield warn("topics", "; ".join(differing), "kernelcast topics apply")
    elif not missing:
        yield ok("topics", f"all {len(TOPICS)} are there")


def check_clock(
    broker_seconds: Callable[[], float | None], *, local_seconds: Callable[[], float] = time.time
) -> CheckResult:
    """Compare this machine's clock with the broker's."""
    before = local_seconds()
    try:
        appended = broker_seconds()
    except BrokerError as error:
        remedy = f"let this user write to {STATE.name}, or leave the clocks out with --no-clock"
        return warn("clock", f"the broker's is unknown: {error}", remedy)
    after = local_seconds()
    if appended is None:
        return warn("clock", "the broker stamps no append time, so its clock is unknown", "kernelcast topics apply")
    skew = max(before - appended, appended - after, 0.0)
    if skew > MAX_SKEW_SECONDS:
        return fail("clock", f"{skew:.1f} s apart from the broker's", "run chrony or another NTP client on both")
    return ok("clock", f"within {MAX_SKEW_SECONDS:g} s of the broker's")


def broker_time_seconds(settings: KafkaSettings) -> float | None:
    """Return the broker's time, from its append time of one tombstone; None if it stamps none.

    Raises:
        BrokerError: It takes no message.
    """
    stamps: list[float | None] = []
    problem = f"no answer within {_CLOCK_TIMEOUT_SECONDS:g} s"

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal problem
        if error is not None:
            problem = error.str()
            return
        kind, milliseconds = message.timestamp()
        stamps.append(milliseconds / 1_000 if kind == TIMESTAMP_LOG_APPEND_TIME else None)

    client = connect(Producer, settings, properties={**PRODUCER_PROPERTIES, "log_level": "2"})
    with broker_errors(f"writing to {STATE.name}"):
        client.produce(STATE.name, key=b"doctor", value=None, on_delivery=delivered)
        client.flush(_CLOCK_TIMEOUT_SECONDS)
    if not stamps:
        raise BrokerError(f"writing to {STATE.name} failed: {problem}")
    return stamps[0]

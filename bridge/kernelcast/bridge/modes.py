"""The two modes of running several replicas, and their settings and Kafka properties; `Bridge` asks for them."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kernelcast.bridge.settings import BridgeSettings
from kernelcast.runtime.kafka.connect import CONSUMER_PROPERTIES
from kernelcast.wire.errors import ConfigurationError


def check(settings: BridgeSettings) -> None:
    """Check settings that depend on each other.

    Raises:
        ConfigurationError: They contradict each other.
    """
    _check_group(settings)
    max_lag_seconds_of(settings)
    for topic in settings.topics:
        if topic.startswith("^"):
            try:
                re.compile(topic)
            except re.error as error:
                raise ConfigurationError(f"bridge.topics: {topic} is not a regular expression: {error}") from None


def group_of(settings: BridgeSettings) -> str:
    """Return the group to which offsets are committed; replicas that read the same partitions join none."""
    return settings.group_id if settings.mode == "group" else f"{settings.group_id}-replica"


SMALL_FETCH_BUFFERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Fetched messages that wait to be read, in KiB; a fetch that has begun comes on top of it.
        "queued.max.messages.kbytes": "4096",
        # Bytes of each partition in an answer; Kafka sends a larger batch of messages whole.
        "fetch.message.max.bytes": "262144",
    }
)
"""With librdkafka's own limits, a backlog of 10,000 series adds 115 MiB to the bridge's memory, read no faster."""


def properties_of(settings: BridgeSettings) -> Mapping[str, str]:
    """Return the properties of librdkafka that a mode needs."""
    properties = dict(SMALL_FETCH_BUFFERS)
    if settings.group_protocol == "consumer":
        properties["group.protocol"] = "consumer"
    if settings.group_instance_id is not None:
        properties["group.instance.id"] = settings.group_instance_id
    return properties


def session_seconds_of(settings: BridgeSettings) -> float:
    """Return the time without a heartbeat after which the group removes a member; with KIP-848 the broker sets it."""
    ours = CONSUMER_PROPERTIES["session.timeout.ms"]
    return float(settings.kafka.properties.get("session.timeout.ms", ours)) / 1e3


def max_lag_seconds_of(settings: BridgeSettings) -> float:
    """Return how far reading may fall behind; at least one time-to-live, because a restart begins that far behind.

    Raises:
        ConfigurationError: It is set below that.
    """
    if settings.max_lag_seconds is None:
        return settings.ttl_seconds * 2
    least = settings.ttl_seconds * 1.5
    if 0 < settings.max_lag_seconds < least:
        raise ConfigurationError(
            f"bridge.max_lag_seconds is {settings.max_lag_seconds:g}; the minimum is {least:g}, 1.5 times "
            "bridge.ttl_seconds, as a restart reads that much again; raise it, or set 0 to skip nothing"
        )
    return settings.max_lag_seconds


def _check_group(settings: BridgeSettings) -> None:
    if settings.mode == "group":
        return
    for name, is_set in (
        ("group_protocol", settings.group_protocol != "classic"),
        ("group_instance_id", settings.group_instance_id is not None),
    ):
        if is_set:
            raise ConfigurationError(
                f"bridge.{name} is set, and bridge.mode is {settings.mode}, which joins no group; "
                "leave it out, or set bridge.mode to group"
            )

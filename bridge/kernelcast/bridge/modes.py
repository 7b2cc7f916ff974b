"""The three modes of running several replicas, and their settings and Kafka properties; `Bridge` asks for them."""

import re
import socket
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kernelcast.bridge.settings import BridgeSettings
from kernelcast.bridge.tables.hashing import Share
from kernelcast.runtime.kafka.connect import CONSUMER_PROPERTIES
from kernelcast.wire.errors import ConfigurationError

_ORDINAL: Final = re.compile(r"-(\d{1,4})(?:\.|$)")
"""The ordinal at the end of the name of a StatefulSet's pod; a domain may follow."""


def check(settings: BridgeSettings) -> None:
    """Check settings that depend on each other.

    Raises:
        ConfigurationError: They contradict each other.
    """
    share_of(settings, socket.gethostname())
    max_lag_seconds_of(settings)
    for topic in settings.topics:
        if topic.startswith("^"):
            try:
                re.compile(topic)
            except re.error as error:
                raise ConfigurationError(f"bridge.topics: {topic} is not a regular expression: {error}") from None


def share_of(settings: BridgeSettings, host_name: str) -> Share | None:
    """Return the share of all series that this replica keeps; None if it keeps everything that it reads.

    Raises:
        ConfigurationError: The settings of the modes contradict each other, or the replica's index is not known.
    """
    _check_groups(settings)
    if settings.mode != "sharded":
        if settings.replica_count > 1 or settings.replica_index is not None:
            raise ConfigurationError(
                f"bridge.replica_index and replica_count belong to mode sharded, and bridge.mode is {settings.mode}; "
                "leave them out, or set bridge.mode to sharded"
            )
        return None
    index = settings.replica_index if settings.replica_index is not None else _ordinal(host_name)
    if index is None and settings.replica_count == 1:
        index = 0
    if index is None:
        raise ConfigurationError(
            f"bridge.replica_index is not set, and the host's name {host_name} does not end in a number; "
            "set it, from 0, differently in each replica"
        )
    if index >= settings.replica_count:
        raise ConfigurationError(
            f"bridge.replica_index is {index}; it must be below bridge.replica_count, which is "
            f"{settings.replica_count}; raise the count in every replica"
        )
    return Share(index, settings.replica_count)


def group_of(settings: BridgeSettings, share: Share | None) -> str:
    """Return the group to which offsets are committed; replicas that read the same partitions must not share one."""
    if settings.mode == "sharded" and share is not None:
        return f"{settings.group_id}-sharded-{share.index}"
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


def _check_groups(settings: BridgeSettings) -> None:
    if settings.mode == "group":
        return
    for name, given in (
        ("group_protocol", settings.group_protocol != "classic"),
        ("group_instance_id", settings.group_instance_id is not None),
    ):
        if given:
            raise ConfigurationError(
                f"bridge.{name} is set, and bridge.mode is {settings.mode}, which joins no group; "
                "leave it out, or set bridge.mode to group"
            )


def _ordinal(host_name: str) -> int | None:
    found = _ORDINAL.search(host_name)
    return int(found.group(1)) if found is not None else None

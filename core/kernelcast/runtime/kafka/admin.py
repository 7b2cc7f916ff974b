"""Administration of topics: reads the broker's topics, and applies the contract (`wire.topics`) to them.

`kernelcast topics`, `doctor`, `hints` and `findings` use it, each in the command's only thread. The embedded broker has
no administration (it names no controller): it creates a topic when the topic's metadata is requested, and its settings
cannot be changed.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its public names, re-exported without __all__
    AdminClient,
    AlterConfigOpType,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from kernelcast.runtime.kafka.connect import broker_errors, connect
from kernelcast.runtime.kafka.connection_errors import ConnectionErrors
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import BrokerError
from kernelcast.wire.topics import TOPICS, Topic

REQUEST_TIMEOUT_SECONDS: Final = 10.0
VISIBLE_TIMEOUT_SECONDS: Final = 30.0
"""Time within which a created topic must be in the broker's metadata, where clients look for it."""
DEFAULT_REPLICAS: Final = 3
"""Replicas of a new topic where there are as many brokers: with `min.insync.replicas=2`, one of them may be lost."""
_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class TopicState:
    """State of a topic on the broker.

    Attributes:
        name: Its name.
        partitions: Number of partitions.
        replication_factor: Smallest number of replicas of its partitions.
        config: Topic settings; empty if the broker does not return them.
    """

    name: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


class TopicResult(Enum):
    """Result of `apply_topics` for a topic; `TOUCHED`: its metadata was requested, see `Admin.touch`."""

    CREATED = "created"
    ALTERED = "altered"
    UNCHANGED = "unchanged"
    TOUCHED = "made by metadata"
    DIFFERS = "differs"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class TopicChange:
    """Change of one topic by `apply_topics`.

    Attributes:
        topic: Its name.
        result: What was done, or why it was not.
        detail: The settings that were changed for this topic.
        remark: Reason for a remaining difference, or for the default number of replicas; often the same for several
            topics, so it is shown once for all.
    """

    topic: str
    result: TopicResult
    detail: str = ""
    remark: str = ""

    @property
    def good(self) -> bool:
        """Whether the topic now matches the contract, as far as this broker allows."""
        return self.result not in {TopicResult.DIFFERS, TopicResult.FAILED}


_AT_LEAST: Final = ("max.message.bytes",)
"""Settings that may exceed the contract."""


class Admin:
    """Administration of one cluster. For one thread."""

    def __init__(self, settings: KafkaSettings) -> None:
        """Prepare; it connects at the first request.

        Raises:
            ConfigurationError: librdkafka refuses a property.
        """
        self._settings = settings
        self._errors = ConnectionErrors()
        own = {"log_level": "2", "error_cb": self._errors.note}
        self._client: AdminClient = connect(AdminClient, settings, properties=own)

    def can_administrate(self) -> bool:
        """Whether the broker creates and changes topics on request.

        Raises:
            BrokerError: It cannot be reached.
        """
        return _has_controller(self._metadata())

    def topics(self, *, config: bool = True) -> dict[str, TopicState]:
        """Return all topics except Kafka's internal ones, by name.

        Args:
            config: Whether to query the topics' settings as well, if the broker supports it.

        Raises:
            BrokerError: The broker cannot be reached, or refuses.
        """
        metadata = self._metadata()
        names = sorted(name for name in metadata.topics if not name.startswith("__"))
        configs = self._configs(names) if config and _has_controller(metadata) else {}
        found = {}
        for name in names:
            partitions = metadata.topics[name].partitions
            replicas = min((len(partition.replicas) for partition in partitions.values()), default=0)
            found[name] = TopicState(name, len(partitions), replicas, configs.get(name, {}))
        return found

    def default_replicas(self) -> tuple[int, str]:
        """Return the replicas of new topics, and the reason: 3 or all brokers, and at least the brokers' own default.

        Raises:
            BrokerError: The broker cannot be reached.
        """
        brokers = self._metadata().brokers
        own, possible = self._brokers_default(min(brokers)), min(DEFAULT_REPLICAS, len(brokers))
        if own > possible:
            return own, f"the brokers' default.replication.factor is {own}"
        return possible, f"Kafka has {len(brokers)} broker{'s' * (len(brokers) != 1)}"

    def _brokers_default(self, broker: int) -> int:
        """The broker's `default.replication.factor`; 1, which decides nothing, if it may not be read."""
        resource = ConfigResource(ResourceType.BROKER, str(broker))
        try:
            futures = self._client.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_SECONDS)
            return int(futures[resource].result()["default.replication.factor"].value)
        except (KafkaException, KeyError):
            return 1

    def create(self, topic: Topic, *, partitions: int, replication_factor: int, remark: str = "") -> TopicChange:
        """Create a topic; `remark` is that of the result."""
        new = NewTopic(topic.name, partitions, replication_factor, config=topic.config)
        try:
            self._client.create_topics([new], request_timeout=REQUEST_TIMEOUT_SECONDS)[topic.name].result()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return TopicChange(topic.name, TopicResult.UNCHANGED, "somebody else made it at this moment")
            return TopicChange(topic.name, TopicResult.FAILED, remark=reason.str())
        detail = f"{partitions} partitions, {_replicas(replication_factor)}"
        return TopicChange(topic.name, TopicResult.CREATED, detail, remark)

    def alter(self, topic: str, config: Mapping[str, str]) -> None:
        """Change some of a topic's settings, and keep the others; returns when the broker shows them.

        Raises:
            BrokerError: The broker refuses, or does not show them in time.
        """
        entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in config.items()]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        with broker_errors(f"setting {', '.join(config)} of {topic}"):
            futures = self._client.incremental_alter_configs([resource], request_timeout=REQUEST_TIMEOUT_SECONDS)
            for future in futures.values():
                future.result()
        deadline = time.monotonic() + VISIBLE_TIMEOUT_SECONDS
        while not self._shows(topic, config):
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"{topic} does not show its new {', '.join(config)} within {VISIBLE_TIMEOUT_SECONDS:g} s; "
                    "look at the broker's log"
                )
            time.sleep(_POLL_SECONDS)

    def _shows(self, topic: str, config: Mapping[str, str]) -> bool:
        found = self._configs([topic])[topic]
        return all(_equal(found.get(name, ""), value) for name, value in config.items())

    def touch(self, topic: str) -> None:
        """Query a topic's metadata, on which a broker with automatic creation creates it."""
        with broker_errors(f"asking for the metadata of {topic}"):
            self._client.list_topics(topic, timeout=REQUEST_TIMEOUT_SECONDS)

    def _metadata(self) -> ClusterMetadata:
        try:
            return self._client.list_topics(timeout=REQUEST_TIMEOUT_SECONDS)
        except KafkaException as error:
            self._client.poll(0)  # serves the error callback
            raise self._errors.error(f"reaching Kafka at {self._settings.bootstrap_servers}", self._settings) from error

    def _configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        with broker_errors("asking for the topics' settings"):
            futures: Mapping[ConfigResource, Any] = self._client.describe_configs(
                resources, request_timeout=REQUEST_TIMEOUT_SECONDS
            )
            return {
                resource.name: {key: str(entry.value) for key, entry in future.result().items()}
                for resource, future in futures.items()
            }


def list_topics(settings: KafkaSettings) -> dict[str, TopicState]:
    """Return every topic of the broker, by name.

    Raises:
        BrokerError: The broker cannot be reached, or refuses.
    """
    return Admin(settings).topics()


def apply_topics(
    settings: KafkaSettings,
    topics: Sequence[Topic] = TOPICS,
    *,
    replication_factor: int | None = None,
    partitions: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[TopicChange]:
    """Create and correct the broker's topics by the contract; returns when they are visible.

    Args:
        settings: Settings of the connection.
        topics: The topics of the contract.
        replication_factor: Replicas of newly created topics; None takes 3, or one for each of fewer brokers, but at
            least the brokers' own default.
        partitions: Partitions of the topics that may have any number; None uses each topic's own for new ones, and
            accepts what is there.
        clock: Measures the wait until topics are visible.

    Returns:
        The change of each topic, in their order. Numbers of partitions are never changed, only reported.

    Raises:
        BrokerError: The broker cannot be reached, or created topics do not appear.
    """
    admin = Admin(settings)
    if not admin.can_administrate():
        return [_touch(admin, topic) for topic in topics]
    present = admin.topics()
    remark = ""
    if replication_factor is None:
        replication_factor, reason = admin.default_replicas()
        remark = f"{_replicas(replication_factor)}, as {reason}; --replication-factor sets another number"
    changes = [
        _alter_to_contract(admin, topic, state, partitions)
        if (state := present.get(topic.name)) is not None
        else admin.create(
            topic, partitions=_wanted(topic, partitions), replication_factor=replication_factor, remark=remark
        )
        for topic in topics
    ]
    expected = {change.topic for change in changes if change.result is not TopicResult.FAILED}
    _wait_until_visible(admin, expected, clock)
    return changes


def _replicas(number: int) -> str:
    return f"{number} replica{'s' * (number != 1)}"


def _has_controller(metadata: ClusterMetadata) -> bool:
    """Whether the controller is one of the brokers. The embedded broker's is not, and requests to it time out."""
    return metadata.controller_id in metadata.brokers


def _touch(admin: Admin, topic: Topic) -> TopicChange:
    admin.touch(topic.name)
    return TopicChange(
        topic.name, TopicResult.TOUCHED, "this broker has no CreateTopics; its partitions and settings stay"
    )


def _alter_to_contract(admin: Admin, topic: Topic, state: TopicState, partitions: int | None) -> TopicChange:
    differing = differences(topic, state)
    if differing:
        try:
            admin.alter(topic.name, {one.setting: one.wanted for one in differing})
        except BrokerError as error:
            return TopicChange(topic.name, TopicResult.FAILED, remark=str(error))
    done = ", ".join(f"set {one.setting} to {one.wanted} (was {one.found or 'not set'})" for one in differing)
    wanted = _wanted(topic, partitions)
    is_chosen = topic.partitions == 1 or partitions is not None
    if is_chosen and state.partitions != wanted:
        accept = f", or say --partitions {state.partitions}" if topic.partitions > 1 else ""
        remark = (
            f"{state.partitions} partitions, should be {wanted}; changing that would move keys and split "
            f"series, so stop the writers, delete the topic and apply again{accept}"
        )
        return TopicChange(topic.name, TopicResult.DIFFERS, done, remark)
    return TopicChange(topic.name, TopicResult.ALTERED if differing else TopicResult.UNCHANGED, done)


def _wanted(topic: Topic, partitions: int | None) -> int:
    """Return the number of partitions; a topic of one keeps its messages in one sequence, whatever was asked for."""
    return topic.partitions if topic.partitions == 1 or partitions is None else partitions


@dataclass(frozen=True, slots=True)
class SettingDifference:
    """A setting of a topic that differs from the contract; `found` is empty if it is not set."""

    setting: str
    found: str
    wanted: str


def differences(topic: Topic, state: TopicState) -> list[SettingDifference]:
    """Return the settings of a topic that differ from the contract; none if the broker does not return its settings.

    The number of partitions is not compared: a site may choose it when it creates the topics.
    """
    if not state.config:
        return []
    found = {name: state.config.get(name, "") for name in topic.config}
    return [
        SettingDifference(name, found[name], value)
        for name, value in topic.config.items()
        if not _satisfies(name, found[name], value)
    ]


def _satisfies(name: str, value: str, wanted: str) -> bool:
    """Whether a setting satisfies the contract: a limit may be higher, and lists may be in another order."""
    if name in _AT_LEAST and value.isdecimal():
        return int(value) >= int(wanted)
    return _equal(value, wanted)


def _equal(value: str, wanted: str) -> bool:
    return sorted(value.split(",")) == sorted(wanted.split(","))


def _wait_until_visible(admin: Admin, names: set[str], clock: Callable[[], float]) -> None:
    deadline = clock() + VISIBLE_TIMEOUT_SECONDS
    while missing := names - set(admin.topics(config=False)):
        if clock() > deadline:
            raise BrokerError(
                f"topics {', '.join(sorted(missing))} did not appear within {VISIBLE_TIMEOUT_SECONDS:g} s; "
                "look at the broker's log"
            )
        time.sleep(_POLL_SECONDS)

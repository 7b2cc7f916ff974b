"""Topics on the embedded broker, which cannot be administrated, and decisions about topics of a real one."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import ConfigEntry, ConfigResource  # type: ignore[attr-defined]  # without __all__

from kernelcast.runtime.kafka import admin
from kernelcast.runtime.kafka.admin import Admin, TopicChange, TopicResult, TopicState, apply_topics, list_topics
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import BrokerError
from kernelcast.wire.topics import DEVICE, HINTS, KERNELS, MAX_EXPORT_BYTES, ORDERS, TOPICS, Topic


def test_a_broker_that_does_not_answer_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "REQUEST_TIMEOUT_SECONDS", 0.2)

    with pytest.raises(BrokerError, match=r"reaching Kafka at 127\.0\.0\.1:1 failed"):
        list_topics(KafkaSettings(bootstrap_servers="127.0.0.1:1"))


class FakeAdmin(Admin):
    """A real broker's administration, kept in a dictionary."""

    def __init__(self, present: dict[str, TopicState]) -> None:
        self.present = present

    def default_replicas(self) -> tuple[int, str]:
        return 3, "Kafka has 4 brokers"

    def can_administrate(self) -> bool:
        return True

    def topics(self, *, config: bool = True) -> dict[str, TopicState]:  # noqa: ARG002  the original's signature
        return dict(self.present)

    def create(self, topic: Topic, *, partitions: int, replication_factor: int, remark: str = "") -> TopicChange:
        self.present[topic.name] = TopicState(topic.name, partitions, replication_factor, topic.config)
        return TopicChange(topic.name, TopicResult.CREATED, remark=remark)

    def alter(self, topic: str, config: dict[str, str]) -> None:  # type: ignore[override]  # narrower is enough here
        if "retention.ms" in config and config["retention.ms"] == "0":
            raise BrokerError("policy violation")
        state = self.present[topic]
        self.present[topic] = TopicState(topic, state.partitions, state.replication_factor, {**state.config, **config})


def applied(
    monkeypatch: pytest.MonkeyPatch,
    present: dict[str, TopicState],
    *topics: Topic,
    replication_factor: int | None = None,
    partitions: int | None = None,
) -> list[TopicChange]:
    fake = FakeAdmin(present)
    monkeypatch.setattr(admin, "Admin", lambda _settings: fake)
    return apply_topics(KafkaSettings(), topics, replication_factor=replication_factor, partitions=partitions)


def test_missing_topics_are_made_and_a_second_run_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    present: dict[str, TopicState] = {}

    first = applied(monkeypatch, present, DEVICE, HINTS)
    second = applied(monkeypatch, present, DEVICE, HINTS)

    assert [change.result for change in first] == [TopicResult.CREATED, TopicResult.CREATED]
    assert [change.result for change in second] == [TopicResult.UNCHANGED, TopicResult.UNCHANGED]
    assert present["kernelcast.device"].partitions == DEVICE.partitions


def test_new_topics_have_as_many_replicas_as_the_brokers_allow_and_the_reason_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    present: dict[str, TopicState] = {}

    (chosen,) = applied(monkeypatch, present, DEVICE)
    (asked,) = applied(monkeypatch, present, HINTS, replication_factor=1)

    assert [present[topic.name].replication_factor for topic in (DEVICE, HINTS)] == [3, 1]
    assert chosen.remark == "3 replicas, as Kafka has 4 brokers; --replication-factor sets another number"
    assert (chosen.good, asked.remark) == (True, "")


class Cluster:
    """A cluster of some brokers with a default of their own; a double of the admin client. None: it may not be read."""

    def __init__(self, brokers: int, default: int | None) -> None:
        self.brokers = dict.fromkeys(range(1, brokers + 1))
        self._default = default

    def list_topics(self, **_more: object) -> "Cluster":
        return self

    def describe_configs(self, resources: list[ConfigResource], **_more: object) -> dict[object, Future[object]]:
        described: Future[object] = Future()
        if self._default is None:
            described.set_exception(KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)))
        else:
            name = "default.replication.factor"
            described.set_result({name: ConfigEntry(name, str(self._default))})
        return {resources[0]: described}


@pytest.mark.parametrize(
    ("brokers", "default", "replicas", "reason"),
    [
        (1, 1, 1, "Kafka has 1 broker"),
        (2, 1, 2, "Kafka has 2 brokers"),
        (5, 1, 3, "Kafka has 5 brokers"),
        (5, None, 3, "Kafka has 5 brokers"),
        (5, 4, 4, "the brokers' default.replication.factor is 4"),
        (2, 3, 3, "the brokers' default.replication.factor is 3"),
    ],
)
def test_three_replicas_or_one_on_each_broker_but_never_fewer_than_the_brokers_default(
    brokers: int, default: int | None, replicas: int, reason: str
) -> None:
    cluster = Admin(KafkaSettings())
    cluster._client = Cluster(brokers, default)  # type: ignore[assignment]  # a double of two methods

    assert cluster.default_replicas() == (replicas, reason)


def test_settings_that_differ_are_set_and_the_others_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {**DEVICE.config, "message.timestamp.type": "CreateTime", "segment.ms": "1"}
    present = {DEVICE.name: TopicState(DEVICE.name, DEVICE.partitions, 3, config)}

    changes = applied(monkeypatch, present, DEVICE)

    assert changes == [
        TopicChange(DEVICE.name, TopicResult.ALTERED, "set message.timestamp.type to LogAppendTime (was CreateTime)")
    ]
    assert present[DEVICE.name].config == {**DEVICE.config, "segment.ms": "1"}


def test_policies_in_the_brokers_own_order_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    alerts = next(topic for topic in TOPICS if topic.cleanup == "compact,delete")
    config = {**alerts.config, "cleanup.policy": "delete,compact"}

    changes = applied(monkeypatch, {alerts.name: TopicState(alerts.name, alerts.partitions, 1, config)}, alerts)

    assert changes[0].result is TopicResult.UNCHANGED


def test_other_partitions_than_asked_for_are_reported_never_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    present = {KERNELS.name: TopicState(KERNELS.name, 3, 1, KERNELS.config)}

    (change,) = applied(monkeypatch, present, KERNELS, partitions=24)

    assert change.result is TopicResult.DIFFERS
    assert not change.good
    assert "3 partitions, should be 24" in change.remark
    assert "or say --partitions 3" in change.remark
    assert present[KERNELS.name].partitions == 3


def test_partitions_that_a_site_has_chosen_are_accepted_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """`topics apply` runs again after each upgrade, without them."""
    (change,) = applied(monkeypatch, {KERNELS.name: TopicState(KERNELS.name, 24, 1, KERNELS.config)}, KERNELS)

    assert change.result is TopicResult.UNCHANGED


def test_orders_and_policy_have_one_partition_whatever_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    present: dict[str, TopicState] = {}

    applied(monkeypatch, present, ORDERS, KERNELS, partitions=24)

    assert (present[ORDERS.name].partitions, present[KERNELS.name].partitions) == (1, 24)
    split = {ORDERS.name: TopicState(ORDERS.name, 24, 1, ORDERS.config)}
    (change,) = applied(monkeypatch, split, ORDERS, partitions=24)
    assert change.remark.endswith(
        "24 partitions, should be 1; changing that would move keys and split series, so stop "
        "the writers, delete the topic and apply again"
    )


def test_changed_settings_are_reported_beside_partitions_that_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    config = {**DEVICE.config, "retention.ms": "60000"}

    (change,) = applied(monkeypatch, {DEVICE.name: TopicState(DEVICE.name, 3, 1, config)}, DEVICE, partitions=12)

    assert change.detail == f"set retention.ms to {DEVICE.config['retention.ms']} (was 60000)"
    assert "3 partitions" in change.remark


def test_a_topic_that_somebody_makes_at_the_same_moment_is_no_failure() -> None:
    class Racing:
        def create_topics(self, _topics: list[object], **_more: object) -> dict[str, "Racing"]:
            return {DEVICE.name: self}

        def result(self) -> None:
            raise KafkaException(KafkaError(KafkaError.TOPIC_ALREADY_EXISTS))

    racing = Admin(KafkaSettings())
    racing._client = Racing()  # type: ignore[assignment]  # a double of one method

    assert racing.create(DEVICE, partitions=1, replication_factor=1).good


class Lagging:
    """A cluster whose broker shows a changed setting at the third question; a double of the admin client."""

    def __init__(self, *shown: str) -> None:
        self.shown = list(shown)

    def incremental_alter_configs(self, resources: list[ConfigResource], **_more: object) -> dict[object, Future[None]]:
        changed: Future[None] = Future()
        changed.set_result(None)
        return {resources[0]: changed}

    def describe_configs(self, resources: list[ConfigResource], **_more: object) -> dict[object, Future[object]]:
        described: Future[object] = Future()
        described.set_result({"segment.ms": ConfigEntry("segment.ms", self.shown[0])})
        self.shown = self.shown[1:] or self.shown
        return {resources[0]: described}


def test_a_changed_setting_is_visible_once_it_is_said_to_be_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "_POLL_SECONDS", 0.0)
    lagging = Admin(KafkaSettings())
    double = lagging._client = Lagging("1", "1", "2", "3")  # type: ignore[assignment]  # a double of two methods
    lagging.alter(DEVICE.name, {"segment.ms": "2"})
    assert double.shown == ["3"]
    monkeypatch.setattr(admin, "VISIBLE_TIMEOUT_SECONDS", 0.0)
    with pytest.raises(BrokerError, match=r"kernelcast\.device does not show its new segment\.ms within 0 s"):
        lagging.alter(DEVICE.name, {"segment.ms": "2"})


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_says_how_large_a_message_it_takes(topic: Topic) -> None:
    assert int(topic.config["max.message.bytes"]) >= 2 * MAX_EXPORT_BYTES


def test_a_limit_below_the_contract_is_raised_and_one_above_it_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    small = TopicState(DEVICE.name, DEVICE.partitions, 1, {**DEVICE.config, "max.message.bytes": "1000"})
    large = TopicState(HINTS.name, HINTS.partitions, 1, {**HINTS.config, "max.message.bytes": "20000000"})
    present = {DEVICE.name: small, HINTS.name: large}

    changes = applied(monkeypatch, present, DEVICE, HINTS)

    assert [change.result for change in changes] == [TopicResult.ALTERED, TopicResult.UNCHANGED]
    assert present[DEVICE.name].config["max.message.bytes"] == "1048588"
    assert present[HINTS.name].config["max.message.bytes"] == "20000000"


def test_topics_can_be_members_of_a_set() -> None:
    assert len({*TOPICS, *TOPICS}) == len(TOPICS)

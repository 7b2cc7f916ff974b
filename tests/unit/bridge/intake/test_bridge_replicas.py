"""Several replicas without a consumer group, and the settings of both modes."""

import pytest
from tests.support.bridge.fleet import Site, page, values
from tests.support.bridge.list_kafka import ListKafka, ManualClock

from kernelcast.bridge.intake.discovery import Discovery
from kernelcast.bridge.intake.parts import IntakePolicy
from kernelcast.bridge.modes import check, group_of, max_lag_seconds_of, properties_of
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.columnar import Sample
from kernelcast.runtime.kafka.topic_names import TopicNames
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.errors import ConfigurationError

P0, P1 = ("kernels", 0), ("kernels", 1)
LAUNCHES = "cuda_kernel_launches_total"


def launches(number: int, name: str = "gemm") -> Sample:
    return Sample(kernel.LAUNCHES, (("kernel", name),), number, number, 1)


def alone(kafka: ListKafka, *topics: str, clock: ManualClock | None = None) -> "Replica":
    return Replica(Site(kafka=kafka, policy=IntakePolicy(grouped=False), clock=clock or ManualClock()), topics)


class Replica:
    """A bridge that reads every partition."""

    def __init__(self, site: Site, topics: tuple[str, ...]) -> None:
        self.site = site
        self.discovery = Discovery(site.kafka, site.intake, TopicNames(topics or ("kernels",)), clock=site.clock)

    def run(self, seconds: float = 6.0) -> None:
        self.site.clock.seconds += seconds
        self.discovery.look()
        self.site.read_all()


def two_partitions() -> Site:
    """A writer of topics: one series, unkeyed, its points in turn in both partitions."""
    site = Site()
    for number in range(1, 7):
        site.export(number % 2, launches(number), keyed=None)
    return site


def test_every_replica_has_every_series_of_messages_without_keys() -> None:
    writer = Site()
    for number in range(60):
        writer.export(number % 2, launches(1, name=f"k{number}"), keyed=None)
    pages = []
    for _ in range(3):
        replica = alone(ListKafka(writer.kafka.logs))
        replica.run()
        pages.append({line for line in page(replica.site.store).splitlines() if line.startswith(LAUNCHES)})
        assert replica.site.own("kernelcast_bridge_unkeyed_messages_total", topic="kernels") == 0
    assert pages[0] == pages[1] == pages[2]
    assert len(pages[0]) == 60


def test_nothing_shows_until_all_partitions_have_caught_up_because_a_series_may_lie_in_any() -> None:
    replica = alone(ListKafka(two_partitions().kafka.logs))
    replica.discovery.look()
    replica.site.kafka.reading.pop(P1)
    replica.site.read_all()
    assert page(replica.site.store) == ""
    assert replica.site.intake.ownership.readiness()[0] is False
    replica.site.kafka.reading[P1] = 0
    replica.site.read_all()
    assert values(replica.site.store, LAUNCHES) == [6]
    assert replica.site.intake.ownership.readiness() == (True, "")


def test_what_a_replica_asks_at_its_start_it_asks_before_it_reads() -> None:
    """A query waits until a fetch of nothing ends, half a second for each of its partitions."""
    replica = alone(ListKafka(two_partitions().kafka.logs))
    replica.discovery.look()
    replica.site.kafka.answers = False
    replica.site.read_all()
    assert values(replica.site.store, LAUNCHES) == [6]
    assert replica.site.intake._inquiry.growth.examined == {"kernels"}


def test_a_partition_without_a_leader_delays_the_others_for_a_minute_and_no_longer() -> None:
    replica = alone(ListKafka(two_partitions().kafka.logs, leaderless={P1}))
    replica.run()
    assert page(replica.site.store) == ""
    replica.run(61)
    assert values(replica.site.store, LAUNCHES) == [5] or values(replica.site.store, LAUNCHES) == [6]


def test_new_partitions_and_topics_are_found_within_seconds_and_hide_nothing() -> None:
    kafka = ListKafka(two_partitions().kafka.logs)
    replica = alone(kafka, "kernels", "^more.*")
    replica.run()
    assert values(replica.site.store, LAUNCHES) == [6]
    for number in range(7, 10):
        replica.site.export(2, launches(number))
    kafka.logs["more-metrics", 0] = []
    kafka.logs["other", 0] = []
    kafka.logs["__consumer_offsets", 0] = []
    replica.discovery.look()
    assert values(replica.site.store, LAUNCHES) == [6]
    replica.run(6)
    assert values(replica.site.store, LAUNCHES) == [9]
    assert set(kafka.reading) == {P0, P1, ("kernels", 2), ("more-metrics", 0)}


def test_a_topic_that_goes_takes_its_series_with_it_once_kafka_has_said_so_twice() -> None:
    kafka = ListKafka(two_partitions().kafka.logs)
    replica = alone(kafka)
    replica.run()
    for deleted in (True, False, True):
        kafka.deleted = deleted
        replica.run()
        assert values(replica.site.store, LAUNCHES) == [6]
    replica.run()
    assert page(replica.site.store) == ""
    assert replica.site.intake.ownership.readiness() == (True, "")


def test_a_broker_that_does_not_answer_keeps_a_replica_unready_and_changes_nothing_later() -> None:
    kafka = ListKafka(two_partitions().kafka.logs, answers=False)
    replica = alone(kafka)
    replica.run()
    assert replica.site.intake.ownership.readiness()[0] is False
    kafka.answers = True
    replica.run()
    assert values(replica.site.store, LAUNCHES) == [6]
    kafka.answers = False
    replica.run()
    assert values(replica.site.store, LAUNCHES) == [6]


def test_no_topic_at_all_is_ready() -> None:
    replica = alone(ListKafka())
    replica.run()
    assert replica.site.intake.ownership.readiness() == (True, "")


def settings(**values: object) -> BridgeSettings:
    return BridgeSettings.model_validate(values)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mode": "replica", "group_protocol": "consumer"}, "bridge.group_protocol is set, and bridge.mode is replica"),
        ({"mode": "replica", "group_instance_id": "a"}, "bridge.group_instance_id is set"),
        ({"max_lag_seconds": 300}, "the minimum is 450"),
        ({"topics": ["^("]}, r"\^\( is not a regular expression"),
    ],
)
def test_settings_that_contradict_each_other_are_refused_with_the_remedy(values: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        check(settings(**values))


def test_replicas_that_read_the_same_commit_apart_and_members_of_a_group_together() -> None:
    assert group_of(settings(group_id="mine")) == "mine"
    assert group_of(settings(group_id="mine", mode="replica")) == "mine-replica"


def test_the_groups_protocol_and_the_members_name_reach_librdkafka() -> None:
    properties = properties_of(settings(group_protocol="consumer", group_instance_id="bridge-0"))
    assert (properties["group.protocol"], properties["group.instance.id"]) == ("consumer", "bridge-0")
    assert not {"group.protocol", "group.instance.id"} & set(properties_of(settings()))


def test_a_backlog_waits_in_kafka_and_not_in_the_bridge() -> None:
    properties = properties_of(settings())
    assert int(properties["queued.max.messages.kbytes"]) <= 4096
    assert int(properties["fetch.message.max.bytes"]) <= 256 * 1024


def test_by_default_reading_may_fall_two_times_to_live_behind() -> None:
    assert max_lag_seconds_of(settings(ttl_seconds=100)) == 200
    assert max_lag_seconds_of(settings(max_lag_seconds=0)) == 0

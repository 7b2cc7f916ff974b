"""One identity (job and instance) of two live producers is recognised and counted by producer."""

from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry
from tests.support.bridge.fleet import LAUNCHES, Site, launches, page, samples
from tests.support.bridge.rivals import EPOCH_SECONDS, KINDS, SECOND_NS, Producers, export

from kernelcast.bridge.by_producer import IDLE_SECONDS, MAX_PRODUCERS, CountedByProducer
from kernelcast.bridge.inputs import TopicFormat
from kernelcast.bridge.intake.parts import IntakePolicy
from kernelcast.bridge.tables.columns import OLDER, SECOND_WRITER
from kernelcast.exporter.delivery.publish import SamplePublisher
from kernelcast.exporter.totals.aggregate import ProgramSamples
from kernelcast.wire.catalogue import bridge as rows

CUMULATIVE = KINDS[1:]
BOOT = "kernelcast.boot.id"
CONFLICTS = "kernelcast_producer_identity_conflicts_total"


@pytest.mark.parametrize("kind", KINDS)
def test_another_resource_that_writes_the_same_series_is_counted_by_its_producer(kind: str) -> None:
    producers = Producers(kind)
    for number in range(10):
        producers.send(1, 10 * number, pid=1)
        producers.send(2, 10 * number + 5, pid=2)
    assert producers.conflicts == {"resource": 10}
    assert producers.conflicts == {}


@pytest.mark.parametrize("kind", CUMULATIVE)
def test_two_start_times_that_alternate_under_one_resource_are_two_producers(kind: str) -> None:
    producers = Producers(kind)
    producers.send(500, 0, start_seconds=-1000)
    for number in range(10):
        producers.send(number, 10 * number + 5, start_seconds=-3)
        producers.send(501 + number, 10 * number + 10, start_seconds=-1000)
    assert producers.shown == 9  # the one that started last, alone
    assert producers.outcomes[SECOND_WRITER] == 10
    assert producers.conflicts == {"start_time": 10}


@pytest.mark.parametrize("kind", CUMULATIVE)
def test_a_restart_and_late_messages_from_before_it_are_no_sign_of_two_producers(kind: str) -> None:
    producers = Producers(kind)
    producers.send(500, 0, start_seconds=-1000)
    producers.send(1, 20, start_seconds=15)
    producers.send(501, 10, start_seconds=-1000)
    producers.send(502, 14, start_seconds=-1000)
    assert producers.shown == 1
    assert producers.outcomes[OLDER] == 2
    assert producers.conflicts == {}


@pytest.mark.parametrize("kind", CUMULATIVE)
def test_late_messages_of_a_process_whose_clock_was_ahead_are_no_sign_of_two_producers(kind: str) -> None:
    producers = Producers(kind)
    producers.send(500, 0, start_seconds=-1000)
    producers.send(1, 60, start_seconds=55)
    producers.send(501, 30, start_seconds=-1000, ahead_seconds=600)
    assert producers.shown == 1
    assert producers.outcomes[OLDER] == 1
    assert producers.conflicts == {}


def test_a_start_time_that_is_computed_each_time_is_no_sign_of_two_producers() -> None:
    producers = Producers("counter")
    for number in range(10):
        producers.send(number, 10 * number, start_seconds=-100 + number % 2)
    assert producers.conflicts == {}
    assert producers.shown == 9


@pytest.mark.parametrize("kind", CUMULATIVE)
def test_a_start_time_that_moves_back_with_the_clock_does_not_end_the_series(kind: str) -> None:
    """A boot time is the clock's time without the running time: when the clock is slowed down, it becomes earlier."""
    producers = Producers(kind)
    for number in range(10):
        producers.send(number, 10 * number, start_seconds=-100 - (number >= 3))
    assert producers.shown == 9
    producers.send(4, 40, start_seconds=-100)  # read again: earlier, although its start is later
    assert producers.shown == 9


@pytest.mark.parametrize("kind", CUMULATIVE)
def test_of_two_start_times_the_older_is_shown_once_the_newer_producer_has_ended(kind: str) -> None:
    producers = Producers(kind)
    for number in range(5):
        producers.send(500 + number, 10 * number, start_seconds=-1000)
        producers.send(number, 10 * number + 5, start_seconds=-3)
    producers.send(505, 50, start_seconds=-1000)
    assert producers.shown == 4
    producers.send(510, 80, start_seconds=-1000)
    assert producers.shown == 510


@pytest.mark.parametrize("kind", KINDS)
def test_a_series_that_goes_back_and_forth_between_two_keys_has_two_producers(kind: str) -> None:
    producers = Producers(kind)
    producers.store.expose(1, exposed=True)
    for number in range(10):
        producers.send(1, 10 * number, partition=0, key_hash=11)
        producers.send(2, 10 * number + 5, partition=1, key_hash=22)
    assert producers.conflicts == {"key": 18}


def test_a_series_that_moves_once_or_has_ever_other_keys_or_none_has_one_producer() -> None:
    moved, scattered, unkeyed = Producers("gauge"), Producers("gauge"), Producers("gauge")
    for number in range(20):
        moved.send(1, 10 * number, key_hash=11 if number < 10 else 22)
        scattered.send(1, 10 * number, key_hash=1000 + number)
        unkeyed.send(1, 10 * number, key_hash=0)
    assert moved.conflicts == scattered.conflicts == unkeyed.conflicts == {}


@pytest.mark.parametrize("attribute", [BOOT, "host.id"])
def test_two_hosts_under_one_instance_are_noticed_even_if_they_share_no_series(attribute: str) -> None:
    producers = Producers("gauge")
    for number in range(10):
        producers.send(1, 10 * number, name="one", attributes={attribute: "a"})
        producers.send(2, 10 * number + 5, name="other", attributes={attribute: "b"})
    assert producers.conflicts == {"host": 18}


@dataclass
class Mirrored:
    """A data centre's topic of kernels as a bridge in another one reads it."""

    site: Site
    topic: str

    def send(self, topic: str, *, key: bytes | None, value: bytes | None) -> None:  # noqa: ARG002  the producer's
        assert value is not None
        self.site.kafka.write(self.topic, 0, value, self.site.clock.now_ns() // 1_000_000, keyed=key)


def test_exporters_of_one_host_name_in_two_data_centres_are_noticed_and_do_not_mix() -> None:
    site = Site(formats={name: TopicFormat(format="otlp_proto") for name in ("east", "west")})
    site.kafka.assign(site.intake, ("east", 0), ("west", 0))
    site.read_all()
    east, west = (SamplePublisher(Mirrored(site, name), boot_id=f"boot of {name}") for name in ("east", "west"))
    began_ns = site.clock.now_ns()
    for number in range(1, 11):
        for publisher, offset, age_ns in ((east, 1000, 1000 * SECOND_NS), (west, 0, 5 * SECOND_NS)):
            sample = launches(offset + number, time_ns=site.clock.now_ns(), start_ns=began_ns - age_ns)
            publisher.kernels(ProgramSamples("node1", "train", (sample,)))
            site.run(1)
    site.run(1)
    labels = {"job": "kernelcast-exporter", "instance": "node1"}
    assert site.own(CONFLICTS, **labels, sign="resource") == 10
    assert [value for (name, _), value in samples(page(site.store)).items() if name == LAUNCHES] == [1010]


@pytest.mark.parametrize("keyed", [b"node1", None])
def test_two_nodes_of_one_name_in_two_mirrored_clusters_are_noticed_though_nothing_else_differs(
    keyed: bytes | None,
) -> None:
    policy = IntakePolicy(grouped=False)
    site = Site(policy=policy, formats={name: TopicFormat(format="otlp_proto") for name in ("east", "west")})
    site.kafka.assign(site.intake, ("east", 0), ("east", 1), ("west", 0), ("west", 1))
    site.read_all()
    resource = {"service.name": "train", "service.instance.id": "node1"}
    for number in range(10):
        for topic in ("east", "west"):
            site.run(5)
            at_ms = site.clock.now_ns() // 1_000_000
            body = export("gauge", number, at_ms / 1e3 - EPOCH_SECONDS, resource=resource)
            site.kafka.write(topic, number % 2 if keyed is None else 0, body, at_ms, keyed=keyed)
    site.run(2)
    assert site.own(CONFLICTS, job="train", instance="node1", sign="key") == 18


def test_a_producer_that_moves_to_another_host_is_one() -> None:
    producers = Producers("gauge")
    for number in range(20):
        producers.send(1, 10 * number, attributes={BOOT: "a" if number < 10 else "b"})
    assert producers.conflicts == {"resource": 1}  # the first message of the new one, before it took over


def test_one_host_with_a_resource_that_does_not_name_it_is_one() -> None:
    producers = Producers("gauge")
    for number in range(10):
        producers.send(1, 10 * number, name="one", attributes={BOOT: "a"})
        producers.send(2, 10 * number + 5, name="other")
    assert producers.conflicts == {}


def test_conflicts_of_a_fleet_are_counted_in_a_bounded_number_of_series() -> None:
    site = Site()
    site.kafka.assign(site.intake, ("kernels", 0))
    site.read_all()
    producers = [f"node{number}" for number in range(150)]
    for pid in (1, 2):
        for instance in producers:
            resource = {"service.name": "train", "service.instance.id": instance, "process.pid": pid}
            site.kafka.write("kernels", 0, export("gauge", 1, pid, resource=resource), (EPOCH_SECONDS + pid) * 1000)
        site.read_all()
    site.run(2)
    counted = {
        (sample.labels["instance"], sample.labels["sign"]): sample.value
        for family in site.registry.collect()
        for sample in family.samples
        if sample.name == CONFLICTS and sample.value
    }
    assert len(counted) == 101
    assert sum(counted.values()) == 150
    assert site.own(CONFLICTS, job="other", instance="", sign="resource") == 50
    assert site.own(CONFLICTS, job="other", instance="", sign="key") == 0


def test_a_producer_that_is_idle_gives_its_place_in_the_counter_to_another() -> None:
    registry, now_seconds = CollectorRegistry(), 0.0
    counted = CountedByProducer(rows.IDENTITY_CONFLICTS, ("key",), registry, monotonic=lambda: now_seconds)
    for number in range(MAX_PRODUCERS):
        counted.count(("shop", str(number)), "key", 1)
    counted.count(("shop", "late"), "key", 2)

    def value(job: str, instance: str) -> float | None:
        labels = {"job": job, "instance": instance, "sign": "key"}
        return registry.get_sample_value(rows.IDENTITY_CONFLICTS.prometheus_name, labels)

    assert (value("other", ""), value("shop", "late"), value("shop", "0")) == (2, None, 1)
    now_seconds = IDLE_SECONDS + 1
    counted.count(("shop", "late"), "key", 3)
    assert (value("other", ""), value("shop", "late"), value("shop", "0")) == (2, 3, None)

"""The writers of a series: a restarted producer takes over soon, two live ones are detected and counted."""

import pytest
from tests.support.bridge.fleet import Site, page, samples
from tests.support.bridge.rivals import EPOCH_SECONDS, KINDS, SECOND_NS, Producers, export

from kernelcast.bridge.inputs import TopicFormat
from kernelcast.bridge.inputs.remote_write.schema import LABEL, WRITE_REQUEST
from kernelcast.bridge.tables.columns import OLDER, SECOND_WRITER, STORED

INTERVAL_SECONDS = 10


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interval_seconds", [1, 10])
def test_a_restarted_producer_takes_over_when_the_old_one_has_missed_one_interval(
    kind: str, interval_seconds: int
) -> None:
    producers = Producers(kind)
    for number in range(5):
        producers.send(100 + number, number * interval_seconds, pid=1)
    last = 4 * interval_seconds
    producers.send(1, last + 0.5, pid=2)  # the old one may only be late
    assert producers.shown == 104
    producers.send(2, last + 2.5 * interval_seconds, pid=2)
    assert producers.shown == 2
    producers.send(200, last + 2.6 * interval_seconds, pid=1)  # the last message of the dead one, late
    assert producers.shown == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("behind_seconds", [0, 500])
def test_a_former_producer_whose_messages_are_repeated_does_not_return_although_a_clock_was_set_back(
    kind: str, behind_seconds: int
) -> None:
    producers = Producers(kind)
    for number in range(5):
        producers.send(100 + number, 10 * number, pid=1, start_seconds=-1)
    start = 55 - behind_seconds
    for number in range(3):
        producers.send(1 + number, 60 + 10 * number, pid=2, start_seconds=start, ahead_seconds=-behind_seconds)
    producers.send(104, 85, pid=1, start_seconds=-1, ahead_seconds=-45)
    assert producers.shown == 3
    producers.send(4, 90, pid=2, start_seconds=start, ahead_seconds=-behind_seconds)
    assert producers.shown == 4


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "gauge"])  # gauges have no start time
def test_a_live_producer_returns_at_once_after_repeated_messages_of_one_that_was_not_known_here(kind: str) -> None:
    producers = Producers(kind)
    for number in range(5):
        producers.send(1 + number, 10 * number, pid=2, start_seconds=-5)
    producers.send(104, 140, pid=1, start_seconds=-500, ahead_seconds=-148)  # nothing was written for 100 s
    producers.send(5, 140, pid=2, start_seconds=-5, ahead_seconds=-100)  # repeated: too old to show that it lives
    assert producers.shown == 104
    producers.send(6, 140, pid=2, start_seconds=-5, ahead_seconds=-90)
    assert producers.shown == 6


@pytest.mark.parametrize("kind", KINDS)
def test_two_producers_that_alternate_stay_apart_and_the_second_is_counted(kind: str) -> None:
    producers = Producers(kind)
    for number in range(100):
        producers.send(1000 + number, number * INTERVAL_SECONDS, pid=1)
        producers.send(number, (number + 0.5) * INTERVAL_SECONDS, pid=2)
        assert producers.shown == 1000 + number
    assert producers.outcomes == {STORED: 100, OLDER: 0, SECOND_WRITER: 100}


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_message_of_the_first_of_two_live_producers_hands_nothing_over(kind: str) -> None:
    producers = Producers(kind)
    first = [(number + (0.4 if number == 10 else 0.0), 1) for number in range(20)]
    second = [(number + 0.35, 2) for number in range(20)]
    for at_intervals, pid in sorted(first + second):
        producers.send(pid, at_intervals * INTERVAL_SECONDS, pid=pid)
        assert producers.shown == 1
    assert producers.outcomes[SECOND_WRITER] == 20


@pytest.mark.parametrize("kind", KINDS)
def test_time_in_which_another_replica_read_a_partition_is_no_interval_of_its_producers(kind: str) -> None:
    producers = Producers(kind)
    for number in range(3):
        producers.send(100 + number, number, pid=1)
    producers.store.drop_partition(0)
    producers.store.expose(0, exposed=True)
    for number in range(3):
        producers.send(200 + number, 40 + number, pid=1)
    producers.send(1, 44.5, pid=2)
    assert producers.shown == 1


def test_a_producer_known_by_one_message_only_keeps_its_series_for_the_set_time() -> None:
    producers = Producers("gauge")
    producers.send(1, 0, pid=1)
    producers.send(2, 59, pid=2)
    assert producers.shown == 1
    producers.send(3, 61, pid=2)
    assert producers.shown == 3


def test_a_series_that_its_live_producer_has_given_up_goes_to_another_after_the_set_time() -> None:
    producers = Producers("gauge")
    for number in range(5):
        producers.send(1, number * 100, pid=1)  # a slow one: an interval is longer than the set time
    producers.send(2, 459, pid=2)
    assert producers.shown == 1
    producers.send(3, 461, pid=2)
    assert producers.shown == 3


def test_lag_between_partitions_is_no_silence_while_one_of_them_is_still_catching_up() -> None:
    producers = Producers("gauge")
    for number in range(5):
        producers.send(1, number, pid=1, partition=0)
    producers.send(2, 40, pid=2, partition=1)  # partition 1 is hidden, and read faster than partition 0
    producers.send(3, 5, pid=1, partition=0)
    assert producers.shown == 3


@pytest.mark.parametrize("kind", KINDS)
def test_lag_between_partitions_is_no_interval_of_a_producer(kind: str) -> None:
    producers = Producers(kind)
    for number in range(5):
        producers.send(100 + number, 2 * number, pid=1, partition=1)
    producers.send(115, 30, pid=1, partition=2)  # both are read again, partition 2 before the rest of partition 1
    for number in range(2):
        producers.send(1 + number, 32 + 2 * number, pid=2, partition=2)
    for partition in (1, 2):
        producers.store.expose(partition, exposed=True)
    assert producers.shown == 2


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "gauge"])  # gauges have no start time
def test_a_former_producer_whose_partition_is_read_later_does_not_return_although_a_clock_was_set_back(
    kind: str,
) -> None:
    producers = Producers(kind)
    for number in range(3):
        producers.send(100 + number, 2 * number, pid=1, start_seconds=-1, partition=1)
    for number in range(3):
        producers.send(1 + number, 100 + 2 * number, pid=2, start_seconds=-401, ahead_seconds=-500, partition=2)
    for number in range(3, 6):
        producers.send(100 + number, 2 * number, pid=1, start_seconds=-1, partition=1)
    for partition in (1, 2):
        producers.store.expose(partition, exposed=True)
    assert producers.shown == 3


def text(value: int, at_seconds: float) -> bytes:
    at_ms = round((EPOCH_SECONDS + at_seconds) * 1e3)
    return f'v_value{{job="train",instance="node1"}} {value} {at_ms}\n'.encode()


def influx(value: int, at_seconds: float) -> bytes:
    return f"v,job=train,instance=node1 value={value} {round((EPOCH_SECONDS + at_seconds) * SECOND_NS)}".encode()


def remote_write(value: int, at_seconds: float) -> bytes:
    request = WRITE_REQUEST()
    series = request.timeseries.add()
    for name, label in (("__name__", "v_value"), ("instance", "node1"), ("job", "train")):
        series.labels.append(LABEL(name=name, value=label).SerializeToString())
    series.samples.add(value=value, timestamp=round((EPOCH_SECONDS + at_seconds) * 1e3))
    return bytes(request.SerializeToString())


def otlp(value: int, at_seconds: float) -> bytes:
    resource = {"service.name": "train", "service.instance.id": "node1"}
    return export("gauge", value, at_seconds, resource=resource, name="v.value")


WRITTEN = {"prometheus": text, "influx": influx, "remote_write": remote_write, "otlp_proto": otlp}


def mixed(*written: tuple[str, int, float]) -> Site:
    """A bridge that has read messages of several formats, each on a topic of its name."""
    site = Site(formats={name: TopicFormat.model_validate(name) for name in WRITTEN})
    site.kafka.assign(site.intake, *((name, 0) for name in WRITTEN))
    site.read_all()
    for name, value, at_seconds in written:
        site.kafka.write(name, 0, WRITTEN[name](value, at_seconds), round((EPOCH_SECONDS + at_seconds) * 1e3))
        site.read_all()
    return site


def value_shown(site: Site) -> list[float]:
    return [value for (name, _), value in samples(page(site.store)).items() if name == "v_value"]


OTHERS = [(one, other) for one in WRITTEN for other in WRITTEN if one < other]


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_a_series_follows_its_producer_to_another_format_when_the_old_one_has_missed_one_interval(
    one: str, other: str
) -> None:
    before = [(one, 1, number * INTERVAL_SECONDS) for number in range(5)]
    assert value_shown(mixed(*before, (other, 2, 41))) == [1]
    assert value_shown(mixed(*before, (other, 2, 41), (other, 3, 61))) == [3]


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_two_formats_that_alternate_stay_apart_and_the_second_is_counted(one: str, other: str) -> None:
    written = [(name, value, 10 * i + after) for i in range(10) for name, value, after in ((one, 1, 0), (other, 2, 5))]
    site = mixed(*written)
    assert value_shown(site) == [1]
    assert site.own("kernelcast_bridge_discarded_points_total", cause="second_writer") == 10


@pytest.mark.parametrize("written", WRITTEN)
def test_one_identity_in_topics_mirrored_from_two_data_centres_is_counted_in_every_format(written: str) -> None:
    site = Site(formats={topic: TopicFormat.model_validate(written) for topic in ("east", "west")})
    site.kafka.assign(site.intake, ("east", 0), ("west", 0))
    site.read_all()
    for number in range(5):
        for value, (topic, after) in enumerate((("east", 0), ("west", 5))):
            at_seconds = number * INTERVAL_SECONDS + after
            site.kafka.write(topic, 0, WRITTEN[written](value, at_seconds), (EPOCH_SECONDS + at_seconds) * 1000)
            site.read_all()
    site.run(2)
    conflicts = "kernelcast_producer_identity_conflicts_total"
    assert site.own(conflicts, job="train", instance="node1", sign="key") == 8

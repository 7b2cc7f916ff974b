"""Two metrics of one producer whose names become equal on `/metrics`: one of them has the series."""

from itertools import permutations

import pytest
from prometheus_client import CollectorRegistry
from tests.support.bridge.fleet import come_from, exposed_store, page, samples
from tests.support.bridge.rivals import EPOCH_SECONDS, KINDS, SHOWN, export

from kernelcast.bridge.series.occupancy import OccupancyCollector
from kernelcast.bridge.tables.columns import NAME_CONFLICT
from kernelcast.columnar import Decoder
from kernelcast.wire.catalogue import BY_OTLP_NAME, kernel

RESOURCE = {"service.name": "train", "service.instance.id": "node1"}


class Producer:
    """One producer of several metrics, in turn."""

    def __init__(self, kind: str = "counter") -> None:
        self.store = exposed_store()
        self._kind, self._decoder = kind, Decoder()
        self._seconds = 0
        self.refused = 0

    def send(self, value: int, *names: str) -> None:
        """Send one point of each metric."""
        for name in names:
            self._seconds += 1
            body = export(self._kind, value, self._seconds, resource=RESOURCE, start_seconds=-5, name=name)
            origin = come_from(0, self._seconds, (EPOCH_SECONDS + self._seconds) * 1000, 1)
            counts = self.store.apply(self._decoder.decode([body]), origin, self._decoder)
            self.refused += int(counts[NAME_CONFLICT])

    def shown(self, name: str) -> list[float]:
        return [value for (shown, _), value in samples(page(self.store)).items() if shown == name]

    def conflicts(self) -> dict[str, float]:
        registry = CollectorRegistry()
        registry.register(OccupancyCollector(self.store.occupancy))
        return {
            sample.labels["metric"]: sample.value
            for family in registry.collect()
            for sample in family.samples
            if sample.name == "kernelcast_bridge_name_conflicts_total"
        }


@pytest.mark.parametrize("names", list(permutations(("v.v", "v_v"))))
@pytest.mark.parametrize("kind", KINDS)
def test_the_name_that_is_legal_as_it_is_has_the_series_whichever_comes_first(
    kind: str, names: tuple[str, str]
) -> None:
    producer = Producer(kind)
    for number in range(1, 5):
        for name in names:
            producer.send({"v.v": 10, "v_v": 5000}[name] + number, name)
    assert producer.shown(SHOWN[kind].replace("v", "v_v", 1)) == [5004]
    assert producer.refused == (4 if names[0] == "v_v" else 3)
    assert producer.conflicts() == {"v.v": 1}


@pytest.mark.parametrize("names", list(permutations(("jobs-done", "jobs.done", "jobs/done"))))
def test_of_illegal_names_the_lexically_first_has_the_series(names: tuple[str, ...]) -> None:
    producer = Producer()
    for number in range(1, 4):
        for name in names:
            producer.send({"jobs-done": 10, "jobs.done": 100, "jobs/done": 1000}[name] + number, name)
    assert producer.shown("jobs_done_total") == [13]


def test_the_catalogues_name_has_the_series_before_a_legal_one() -> None:
    own = next(name for name, row in BY_OTLP_NAME.items() if row is kernel.LAUNCHES)
    foreign = kernel.LAUNCHES.prometheus_name
    assert own != foreign
    for names in permutations((own, foreign)):
        producer = Producer()
        for number in range(1, 4):
            for name in names:
                producer.send((100 if name == own else 5000) + number, name)
        assert producer.shown(foreign) == [103]


def test_names_of_two_producers_do_not_meet() -> None:
    producer = Producer()
    producer.send(1, "jobs.done")
    another = {**RESOURCE, "service.instance.id": "node2"}
    body = export("counter", 7, 2, resource=another, start_seconds=-5, name="jobs_done")
    decoder = Decoder()
    producer.store.apply(decoder.decode([body]), come_from(0, 9, (EPOCH_SECONDS + 2) * 1000, 2), decoder)
    assert sorted(producer.shown("jobs_done_total")) == [1, 7]
    assert producer.conflicts() == {"other": 0}


def test_a_refused_metric_has_the_series_once_the_other_has_ended() -> None:
    producer = Producer()
    producer.send(5000, "jobs_done")
    producer.send(10, "jobs.done")
    producer.store.expire({0: (EPOCH_SECONDS + 100) * 1000})
    producer.send(11, "jobs.done")
    assert producer.shown("jobs_done_total") == [11]

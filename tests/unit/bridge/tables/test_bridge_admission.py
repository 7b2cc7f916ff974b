import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics
from tests.support.bridge.fleet import Known, Point, come_from, decoded, exposed_store, gauge, page
from tests.support.columnar.otlp_messages import request

from kernelcast.bridge.tables import new_series as module
from kernelcast.bridge.tables.columns import METRIC_LIMIT, PRODUCER_LIMIT, SERIES_LIMIT, TYPE_CONFLICT
from kernelcast.bridge.tables.hashing import stable_hashes
from kernelcast.bridge.tables.new_series import NewSeries
from kernelcast.bridge.tables.placement import Placement
from kernelcast.bridge.tables.slots import SeriesLimits, Slots
from kernelcast.bridge.translation.settings import TranslationSettings
from kernelcast.bridge.translation.together import place_together
from kernelcast.bridge.translation.translate import Translator
from kernelcast.columnar import Decoder
from kernelcast.wire.catalogue import Kind

LINES = {Kind.GAUGE: 1, Kind.HISTOGRAM: 3}


def placement(metric: int, labels: int, help_text: str) -> Placement:
    kind = Kind.HISTOGRAM if metric == 3 else Kind.GAUGE
    name = "m2" if metric == 3 and labels == 5 else f"m{metric}"  # at times a histogram claims a gauge's name
    return Placement(name, kind, help_text, b'l="%d"' % labels, cumulative=False, writer=None)


@dataclass
class Slow:
    """Admission by the rules, one series after another, in dictionaries.

    A family is there from the first series that asks for it in a call, and at the end of the call goes without series.
    """

    limits: SeriesLimits
    held: dict[tuple[str, bytes], tuple[int, Kind, int]] = field(default_factory=dict)
    helps: dict[str, tuple[Kind, str]] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)
    used: int = 0
    help_conflicts: int = 0

    def admit(self, series: list[tuple[Placement, int]]) -> list[int]:
        admitted = [self.one(place, producer) for place, producer in series]
        self.helps = {name: known for name, known in self.helps.items() if self.lines(name=name)}
        return admitted

    def lines(self, *, name: str | None = None, producer: int | None = None) -> int:
        return sum(
            LINES[kind]
            for (family, _), (_, kind, owner) in self.held.items()
            if name in (None, family) and producer in (None, owner)
        )

    def one(self, place: Placement, producer: int) -> int:
        kind, text = self.helps.setdefault(place.name, (place.kind, place.help))
        if kind is not place.kind:
            return -TYPE_CONFLICT
        self.help_conflicts += text != place.help
        known = self.held.get((place.name, place.labels))
        if known is not None:
            return known[0]
        more = LINES[kind]
        if self.lines() + more > self.limits.series:
            return -SERIES_LIMIT
        if self.lines(name=place.name) + more > self.limits.series_per_metric:
            return -METRIC_LIMIT
        if producer and self.lines(producer=producer) + more > self.limits.series_per_producer:
            return -PRODUCER_LIMIT
        slot = self.free.pop() if self.free else self.used
        self.used = max(self.used, slot + 1)
        self.held[place.name, place.labels] = (slot, kind, producer)
        return slot

    def remove(self, slots: list[int]) -> None:
        self.held = {key: known for key, known in self.held.items() if known[0] not in slots}
        self.helps = {name: known for name, known in self.helps.items() if self.lines(name=name)}
        self.free += slots


series = st.tuples(st.integers(0, 3), st.integers(0, 5), st.sampled_from(("", "h")), st.integers(0, 2))
calls = st.lists(st.tuples(st.lists(series, max_size=25), st.sets(st.integers(0, 24), max_size=8)), max_size=5)


@given(
    calls,
    st.tuples(st.integers(1, 30), st.integers(1, 12), st.integers(1, 14)),
    st.sampled_from((-1, 1)),
)
def test_series_that_come_together_are_admitted_as_if_they_came_one_by_one(
    chosen: list[tuple[list[tuple[int, int, str, int]], set[int]]],
    limits: tuple[int, int, int],
    hash_mask: int,
) -> None:
    slots = Slots(SeriesLimits(*limits), frozenset())
    slow = Slow(SeriesLimits(*limits))
    with pytest.MonkeyPatch.context() as patch:  # most hashes collide under a short mask
        patch.setattr(module, "stable_hashes", lambda *columns: stable_hashes(*columns) & hash_mask)
        assert_admitted_alike(slots, slow, chosen)


def assert_admitted_alike(
    slots: Slots, slow: Slow, chosen: list[tuple[list[tuple[int, int, str, int]], set[int]]]
) -> None:
    for asked, leave in chosen:
        places = [(placement(metric, labels, text), producer) for metric, labels, text, producer in asked]
        producers = np.array([producer for _, producer in places], np.int32)
        found = slots.admit(NewSeries.of([place for place, _ in places]), producers)
        assert found.tolist() == slow.admit(places)
        gone = sorted({slot for slot, _, _ in slow.held.values()} & leave)
        if gone:
            slots.free(np.array(gone, np.intp))
            slow.remove(gone)
        assert slots.lines == slow.lines()
        assert [family.name for family in slots.families.sorted()] == sorted(slow.helps)
        assert slots.families.help_conflicts == slow.help_conflicts
        assert {
            (slots.families.by_number[slots.series.family[slot]].name, label_bytes(slots, slot)): slot
            for slot, _, _ in slow.held.values()
        } == {key: known[0] for key, known in slow.held.items()}


def label_bytes(slots: Slots, slot: int) -> bytes:
    sets, number = slots.labels.sets.columns, slots.series.label_set[slot]
    return slots.labels.sets.arena[sets.offset[number] : sets.offset[number] + sets.length[number]].tobytes()


def test_the_labels_of_refused_series_are_not_kept() -> None:
    store = exposed_store(SeriesLimits(series=1))
    known = Known([gauge(attributes=(("pod", f"{i}" + "p" * 500),)) for i in range(900)].__getitem__)
    for offset in range(10):
        store.apply(decoded([Point(i, 1.0, 1) for i in range(900)]), come_from(offset=offset), known)
    assert len(store._slots.labels.sets.arena) <= 1 << 16
    assert page(store).count("p" * 500) == 1


@given(
    st.integers(0, 2**32),
    st.sampled_from(({}, {"scope_labels": False}, {"promote_resource_attributes": "all"}, {"target_info": False})),
)
def test_series_that_come_together_are_named_as_if_they_came_one_by_one(seed: int, chosen: dict[str, Any]) -> None:
    rng, decoder, translator = random.Random(seed), Decoder(), Translator(TranslationSettings(**chosen))
    messages = [request(rng).SerializeToString() for _ in range(4)]
    columns = decoder.decode([*messages, long_labels()])
    numbers = np.unique(np.concatenate([columns.numbers.series, columns.histograms.series]))
    numbers = numbers[sorted(range(len(numbers)), key=lambda _: rng.random())]
    together = place_together(translator, decoder.identities(numbers))
    alone = NewSeries.of([translator.place(decoder.identity(number)) for number in numbers.tolist()])
    for field_ in ("refused", "heading", "origin", "label_set"):
        assert getattr(together, field_).tolist() == getattr(alone, field_).tolist()
    assert [*together.headings] == [*alone.headings]
    assert [*together.origins] == [*alone.origins]
    assert [*together.labels] == [*alone.labels]


def long_labels() -> bytes:
    """A series whose labels are too long to be stored, beside one whose are not."""
    points = [NumberDataPoint(as_double=1.0, time_unix_nano=1), NumberDataPoint(as_double=1.0, time_unix_nano=1)]
    points[0].attributes.add(key="a").value.string_value = "x" * 9000
    metric = Metric(name="some.gauge", gauge=Gauge(data_points=points))
    scopes = [ScopeMetrics(metrics=[metric])]
    return ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics(scope_metrics=scopes)]).SerializeToString()

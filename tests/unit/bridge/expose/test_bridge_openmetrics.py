"""OpenMetrics: prometheus_client's own strict parser reads the written pages."""

import math
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parsed
from tests.support.bridge.fleet import TARGET, Known, Point, come_from, counter, decoded, exposed_store, gauge
from tests.support.bridge.histograms import Shown, explicit, exponential

from kernelcast.bridge.expose.formats import openmetrics
from kernelcast.bridge.expose.negotiate import Format
from kernelcast.bridge.expose.own import OwnMetrics
from kernelcast.bridge.layouts.exemplars import Exemplar
from kernelcast.bridge.layouts.layout import StoreSnapshot
from kernelcast.bridge.layouts.view import ALL
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.placement import Placement
from kernelcast.columnar import Attributes
from kernelcast.wire.catalogue import Kind


def written(snapshot: StoreSnapshot, *, created: bool = False) -> str:
    return (b"".join(openmetrics(snapshot, created=created)) + b"# EOF\n").decode()


def read(snapshot: StoreSnapshot, *, created: bool = False) -> dict[str, Any]:
    families = parsed(written(snapshot, created=created))  # type: ignore[no-untyped-call]
    return {family.name: family for family in families}


def types(store: SeriesStore) -> dict[str, str]:
    return {name: family.type for name, family in read(store.snapshot()).items()}


def placed(*placements: Placement) -> SeriesStore:
    """A store with a series for each placement, all of value 1."""
    store = exposed_store()
    store.apply(decoded([Point(i, 1, 1) for i in range(len(placements))]), come_from(), Known(placements.__getitem__))
    return store


def placement(name: str, kind: Kind, unit: str = "", help: str = "") -> Placement:  # noqa: A002  the field's name
    return Placement(name, kind, help, b'a="b"', cumulative=False, writer=1, unit=unit)


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
names = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
attributes = st.dictionaries(names, text, max_size=4).map(lambda found: tuple(sorted(found.items())))
entries_of = st.tuples(names, attributes, st.floats(), st.integers(0, 2**63 - 1), st.booleans())


@given(st.lists(entries_of, max_size=15))
def test_the_strict_parser_reads_back_the_same_series(entries: list[tuple[str, Attributes, float, int, bool]]) -> None:
    store = exposed_store()
    identities = [
        (counter if counts else gauge)(f"m.{counts:d}.{name}", attributes=given_labels, description='A "b" \\ \n.')
        for name, given_labels, _, _, counts in entries
    ]
    points = [
        Point(i, total if counts else value, i + 1, start_ns=1_500_000_000)
        for i, (_, _, value, total, counts) in enumerate(entries)
    ]
    store.apply(decoded(points), come_from(append_ms=2_000), Known(identities.__getitem__))
    expected: dict[object, float] = {}
    for name, given_labels, value, total, counts in entries:
        shown = frozenset({**TARGET, **{key: item for key, item in given_labels if item}}.items())
        base = f"m_{counts:d}_{name}"
        expected[base + "_total" if counts else base, shown] = total if counts else value
        if counts:
            expected[base + "_created", shown] = 1.5
    found: dict[object, float] = {}
    for family in read(store.snapshot(), created=True).values():
        assert family.documentation == 'A "b" \\ \n.'
        found |= {(sample.name, frozenset(sample.labels.items())): sample.value for sample in family.samples}
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert found[key] == value or (math.isnan(value) and math.isnan(found[key]))


def test_a_counter_without_the_suffix_keeps_its_name_as_an_unknown_metric() -> None:
    store = exposed_store()
    store.apply(decoded([Point(0, 5, 1)]), come_from(), Known(lambda _: gauge("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")))
    family = read(store.snapshot())["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"]
    assert family.type == "unknown"
    assert [sample.name for sample in family.samples] == ["DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"]


def test_a_counter_whose_shorter_name_is_taken_keeps_its_own() -> None:
    store = placed(placement("jobs", Kind.GAUGE), placement("jobs_total", Kind.COUNTER))
    assert types(store) == {"jobs": "gauge", "jobs_total": "unknown"}


def test_an_info_is_one_only_where_its_name_says_so_and_is_free() -> None:
    store = placed(
        placement("a_info", Kind.INFO),
        placement("b", Kind.INFO),
        placement("c_info", Kind.INFO),
        placement("c_total", Kind.COUNTER),
        placement("d", Kind.UNKNOWN),
    )
    assert types(store) == {"a": "info", "b": "gauge", "c": "counter", "c_info": "gauge", "d": "unknown"}


def test_a_unit_is_written_where_the_name_ends_with_it() -> None:
    store = placed(
        placement("a_seconds", Kind.GAUGE, "seconds"),
        placement("b_bytes_total", Kind.COUNTER, "bytes"),
        placement("c", Kind.GAUGE, "volts"),
        placement("d_seconds_info", Kind.INFO, "seconds"),
    )
    units = {name: family.unit for name, family in read(store.snapshot()).items()}
    assert units == {"a_seconds": "seconds", "b_bytes": "bytes", "c": "", "d_seconds": ""}


def test_histograms_of_both_kinds_are_legal_and_tell_since_when_they_count() -> None:
    for body in (explicit([0.5, 2.0], [3, 4, 5]), exponential(positive=[1, 2], zero=1)):
        shown = Shown()
        shown.read(body)
        (family,) = read(shown.store.snapshot(), created=True).values()
        assert family.type == "histogram"
        found = {sample.name: sample for sample in family.samples if not sample.name.endswith("_bucket")}
        assert [*found] == ["latency_sum", "latency_count", "latency_created"]
        assert "latency_created" in found
        assert "e-09" not in written(shown.store.snapshot(), created=True)
        assert found["latency_created"].value == 1e-9
        assert "_created" not in written(shown.store.snapshot())


def test_a_start_is_not_exposed_if_it_is_unknown_or_the_name_is_taken() -> None:
    store = exposed_store()
    store.apply(decoded([Point(0, 5, 1)]), come_from(), Known(lambda _: counter("a")))
    assert "_created" not in written(store.snapshot(), created=True)
    taken = exposed_store()
    pair = [counter("a"), gauge("a.created")]
    taken.apply(decoded([Point(0, 5, 2, start_ns=1), Point(1, 7, 2)]), come_from(), Known(pair.__getitem__))
    assert written(taken.snapshot(), created=True).count("a_created{") == 1


def test_exemplars_are_at_counters_and_buckets_and_are_escaped() -> None:
    exemplar = Exemplar((("trace_id", "q\\\n"), ("span_id", "s")), 1.5, 12_000_000_345)
    store = exposed_store()
    store.apply(decoded([Point(0, 5, 1)]), come_from(), Known(lambda _: counter("a")))
    (family,) = read(replace(store.snapshot(), exemplars_by_slot={0: [exemplar]})).values()
    found = family.samples[0].exemplar
    assert found.labels == {"trace_id": "q\\\n", "span_id": "s"}
    assert (found.value, found.timestamp.sec, found.timestamp.nsec) == (1.5, 12, 345)
    shown = Shown()
    shown.read(explicit([1.0, 2.0], [1, 1, 1]))
    above = Exemplar((), 7.0)
    (family,) = read(replace(shown.store.snapshot(), exemplars_by_slot={0: [above, exemplar]})).values()
    held = {sample.labels["le"]: sample.exemplar.value for sample in family.samples if sample.exemplar}
    assert held == {"2.0": 1.5, "+Inf": 7.0}


def test_an_exemplar_that_would_be_illegal_is_left_out() -> None:
    bare = placed(placement("bare", Kind.COUNTER))
    assert "#" not in written(replace(bare.snapshot(), exemplars_by_slot={0: [Exemplar((), 1.0)]})).splitlines()[2]


def test_the_processes_own_metrics_close_the_page() -> None:
    registry = CollectorRegistry()
    Counter("own_things", "Things.", registry=registry).inc()
    store = exposed_store()
    store.apply(decoded([Point(0, 1.5, 1)]), come_from(), Known(lambda _: gauge()))
    body = b"".join(openmetrics(store.snapshot())) + OwnMetrics(registry).page(Format.OPENMETRICS, ALL)
    assert body.endswith(b"# EOF\n")
    found = {family.name: family.type for family in parsed(body.decode())}  # type: ignore[no-untyped-call]
    assert found == {"some_gauge": "gauge", "own_things": "counter"}

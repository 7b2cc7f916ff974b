from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.support.bridge.fleet import counter, exposed_store, gauge, page, samples
from tests.support.bridge.producers import TTL_MS, UP, Fleet, resource

from kernelcast.bridge.series.heartbeats import NEW_PRODUCERS_PER_LOCK
from kernelcast.bridge.series.occupancy import OccupancyCollector
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.columns import PRODUCER_LIMIT, SERIES_LIMIT, STORED, TYPE_CONFLICT
from kernelcast.bridge.tables.producers import ProducerRules
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.columnar import PointType, SeriesIdentity, Temporality

AGE = "kernelcast_producer_last_sample_age_seconds"


def test_a_producer_is_up_while_samples_arrive_and_its_age_is_by_kafkas_clock() -> None:
    fleet = Fleet()
    fleet.send(gauge(resource=resource("a")), append_ms=10_000)
    fleet.send(gauge(resource=resource("b")), append_ms=12_000)
    fleet.look(15_000)
    assert fleet.shown(UP) == {"a": 1, "b": 1}
    assert fleet.shown(AGE) == {"a": 5, "b": 3}


def exported_every(fleet: Fleet, interval_ms: int, times: int) -> int:
    """The time of the last of a number of samples."""
    for i in range(times):
        fleet.send(gauge(resource=resource()), append_ms=10_000 + i * interval_ms)
        fleet.look(10_000 + i * interval_ms)
    return 10_000 + (times - 1) * interval_ms


@pytest.mark.parametrize("interval_ms", [10_000, 60_000])
def test_a_producer_is_down_after_three_of_its_own_intervals_without_a_sample(interval_ms: int) -> None:
    fleet = Fleet()
    last_ms = exported_every(fleet, interval_ms, 5)
    fleet.look(last_ms + 3 * interval_ms)
    assert fleet.shown(UP) == {"a": 1}
    fleet.look(last_ms + 3 * interval_ms + 1)
    assert fleet.shown(UP) == {"a": 0}


def test_a_producer_with_an_unknown_interval_is_up_for_a_time_to_live() -> None:
    fleet = Fleet()
    fleet.send(gauge(resource=resource()), append_ms=10_000)
    fleet.look(10_000 + TTL_MS)
    assert fleet.shown(UP) == {"a": 1}
    fleet.look(10_001 + TTL_MS)
    assert fleet.shown(UP) == {"a": 0}


def test_a_stopped_producer_is_exposed_longer_than_its_series_and_then_removed() -> None:
    fleet = Fleet()
    fleet.send(gauge(resource=resource(host_name="n1")), append_ms=10_000)
    fleet.look(10_000)
    removed, _ = fleet.store.expire({0: 10_001})
    fleet.look(10_001 + TTL_MS)
    assert removed == 1
    assert fleet.shown(UP) == {"a": 0}
    assert fleet.info() == []
    fleet.look(10_001 + 2 * TTL_MS)
    assert page(fleet.store) == ""


def test_a_producer_that_comes_back_is_up_again() -> None:
    fleet = Fleet()
    fleet.send(gauge(resource=resource()), append_ms=10_000)
    fleet.look(10_000)
    fleet.store.expire({0: 10_001})
    fleet.look(10_001 + 2 * TTL_MS)
    fleet.send(gauge(resource=resource()), append_ms=1_000_000)
    fleet.look(1_000_000)
    assert fleet.shown(UP) == {"a": 1}
    assert fleet.shown(AGE) == {"a": 0}


def test_a_lag_of_the_bridge_is_no_silence_of_the_producer() -> None:
    fleet = Fleet(partitions=2)
    fleet.send(gauge(resource=resource("a")), append_ms=10_000, partition=0)
    fleet.send(gauge(resource=resource("b")), append_ms=900_000, partition=1)
    fleet.look(10_000, 900_000)
    assert fleet.shown(UP) == {"a": 1, "b": 1}


def test_producers_go_with_their_partition_unless_they_have_series_in_another() -> None:
    fleet = Fleet(partitions=2)
    fleet.send(gauge(resource=resource("a", host_name="n1")), append_ms=10_000, partition=0)
    fleet.send(gauge("other", resource=resource("b", host_name="n2")), append_ms=9_000, partition=1)
    fleet.send(gauge(resource=resource("b", host_name="n2")), append_ms=10_000, partition=0)
    fleet.look(10_000, 10_000)
    removed, _ = fleet.store.drop_partition(0)
    assert removed == 2
    assert fleet.shown(UP) == {}
    fleet.look(10_000, 10_000)
    assert fleet.shown(UP) == {"b": 1}
    assert [one["host_name"] for one in fleet.info()] == ["n2"]


def test_producers_of_a_partition_that_is_still_hidden_are_hidden() -> None:
    fleet = Fleet()
    fleet.store.expose(0, exposed=False)
    fleet.send(gauge(resource=resource(host_name="n1")), append_ms=10_000)
    fleet.look(10_000)
    assert page(fleet.store) == ""
    fleet.store.expose(0, exposed=True)
    assert fleet.shown(UP) == {"a": 1}


def test_who_has_no_name_is_no_producer() -> None:
    fleet = Fleet()
    fleet.send(gauge(resource=(("host.name", "n1"),)), append_ms=10_000)
    fleet.look(10_000)
    assert fleet.shown(UP) == {}
    assert fleet.info() == []


def test_series_of_producers_beyond_the_limit_are_exposed_and_counted() -> None:
    fleet = Fleet(SeriesStore(SeriesLimits(), producers=ProducerRules(most=2)))
    outcomes = fleet.send(*(gauge(resource=resource(str(i))) for i in range(5)), append_ms=10_000)
    fleet.look(10_000)
    assert outcomes[STORED] == 5
    assert len(fleet.shown("some_gauge")) == 5
    assert fleet.shown(UP) == {"0": 1, "1": 1}
    assert fleet.store.occupancy().unlisted == 3
    assert fleet.store.occupancy().used["producers"] == 1


def test_ended_producers_leave_their_place_in_a_full_table_to_new_ones() -> None:
    fleet = Fleet(SeriesStore(SeriesLimits(), producers=ProducerRules(most=2, ttl_ms=TTL_MS)))
    for i in range(6):  # a pod, its end one time-to-live later, and the end of the series about it
        now_ms = 10_000 + i * 10 * TTL_MS
        fleet.send(gauge(resource=resource(str(i))), append_ms=now_ms)
        fleet.look(now_ms)
        assert fleet.shown(UP) == {str(i): 1}
        fleet.look(now_ms + 3 * TTL_MS)
        fleet.store.expire({0: now_ms + 3 * TTL_MS})


def test_a_new_producer_in_the_row_of_an_ended_one_has_none_of_its_attributes() -> None:
    fleet = Fleet(SeriesStore(SeriesLimits(), producers=ProducerRules(most=1, ttl_ms=TTL_MS)))
    fleet.send(gauge(resource=resource("a", host_name="n1")), append_ms=10_000)
    fleet.look(10_000 + 3 * TTL_MS)
    fleet.store.expire({0: 10_001})
    fleet.send(gauge(resource=resource("b", os_type="linux")), append_ms=10_000 + 3 * TTL_MS)
    assert fleet.info() == [{"job": "api", "instance": "b", "os_type": "linux"}]


def test_a_new_producer_in_the_row_of_one_that_left_with_its_partition_has_its_own_interval() -> None:
    fleet = Fleet(SeriesStore(SeriesLimits(), producers=ProducerRules(most=1, ttl_ms=TTL_MS)), partitions=2)
    for append_ms in (10_000, 110_000, 210_000):
        fleet.send(gauge(resource=resource("a")), append_ms=append_ms)
        fleet.look(append_ms, append_ms)
    fleet.store.drop_partition(0)
    for append_ms in (211_000, 212_000, 213_000):
        fleet.send(gauge(resource=resource("b")), append_ms=append_ms, partition=1)
        fleet.look(append_ms, append_ms)
    assert fleet.shown(UP) == {"b": 1}
    fleet.look(220_000, 220_000)
    assert fleet.shown(UP) == {"b": 0}


def test_a_producer_whose_refused_series_are_tried_again_keeps_its_row() -> None:
    store = SeriesStore(SeriesLimits(series=5), producers=ProducerRules(most=2, ttl_ms=TTL_MS))
    fleet = Fleet(store)
    first = [gauge(resource=resource("a"), attributes=(("i", str(i)),)) for i in range(5)]
    fleet.send(*first, append_ms=10_000)
    assert fleet.send(gauge(resource=resource("b")), append_ms=20_000)[SERIES_LIMIT] == 1
    fleet.store.expire({0: 15_000})  # removes the series of a; that of b may be admitted with its next point
    fleet.send(gauge(resource=resource("c")), append_ms=21_000)
    fleet.look(21_000)
    assert fleet.shown(UP) == {"b": 1, "c": 1}


# target_info


def test_target_info_comes_with_the_first_series_and_goes_with_the_last() -> None:
    fleet = Fleet()
    fleet.send(gauge(resource=resource(host_name="n1", os_type="linux")), append_ms=10_000)
    assert fleet.info() == [{"job": "api", "instance": "a", "host_name": "n1", "os_type": "linux"}]
    assert "# TYPE target_info gauge\n" in page(fleet.store)
    fleet.store.expire({0: 10_001})
    fleet.look(10_001)
    assert fleet.info() == []


def test_target_info_stays_when_its_resource_also_writes_metrics_of_the_catalogue() -> None:
    fleet = Fleet()
    mine = resource(host_name="n1")
    fleet.send(gauge(resource=mine), gauge("DCGM_FI_DEV_GPU_TEMP", resource=mine), append_ms=10_000)
    fleet.look(10_000)
    assert [one["host_name"] for one in fleet.info()] == ["n1"]


def test_target_info_of_two_resources_with_one_job_and_instance_is_one_the_same_whichever_came_first() -> None:
    one, other = resource(host_name="n1", process_pid="7"), resource(host_name="n1", process_pid="12", os_type="linux")
    pages = []
    for order in ((one, other), (other, one)):
        fleet = Fleet()
        for each in order:
            fleet.send(gauge(f"from.{dict(each)['process.pid']}", resource=each), append_ms=10_000)
        [info] = fleet.info()
        pages.append(info)
    labels = {"job": "api", "instance": "a", "host_name": "n1", "os_type": "linux", "process_pid": "7"}
    assert pages == [labels, labels]


def test_target_info_forgets_a_resource_that_has_gone() -> None:
    fleet = Fleet()
    fleet.send(gauge("old", resource=resource(service_version="2")), append_ms=10_000)
    fleet.send(gauge("new", resource=resource(service_version="1")), append_ms=20_000)
    assert [one["service_version"] for one in fleet.info()] == ["2"]
    fleet.store.expire({0: 15_000})
    fleet.look(20_000)
    assert [one["service_version"] for one in fleet.info()] == ["1"]


def test_an_attribute_cannot_pose_as_job_in_target_info() -> None:
    fleet = Fleet()
    fleet.send(gauge(resource=resource(job="mine")), append_ms=10_000)
    assert fleet.info() == [{"job": "api", "instance": "a", "exported_job": "mine"}]


def test_target_info_of_a_foreign_producer_is_kept_unchanged() -> None:
    fleet = Fleet()
    mine = {"job": "api", "instance": "a", "host_name": "n1"}
    stranger = gauge("target.info", resource=(), attributes=sorted(mine.items()))
    fleet.send(stranger, append_ms=10_000)
    fleet.send(gauge(resource=resource(host_name="n1")), append_ms=10_000)
    fleet.look(10_000)
    assert fleet.info() == [mine]
    assert fleet.store.expire({0: 10_001})[0] == 2
    assert fleet.info() == []


def test_a_foreign_producer_cannot_write_the_bridges_metrics_of_producers() -> None:
    fleet = Fleet(SeriesStore(SeriesLimits(), producers=ProducerRules(), reserved=frozenset({UP})))
    fleet.store.expose(0, exposed=True)
    outcomes = fleet.send(gauge("kernelcast.producer.up", resource=resource("a")), append_ms=10_000)
    assert outcomes[TYPE_CONFLICT] == 1
    fleet.send(gauge(resource=resource("a")), append_ms=10_000)
    fleet.look(10_000)
    assert fleet.shown(UP) == {"a": 1}


# limits


def test_one_producer_over_its_limit_leaves_room_to_the_others_and_is_named() -> None:
    fleet = Fleet(SeriesStore(SeriesLimits(series_per_producer=3), producers=ProducerRules()))
    loud = [gauge(resource=resource("loud"), attributes=(("i", str(i)),)) for i in range(10)]
    outcomes = fleet.send(*loud, gauge(resource=resource("quiet")), append_ms=10_000)
    fleet.look(10_000)
    assert outcomes[STORED] == 4
    assert outcomes[PRODUCER_LIMIT] == 7
    occupancy = fleet.store.occupancy()
    assert occupancy.refused == {"series_limit": 0, "metric_limit": 0, "producer_limit": 7}
    assert occupancy.refused_of == {("api", "loud", "producer_limit"): 7}
    assert occupancy.used["series_per_producer"] == 1


def test_room_that_a_producers_series_leave_is_given_to_its_next_ones() -> None:
    fleet = Fleet(SeriesStore(SeriesLimits(series_per_producer=1), producers=ProducerRules()))
    fleet.send(gauge("old", resource=resource()), append_ms=10_000)
    assert fleet.send(gauge("new", resource=resource()), append_ms=20_000)[PRODUCER_LIMIT] == 1
    fleet.store.expire({0: 15_000})
    assert fleet.send(gauge("new", resource=resource()), append_ms=21_000)[STORED] == 1


def test_a_limit_that_is_near_can_be_alerted_on_before_it_is_reached() -> None:
    fleet = Fleet(SeriesStore(SeriesLimits(series=10, series_per_metric=5)))
    fleet.store.expose(0, exposed=True)
    fleet.send(*(gauge(attributes=(("i", str(i)),)) for i in range(4)), append_ms=10_000)
    assert fleet.store.occupancy().used["series"] == pytest.approx(0.4)
    assert fleet.store.occupancy().used["series_per_metric"] == pytest.approx(0.8)


def test_refusals_by_limits_are_among_the_bridges_own_metrics_and_start_at_zero() -> None:
    fleet = Fleet(SeriesStore(SeriesLimits(series=1), producers=ProducerRules()))
    registry = CollectorRegistry()
    registry.register(OccupancyCollector(fleet.store.occupancy))
    assert registry.get_sample_value("kernelcast_bridge_type_conflicts_total", {"metric": "other"}) == 0
    assert registry.get_sample_value("kernelcast_bridge_refused_series", {"cause": "series_limit"}) == 0
    assert fleet.send(*_series(3), append_ms=10_000)[SERIES_LIMIT] == 2
    fleet.look(10_000)
    labels = {"job": "api", "instance": "a", "cause": "series_limit"}
    assert registry.get_sample_value("kernelcast_producer_refused_series", labels) == 2
    assert registry.get_sample_value("kernelcast_bridge_limit_used_ratio", {"limit": "series"}) is not None


def _series(count: int) -> Sequence[SeriesIdentity]:
    return [gauge(resource=resource(), attributes=(("i", str(i)),)) for i in range(count)]


# conflicts


def test_a_metric_of_another_kind_is_kept_out_and_counted_by_name() -> None:
    store = exposed_store()
    fleet = Fleet(store)
    fleet.send(gauge("load"), append_ms=10_000)
    histogram = counter("load", type=PointType.HISTOGRAM, temporality=Temporality.CUMULATIVE, monotonic=False)
    assert fleet.send(histogram, append_ms=10_000)[TYPE_CONFLICT] == 1
    assert store.occupancy().type_conflicts == {"load": 1}


def test_conflicts_of_very_many_metrics_are_counted_together() -> None:
    fleet = Fleet(exposed_store())
    histogram: dict[str, Any] = {"type": PointType.HISTOGRAM, "temporality": Temporality.CUMULATIVE}
    fleet.send(*(gauge(f"m{i}") for i in range(150)), append_ms=10_000)
    fleet.send(*(gauge(f"m{i}", attributes=(("a", "b"),), **histogram) for i in range(150)), append_ms=10_000)
    conflicts = fleet.store.occupancy().type_conflicts
    assert len(conflicts) == 101
    assert conflicts["other"] == 50


def test_the_first_help_of_a_metric_stays_and_others_are_counted() -> None:
    fleet = Fleet(exposed_store())
    fleet.send(gauge("load", description="the first"), append_ms=10_000)
    fleet.send(gauge("load", description="another", attributes=(("a", "b"),)), append_ms=10_000)
    assert page(fleet.store).startswith("# HELP load the first\n# TYPE load gauge\n")
    assert page(fleet.store).count("# HELP") == 1
    assert [name for name, _ in samples(page(fleet.store))] == ["load", "load"]
    assert fleet.store.occupancy().help_conflicts == 1


def test_a_fleet_that_arrives_at_once_is_known_after_one_check() -> None:
    fleet = Fleet()
    fleet.send(*(gauge(resource=resource(str(i))) for i in range(2 * NEW_PRODUCERS_PER_LOCK + 1)), append_ms=10_000)
    fleet.look(10_000)
    assert len(fleet.shown(UP)) == 2 * NEW_PRODUCERS_PER_LOCK + 1

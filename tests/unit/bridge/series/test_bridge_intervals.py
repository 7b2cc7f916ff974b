import math
import random
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.bridge.fleet import Known, Point, Site, come_from, counter, decoded, exposed_store, values

from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.columns import PointRules
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.columnar import Sample
from kernelcast.wire.catalogue import kernel

P0, P1 = ("kernels", 0), ("kernels", 1)
LAUNCHES = "cuda_kernel_launches_total"
TTL_SECONDS = 300
FLOOR_SECONDS = 60


def launches(site: Site, name: str) -> Sample:
    return Sample(kernel.LAUNCHES, (("kernel", name),), site.clock.now_ns(), 1, 1)


def fleet(*partitions: tuple[str, int]) -> Site:
    site = Site(ttl_seconds=TTL_SECONDS)
    site.kafka.at_once = 1000
    site.kafka.assign(site.intake, *partitions)
    return site


def live(
    site: Site, seconds: int, due: Callable[[int], bool], *, name: str = "gemm", pulse: int = 0, step: int = 1
) -> list[int]:
    """Let time pass; a series is written when due, another at each step to partition `pulse`; when it showed.

    A step of more than 6 s would be a pause of the process, after which nothing expires for a while.
    """
    shown = []
    for second in range(0, seconds, step):
        site.clock.seconds += step
        if due(second):
            site.export(0, launches(site, name))
        site.export(pulse, launches(site, "pulse"))
        site.intake.step()
        if site.store.states()["exposed"] == 2:
            shown.append(second)
    return shown


@pytest.mark.parametrize("interval", [1, 10, 60, 120])
def test_a_steady_series_shows_all_the_time_and_misses_of_less_than_five_intervals_are_forgiven(interval: int) -> None:
    missed = range(15, 15 + min(4, TTL_SECONDS // interval - 1))
    seconds, step = 25 * interval, {1: 1, 10: 2}.get(interval, 6)

    def due(second: int) -> bool:
        return second % interval == 0 and second // interval not in missed

    assert live(fleet(P0), seconds, due, step=step) == list(range(0, seconds, step))


def test_a_series_whose_points_come_in_bursts_shows_all_the_time() -> None:
    due = {start + burst for start in range(0, 1440, 120) for burst in range(0, 10, 2)}
    assert live(fleet(P0), 1440, due.__contains__, step=2) == list(range(0, 1440, 2))


def test_a_series_that_jitters_shows_all_the_time() -> None:
    rng = random.Random(3)

    def times() -> Iterator[int]:
        second = 0
        while second < 2000:
            yield second
            second += rng.randrange(5, 101, 5)

    assert live(fleet(P0), 2000, set(times()).__contains__, step=5) == list(range(0, 2000, 5))


def test_a_series_that_stops_ends_after_five_of_its_intervals_and_a_new_one_after_the_time_to_live() -> None:
    def lasted(stops: int) -> int:
        return max(live(fleet(P0), stops + 400, lambda second: second % 20 == 0 and second <= stops, step=2)) - stops

    assert 100 <= lasted(600) <= 100 + 12
    assert TTL_SECONDS <= lasted(0) <= TTL_SECONDS + 12


def test_no_series_ends_before_the_floor_however_often_it_came() -> None:
    last = max(live(fleet(P0), 700, lambda second: second <= 600)) - 600
    assert FLOOR_SECONDS <= last <= FLOOR_SECONDS + 12


def test_a_pause_that_was_once_is_forgotten() -> None:
    def due(second: int) -> bool:
        return second % 5 == 0 and not 600 < second < 690 and second <= 2000

    last = max(live(fleet(P0), 2100, due, step=5)) - 2000
    assert last <= FLOOR_SECONDS + 12


def test_when_kafka_is_silent_altogether_series_stay_for_the_time_to_live() -> None:
    site = fleet(P0)
    live(site, 600, lambda second: second % 10 == 0, step=2)
    for second in range(TTL_SECONDS + 15):
        site.clock.seconds += 1
        site.intake.step()
        assert second > TTL_SECONDS - 10 or len(values(site.store, LAUNCHES)) == 2
    assert values(site.store, LAUNCHES) == []


def test_a_partition_that_falls_silent_while_others_are_heard_loses_its_series_after_their_intervals() -> None:
    site = fleet(P0, P1)
    last = max(live(site, 700, lambda second: second % 10 == 0 and second <= 600, pulse=1, step=2)) - 600
    assert FLOOR_SECONDS <= last <= FLOOR_SECONDS + 12


def test_a_partition_that_lags_behind_the_others_keeps_its_series() -> None:
    site = fleet(P0, P1)
    live(site, 600, lambda second: second % 10 == 0, pulse=1, step=2)
    site.export(0, launches(site, "gemm"))
    del site.kafka.reading[P0]
    live(site, 250, lambda _: False, pulse=1, step=2)
    assert len(values(site.store, LAUNCHES)) == 2
    assert site.own("kernelcast_bridge_removed_series_total", cause="expired") == 0


def test_a_suspended_bridge_first_reads_the_missed_messages() -> None:
    site = fleet(P0, P1)
    live(site, 600, lambda second: second % 10 == 0, pulse=1, step=2)
    site.clock.seconds += 200
    site.export(1, launches(site, "pulse"))
    site.intake.step()
    assert site.store.states()["exposed"] == 2
    assert live(site, 100, lambda second: second % 10 == 0, pulse=1) == list(range(100))


def test_reading_again_exposes_live_series_and_ends_ended_ones() -> None:
    site = fleet()
    for second in range(1200):
        site.clock.seconds += 1
        if second % 10 == 0:
            site.export(0, launches(site, "gemm"))
            if second <= 1000:
                site.export(0, launches(site, "gone"))
    site.kafka.at_once = 7
    site.kafka.assign(site.intake, P0)
    site.read_all()
    assert len(values(site.store, LAUNCHES)) == 1
    live(site, 120, lambda second: second % 10 == 0)
    site.intake.step()
    assert len(values(site.store, LAUNCHES)) == 2


class SlowInterval:
    """The longest gap so far, forgotten over eight times its length, in plain arithmetic."""

    def __init__(self, rules: PointRules) -> None:
        self.rules, self.interval_ms, self.append_ms = rules, 0, -1

    def heard_at(self, append_ms: int) -> None:
        if self.append_ms >= 0 and append_ms > self.append_ms:
            gap = append_ms - self.append_ms
            known = self.interval_ms or self.rules.unlearned_ms
            self.interval_ms = max(gap, known - math.floor(gap / 8), 1)
        self.append_ms = max(self.append_ms, append_ms)

    def outlived(self, heard_ms: int) -> bool:
        patience = max(self.rules.floor_ms, self.rules.missed_intervals * self.interval_ms)
        return self.interval_ms > 0 and self.append_ms < heard_ms - patience


rules = st.builds(PointRules, st.just(10**9), st.integers(1, 5_000), st.integers(2, 6), st.integers(0, 2_000))


@given(rules, st.lists(st.integers(0, 3_000), min_size=1, max_size=30), st.integers(-10_000, 40_000))
def test_the_store_ends_a_series_when_plain_arithmetic_does(
    chosen: PointRules, gaps: list[int], silence_ms: int
) -> None:
    store, slow, append_ms = exposed_store(rules=chosen), SlowInterval(chosen), 50_000
    known = Known(lambda _: counter())
    for offset, gap in enumerate(gaps):
        append_ms += gap - 300
        slow.heard_at(append_ms)
        store.apply(decoded([Point(0, offset, offset + 1)]), come_from(offset=offset, append_ms=append_ms), known)
    heard_ms = append_ms + silence_ms
    removed, _ = store.expire({}, {0: heard_ms})
    assert (removed == 1) == slow.outlived(heard_ms)


def test_lag_between_partitions_that_are_read_again_is_no_interval_of_a_series() -> None:
    store, known = SeriesStore(SeriesLimits()), Known(lambda _: counter())
    for partition, second in ((0, 10), (0, 20), (1, 60), (0, 30)):  # partition 1 before the rest of partition 0
        store.apply(decoded([Point(0, second, second * 10**9)]), come_from(partition, second, second * 1000), known)
    for partition in (0, 1):
        store.expose(partition, exposed=True)
    removed, _ = store.expire({}, {1: (60 + FLOOR_SECONDS) * 1000 + 1})
    assert removed == 1

"""The bridge skips messages when it is far behind."""

from itertools import pairwise

import pytest
from confluent_kafka import TopicPartition
from tests.support.bridge.fleet import Site, page, values
from tests.support.runtime.kafka_record import Record

from kernelcast.bridge.intake.parts import IntakePolicy
from kernelcast.columnar import Sample
from kernelcast.wire.catalogue import kernel

P0 = ("kernels", 0)
LAUNCHES = "cuda_kernel_launches_total"
POLICY = IntakePolicy(ttl_seconds=60, max_lag_seconds=120)


def overloaded(policy: IntakePolicy = POLICY, *, seconds: int = 600) -> Site:
    """One export a second, of a busy series and every tenth of a slow one, of which only the first has been read."""
    site = Site(policy=policy)
    site.kafka.assign(site.intake, P0)
    for second in range(seconds):
        names = ["busy", "slow"] if second % 10 == 0 else ["busy"]
        points = [Sample(kernel.LAUNCHES, (("kernel", name),), second + 1, second + 1, 1) for name in names]
        site.export(0, *points)
        if second == 0:
            site.read_all()
        site.clock.seconds += 1
    return site


def skipped(site: Site) -> float | None:
    return site.own("kernelcast_bridge_skipped_messages_total", topic="kernels")


def test_too_far_behind_it_jumps_to_the_tail_and_says_how_much_it_skipped() -> None:
    site = overloaded()
    site.intake.step()
    site.intake.step()
    assert skipped(site) == pytest.approx(570, abs=3)
    site.read_all()
    assert sorted(values(site.store, LAUNCHES)) == [591, 600]


def test_it_jumps_at_once_though_the_last_answer_to_a_fetch_is_as_old_as_the_pause() -> None:
    site = overloaded()
    site.kafka.told_high = 3
    site.intake.step()
    site.intake.step()
    assert skipped(site) == pytest.approx(570, abs=3)


def test_it_reads_between_the_queries_for_partitions_that_it_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query of a consumer waits behind the fetch of its connection: half a second each on a quiet Kafka."""
    site = Site(policy=POLICY)
    partitions = [("kernels", number) for number in range(8)]
    site.kafka.assign(site.intake, *partitions)
    for second in range(300):
        for _, number in partitions:
            site.export(number, Sample(kernel.LAUNCHES, (("kernel", f"k{number}"),), second + 1, second + 1, 1))
        if second == 0:
            site.read_all()
        site.clock.seconds += 1
    watermarks, consume, read_at = site.kafka.watermarks, site.kafka.consume, [site.clock.seconds]

    def slow(partition: TopicPartition) -> tuple[int, int]:
        site.clock.seconds += 2
        return watermarks(partition)

    def noted(*arguments: object) -> tuple[list[Record], list[object]]:
        read_at.append(site.clock.seconds)
        return consume(*arguments)

    monkeypatch.setattr(site.kafka, "watermarks", slow)
    monkeypatch.setattr(site.kafka, "consume", noted)
    for _ in range(60):
        site.clock.seconds += 0.5
        site.intake.step()
    assert max(later - earlier for earlier, later in pairwise(read_at)) <= 3
    assert skipped(site) == pytest.approx(8 * 270, rel=0.1)


def test_no_counter_falls_and_no_series_that_lives_vanishes_when_it_jumps() -> None:
    site = overloaded()
    seen: dict[str, float] = {}
    for _ in range(60):
        site.clock.seconds += 0.1
        site.intake.step()
        for line in page(site.store).splitlines():
            if line.startswith(LAUNCHES):
                name, _, value = line.rpartition(" ")
                assert float(value) >= seen.get(name, 0)
                seen[name] = float(value)
        assert len(values(site.store, LAUNCHES)) == 2
    assert sorted(seen.values()) == [591, 600]


def test_what_ended_in_the_part_that_was_skipped_expires_after_the_jump() -> None:
    site = Site(policy=POLICY)
    site.kafka.assign(site.intake, P0)
    site.export(0, Sample(kernel.LAUNCHES, (("kernel", "ended"),), 1, 7, 1))
    site.read_all()
    for second in range(600):
        site.clock.seconds += 1
        site.export(0, Sample(kernel.LAUNCHES, (("kernel", "busy"),), second + 1, second + 1, 1))
    site.read_all()
    site.clock.seconds += 5
    site.intake.step()
    assert values(site.store, LAUNCHES) == [600]


def test_a_partition_that_is_catching_up_is_hidden_until_the_end_it_jumped_towards() -> None:
    behind = overloaded()
    site = Site(kafka=behind.kafka, clock=behind.clock, policy=POLICY)
    site.kafka.assign(site.intake, P0)
    site.kafka.reading[P0] = 5  # as if it had been assigned ten minutes ago, and had hardly read anything
    site.intake.ownership.owned()[0].position = 5
    site.intake.step()
    site.clock.seconds += 2
    site.intake.step()
    assert skipped(site)
    assert page(site.store) == ""
    site.read_all()
    assert values(site.store, LAUNCHES)[0] == 600


def test_without_a_limit_nothing_is_skipped() -> None:
    site = overloaded(IntakePolicy(ttl_seconds=60, max_lag_seconds=0))
    site.read_all()
    assert skipped(site) == 0


def test_a_wrong_clock_here_skips_nothing() -> None:
    site = Site(policy=POLICY)
    site.clock.offset_ns = 3_600 * 10**9
    site.kafka.assign(site.intake, P0)
    now_ms = round(site.clock.seconds * 1e3)
    for second in range(20):
        sample = Sample(kernel.LAUNCHES, (("kernel", "a"),), second + 1, second + 1, 1)
        site.export(0, sample, append_ms=now_ms + second * 1000)
    site.read_all()
    assert skipped(site) == 0
    assert site.own("kernelcast_bridge_messages_total", topic="kernels") == 20

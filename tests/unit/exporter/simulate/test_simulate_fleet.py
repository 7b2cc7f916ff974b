"""The simulated fleet: the same for the same seed, every fault visible in its own signal and nowhere else."""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.exporter.simulate import BACKGROUNDS, FAULTS, SimulatedFleet, SimulationSettings, parse
from kernelcast.exporter.simulate.durations import bucket_indices
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.exporter.totals.report import SourceBatch
from kernelcast.wire.catalogue import Metric, kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.histogram import bucket_index
from kernelcast.wire.kernels import COLLECTIVE, kernel_class

SECOND = 1_000_000_000
START = 1_760_000_000 * SECOND


WATCHED = (
    device.GPU_TEMP,
    device.GPU_UTIL,
    device.CLOCK_EVENT_REASONS,
    device.FB_USED,
    device.FB_FREE,
    device.TOTAL_ENERGY,
    device.POWER_USAGE,
    device.SM_CLOCK,
    device.PCIE_LINK_WIDTH,
    device.PCIE_MAX_LINK_WIDTH,
    device.ECC_SBE_VOLATILE,
    device.ECC_DBE_VOLATILE,
    device.UNCORRECTABLE_REMAPPED_ROWS,
)
KEPT = frozenset(map(id, WATCHED))
"""Rows of the catalogue exist once; to compare their fields would take longer than to simulate the fleet."""


SIZES: Mapping[str, Any] = {"gpus": 4, "kernels": 8, "rate": 400.0}


class Watched:
    """A fleet that was polled every ten seconds, with its reports."""

    def __init__(self, *faults: str, seconds: int = 600, every: float = 10.0, **numbers: Any) -> None:
        chosen = tuple(
            parse(text, FAULTS if text.partition(":")[0] in FAULTS else BACKGROUNDS, option="--fault")
            for text in faults
        )
        self.fleet = SimulatedFleet(
            SimulationSettings(**{**SIZES, "step_seconds": min(every, 5.0), **numbers}, faults=chosen), start_ns=START
        )
        self.batches: list[SourceBatch] = []
        for step in range(1, int(seconds / every) + 1):
            batch = self.fleet.poll(START + round(step * every * SECOND))
            # Tens of thousands of samples would be kept, and the garbage collector would look at each again and again.
            self.batches.append(replace(batch, samples=tuple(one for one in batch.samples if id(one.metric) in KEPT)))

    def series(self, metric: Metric, gpu: int = 0) -> list[float]:
        return [
            float(sample.value)  # type: ignore[arg-type]
            for batch in self.batches
            for sample in batch.samples
            if sample.metric is metric and dict(sample.attributes)["gpu"] == str(gpu)
        ]

    def means(self, gpu: int, wanted: Callable[[str], bool]) -> list[float]:
        """Mean duration in each interval, over the kernels whose signature is wanted, from one process's totals."""
        signatures: dict[int, str] = {}
        last = (0, 0)
        result = []
        for batch in self.batches:
            for report in batch.reports:
                if report.device.gpu != str(gpu):
                    continue
                signatures |= {name.kernel: name.signature for name in report.names}
                rows = [row for row in report.rows if wanted(signatures[row.kernel])]
                now = (sum(row.launches for row in rows), sum(row.durations.sum_ns for row in rows))
                if now[0] > last[0]:
                    result.append((now[1] - last[1]) / (now[0] - last[0]))
                last = now
        return result

    def truth(self, kind: str) -> list[dict[str, Any]]:
        return [record for record in self.fleet.ground_truth() if record["fault"] == kind]


def first(values: list[float], condition: Callable[[float], bool], every: float = 10.0) -> float:
    return next((number + 1) * every for number, value in enumerate(values) if condition(value))


def growth(values: list[float]) -> float:
    return values[-1] / values[0]


def is_gemm(signature: str) -> bool:
    return "gemm" in signature


def is_copy(signature: str) -> bool:
    return "direct_copy" in signature


def is_collective(signature: str) -> bool:
    return kernel_class(signature) == COLLECTIVE


@pytest.mark.slow
def test_same_seed_and_start_give_the_same_fleet_and_another_seed_another() -> None:
    faults = ("thermal-drift:gpu=1", "restart:start=2m")
    one, same = Watched(*faults, seconds=200, seed=7), Watched(*faults, seconds=200, seed=7)
    other = Watched(*faults, seconds=200, seed=8)
    assert one.batches == same.batches
    assert one.fleet.ground_truth() == same.fleet.ground_truth()
    assert one.batches != other.batches


@pytest.mark.slow
def test_when_it_is_polled_changes_nothing() -> None:
    often, seldom = (Watched(seconds=120, every=every, step_seconds=1.0) for every in (1, 60))
    assert often.batches[-1].samples == seldom.batches[-1].samples
    totals = [
        [(row.kernel, row.launches, row.durations) for report in watched.batches[-1].reports for row in report.rows]
        for watched in (often, seldom)
    ]
    assert totals[0] == totals[1]


def test_samples_are_marked_simulated_and_never_from_the_future() -> None:
    fleet = SimulatedFleet(SimulationSettings(), start_ns=START, speed=7.0)
    for now_ns in (START + 1, START + SECOND, START + 3 * SECOND + 12345):
        batch = fleet.poll(now_ns)
        assert all(sample.time_ns <= now_ns for sample in batch.samples)
        assert all(dict(sample.attributes)["source"] == "simulated" for sample in batch.samples)
        assert all(report.process.source == "simulated" for report in batch.reports)


def test_at_sixty_times_the_speed_a_minute_passes_in_a_second() -> None:
    fleet = SimulatedFleet(SimulationSettings(), start_ns=START, speed=60.0, duration_seconds=120)
    fleet.poll(START + SECOND)
    assert fleet.position_seconds == 60
    assert fleet.poll(START + 5 * SECOND).done
    assert fleet.position_seconds == 120


def test_launches_follow_the_rate() -> None:
    watched = Watched(seconds=100, rate=500.0)
    launches = sum(row.launches for report in watched.batches[-1].reports for row in report.rows)
    assert launches == pytest.approx(4 * 500 * 100, rel=0.01)


@pytest.mark.slow
def test_a_quiet_fleet_stays_quiet() -> None:
    watched = Watched(seconds=900)
    assert max(watched.series(device.GPU_TEMP)) < 70
    assert set(watched.series(device.CLOCK_EVENT_REASONS)) == {0}
    assert growth(watched.series(device.FB_USED)) == 1
    assert growth(watched.means(0, is_gemm)) == pytest.approx(1, abs=0.05)
    assert watched.fleet.ground_truth() == []


def test_device_time_and_utilisation_agree_and_energy_is_power_over_time() -> None:
    watched = Watched(seconds=300)
    counters = watched.batches[-1].reports[0].counters
    assert counters is not None
    states = dict(counters.device_time)
    assert sum(states.values()) == 300 * SECOND
    busy = (states["compute"] + states["collective"]) / (300 * SECOND)
    assert busy == pytest.approx(sum(watched.series(device.GPU_UTIL)) / 30 / 100, abs=0.03)
    energy_j = watched.series(device.TOTAL_ENERGY)[-1] / 1000
    assert energy_j / 300 == pytest.approx(sum(watched.series(device.POWER_USAGE)) / 30, rel=0.05)


@pytest.mark.slow
def test_thermal_drift_heats_one_gpu_until_it_throttles_and_its_compute_kernels_lengthen() -> None:
    watched = Watched("thermal-drift:gpu=1,start=60s,rate=6", every=1, gpus=2)
    temperature = watched.series(device.GPU_TEMP, gpu=1)
    assert max(watched.series(device.GPU_TEMP, gpu=0)) < 70
    (record,) = watched.truth("thermal-drift")
    # The sample is rounded to whole degrees, so it reaches the limit up to half a degree, 5 s, before the truth.
    reached = first(temperature, lambda value: value >= 87, every=1)
    assert reached <= record["breach_seconds"] <= reached + 6
    assert record["breach_ns"] == START + record["breach_seconds"] * SECOND
    assert record["onset_ns"] == START + 60 * SECOND
    assert record["labels"]["gpu"] == "1"
    reasons = watched.series(device.CLOCK_EVENT_REASONS, gpu=1)
    assert int(reasons[int(record["breach_seconds"]) - 1]) & 0x20
    assert not any(reasons[: int(record["breach_seconds"]) - 1])
    assert int(max(reasons)) & 0x40
    assert min(watched.series(device.SM_CLOCK, gpu=1)) < 1980
    assert growth(watched.means(1, is_gemm)) > 1.1
    assert growth(watched.means(1, is_copy)) == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_however_long_cooling_fails_the_brakes_hold_the_temperature() -> None:
    watched = Watched("thermal-drift:gpu=1,start=0s,rate=60", seconds=1800, gpus=2)
    assert 87 < max(watched.series(device.GPU_TEMP, gpu=1)) <= 93


@pytest.mark.slow
def test_a_slowdown_lengthens_one_kernel_of_one_gpu_and_the_device_shows_nothing() -> None:
    watched = Watched("kernel-slowdown:gpu=2,kernel=0,start=300s,factor=1.5")
    assert growth(watched.means(2, is_gemm)) > 1.2  # two of the eight kernels are such, one of them slows down
    assert growth(watched.means(2, is_copy)) == pytest.approx(1, abs=0.05)
    assert growth(watched.means(1, is_gemm)) == pytest.approx(1, abs=0.05)
    assert set(watched.series(device.CLOCK_EVENT_REASONS, gpu=2)) == {0}
    (record,) = watched.truth("kernel-slowdown")
    assert record["breach_seconds"] == 300
    assert "gemm" in record["labels"]["kernel"]


@pytest.mark.slow
def test_a_slow_slowdown_breaches_when_it_passes_a_fifth() -> None:
    watched = Watched("kernel-slowdown:start=100s,factor=1.5,over=100s")
    (record,) = watched.truth("kernel-slowdown")
    assert record["breach_seconds"] == 140  # 1 + 0.5 * 40 / 100


@pytest.mark.slow
def test_a_leak_fills_memory_and_the_program_restarts_when_it_is_full() -> None:
    watched = Watched("memory-leak:gpu=1,start=60s,rate=18000", seconds=330, every=1, gpus=2)
    used = watched.series(device.FB_USED, gpu=1)
    assert set(watched.series(device.FB_USED, gpu=0)) == {used[0]}
    assert used[160] - used[100] == pytest.approx(18_000, abs=6)
    (record,) = watched.truth("memory-leak")
    total = used[0] + watched.series(device.FB_FREE, gpu=1)[0]
    assert record["breach_seconds"] == first(used, lambda value: value >= total, every=1)
    assert record["breach_seconds"] == pytest.approx(60 + (total - used[0]) / 300, abs=2)
    ended = [report for batch in watched.batches for report in batch.reports if report.final]
    assert {report.device.gpu for report in ended} == {"1"}


@pytest.mark.slow
def test_rising_load_saturates_the_gpu() -> None:
    watched = Watched("rising-load:start=60s,rate=20")
    (record, *_) = watched.truth("rising-load")
    utilisation = watched.series(device.GPU_UTIL)
    assert utilisation[0] == pytest.approx(60, abs=4)
    assert record["breach_seconds"] == pytest.approx(first(utilisation, lambda value: value >= 99), abs=20)
    # 60 % busy at first, 20 % more of it each minute: full after 60 s + 2/3 / 0.2 minutes.
    assert record["breach_seconds"] == pytest.approx(60 + 200, abs=25)


@pytest.mark.slow
def test_contention_lengthens_what_depends_on_memory_bandwidth_and_ends() -> None:
    watched = Watched("contention:gpu=0,start=200s,length=200s,factor=2")
    copies = watched.means(0, is_copy)
    assert copies[30] / copies[0] == pytest.approx(2, rel=0.05)
    assert copies[-1] / copies[0] == pytest.approx(1, rel=0.05)
    gemm = watched.means(0, is_gemm)
    assert gemm[30] / gemm[0] < 1.2
    (record,) = watched.truth("contention")
    assert (record["onset_seconds"], record["breach_seconds"]) == (200, 200)


@pytest.mark.slow
def test_a_straggler_computes_longer_and_its_peers_wait_in_their_collectives() -> None:
    watched = Watched("straggler:gpu=1,start=300s,factor=1.4")
    assert growth(watched.means(1, is_gemm)) == pytest.approx(1.4, rel=0.05)
    assert growth(watched.means(0, is_gemm)) == pytest.approx(1, rel=0.05)
    assert growth(watched.means(0, is_collective)) > 1.5
    assert growth(watched.means(1, is_collective)) < 1.1


def test_a_badly_tuned_kernel_registers_a_tunable_and_is_slower_than_its_peers_elsewhere() -> None:
    bad, good = Watched("bad-tuning", seconds=100), Watched(seconds=100)
    (claim,) = bad.batches[0].reports[0].tunables or ()
    assert (claim.name, claim.value, claim.kind) == ("block_size", "48", "block_size")
    assert "48" in claim.allowed
    assert good.batches[0].reports[0].tunables == ()
    name = bad.batches[0].reports[0].names[0]
    assert claim.kernels == (name.signature,)
    assert name.block == "48x1x1"
    assert bad.means(0, is_gemm)[0] > 1.3 * good.means(0, is_gemm)[0]


@pytest.mark.slow
def test_load_that_swings_with_the_day_is_back_after_it() -> None:
    watched = Watched("diurnal:amplitude=0.4,period=400s", seconds=400)
    utilisation = watched.series(device.GPU_UTIL)
    assert max(utilisation) > 75
    assert min(utilisation) < 45
    assert growth(watched.means(0, is_gemm)) == pytest.approx(1, abs=0.05)


@pytest.mark.slow
def test_hot_but_stable_is_hotter_than_its_peers_from_the_first_sample_and_never_throttles() -> None:
    watched = Watched("hot-but-stable:gpu=1,rise=15")
    hot, peer = watched.series(device.GPU_TEMP, gpu=1), watched.series(device.GPU_TEMP, gpu=0)
    assert hot[0] > peer[0] + 8
    assert max(hot) - min(hot) <= 3
    assert set(watched.series(device.CLOCK_EVENT_REASONS, gpu=1)) == {0}


@pytest.mark.slow
def test_a_chassis_that_warms_up_settles() -> None:
    temperatures = Watched("warm-up:gpu=1,rise=15,over=60s,start=60s").series(device.GPU_TEMP, gpu=1)
    assert temperatures[-1] - temperatures[0] == pytest.approx(15, abs=2)
    assert abs(temperatures[-1] - temperatures[-10]) <= 1


def test_a_warmer_day_heats_a_gpu_at_the_same_power() -> None:
    watched = Watched("diurnal-heat:amplitude=6,period=400s", seconds=400)
    temperatures, power = watched.series(device.GPU_TEMP), watched.series(device.POWER_USAGE)
    assert max(temperatures) - min(temperatures) >= 10
    assert max(power) / min(power) < 1.2


@pytest.mark.slow
def test_load_that_steps_up_stays_there() -> None:
    utilisation = Watched("load-step:start=300s,factor=1.4").series(device.GPU_UTIL)
    assert utilisation[10] == pytest.approx(60, abs=5)
    assert utilisation[-1] == pytest.approx(84, abs=5)


@pytest.mark.slow
def test_a_cache_fills_and_is_emptied() -> None:
    used = Watched("sawtooth-memory:gpu=0,height=16000,period=150s").series(device.FB_USED)
    falls = [earlier - later for earlier, later in itertools.pairwise(used) if earlier - later > 10_000]
    assert len(falls) == 4
    assert max(used) - min(used) == pytest.approx(16_000, rel=0.1)


@pytest.mark.slow
def test_spikes_and_slow_first_minutes_come_and_go() -> None:
    spiky = Watched("spikes:gpu=0,factor=3,period=100s,over=5s").means(0, is_gemm)
    usual = sorted(spiky)[len(spiky) // 2]
    assert sum(mean > 1.2 * usual for mean in spiky) == 6
    opening = Watched("slow-opening:gpu=0,factor=1.4,over=100s").means(0, is_gemm)
    assert opening[0] / opening[-1] == pytest.approx(1.4, rel=0.05)


@pytest.mark.slow
def test_a_deploy_changes_kernels_configurations_and_durations_in_a_new_process() -> None:
    watched = Watched("deploy:start=300s,factor=1.25")
    reports = [report for batch in watched.batches for report in batch.reports if report.device.gpu == "0"]
    before, after = reports[0], reports[-1]
    assert before.process.nonce != after.process.nonce
    assert after.process.start_ns == START + 300 * SECOND
    old = {row.kernel for row in before.rows}
    new = {row.kernel for row in after.rows}
    assert old - new
    assert old & new
    assert not {variant for _, variant in before.variants} & {variant for _, variant in after.variants}
    (record, *_) = watched.truth("deploy")
    assert not record["is_fault"]
    assert record["breach_ns"] is None


@pytest.mark.slow
def test_a_restart_takes_nothing_away_from_the_totals() -> None:
    watched = Watched("restart:start=300s,pause=5s")
    aggregator = Aggregator(max_kernels=None)
    launches = []
    for number, batch in enumerate(watched.batches):
        for report in batch.reports:
            aggregator.report(report)
        samples = [sample for group in aggregator.samples(START + number * SECOND) for sample in group.samples]
        launches.append(sum(s.value for s in samples if s.metric is kernel.LAUNCHES and isinstance(s.value, int)))
    assert launches == sorted(launches)
    assert launches[-1] == pytest.approx(4 * 400 * (600 - 5), rel=0.01)
    assert aggregator.counts.fallen == 0
    processes = {report.process.nonce for batch in watched.batches for report in batch.reports}
    assert len(processes) == 8


@pytest.mark.slow
def test_preallocated_memory_is_high_and_flat() -> None:
    used = Watched("preallocated-memory:share=0.95").series(device.FB_USED)
    assert len(set(used)) == 1
    assert used[0] > 0.9 * 81_559


def test_the_end_is_final() -> None:
    fleet = SimulatedFleet(SimulationSettings(gpus=2), start_ns=START, duration_seconds=10)
    batch = fleet.poll(START + 60 * SECOND)
    assert batch.done
    assert all(report.final for report in batch.reports)
    assert fleet.poll(START + 61 * SECOND) == SourceBatch(done=True)
    assert math.isinf(SimulatedFleet(SimulationSettings(), start_ns=START).length_seconds)


@pytest.mark.parametrize("duration_seconds", [0.5, 4.5])
def test_a_duration_that_is_no_whole_number_of_steps_ends_too(duration_seconds: float) -> None:
    fleet = SimulatedFleet(SimulationSettings(), start_ns=START, duration_seconds=duration_seconds)
    for half in range(math.floor(2 * duration_seconds)):
        assert not fleet.poll(START + half * SECOND // 2).done
    assert fleet.poll(START + round(duration_seconds * SECOND)).done


@given(st.lists(st.integers(1, 10**13), min_size=1, max_size=50))
def test_buckets_of_many_durations_are_those_of_each(durations: list[int]) -> None:
    import numpy as np

    assert bucket_indices(np.array(durations)).tolist() == [bucket_index(duration) for duration in durations]


def test_every_report_s_buckets_add_up() -> None:
    for batch in Watched(seconds=50).batches:
        for report in batch.reports:
            for row in report.rows:
                assert sum(row.durations.buckets.values()) == row.durations.count == row.launches
                assert row.durations.sum_squares_ns2 >= row.durations.sum_ns**2 / row.durations.count


def test_a_power_brake_halves_the_clocks_of_a_node_and_says_so() -> None:
    watched = Watched("power-brake:start=300s", seconds=400)
    for gpu in range(4):
        clock, reasons = watched.series(device.SM_CLOCK, gpu), watched.series(device.CLOCK_EVENT_REASONS, gpu)
        assert clock[-1] == pytest.approx(0.5 * clock[0], rel=0.02)
        assert (int(reasons[-1]) & 0x88, int(reasons[0]) & 0x88) == (0x88, 0)
    assert growth(watched.means(0, is_gemm)) > 1.1


def test_a_power_cap_lowers_the_clock_with_the_softwares_reason_alone() -> None:
    watched = Watched("power-cap:start=300s,ratio=0.9", seconds=400)
    reasons = [int(value) & 0xEC for value in watched.series(device.CLOCK_EVENT_REASONS)]
    assert (reasons[0], reasons[-1]) == (0, 0x4)
    clock = watched.series(device.SM_CLOCK)
    assert clock[-1] == pytest.approx(0.9 * clock[0], rel=0.02)


def test_a_low_clock_has_no_reason() -> None:
    watched = Watched("low-clock:gpu=1,start=300s,ratio=0.7", seconds=400)
    clock, reasons = watched.series(device.SM_CLOCK, 1), watched.series(device.CLOCK_EVENT_REASONS, 1)
    assert clock[-1] == pytest.approx(0.7 * clock[0], rel=0.02)
    assert reasons[-1] == reasons[0]
    assert len(set(watched.series(device.SM_CLOCK, 0))) == 1


def test_errors_of_links_and_memory_show_on_their_own_gpu_only() -> None:
    watched = Watched(
        "pcie-link:gpu=1,start=300s,lanes=8", "memory-errors:gpu=2,start=0s,rate=3600,rows=360", seconds=400
    )
    assert (watched.series(device.PCIE_LINK_WIDTH, 1)[0], watched.series(device.PCIE_LINK_WIDTH, 1)[-1]) == (16, 8)
    assert set(watched.series(device.PCIE_MAX_LINK_WIDTH, 1)) == {16}
    assert watched.series(device.ECC_SBE_VOLATILE, 2)[-1] == pytest.approx(400, abs=2)
    for metric in (device.UNCORRECTABLE_REMAPPED_ROWS, device.ECC_DBE_VOLATILE):
        assert watched.series(metric, 2)[-1] == pytest.approx(40, abs=1)
    assert set(watched.series(device.PCIE_LINK_WIDTH, 0)) == {16}
    assert set(watched.series(device.ECC_SBE_VOLATILE, 0)) == {0}


@pytest.mark.slow
def test_a_lost_gpu_sends_no_samples_while_its_program_runs_on() -> None:
    watched = Watched("telemetry-lost:gpu=3,start=200s", seconds=400)
    assert len(watched.series(device.GPU_TEMP, 3)) == pytest.approx(20, abs=1)
    assert len(watched.series(device.GPU_TEMP, 0)) == 40
    assert len(watched.means(3, is_gemm)) >= 38

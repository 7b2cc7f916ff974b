"""Energy: the measured energy is divided, and the parts add up to it to the microjoule."""

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.columnar import Sample
from kernelcast.exporter.nvml.counters_file import read_table
from kernelcast.exporter.state import StateFile
from kernelcast.exporter.totals import snapshot
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.exporter.totals.apportionment import active_part, apportion
from kernelcast.exporter.totals.report import ProcessReport
from kernelcast.wire.catalogue.devices import device, energy, gpu
from kernelcast.wire.frames import Counters, KernelName, KernelRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device, Process
from kernelcast.wire.kernels import OTHER, kernel_id, label

SECOND_NS = 1_000_000_000
GPU = Device("node1", "GPU-1", "0", model_name="H200")


@given(st.integers(0, 10**15), st.lists(st.integers(0, 10**12), min_size=1, max_size=50).filter(any))
def test_parts_add_up_exactly_and_none_is_off_by_one(total: int, weights: list[int]) -> None:
    parts = apportion(total, weights)
    assert sum(parts) == total
    whole = sum(weights)
    assert all(abs(part * whole - total * weight) < whole for part, weight in zip(parts, weights, strict=True))


@given(st.integers(0, 10**15), st.integers(1, 10**12), st.integers(0, 10**13))
def test_the_active_part_is_the_share_of_time_and_never_more_than_all(total: int, elapsed: int, spent: int) -> None:
    part = active_part(total, elapsed_ns=elapsed, spent_ns=spent)
    assert 0 <= total * min(spent, elapsed) / elapsed - part < 1 + 1e-6 * total
    assert part <= total


class World:
    """GPUs, programs and an aggregator."""

    def __init__(self, max_kernels: int | None = 100) -> None:
        self.aggregator = Aggregator(max_kernels=max_kernels)
        self.totals: dict[tuple[str, str, str], DurationTotals] = {}
        self.untimed: dict[tuple[str, str, str], int] = {}
        self.shown: list[Sample] = []
        self.rows = {row.otlp_name: row for row in (device.TOTAL_ENERGY, device.POWER_USAGE, device.SM_CLOCK)}

    def run(
        self,
        program: str,
        name: str,
        duration_ns: int,
        on: Device = GPU,
        untimed: int = 0,
        times: tuple[float, float] = (0.0, 0.0),
    ) -> None:
        key = (program, on.uuid + on.gi_id, name)
        totals = self.totals.setdefault(key, DurationTotals())
        totals.observe(duration_ns)
        self.untimed[key] = self.untimed.get(key, 0) + untimed
        row = KernelRow(kernel_id(name), totals.count + self.untimed[key], totals)
        names = (KernelName(kernel_id(name), name),)
        running_ns, measured_ns = (round(seconds * SECOND_NS) for seconds in times)
        counters = Counters(0, running_ns=running_ns, measured_ns=measured_ns)
        process = Process(program, program + key[1], SECOND_NS)
        self.aggregator.report(ProcessReport(process, on, names, (row,), counters))

    def look(
        self, second: float, *, mj: int | None = None, watt: float | None = None, on: Device = GPU, more: int = 0
    ) -> None:
        """One interval: a GPU's values, then all values of the exporter."""
        now_ns = round(second * SECOND_NS)
        rows = zip(self.rows.values(), (mj, watt, 1000 + more), strict=True)
        labels = on.device_labels()
        samples = [Sample(metric, labels, now_ns, value) for metric, value in rows if value is not None]
        self.shown = self.aggregator.meter(samples, now_ns)
        self.shown += [one for group in self.aggregator.samples(now_ns) for one in group.samples]

    def states(self, uuid: str = "GPU-1") -> dict[str, float]:
        return {
            own["state"]: float(str(one.value))
            for one in self.shown
            if one.metric is energy.ENERGY and (own := dict(one.attributes))["UUID"] == uuid
        }

    def kernels(self) -> dict[tuple[str, str], float]:
        return {
            (own["program"], own["kernel"]): float(str(one.value))
            for one in self.shown
            if one.metric is energy.KERNEL_ENERGY and (own := dict(one.attributes))
        }


def test_energy_is_divided_over_programs_and_kernels_by_gpu_time_and_the_idle_share_split_off() -> None:
    world = World()
    world.run("train", "gemm", 10)
    world.look(10, mj=500)
    world.run("train", "gemm", 400_000_000)
    world.run("train", "relu", 100_000_000)
    world.run("serve", "gemm", 250_000_000)
    world.look(11, mj=500 + 300_000)
    assert world.states() == {"active": 225.0, "idle": 75.0}
    assert world.kernels() == {
        ("train", label("gemm")): 120.0,
        ("train", label("relu")): 30.0,
        ("serve", label("gemm")): 75.0,
    }


def test_a_counters_table_changes_neither_energy_nor_power(tmp_path: Path) -> None:
    table = tmp_path / "counters.csv"
    table.write_text(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION, counter, Ours.\nDCGM_FI_DEV_BOARD_POWER_WATTS, gauge, Power.\n"
    )
    for values in ({"mj": 300_500}, {"watt": 300.0}):
        world = World()
        world.rows |= read_table(table).rows
        world.look(10, **({"mj": 500} if "mj" in values else values))
        world.look(11, **values)
        assert world.states() == {"active": 0.0, "idle": 300.0}


def test_kernels_measured_in_windows_are_charged_the_energy_of_the_windows_and_the_rest_is_unmeasured() -> None:
    """300 W, of which 1 s in 10 is measured, and a kernel runs for half of that second."""
    world = World()
    world.run("train", "gemm", 10, times=(5, 5))
    world.look(10, mj=0)
    world.run("train", "gemm", 500_000_000, times=(15, 6))
    world.look(20, mj=3_000_000)
    assert world.states() == {"active": 150.0, "idle": 150.0, "unmeasured": 2700.0}
    assert world.kernels() == {("train", label("gemm")): 150.0}


def test_energy_of_an_interval_without_a_window_is_unmeasured_not_idle() -> None:
    world = World()
    world.run("train", "gemm", 10, times=(5, 5))
    world.look(10, mj=0)
    world.run("train", "gemm", 0, times=(15, 5))
    world.look(20, mj=3_000_000)
    assert world.states() == {"active": 0.0, "idle": 0.0, "unmeasured": 3000.0}
    restored = Aggregator()
    assert snapshot.restore(restored, json.loads(json.dumps(snapshot.take(world.aggregator)))) == []
    assert [known.unmeasured_uj for known in restored.energy.gpus.values()] == [3_000_000_000]


def test_what_came_before_the_first_look_is_not_charged() -> None:
    world = World()
    world.run("train", "gemm", 10**12)
    world.look(10, mj=10**9)
    assert world.states() == {"active": 0.0, "idle": 0.0}
    assert world.kernels() == {("train", label("gemm")): 0.0}


def test_a_gpu_without_programs_is_idle() -> None:
    world = World()
    world.look(10, mj=0)
    world.look(11, mj=90_000)
    assert world.states() == {"active": 0.0, "idle": 90.0}
    assert world.kernels() == {}


def test_kernels_beside_each_other_take_no_more_than_there_is() -> None:
    world = World()
    world.run("train", "gemm", 1)
    world.look(10, mj=0)
    for _ in range(3):
        world.run("train", "gemm", SECOND_NS)
    world.look(11, mj=100_000)
    assert world.states() == {"active": 100.0, "idle": 0.0}


def test_launches_that_were_not_timed_are_taken_to_last_as_long_as_those_that_were() -> None:
    world = World()
    world.run("train", "gemm", 1)
    world.look(10, mj=0)
    world.run("train", "gemm", 50_000_000, untimed=9)
    world.look(11, mj=100_000)
    assert world.states() == {"active": 50.0, "idle": 50.0}


def test_power_times_time_replaces_a_missing_energy_counter() -> None:
    world = World()
    world.run("train", "gemm", 1)
    world.look(10, watt=100.0)
    world.run("train", "gemm", 500_000_000)
    world.look(11, watt=300.0)
    assert world.states() == {"active": 100.0, "idle": 100.0}
    world.look(11 + 61, watt=300.0)
    assert world.states() == {"active": 100.0, "idle": 100.0}


def test_a_counter_that_falls_is_a_new_beginning_and_no_series_falls() -> None:
    world = World()
    world.run("train", "gemm", 1)
    world.look(10, mj=1_000_000)
    world.run("train", "gemm", 500_000_000)
    world.look(11, mj=1_100_000)
    before = world.states()
    world.run("train", "gemm", 500_000_000)
    world.look(12, mj=5)
    assert world.states() == before
    world.look(13, mj=10_005)
    assert world.states() == {"active": 50.0, "idle": 60.0}


def test_a_reading_that_is_shown_twice_is_charged_once_and_later_kernels_wait_for_the_next() -> None:
    world = World()
    world.run("train", "gemm", 1)
    world.look(10, mj=0)
    world.run("train", "gemm", 250_000_000)
    world.look(10, mj=0)
    world.run("train", "gemm", 250_000_000)
    world.look(11, mj=100_000)
    assert world.states() == {"active": 50.0, "idle": 50.0}


@pytest.mark.parametrize("values", [[{"mj": 1_000 * joules} for joules in range(4)], [{"watt": 1.0}] * 4])
def test_while_the_clock_is_set_back_energy_counts_on(values: list[dict[str, Any]]) -> None:
    world = World()
    for second, value in zip((7199, 7200, 3600), values, strict=False):
        world.look(second, **value)
    world.run("train", "gemm", SECOND_NS)
    world.look(3601, **values[3])
    assert world.states() == {"active": 1.0, "idle": 2.0}


def test_programs_of_another_gpu_or_source_are_not_charged() -> None:
    world = World()
    other = Device("node1", "GPU-2", "1")
    world.look(10, mj=0)
    world.run("train", "gemm", SECOND_NS, on=other)
    world.look(11, mj=100_000)
    assert world.states() == {"active": 0.0, "idle": 100.0}
    assert world.kernels() == {}


def test_a_gpu_in_mig_mode_has_a_reason_instead_of_energy() -> None:
    world = World()
    instance = Device("node1", "GPU-1", "0", gi_id="3", gi_profile="1g.18gb")
    world.look(10, mj=0)
    world.look(11, mj=10_000)
    world.run("train", "gemm", SECOND_NS // 2, on=instance)
    samples = [
        Sample(device.TOTAL_ENERGY, GPU.device_labels(), 12 * SECOND_NS, 30_000),
        Sample(device.FB_USED, instance.device_labels(), 12 * SECOND_NS, 100),
    ]
    shown = world.aggregator.meter(samples, 12 * SECOND_NS)
    reasons = [dict(one.attributes) for one in shown if one.metric is gpu.FIELD_ABSENT]
    assert [(own["UUID"], own["field"], own["reason"]) for own in reasons] == [
        ("GPU-1", "cuda_energy_estimate_joules_total", "mig")
    ]
    assert not [one for one in shown if one.metric is energy.ENERGY]
    world.look(13, mj=900_000)
    world.look(14, mj=910_000)
    assert world.states() == {"active": 0.0, "idle": 20.0}
    assert all(joules == 0 for joules in world.kernels().values())


def test_kernels_beyond_the_cap_take_their_energy_as_other() -> None:
    world = World(max_kernels=1)
    world.run("train", "gemm", 900)
    world.look(10, mj=0)
    world.run("train", "gemm", 600_000_000)
    world.run("train", "relu", 200_000_000)
    world.look(11, mj=100_000)
    assert world.kernels() == {("train", label("gemm")): 60.0, ("train", OTHER): 20.0}


def energy_and_start(aggregator: Aggregator, second: float, mj: int) -> list[tuple[object, int]]:
    now_ns = round(second * SECOND_NS)
    rows = Sample(device.TOTAL_ENERGY, GPU.device_labels(), now_ns, mj)
    return [(one.value, one.start_ns) for one in aggregator.meter([rows], now_ns) if one.metric is energy.ENERGY]


def test_an_idle_gpu_does_not_make_the_exporter_write_at_every_interval(tmp_path: Path) -> None:
    state, aggregator = StateFile(tmp_path), Aggregator()
    for second in range(10, 20):
        energy_and_start(aggregator, second, second * 70_000)
        state.save(aggregator)
    assert state.saves == 1


@pytest.mark.parametrize("ended_well", [True, False])
def test_a_gpus_energy_continues_after_a_stop_and_restarts_after_a_crash(tmp_path: Path, *, ended_well: bool) -> None:
    state, aggregator = StateFile(tmp_path), Aggregator()
    for second in (10, 11, 12):
        before = energy_and_start(aggregator, second, second * 70_000)
        state.save(aggregator)
    if ended_well:
        state.save(aggregator, final=True)
    again = Aggregator()
    assert StateFile(tmp_path).load(again)
    assert before == [(0.0, 10 * SECOND_NS), (140.0, 10 * SECOND_NS)]
    assert energy_and_start(again, 60, 9_000_000) == (
        before if ended_well else [(0.0, 60 * SECOND_NS), (0.0, 60 * SECOND_NS)]
    )


def test_a_crash_soon_after_a_start_does_not_bring_back_the_energy_of_before(tmp_path: Path) -> None:
    aggregator = Aggregator()
    for second in (10, 11):
        energy_and_start(aggregator, second, second * 70_000)
    StateFile(tmp_path).save(aggregator, final=True)
    second_run, state = Aggregator(), StateFile(tmp_path)
    state.load(second_run)
    energy_and_start(second_run, 60, 1_000)
    state.save(second_run)
    third_run = Aggregator()
    StateFile(tmp_path).load(third_run)
    assert energy_and_start(third_run, 61, 2_000) == [(0.0, 61 * SECOND_NS), (0.0, 61 * SECOND_NS)]


def test_energy_survives_a_restart_of_the_exporter_and_continues() -> None:
    world = World(max_kernels=1)
    world.run("train", "gemm", 900)
    world.look(10, mj=0)
    world.run("train", "gemm", 500_000_000)
    world.run("train", "relu", 100_000_000)
    world.look(11, mj=100_000)
    states, kernels = world.states(), world.kernels()
    document = json.loads(json.dumps(snapshot.take(world.aggregator)))
    world.aggregator = Aggregator(max_kernels=1)
    snapshot.restore(world.aggregator, document)
    world.look(60, mj=9_000_000)
    assert (world.states(), world.kernels()) == (states, kernels)
    world.run("train", "gemm", 500_000_000)
    world.look(61, mj=9_100_000)
    assert world.states() == {"active": 60.0 + 50.0, "idle": 40.0 + 50.0}


def test_without_any_word_of_energy_there_is_none() -> None:
    world = World()
    world.run("train", "gemm", 5)
    world.look(10)
    world.look(11)
    assert (world.states(), world.kernels()) == ({}, {})


steps = st.lists(
    st.tuples(
        st.integers(-(10**5), 10**7),
        st.lists(
            st.tuples(st.sampled_from("ab"), st.sampled_from(["gemm", "relu", "ncclAllReduce"]), st.integers(0, 10**9)),
            max_size=6,
        ),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


@given(steps, st.integers(0, 2))
def test_no_energy_counter_falls_and_kernels_and_idle_add_up_to_the_measured_energy(
    intervals: list[tuple[int, list[tuple[str, str, int]], bool]], max_kernels: int
) -> None:
    world = World(max_kernels=max_kernels)
    counter_mj = 10**6
    world.look(10, mj=counter_mj)
    measured_uj = 0
    history: list[dict[tuple[str, ...], int]] = []
    for second, (used_mj, launches, restart) in enumerate(intervals, 11):
        for program, name, duration_ns in launches:
            world.run(program, name, duration_ns)
        counter_mj = max(counter_mj + used_mj, 0)
        fell = used_mj < 0
        measured_uj += 0 if fell or restart else used_mj * 1000
        if restart:
            document = json.loads(json.dumps(snapshot.take(world.aggregator)))
            world.aggregator = Aggregator(max_kernels=max_kernels)
            snapshot.restore(world.aggregator, document)
        world.look(second, mj=counter_mj)
        history.append(totals_uj(world.shown))
        assert all(after.get(key, 0) >= value for before, after in pairwise(history) for key, value in before.items())
    assert sum(uj for key, uj in history[-1].items() if key != ("active",)) == measured_uj


def totals_uj(samples: Iterable[Sample]) -> dict[tuple[str, ...], int]:
    """Idle and active under their state, kernels under program and kernel."""
    found: dict[tuple[str, ...], int] = {}
    for one in samples:
        own = dict(one.attributes)
        if one.metric is energy.ENERGY:
            found[own["state"],] = round(float(str(one.value)) * 10**6)
        elif one.metric is energy.KERNEL_ENERGY:
            key = (own["program"], own["kernel"], own["kernel_class"])
            found[key] = round(float(str(one.value)) * 10**6)
    return found


@pytest.mark.parametrize("state", ["active", "idle"])
def test_energy_series_say_since_when_they_count(state: str) -> None:
    world = World()
    world.look(10, mj=0)
    world.look(11, mj=5)
    (found,) = [one for one in world.shown if dict(one.attributes).get("state") == state]
    assert (found.start_ns, found.time_ns) == (10 * SECOND_NS, 11 * SECOND_NS)

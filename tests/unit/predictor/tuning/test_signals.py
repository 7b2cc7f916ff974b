"""Signals of programs from windows."""

from contextlib import nullcontext

import numpy as np
import pytest

from kernelcast.predictor.series.subjects import DURATION, Form, Subject
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.tuning.diagnosis import ProgramOnDevice
from kernelcast.predictor.tuning.signals import read_signals
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device, profiling
from kernelcast.wire.catalogue.diagnosis.rules import Signal
from kernelcast.wire.identity import labels

INTERVAL_NS = 10 * 1_000_000_000
FIRST = 100_000
HERE = ProgramOnDevice("train", ("n1", "GPU-0", ""))
GPU = {"Hostname": "n1", "UUID": "GPU-0", "gpu": "0"}


class Past:
    """Windows that hold one value in each of the last intervals."""

    def __init__(self) -> None:
        self.windows = Windows(interval_ns=INTERVAL_NS, points=48, max_series=200)

    def put(
        self, metric: str, value: float, *, form: Form = Form.RATE, intervals: range = range(30), **own: str
    ) -> None:
        row = np.array([self.windows.admit(Subject(metric, form, labels(**{**GPU, **own})), owner=0)])
        for one in intervals:
            self.windows.put_levels(row, np.array([(FIRST + one) * INTERVAL_NS]), np.array([value]), now_seconds=0.0)

    def program(self, metric: str, value: float, *, form: Form = Form.RATE, rank: str = "0", **own: str) -> None:
        self.put(metric, value, form=form, intervals=range(30), program="train", rank=rank, **own)

    @property
    def signals(self) -> dict[ProgramOnDevice, dict[Signal, float]]:
        return read_signals(self.windows, nullcontext())


@pytest.fixture
def past() -> Past:
    return Past()


def test_windows_without_programs_have_no_signals(past: Past) -> None:
    assert past.signals == {}
    past.put(device.GPU_UTIL.prometheus_name, 50.0, form=Form.LEVEL)
    assert past.signals == {}


def test_shares_of_device_time_are_of_all_time(past: Past) -> None:
    for state, share in (("compute", 0.4), ("collective", 0.1), ("copy", 0.2), ("overlap", 0.05), ("idle", 0.25)):
        past.program(kernel.DEVICE_TIME.prometheus_name, share, state=state)
    found = past.signals[HERE]
    assert found[Signal.IDLE_SHARE] == pytest.approx(0.25)
    assert found[Signal.COPY_SHARE] == pytest.approx(0.2)
    assert found[Signal.COLLECTIVE_SHARE] == pytest.approx(0.1)
    assert Signal.RANK_SPREAD not in found


def test_the_mean_kernel_is_weighted_by_launches_and_leaves_collectives_out(past: Past) -> None:
    for name, launches, seconds, kind in (
        ("a#1", 900.0, 4e-6, "compute"),
        ("b#2", 100.0, 64e-6, "compute"),
        ("c#3", 500.0, 1.0, "collective"),
    ):
        past.program(kernel.LAUNCHES.prometheus_name, launches, kernel=name, kernel_class=kind)
        past.program(DURATION, seconds, form=Form.MEAN, kernel=name, kernel_class=kind)
    assert past.signals[HERE][Signal.KERNEL_SECONDS] == pytest.approx(10e-6)


def test_the_mean_kernel_is_that_of_all_ranks_on_the_gpu(past: Past) -> None:
    for rank, launches, seconds in (("0", 900.0, 4e-6), ("1", 100.0, 64e-6)):
        past.program(kernel.LAUNCHES.prometheus_name, launches, rank=rank, kernel="a#1", kernel_class="compute")
        past.program(DURATION, seconds, form=Form.MEAN, rank=rank, kernel="a#1", kernel_class="compute")
    assert past.signals[HERE][Signal.KERNEL_SECONDS] == pytest.approx(10e-6)


def test_gaps_waits_copies_and_regions(past: Past) -> None:
    past.program(kernel.LAUNCH_GAP.prometheus_name, 20e-6, form=Form.MEAN)
    past.program(kernel.SYNC_WAIT.prometheus_name, 0.1, type="stream")
    past.program(kernel.SYNC_WAIT.prometheus_name, 0.2, type="device")
    past.program(kernel.MEMCPY_BYTES.prometheus_name, 3e6, kind="HtoD", pinned="false")
    past.program(kernel.MEMCPY_BYTES.prometheus_name, 1e6, kind="HtoD", pinned="true")
    past.program(kernel.REGION_WALL.prometheus_name, 0.3, region="data")
    past.program(kernel.REGION_WALL.prometheus_name, 0.6, region="train")
    found = past.signals[HERE]
    assert found[Signal.LAUNCH_GAP_SECONDS] == pytest.approx(20e-6)
    assert found[Signal.SYNC_WAIT_SHARE] == pytest.approx(0.3)
    assert found[Signal.PAGEABLE_SHARE] == pytest.approx(0.75)
    assert found[Signal.DATA_WAIT_SHARE] == pytest.approx(1 / 3)


def test_the_phases_of_a_program_give_its_wait_for_data_before_its_regions_do(past: Past) -> None:
    for phase, share in (("data", 0.2), ("forward", 0.3), ("backward", 0.3)):
        past.program(kernel.PHASE_SECONDS.prometheus_name, share, phase=phase)
    past.program(kernel.REGION_WALL.prometheus_name, 0.9, region="data")
    assert past.signals[HERE][Signal.DATA_WAIT_SHARE] == pytest.approx(0.25)


def test_a_program_whose_phases_have_no_data_has_an_unknown_wait_not_none(past: Past) -> None:
    past.program(kernel.PHASE_SECONDS.prometheus_name, 0.9, phase="forward")
    assert Signal.DATA_WAIT_SHARE not in past.signals[HERE]


def test_copies_of_which_nothing_is_known_have_no_pageable_share(past: Past) -> None:
    past.program(kernel.MEMCPY_BYTES.prometheus_name, 3e6, kind="DtoD", pinned="")
    assert Signal.PAGEABLE_SHARE not in past.signals[HERE]


def test_the_gpu_of_a_program_gives_memory_and_profiling(past: Past) -> None:
    past.program(kernel.DEVICE_TIME.prometheus_name, 1.0, state="compute")
    past.put(device.FB_USED.prometheus_name, 76_000.0, form=Form.LEVEL)
    past.put(device.FB_FREE.prometheus_name, 4_000.0, form=Form.LEVEL)
    past.put(profiling.SM_ACTIVE.prometheus_name, 0.8, form=Form.LEVEL)
    past.put(profiling.SM_ACTIVE.prometheus_name, 0.1, form=Form.LEVEL, UUID="GPU-1")
    found = past.signals[HERE]
    assert found[Signal.MEMORY_USED_RATIO] == pytest.approx(0.95)
    assert found[Signal.SM_ACTIVE] == pytest.approx(0.8)


def test_ranks_are_compared_over_all_gpus_of_the_program(past: Past) -> None:
    past.program(kernel.DEVICE_TIME.prometheus_name, 0.8, state="compute", rank="0")
    past.program(kernel.DEVICE_TIME.prometheus_name, 0.6, state="compute", rank="1", UUID="GPU-1")
    other = ProgramOnDevice("train", ("n1", "GPU-1", ""))
    assert past.signals[HERE][Signal.RANK_SPREAD] == pytest.approx(0.25)
    assert past.signals[other][Signal.RANK_SPREAD] == pytest.approx(0.25)


def test_a_series_that_ended_is_no_signal_of_now_and_a_clock_that_is_ahead_concerns_its_host_alone(past: Past) -> None:
    past.program(kernel.DEVICE_TIME.prometheus_name, 1.0, state="compute")
    past.put(kernel.SYNC_WAIT.prometheus_name, 0.5, intervals=range(-40, -5), program="train", rank="0", type="stream")
    past.put(
        kernel.DEVICE_TIME.prometheus_name,
        1.0,
        intervals=range(9_000, 9_030),
        Hostname="n2",
        program="train",
        rank="1",
        state="compute",
    )
    found = past.signals[HERE]
    assert Signal.SYNC_WAIT_SHARE not in found
    assert found[Signal.IDLE_SHARE] == 0.0


def test_too_few_values_make_no_signal(past: Past) -> None:
    past.put(kernel.SYNC_WAIT.prometheus_name, 0.5, intervals=range(2), program="train", rank="0", type="stream")
    assert past.signals == {}

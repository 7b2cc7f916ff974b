"""Sampling of the launches to time, and its limit."""

import threading
from collections import deque
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.probe.cupy_double import Clock

from kernelcast.probe.cupy.events import EventTimer, Pair, SamplingBucket
from kernelcast.probe.cupy.traced import Traced, TracedKernels, fair_strides

LAUNCHES = st.lists(st.integers(0, 10_000_000), max_size=50)


@given(LAUNCHES, st.floats(0.5, 10_000))
def test_the_samples_of_an_interval_are_never_exceeded(launches: list[int], samples: float) -> None:
    strides = fair_strides(launches, samples)
    assert sum(count / stride for count, stride in zip(launches, strides, strict=True)) <= samples * (1 + 1e-6)


@given(LAUNCHES, st.floats(0.5, 10_000))
def test_a_kernel_that_is_launched_less_is_never_timed_at_longer_distances(launches: list[int], samples: float) -> None:
    ordered = sorted(count for count in launches if count)
    strides = fair_strides(ordered, samples)
    assert strides == sorted(strides)


def test_what_rare_kernels_leave_goes_to_the_others() -> None:
    assert fair_strides([5, 0, 1000], 105) == [1, 1, 10]
    assert fair_strides([1000, 1000], 100) == [20, 20]


@given(st.floats(0.1, 1000), st.lists(st.floats(0, 5), min_size=1, max_size=40), st.floats(0, 1000))
def test_a_bucket_gives_its_rate_and_a_quarter_of_a_second_more(rate: float, pauses: list[float], later: float) -> None:
    clock = Clock()
    bucket = SamplingBucket(rate, clock)
    taken, allowed = 0, max(1.0, rate / 4)
    for index, pause in enumerate(pauses):
        clock.pass_seconds(pause)
        allowed += bucket.rate * pause
        taken += sum(bucket.take() for _ in range(50))
        if index == len(pauses) // 2:
            bucket.rate = later
    assert taken <= allowed + 1


def test_a_kernel_that_is_compiled_while_nothing_is_timed_is_not_timed_at_its_first_launch() -> None:
    """The first launch on a device may still load code."""
    kernels = TracedKernels()
    compiled, launched = kernels.get("compiled", 1), kernels.get("launched", 1)
    launched.launched = 1
    kernels.sample(wanted=True)
    later = kernels.get("later", 1)
    assert [one.launched + 1 >= one.sample_at for one in (compiled, launched, later)] == [False, True, False]


def test_no_rate_gives_nothing() -> None:
    clock = Clock()
    bucket = SamplingBucket(0, clock)
    clock.pass_seconds(100)
    assert not bucket.take()


@pytest.mark.parametrize("stride", [1, 2, 16, 500])
def test_samples_are_a_stride_apart_on_average_and_represent_all_launches(stride: int) -> None:
    traced, random = Traced("k", 0), Random(7)
    traced.stride, traced.sample_at = stride, 1
    weights = []
    for _ in range(400 * stride):
        if traced.launched + 1 >= traced.sample_at:
            weights.append(traced.sampled(random))
        traced.launched += 1
    assert len(weights) == pytest.approx(400, rel=0.15)
    assert sum(weights) == pytest.approx(traced.launched, abs=2 * stride + 1)
    if stride > 2:
        assert len(set(weights)) > 1


def test_a_launch_that_loses_the_last_free_event_to_another_thread_is_not_timed() -> None:
    class TakenMeanwhile(deque[Pair]):
        def __bool__(self) -> bool:
            return True

    timer = EventTimer(None, lambda: None)
    timer._free[0] = TakenMeanwhile()
    assert timer.begin(0, 7) is None
    assert timer.begin(1, 7) is None


def test_each_thread_that_asks_cuda_does_so_in_a_mode_that_breaks_no_capture() -> None:
    threads: list[int] = []

    class Driver:
        def cuThreadExchangeStreamCaptureMode(self, _mode: object) -> int:  # noqa: N802  CUDA's name
            threads.append(threading.get_ident())
            return 0

    class Runtime:
        def setDevice(self, _device: int) -> None:  # noqa: N802  CUDA's name
            pass

        def eventCreateWithFlags(self, _flags: int) -> int:  # noqa: N802  CUDA's name
            return 1

    timer = EventTimer(Runtime(), Driver)
    timer.prepare(0)
    other = threading.Thread(target=timer.prepare, args=(1,))
    other.start()
    other.join()
    assert len(set(threads)) == len(threads) == 2

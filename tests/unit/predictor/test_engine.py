"""The predictor without Kafka: its state after a restart, at its limit of series, and after programs end."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import numpy as np
import pytest
from tests.support.waiting import LONGEST_SECONDS
from tests.unit.predictor.conftest import SECOND_NS, START_SECONDS, Fleet, device_subject, kernel_subject

from kernelcast.columnar import Decoder, Resource, Sample, encode
from kernelcast.predictor import engine as engine_module
from kernelcast.predictor.cycle import cycle
from kernelcast.predictor.cycle.predictions import CycleReport
from kernelcast.predictor.engine import Engine, Partition
from kernelcast.predictor.series import attributes
from kernelcast.predictor.series.attributes import SeriesAttributes
from kernelcast.predictor.series.saved.reader import StateReader
from kernelcast.predictor.series.subjects import DURATION, VARIANT
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.settings import PredictorSettings, SeriesMatcher
from kernelcast.predictor.tuning import tunables
from kernelcast.wire.catalogue import BY_OTHER_NAME, inference, kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.errors import KernelcastError
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import labels

EXPORTER = Resource((("service.instance.id", "n1"), ("service.name", "kernelcast-exporter")))
PARTITION: Partition = ("kernelcast.kernels", 0)


class Clock:
    def __init__(self) -> None:
        self.second = START_SECONDS

    def __call__(self) -> int:
        return self.second * SECOND_NS


def engine(settings: PredictorSettings, clock: Clock, *, max_series: int = 1000) -> Engine:
    return Engine(settings.model_copy(update={"max_series": max_series}), clock_ns=clock)


def feed(target: Engine, samples: list[Sample]) -> None:
    values = [export.body for export in encode(EXPORTER, samples, scope="test")]
    target.take(values, [PARTITION] * len(values), {PARTITION: 1})


def kernel_and_variant(clock: Clock, program: str = "train") -> list[Sample]:
    own = {"Hostname": "n1", "UUID": "GPU-0", "gpu": "0", "program": program, "kernel": "gemm#0badcafe"}
    whole, totals = labels(**own, kernel_class="compute"), DurationTotals()
    one = labels(**own, kernel_class="compute", variant="v1")
    totals.observe(clock.second, 10)
    return [
        Sample(kernel.DURATION, whole, clock(), totals, START_SECONDS),
        Sample(kernel.VARIANT_SECONDS, one, clock(), float(clock.second), START_SECONDS),
        Sample(kernel.VARIANT_LAUNCHES, one, clock(), clock.second, START_SECONDS),
    ]


def judged(target: Engine) -> dict[str, bool]:
    target.run_cycle()
    known = target.cycle.attributes.judged
    return {subject.metric: bool(known[row]) for subject, row in target.windows.items()}


def test_a_kernel_with_variants_is_not_judged_as_a_whole_after_a_restart_either(
    fast_settings: PredictorSettings,
) -> None:
    clock = Clock()
    before, after = engine(fast_settings, clock), engine(fast_settings, clock)
    feed(before, kernel_and_variant(clock))
    expected = {DURATION: False, VARIANT: True}
    assert judged(before) == expected
    saved = StateReader()
    for key, value in before.save(PARTITION):
        saved.put(key, value)
    assert after.restore_saved(PARTITION, saved).series == len(expected)
    assert judged(after) == expected


def test_a_series_refused_at_the_limit_is_admitted_when_another_is_dropped(fast_settings: PredictorSettings) -> None:
    clock = Clock()
    target = engine(fast_settings, clock, max_series=1)

    def temperature(gpu: str) -> Sample:
        return Sample(device.GPU_TEMP, labels(Hostname="n1", UUID=gpu, gpu=gpu), clock(), 70.0)

    feed(target, [temperature("0"), temperature("1")])
    assert (target.windows.refused, target.ignored) == (1, 1)
    clock.second += round(fast_settings.expire_seconds) // 2
    feed(target, [temperature("1")])
    clock.second += round(fast_settings.expire_seconds) // 2 + 1
    feed(target, [temperature("1")])
    assert target.expire() == 1
    feed(target, [temperature("1")])
    assert [subject.label("gpu") for subject, _ in target.windows.items()] == ["1"]


def test_a_full_kv_cache_has_no_limit_as_engines_fill_it_by_design(fast_settings: PredictorSettings) -> None:
    clock = Clock()
    target = engine(fast_settings.model_copy(update={"publish": (SeriesMatcher(),)}), clock)
    for _ in range(100):
        clock.second += 1
        feed(target, [Sample(inference.KV_CACHE, labels(Hostname="n1", engine="vllm"), clock(), 1.0)])
    report = target.run_cycle()
    (found,) = target.explain(inference.KV_CACHE.prometheus_name)
    assert (found["decided"], found["alert"]) == ("no limit: forecast only", False)
    assert not report.candidates


def test_a_gpu_that_was_silent_for_longer_than_its_series_are_kept_has_its_past_and_no_alert_of_then(
    fast_settings: PredictorSettings,
) -> None:
    clock = Clock()
    target = engine(fast_settings, clock)
    of_gpu = labels(Hostname="n1", UUID="GPU-0", gpu="0")

    def report(seconds: int, temperature: float) -> None:
        for second in range(seconds):
            clock.second += 1
            limit = Sample(device.SLOWDOWN_TEMP, of_gpu, clock(), 87.0)
            feed(target, [Sample(device.GPU_TEMP, of_gpu, clock(), temperature), limit])
            if second % 10 == 9:
                target.run_cycle()

    def explained() -> dict[str, Any]:
        (found,) = target.explain(device.GPU_TEMP.prometheus_name)
        return found

    report(60, 60.0)
    report(40, 95.0)
    assert explained()["alert"]
    clock.second += round(fast_settings.expire_seconds) + 1
    assert target.expire() == 2
    report(20, 60.0)
    assert not explained()["alert"]
    (row,) = (row for subject, row in target.windows.items() if subject.metric == device.GPU_TEMP.prometheus_name)
    hours = target.cycle.histories.hours(np.array([row]))
    assert np.nanmax(hours) > 60.0


def test_identities_of_series_that_ended_are_released(fast_settings: PredictorSettings) -> None:
    clock, decoder = Clock(), Decoder(max_identities=5)
    target = Engine(fast_settings, clock_ns=clock, decoder=decoder)
    for job in range(20):
        temperature = Sample(device.GPU_TEMP, labels(Hostname="n1", UUID=f"GPU-{job}", gpu="0"), clock(), 70.0)
        values = [export.body for export in encode(EXPORTER, [temperature], scope="test")]
        assert target.take(values, [PARTITION], {PARTITION: 1}).failures == ()
        if job % 2:
            target.leave([PARTITION])
        clock.second += round(fast_settings.expire_seconds) + 1
        target.expire()


def test_a_report_of_a_tunable_beyond_the_limit_is_an_ignored_point(
    fast_settings: PredictorSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tunables, "MAX_TUNABLES", 2)
    clock = Clock()
    target = engine(fast_settings, clock)
    names = [labels(program="train", tunable=f"t{number}", value="1") for number in range(3)]
    feed(target, [Sample(kernel.TUNABLE_INFO, one, clock(), 1) for one in names])
    assert (len(target.tunables), target.ignored) == (2, 1)


def test_a_deploy_and_a_retuned_value_begin_regimes_although_the_cycle_that_took_them_failed(
    fast_settings: PredictorSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    target = engine(fast_settings, clock)
    place = {"Hostname": "n1", "UUID": "GPU-0", "gpu": "0"}

    def broken(_rows: object) -> None:
        raise MemoryError

    for program, version, block in (("train", "v2", "32"), ("tuned", "v1", "64")):
        before = {"code_version": "v1", "tunable": "block", "value": "32"}
        for words in (before, {**before, "code_version": version, "value": block}):
            feed(target, [Sample(kernel.TUNABLE_INFO, labels(program=program, **place, **words), clock(), 1)])
            feed(target, kernel_and_variant(clock, program))
            clock.second += 1
    with monkeypatch.context() as failing:
        failing.setattr(target.cycle.histories, "advance", broken)
        with pytest.raises(MemoryError):
            target.run_cycle()
    assert target.run_cycle().regimes_begun == 2  # the variant of each program
    assert target.run_cycle().regimes_begun == 0


def test_programs_that_are_gone_are_forgotten_and_the_others_keep_their_numbers(
    fast_settings: PredictorSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attributes, "MAX_NAMES", 3)
    windows = Windows(interval_ns=SECOND_NS, points=4, max_series=10)
    known = SeriesAttributes(fast_settings)
    steady = windows.admit(kernel_subject("gemm", program="steady"), owner=0)
    for job in range(20):
        row = windows.admit(kernel_subject("gemm", program=f"job-{job}"), owner=0)
        known.forget_names()
        known.sync(np.array([steady, row]), windows)
        assert known.program_number("steady") == known.program[steady]
        assert known.program_number(f"job-{job}") == known.program[row]
        windows.drop(np.array([row]))
    assert len(known.programs) <= 5


def test_series_keep_their_own_gpu_and_program_when_names_are_numbered_again(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attributes, "MAX_NAMES", 6)
    monkeypatch.setattr(cycle, "CHUNK_ROWS", 2)
    for number in range(4):
        fleet.device("DCGM_FI_DEV_SM_CLOCK", lambda _: 1410.0, host=f"n{number}")
    fleet.device("DCGM_FI_DEV_GPU_UTIL", lambda second: 50.0 if second < 2 else np.nan)
    for job in range(10):
        subject = kernel_subject("gemm", program=f"job-{job}", host=f"n{job % 4}")
        fleet.add(subject, lambda _: 1e-3)
        fleet.run(5)
        known, windows = fleet.cycle.attributes, fleet.windows
        for one, row in windows.items():
            assert known.programs[known.program[row]] == one.program
            assert known.devices[known.device[row]] == one.device
            (clock,) = known.companion("DCGM_FI_DEV_SM_CLOCK", np.array([row]), windows).tolist()
            assert windows.subject(clock) == device_subject("DCGM_FI_DEV_SM_CLOCK", host=one.device[0])
        windows.drop(np.array([windows.row(subject)]))
        del fleet.series[subject]


def test_a_horizon_shorter_than_an_interval_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one interval_seconds, 900"):
        PredictorSettings(interval_seconds=900.0, horizons_seconds=(300.0, 3600.0))


def test_an_explanation_shows_the_results_of_whole_cycles_and_says_so_if_one_takes_too_long(
    fast_settings: PredictorSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, begun, may_end, explained = engine(fast_settings, Clock()), Event(), Event(), Event()

    def run(**_: Any) -> CycleReport:
        begun.set()
        assert may_end.wait(LONGEST_SECONDS)
        assert not explained.is_set(), "a result of this cycle may be missing"
        return CycleReport()

    def explain() -> list[dict[str, Any]]:
        found = target.explain("up")
        explained.set()
        return found

    monkeypatch.setattr(target.cycle, "run", run)
    with ThreadPoolExecutor(2) as threads:
        cycle = threads.submit(target.run_cycle)
        assert begun.wait(LONGEST_SECONDS)
        monkeypatch.setattr(engine_module, "EXPLAIN_WAIT_SECONDS", 0.01)
        with pytest.raises(KernelcastError, match=r"the present cycle has not ended within 0\.01 s"):
            target.explain("up")
        monkeypatch.setattr(engine_module, "EXPLAIN_WAIT_SECONDS", LONGEST_SECONDS)
        explaining = threads.submit(explain)
        may_end.set()
        cycle.result()
        assert explaining.result() == []


def test_a_row_under_dcgms_canonical_name_is_the_same_series(fast_settings: PredictorSettings) -> None:
    clock = Clock()
    target = engine(fast_settings, clock)
    own = labels(Hostname="n1", UUID="GPU-0", gpu="0")
    for row in (device.GPU_TEMP, BY_OTHER_NAME["DCGM_FI_DEV_GPU_TEMP_CELSIUS"]):
        feed(target, [Sample(row, own, clock(), 70.0)])
    assert [subject.metric for subject, _ in target.windows.items()] == ["DCGM_FI_DEV_GPU_TEMP"]

"""Rates of what a probe sees in windows, such as 1 s in 30, are those of wall time."""

from contextlib import nullcontext
from typing import Any, Final

import numpy as np
import pytest
from tests.unit.predictor.conftest import SECOND_NS, START_SECONDS

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.predictor.engine import Engine, Partition
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.tuning.diagnosis import ProgramOnDevice, holding
from kernelcast.predictor.tuning.signals import read_signals
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.diagnosis.rules import Signal
from kernelcast.wire.catalogue.model import Metric
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import labels

EXPORTER: Final = Resource((("service.instance.id", "n1"), ("service.name", "kernelcast-exporter")))
PARTITION: Final[Partition] = ("kernelcast.kernels", 0)
INTERVAL: Final = 10
INTERVALS: Final = 31
GPU: Final = {"Hostname": "n1", "UUID": "GPU-0", "gpu": "0"}


class Program:
    """One that launches 100 kernels a second, waits for 0.3 s of each, and idles for 0.6 s in gaps of 6 ms."""

    def __init__(self, name: str, *, window_every: int | None, waits: bool = True) -> None:
        self.own = {**GPU, "program": name}
        self.every = window_every
        self.gaps = DurationTotals()
        self.seen = 0.0
        self.waits = waits

    def samples(self, second: int) -> list[Sample]:
        interval = (second - START_SECONDS) // INTERVAL
        if interval:
            # A window of 1 s, or all of the interval.
            added = 10.0 if self.every is None else 1.0 if interval % (self.every // INTERVAL) == 0 else 0.0
            self.seen += added
            if added:
                self.gaps.observe(6_000_000, round(100 * added))
        totals: list[tuple[Metric, float, dict[str, str]]] = [
            (kernel.LAUNCHES, round(100 * self.seen), {"kernel": "gemm", "kernel_class": "compute"}),
            (kernel.SYNC_WAIT, 0.3 * self.waits * self.seen, {"type": "stream"}),
            (kernel.DEVICE_TIME, 0.6 * self.seen, {"state": "idle"}),
            (kernel.DEVICE_TIME, 0.4 * self.seen, {"state": "compute"}),
        ]
        totals += [(kernel.PROBE_RUNNING, float(second - START_SECONDS), {}), (kernel.PROBE_MEASURED, self.seen, {})]
        totals += [(kernel.PROBE_WAITS_MEASURED, self.waits * self.seen, {})]
        made = [
            Sample(row, labels(**self.own, **more), second * SECOND_NS, value, START_SECONDS)
            for row, value, more in totals
        ]
        gaps = DurationTotals()
        gaps.add(self.gaps)
        return [*made, Sample(kernel.LAUNCH_GAP, labels(**self.own), second * SECOND_NS, gaps, START_SECONDS)]


def fed(settings: PredictorSettings, *programs: Program) -> Engine:
    seconds = [START_SECONDS + INTERVAL * number for number in range(INTERVALS)]
    target = Engine(settings, clock_ns=lambda: seconds[-1] * SECOND_NS)
    for second in seconds:
        samples = [sample for program in programs for sample in program.samples(second)]
        values = [export.body for export in encode(EXPORTER, samples, scope="test")]
        target.take(values, [PARTITION] * len(values), {PARTITION: 1})
    return target


def values(target: Engine, metric: Metric, **own: str) -> Any:
    rows = [
        row
        for subject, row in target.windows.items()
        if subject.metric == metric.prometheus_name and own.items() <= dict(subject.labels).items()
    ]
    return target.windows.matrix(np.array(rows))[0]


@pytest.mark.parametrize("every", [10, 30])
def test_a_program_measured_in_windows_has_the_signals_of_one_measured_all_the_time(
    fast_settings: PredictorSettings, every: int
) -> None:
    settings = fast_settings.model_copy(update={"interval_seconds": float(INTERVAL)})
    target = fed(settings, Program("always", window_every=None), Program("windows", window_every=every))
    signals = read_signals(target.windows, nullcontext())
    always, windows = (signals[ProgramOnDevice(name, ("n1", "GPU-0", ""))] for name in ("always", "windows"))
    assert always[Signal.IDLE_SHARE] == pytest.approx(0.6)
    assert always[Signal.SYNC_WAIT_SHARE] == pytest.approx(0.3)
    assert windows == pytest.approx(always)
    rules = [[rule.name for rule in holding(of)] for of in (always, windows)]
    assert rules[0] == rules[1]
    assert {"host_bound", "host_synchronisation"} <= {*rules[0]}


def test_where_waits_are_not_measured_the_time_in_waits_is_unknown_not_0(fast_settings: PredictorSettings) -> None:
    settings = fast_settings.model_copy(update={"interval_seconds": float(INTERVAL)})
    target = fed(settings, Program("all", window_every=None), Program("no waits", window_every=None, waits=False))
    signals = read_signals(target.windows, nullcontext())
    found = signals[ProgramOnDevice("no waits", ("n1", "GPU-0", ""))]
    assert found[Signal.IDLE_SHARE] == pytest.approx(0.6)
    assert Signal.SYNC_WAIT_SHARE not in found
    assert np.isnan(values(target, kernel.SYNC_WAIT, program="no waits")).all()
    assert "host_synchronisation" not in [rule.name for rule in holding(found)]


def test_an_interval_without_measured_time_has_no_rate(fast_settings: PredictorSettings) -> None:
    settings = fast_settings.model_copy(update={"interval_seconds": float(INTERVAL)})
    target = fed(settings, Program("windows", window_every=30))
    launches = values(target, kernel.LAUNCHES, program="windows")
    known = launches[np.isfinite(launches)]
    assert known == pytest.approx(np.full(len(known), 100.0))
    assert 0 < len(known) < 0.5 * INTERVALS

"""The ten cases of an outside review, with the default settings: messages in, alarms out, in event time."""

from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.predictor.conftest import SECOND_NS, START_SECONDS

from kernelcast.columnar import Resource, Sample, encode
from kernelcast.predictor.engine import Engine, Partition
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import labels

EXPORTER = Resource((("service.instance.id", "n1"), ("service.name", "kernelcast-exporter")))
PARTITION: Partition = ("kernelcast.device", 0)
HOUR = 3600
STEP_SECONDS, CYCLE_SECONDS, LENGTH_SECONDS = 30, 300, 7 * HOUR
LAUNCHES = 10
DEPLOYED_SECONDS = 2 * HOUR

TEMPERATURES: dict[str, Callable[[int], float]] = {
    **{f"4 degrees an hour {gpu}": lambda second: 66 + 4 * second / HOUR for gpu in range(5)},
    "2 degrees an hour past the limit": lambda second: 76 + 2 * second / HOUR,
    "ambient": lambda second: 80 + 4 * np.sin(2 * np.pi * second / (24 * HOUR)),
}
RATIOS: dict[str, Callable[[int], float]] = {
    "ageing 4 % an hour": lambda second: 1 + 0.04 * max(second - HOUR, 0) / HOUR,
    "ageing 1 % an hour": lambda second: 1 + 0.01 * second / HOUR,
    "deploy": lambda second: 1.25 if second >= DEPLOYED_SECONDS else 1.0,
    "boosting at first": lambda second: 0.75 if second < 180 else 1.0,
    "compiling, then slow": lambda second: 1.4 if second < 180 else 1.2 if second >= 3 * HOUR else 1.0,
    "spikes": lambda second: 3.0 if second // 10 % 20 == 7 else 1.0,
}


class Fleet:
    """One GPU for each case, its samples as messages."""

    def __init__(self) -> None:
        self.second = 0
        self.rng = np.random.default_rng(4)
        self.engine = Engine(PredictorSettings(client_id="test"), clock_ns=lambda: self.now_ns)
        self.totals = {name: DurationTotals() for name in RATIOS}
        self.alarms: dict[str, list[int]] = {name: [] for name in (*TEMPERATURES, *RATIOS)}

    @property
    def now_ns(self) -> int:
        return (START_SECONDS + self.second) * SECOND_NS

    def run(self) -> None:
        while self.second < LENGTH_SECONDS:
            self.second += STEP_SECONDS
            bodies = [each.body for each in encode(EXPORTER, self.samples(), scope="test")]
            self.engine.take(bodies, [PARTITION] * len(bodies), {PARTITION: self.second})
            if self.second % CYCLE_SECONDS == 0:
                for finding in self.engine.run_cycle().candidates:
                    self.alarms[dict(finding.labels)["Hostname"]].append(self.second)

    def samples(self) -> list[Sample]:
        found = []
        for name, shape in TEMPERATURES.items():
            own = labels(Hostname=name, UUID=name, gpu="0")
            found.append(Sample(device.SLOWDOWN_TEMP, own, self.now_ns, 87.0))
            found.append(Sample(device.GPU_TEMP, own, self.now_ns, round(shape(self.second) + self.rng.normal(0, 0.3))))
        for name, ratio in RATIOS.items():
            own = labels(Hostname=name, UUID=name, gpu="0", program=name, kernel="gemm#1", kernel_class="compute")
            if name == "deploy" and self.second == DEPLOYED_SECONDS + STEP_SECONDS:
                self.totals[name] = DurationTotals()
            begun = START_SECONDS + (DEPLOYED_SECONDS if name == "deploy" and self.second > DEPLOYED_SECONDS else 0)
            for second in range(self.second - STEP_SECONDS, self.second, 10):
                duration_ns = 1e6 * ratio(second) * (1 + self.rng.normal(0, 0.02))
                self.totals[name].observe(round(duration_ns), LAUNCHES)
            totals = self.totals[name].copy()
            found.append(Sample(kernel.DURATION, own, self.now_ns, totals, begun * SECOND_NS))
        return found


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    found = Fleet()
    found.run()
    return found


def first(fleet: Fleet, name: str) -> float:
    return fleet.alarms[name][0] if fleet.alarms[name] else float("inf")


def test_a_thermal_drift_of_the_first_hours_is_announced_an_hour_and_a_half_before_its_limit(fleet: Fleet) -> None:
    """On the first day a trend speaks about half its own age: 5.25 hours in all."""
    leads = [5.25 * HOUR - first(fleet, f"4 degrees an hour {gpu}") for gpu in range(5)]
    assert np.median(leads) >= 1.5 * HOUR
    assert min(leads) >= 1.4 * HOUR


def test_a_slow_rise_past_the_slowdown_temperature_alarms_until_the_end(fleet: Fleet) -> None:
    assert first(fleet, "2 degrees an hour past the limit") < 5.5 * HOUR
    assert fleet.alarms["2 degrees an hour past the limit"][-1] == LENGTH_SECONDS


def test_an_ageing_kernel_is_announced_before_it_is_a_fifth_slower(fleet: Fleet) -> None:
    assert 6 * HOUR - first(fleet, "ageing 4 % an hour") >= 0.5 * HOUR


def test_a_kernel_that_compiled_slowly_and_is_slow_later_alarms(fleet: Fleet) -> None:
    assert 3 * HOUR <= first(fleet, "compiling, then slow") <= 3.5 * HOUR


@pytest.mark.parametrize("name", ["deploy", "boosting at first", "spikes", "ambient", "ageing 1 % an hour"])
def test_these_raise_no_alarm(fleet: Fleet, name: str) -> None:
    assert fleet.alarms[name] == []

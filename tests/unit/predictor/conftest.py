"""A small synthetic fleet that writes straight into windows, one second at a time, without Kafka or a clock."""

import threading
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from kernelcast.predictor.cycle.cycle import Cycle
from kernelcast.predictor.cycle.predictions import Abstention, CycleReport, Prediction
from kernelcast.predictor.cycle.program_changes import ProgramChanges
from kernelcast.predictor.intake import not_ahead
from kernelcast.predictor.series.subjects import DURATION, VARIANT, Form, Subject
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.predictor.tuning.runs import RunKey
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.identity import Versions

SECOND_NS = 1_000_000_000
START_SECONDS = 1_800_000_000
Shape = Callable[[int], float]


def device_subject(metric: str, *, gpu: str = "0", host: str = "n1") -> Subject:
    return Subject(metric, Form.LEVEL, (("Hostname", host), ("UUID", f"GPU-{gpu}"), ("gpu", gpu)))


def kernel_subject(
    name: str, *, program: str = "train", variant: str = "", kernel_class: str = "compute", host: str = "n1"
) -> Subject:
    labels = {
        "Hostname": host,
        "UUID": "GPU-0",
        "gpu": "0",
        "program": program,
        "kernel": name,
        "kernel_class": kernel_class,
        "variant": variant,
    }
    pairs = tuple(sorted((key, value) for key, value in labels.items() if value))
    return Subject(VARIANT if variant else DURATION, Form.MEAN, pairs)


class Fleet:
    """Series given as functions of the second; `run` writes them and runs cycles as a service would.

    `ahead_seconds` says how far the clock of a host is ahead.
    """

    def __init__(self, settings: PredictorSettings) -> None:
        self.settings = settings
        self.lock = threading.RLock()
        self.windows = Windows(
            interval_ns=settings.interval_ns, points=settings.window_points, max_series=settings.max_series
        )
        self.cycle = Cycle(settings, self.windows, self.lock)
        self.series: dict[Subject, Shape] = {}
        self.second = 0
        self.ahead_seconds: dict[str, int] = {}
        self.reports: list[CycleReport] = []

    def add(self, subject: Subject, shape: Shape) -> None:
        self.series[subject] = shape

    def device(self, metric: str, shape: Shape, *, gpu: str = "0", host: str = "n1") -> None:
        self.add(device_subject(metric, gpu=gpu, host=host), shape)

    def run(self, seconds: int, *, redeployed: Mapping[RunKey, Versions] | None = None) -> list[CycleReport]:
        before = len(self.reports)
        for _ in range(seconds):
            self.write()
            if self.second % round(self.settings.sweep_every_seconds) == 0:
                now_seconds = float(START_SECONDS + self.second)
                self.reports.append(
                    self.cycle.run(now_seconds=now_seconds, changes=ProgramChanges(redeployed=redeployed or {}))
                )
                redeployed = None
        return self.reports[before:]

    def write(self) -> None:
        values = [(subject, shape(self.second)) for subject, shape in self.series.items()]
        present = [(subject, value) for subject, value in values if np.isfinite(value)]
        rows = np.array([self.windows.admit(subject, owner=0) for subject, _ in present], np.int64)
        ahead = [self.ahead_seconds.get(subject.label("Hostname"), 0) for subject, _ in present]
        times = (START_SECONDS + self.second + np.array(ahead, np.int64)) * SECOND_NS
        now_seconds = float(START_SECONDS + self.second)
        self.windows.put_levels(
            rows, not_ahead(times, now_seconds), np.array([value for _, value in present]), now_seconds=now_seconds
        )
        self.second += 1

    @property
    def degradations(self) -> list[Prediction]:
        return [one for report in self.reports for one in report.predictions if one.degradation is not None]

    def causes(self) -> set[Cause]:
        return {one.degradation.cause for _, one in self.alarms if one.degradation is not None}

    def abstentions(self) -> set[Abstention]:
        return {reason for report in self.reports for reason, count in report.abstentions.items() if count}

    @property
    def alarms(self) -> list[tuple[int, Prediction]]:
        """Predictions with an alert, with the number of their cycle."""
        return [
            (number, one)
            for number, report in enumerate(self.reports)
            for one in report.predictions
            if one.degradation is not None and one.degradation.firing
        ]


def fast() -> PredictorSettings:
    """Settings with blocks of two seconds."""
    return PredictorSettings(
        client_id="test",
        interval_seconds=1.0,
        window_points=240,
        horizons_seconds=(60.0, 300.0),
        sweep_every_seconds=5.0,
    )


@pytest.fixture
def fast_settings() -> PredictorSettings:
    return fast()


@pytest.fixture
def fleet(fast_settings: PredictorSettings) -> Fleet:
    return Fleet(fast_settings)


@pytest.fixture
def noise() -> Callable[[float], float]:
    rng = np.random.default_rng(7)
    return lambda scale: float(rng.normal(0.0, scale))

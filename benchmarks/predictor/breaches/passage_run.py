"""Runs the predictor's passage detector over simulated series, as a live predictor would evaluate them."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from benchmarks.predictor.simulation.generate import METRICS
from benchmarks.predictor.simulation.scenario import Scenarios

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.passage import run as passage
from kernelcast.predictor.passage.alert_rule import AlarmState
from kernelcast.predictor.passage.calibration import Calibration, shipped
from kernelcast.predictor.passage.run import DetectorOptions, limit_passed, replaced_within, trailing_mean
from kernelcast.predictor.passage.series import BLOCK_SECONDS, Traits, build
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import MEANINGS


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """Output of the detector.

    Attributes:
        alerts: Shape (n, t), whether the alert fires.
        probability: Shape (n, e, h), at each evaluation.
        issued: Shape (e,), interval of each evaluation.
    """

    alerts: Bools
    probability: Floats
    issued: Ints


def traits_of(scenarios: Scenarios) -> Traits:
    """Properties of the series' metrics."""
    meanings = [MEANINGS[str(metric)] for metric in scenarios.metrics]
    settling = [round(each.settling_seconds / BLOCK_SECONDS) for each in meanings]
    return Traits(
        limit=np.where(scenarios.limit_is_known, scenarios.limit[:, 0], np.nan),
        baseline_ratio=np.array([each.own_ratio or np.nan for each in meanings]),
        below=np.zeros(len(scenarios), dtype=np.bool_),
        resolution=np.array([each.resolution for each in meanings]),
        settling_blocks=np.array(settling, dtype=np.int64),
        reserves=np.array([each.reserved for each in meanings]),
    )


def run(scenarios: Scenarios, *, calibration: Calibration | Literal["shipped"] | None = "shipped") -> Run:
    """Evaluate every five minutes; between evaluations, whether a limit is passed, every interval."""
    chosen = shipped() if calibration == "shipped" else calibration
    width = round(BLOCK_SECONDS / scenarios.interval_seconds)
    traits = traits_of(scenarios)
    power = scenarios.companions[device.POWER_USAGE.prometheus_name]
    heated = (scenarios.metrics == METRICS["temperature"])[:, None]
    blocks = build(
        scenarios.values,
        scenarios.interval_seconds,
        load=np.where(heated, power, np.nan),
        process=scenarios.process,
        version=scenarios.version,
    )
    mean, replaced = trailing_mean(scenarios.values, width), replaced_within(scenarios.process, width)
    alerts = np.zeros(scenarios.values.shape, dtype=np.bool_)
    issued, said = [], []
    ends = range(scenarios.history // width, scenarios.length // width + 1)
    options = DetectorOptions(calibration=chosen)
    for moment in passage.run(blocks, traits, options, ends=ends, alarms=AlarmState.quiet(len(scenarios))):
        found, now = moment.found, moment.intervals(width)
        issued.append(now.start)
        said.append(found.passage.probability)
        passed = limit_passed(mean[:, now], replaced[:, now], found.limit, found.silent, traits)
        alerts[:, now] = moment.alarms.firing[:, None] | passed
    return Run(alerts, np.stack(said, axis=1), np.array(issued))

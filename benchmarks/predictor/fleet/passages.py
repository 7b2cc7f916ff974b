"""Passages of all judged series of a fleet, evaluated in parts that fit into a processor cache."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from benchmarks.predictor.fleet.recording import Recording

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.passage.alert_rule import AlarmState
from kernelcast.predictor.passage.calibration import shipped
from kernelcast.predictor.passage.node import node_medians
from kernelcast.predictor.passage.run import BlockResult, DetectorOptions, run
from kernelcast.predictor.passage.series import BLOCK_SECONDS, SeriesBlocks, Traits
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import MEANINGS

JUDGED: Final = (device.GPU_TEMP, device.FB_USED, kernel.DURATION)
ROWS_AT_ONCE: Final = 250
"""An evaluation of 3,000 rows at once took 0.61 processor seconds, 0.18 of them in the kernel; in such parts 0.38."""


@dataclass(frozen=True, slots=True, eq=False)
class Passages:
    """Passages of all rows at one moment; a row is a series of `JUDGED` of a GPU, all GPUs of one metric together.

    Attributes:
        end: Number of intervals up to then.
        alerts: Shape (n,), series that reach their limit, or have passed it.
        beyond: Shape (n,), series that have passed it.
        level, limit: Shape (n,); the level relative to the limit.
        probability: Shape (n,), the highest of all horizons; 0 while the detector abstains.
        seconds: Shape (n, 3), times to the limit.
    """

    end: int
    alerts: Bools
    beyond: Bools
    level: Floats
    limit: Floats
    probability: Floats
    seconds: Floats


def passages(recording: Recording, ends: range) -> Iterator[Passages]:
    """Evaluate all series after some numbers of intervals."""
    blocks, traits = _blocks(recording), _traits(recording)
    options = DetectorOptions(calibration=shipped())
    parts = [slice(begin, begin + ROWS_AT_ONCE) for begin in range(0, len(traits.limit), ROWS_AT_ONCE)]
    runs = [
        run(
            SeriesBlocks(*(getattr(blocks, name)[part] for name in SeriesBlocks.__slots__)),
            own := Traits(*(getattr(traits, name)[part] for name in Traits.__slots__)),
            options,
            ends=ends,
            alarms=AlarmState.quiet(len(own.limit)),
        )
        for part in parts
    ]
    for moments in zip(*runs, strict=True):
        yield _joined(moments)


def _joined(moments: Sequence[BlockResult]) -> Passages:
    found = [one.found for one in moments]
    beyond = np.concatenate([one.beyond for one in found])
    return Passages(
        end=moments[0].end,
        alerts=np.concatenate([one.alarms.firing for one in moments]) | beyond,
        beyond=beyond,
        level=np.concatenate([one.trend.level for one in found]),
        limit=np.concatenate([one.limit for one in found]),
        probability=np.concatenate([np.nan_to_num(one.passage.probability).max(axis=1) for one in found]),
        seconds=np.concatenate([one.passage.seconds for one in found]),
    )


def _traits(recording: Recording) -> Traits:
    gpus = recording.size.gpus
    meanings = [MEANINGS[metric.prometheus_name] for metric in JUDGED]
    total = recording.values[device.FB_USED.prometheus_name] + recording.values[device.FB_FREE.prometheus_name]
    limits = (
        recording.values[device.SLOWDOWN_TEMP.prometheus_name][:, 0],
        0.97 * np.nanmax(total, axis=1),
        np.full(gpus, np.nan),
    )
    settling: Ints = np.array([round(one.settling_seconds / BLOCK_SECONDS) for one in meanings], dtype=np.int64)
    return Traits(
        limit=np.concatenate(limits),
        baseline_ratio=np.repeat([one.own_ratio or np.nan for one in meanings], gpus),
        below=np.zeros(len(JUDGED) * gpus, dtype=np.bool_),
        resolution=np.repeat([one.resolution for one in meanings], gpus),
        settling_blocks=np.repeat(settling, gpus),
        reserves=np.repeat([one.reserved for one in meanings], gpus),
    )


def _blocks(recording: Recording) -> SeriesBlocks:
    """Each recorded value is a block."""
    values = np.concatenate([recording.values[metric.prometheus_name] for metric in JUDGED])
    power = recording.values[device.POWER_USAGE.prometheus_name]
    without: Floats = np.full(power.shape, np.nan)
    nodes = recording.size.node
    groups = np.concatenate([nodes, nodes + len(nodes), np.full(len(nodes), -1)])
    return SeriesBlocks.of(
        mean=values,
        median=values,
        load=np.concatenate([power, without, without]),
        process=np.tile(recording.process, (len(JUDGED), 1)),
        version=np.tile(recording.version, (len(JUDGED), 1)),
        node=node_medians(values, groups),
    )

"""Finds the cause of series whose alert fires or whose breach is probable, by the rules of the catalogue.

`Explanations` calls it for the flagged series of a cycle, `FleetComparison` for GPUs that are slower than the fleet.
It gathers the features (from the GPU's metrics and from the other kernels on it); `causes.find` applies the rules.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.causes.features import features
from kernelcast.predictor.causes.find import FeatureColumn, FeatureRows, FoundCause, RowCauses, find
from kernelcast.predictor.causes.observed import Around, Observed, before_version
from kernelcast.predictor.cycle.detector_state import DetectorState
from kernelcast.predictor.cycle.device_panels import DAY_BLOCKS, DevicePanels, DeviceRows
from kernelcast.predictor.passage.baseline import OPENING_BLOCKS
from kernelcast.predictor.passage.series import BLOCK_SECONDS
from kernelcast.predictor.series.subjects import DURATION
from kernelcast.wire.catalogue.cause_rules import RULES, Excuse
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.features import Feature
from kernelcast.wire.catalogue.meanings import Cause, Meaning, MeaningQuestion
from kernelcast.wire.identity import Labels

MAX_SIBLINGS: Final = 8
"""Other kernels of the GPU that are compared with a slow one."""
CHUNK_ROWS: Final = 512
"""Kernels whose features are computed at a time: each has a day of blocks of itself and of its siblings."""
_COMPANIONS: Final = (device.SM_CLOCK, device.GPU_UTIL, device.POWER_USAGE)
"""Gauges of the GPU that the rules about kernels read."""
_CAUSES_OF_GPUS: Final = frozenset(
    {Cause.POWER_BRAKE, Cause.THERMAL, Cause.HARDWARE_SLOWDOWN, Cause.CLOCK_LOW, Cause.CONTENTION, Cause.AGEING}
)
"""Causes that lie in the GPU, or in another program on it."""
_LEAST_SLOW_SHARE: Final = 0.5
"""Share of the GPU's kernels that are slower where the GPU is, and not the kernel."""


@dataclass(frozen=True, slots=True, eq=False)
class FleetFigures:
    """Kernels that are slower than on other nodes, shape (n,).

    Attributes:
        usual: Usual duration, seconds.
        fleet: Usual duration on other nodes, seconds.
        clock: Usual SM clock of the GPU; NaN where it is not known.
        fleet_clock: Usual SM clock of the GPUs of other nodes; NaN where it is not known.
    """

    usual: Floats
    fleet: Floats
    clock: Floats
    fleet_clock: Floats


class BreachCauses:
    """Finds causes of rows, from their GPU and the other kernels there. Only the thread that runs cycles uses it."""

    def __init__(self, panels: DevicePanels, state: DetectorState) -> None:
        self._panels = panels
        self._source = panels.source
        self._state = state

    def of_kernels(
        self, rows: Ints, newest: Ints, live: Ints, known: DeviceRows
    ) -> list[tuple[FoundCause | None, Excuse | None]]:
        """Cause of each slow kernel, or the reason why there is none.

        Args:
            rows: Shape (n,), kernels with the same newest block.
            newest: Shape (n,), newest interval of each.
            live: Rows that report.
            known: Rows of the metrics of GPUs.
        """
        causes: list[tuple[FoundCause | None, Excuse | None]] = []
        rules = [rule for rule in RULES if rule.topic is MeaningQuestion.SPEED]
        for begin in range(0, len(rows), CHUNK_ROWS):
            part = slice(begin, begin + CHUNK_ROWS)
            known_features = self._kernel_features(rows[part], newest[part], live, known)
            causes += [
                _decided(known_features, number, row_causes)
                for number, row_causes in enumerate(find(known_features, rules))
            ]
        return causes

    def of_fleet(
        self, rows: Ints, newest: Ints, live: Ints, known: DeviceRows, figures: FleetFigures
    ) -> list[FoundCause | None]:
        """Cause of each kernel that is slower than on other nodes; None where no rule about a GPU holds.

        Args:
            rows: Shape (n,), kernels.
            newest: Shape (n,), newest interval of each.
            live: Rows that report.
            known: Rows of the metrics of GPUs.
            figures: The comparison with the fleet.
        """
        rules = [rule for rule in RULES if rule.topic is MeaningQuestion.SPEED]
        row_causes = find(self._kernel_features(rows, newest, live, known, figures), rules)
        return [found_causes.first_of(_CAUSES_OF_GPUS) for found_causes in row_causes]

    def of_devices(
        self, rows: Ints, meaning: Meaning, known: DeviceRows, limits: Mapping[str, Floats]
    ) -> list[FoundCause | None]:
        """Cause of each breach of one metric of GPUs; None where no companion gives one.

        Args:
            rows: Shape (n,), series of GPUs whose hosts have the same newest block.
            meaning: Judgement of the metric.
            known: Rows of the metrics of GPUs.
            limits: Shape (n,), limits of the metric, by its name.
        """
        numbers = self._source.attributes.device[rows]
        devices, first, place = np.unique(numbers, return_index=True, return_inverse=True)
        present = np.isin(devices, known.device)
        if not present.any():
            return [None] * len(rows)
        around = Around(limits={name: values[first][present] for name, values in limits.items()})
        allowed = frozenset({meaning.cause}) | meaning.other_causes
        rules = [rule for rule in RULES if rule.topic in (None, meaning.topic)]
        known_features = find(self._panels.features(known, devices[present], around), rules)
        causes_of_present = dict(zip(np.flatnonzero(present).tolist(), known_features, strict=True))
        return [causes_of_present[at].first_of(allowed) if at in causes_of_present else None for at in place.tolist()]

    def _kernel_features(
        self, rows: Ints, newest: Ints, live: Ints, known: DeviceRows, fleet: FleetFigures | None = None
    ) -> FeatureRows:
        attributes, panels = self._source.attributes, self._panels
        devices = attributes.device[rows]
        block = int(newest.max(initial=0)) // self._source.histories.block_intervals - 1
        kernels = live[attributes.kernel[live]]
        process = self._source.histories.processes(rows, block)[:, -DAY_BLOCKS:]
        regime = self._source.regimes.expand(rows, block, process.shape[1])
        labels, end_ns = self._labels(rows), ((newest + 1) * self._source.windows.interval_ns).tolist()
        around = Around(
            programs=self._programs(kernels, devices)[:, None],
            siblings=self._siblings(rows, kernels, block),
            process=process + regime,
            version=regime,
            baseline=self._state.baseline[rows],
        )
        if fleet is not None:
            around = replace(
                around, baseline=fleet.usual, fleet=fleet.fleet, clock=fleet.clock, fleet_clock=fleet.fleet_clock
            )
        values = panels.gauges(_COMPANIONS, known, devices, newest)
        values[DURATION] = self._durations(rows, block)
        columns = dict(features(Observed(values, BLOCK_SECONDS, labels, end_ns, around)).columns)
        reasons = panels.states(known, devices, newest)
        if reasons:
            columns |= features(Observed(reasons, panels.interval_seconds, labels, end_ns)).columns
        return FeatureRows(panels.scaled(columns), labels, end_ns)

    def _durations(self, rows: Ints, block: int) -> Floats:
        """A day of blocks of kernels; the last column is the present."""
        values = self._source.histories.blocks(rows, block)[1][:, -DAY_BLOCKS:]
        values[:, -1] = self._state.value[rows]
        return values

    def _programs(self, kernels: Ints, devices: Ints) -> Floats:
        """Number of programs with kernels on each GPU, shape (n,)."""
        attributes = self._source.attributes
        pairs = np.unique(np.stack([attributes.device[kernels], attributes.program[kernels]], axis=1), axis=0)
        count = np.bincount(pairs[:, 0], minlength=int(devices.max(initial=0)) + 1)
        programs: Floats = count[devices].astype(np.float64)
        return programs

    def _siblings(self, rows: Ints, kernels: Ints, block: int) -> Floats | None:
        """Durations of other kernels on the GPU of each row, shape (n, k, t); NaN before each one's present version."""
        number = self._source.attributes.device
        by_device: dict[int, list[int]] = {}
        wanted = np.unique(number[rows])
        for row in kernels[np.isin(number[kernels], wanted)].tolist():
            by_device.setdefault(int(number[row]), []).append(row)
        others = [
            [sibling for sibling in by_device.get(int(number[row]), ()) if sibling != row] for row in rows.tolist()
        ]
        width = min(max(map(len, others), default=0), MAX_SIBLINGS)
        if not width:
            return None
        chosen = np.full((len(rows), width), -1, np.int64)
        for place, each in enumerate(others):
            step = max(len(each) // width, 1)
            chosen_rows = each[::step][:width]
            chosen[place, : len(chosen_rows)] = chosen_rows
        distinct, where = np.unique(chosen, return_inverse=True)
        distinct_rows = np.maximum(distinct, 0)
        values = self._durations(distinct_rows, block)
        values[distinct < 0] = np.nan
        # Each has a version of its own: with the values of a former one it would count as slower than usual.
        regime = self._source.regimes.expand(distinct_rows, block, values.shape[1])
        values[before_version(regime, OPENING_BLOCKS)] = np.nan
        siblings: Floats = values[where.reshape(chosen.shape)]
        return siblings

    def _labels(self, rows: Ints) -> list[Labels]:
        with self._source.lock:
            subjects = [self._source.windows.subject(row) for row in rows.tolist()]
        return [() if subject is None else subject.without_variant.labels for subject in subjects]


def _decided(
    known_features: FeatureRows, number: int, row_causes: RowCauses
) -> tuple[FoundCause | None, Excuse | None]:
    """The cause of a slow kernel if its evidence suffices."""
    cause = row_causes.causes[0] if row_causes.causes else None
    if cause is not None and cause.cause is Cause.AGEING and not _slows_the_gpu(known_features, number):
        # A GPU that ages slows most of its kernels; one that is slow alone is slow itself.
        return None, row_causes.reason
    if cause is not None and cause.cause is Cause.CLOCK_LOW and not _knows_utilization(known_features, number):
        # Without a utilisation, a low clock may be that of a GPU with little to do.
        return None, Excuse.NO_DATA
    return cause, row_causes.reason


def _knows_utilization(known_features: FeatureRows, number: int) -> bool:
    used: FeatureColumn | None = known_features.columns.get(Feature.UTILIZATION)
    return used is not None and not np.isnan(used.figure[number])


def _slows_the_gpu(known_features: FeatureRows, number: int) -> bool:
    share: FeatureColumn | None = known_features.columns.get(Feature.MOVED_SHARE)
    return share is not None and bool(share.figure[number] >= _LEAST_SLOW_SHARE)

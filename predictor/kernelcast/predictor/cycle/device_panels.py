"""Metrics of GPUs on one grid: the input of the rules about causes, from windows, blocks and counters.

`DeviceFaults` and `BreachCauses` ask it for features in each cycle. Features count time in seconds of which a block
has 300; `_scale` converts to event time where blocks are shorter.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.causes.features import features
from kernelcast.predictor.causes.find import FeatureColumn, FeatureRows
from kernelcast.predictor.causes.observed import Around, Observed, filled
from kernelcast.predictor.cycle.panels import PanelSource
from kernelcast.predictor.passage.series import BLOCK_SECONDS
from kernelcast.predictor.robust import row_medians
from kernelcast.predictor.series.attributes import DEVICE_METRICS
from kernelcast.predictor.series.histories import BOTH_BLOCKS
from kernelcast.predictor.series.subjects import Subject
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND
from kernelcast.wire.catalogue.devices import device, gpu, nvlink
from kernelcast.wire.catalogue.features import Feature
from kernelcast.wire.catalogue.model import Metric
from kernelcast.wire.identity import Labels

Reader = Callable[[Ints, int, Ints], Floats]
"""Reads values of rows: from rows, the newest block, and the newest interval of each, to an array (rows, time)."""

DAY_BLOCKS: Final = 288
"""Blocks of a day."""
GAUGES: Final = (
    device.SM_CLOCK,
    device.GPU_UTIL,
    device.POWER_USAGE,
    device.POWER_LIMIT,
    device.GPU_TEMP,
    device.SLOWDOWN_TEMP,
    device.FB_USED,
    device.FB_FREE,
)
"""Metrics whose usual value or slope matters: a day of blocks."""
STATES: Final = (
    gpu.GPU_UP,
    device.XID_ERRORS,
    device.CLOCK_EVENT_REASONS,
    device.RECOVERY_ACTION,
    device.ROW_REMAP_FAILURE,
    device.PCIE_LINK_WIDTH,
    device.PCIE_MAX_LINK_WIDTH,
    device.PCIE_LINK_GEN,
    device.PCIE_MAX_LINK_GEN,
)
"""Metrics whose single values matter: the intervals of the window."""
COUNTERS: Final = (
    device.ECC_DBE_VOLATILE,
    device.ECC_SBE_VOLATILE,
    device.UNCORRECTABLE_REMAPPED_ROWS,
    device.CORRECTABLE_REMAPPED_ROWS,
    device.PCIE_REPLAY,
    nvlink.ERRORS,
)
"""Counters; their means are kept for two hours."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRows:
    """Rows of the metrics of GPUs; m rows.

    Attributes:
        rows: Shape (m,), rows in the windows, those with the newest point last.
        metric: Shape (m,), place in `DEVICE_METRICS`.
        device: Shape (m,), number of the GPU.
        host: Shape (m,), number of its host.
        newest: Shape (m,), newest interval of the host.
    """

    rows: Ints
    metric: Ints
    device: Ints
    host: Ints
    newest: Ints

    def of(self, metric: Metric, devices: Ints) -> tuple[Ints, Ints]:
        """Rows of a metric of some GPUs, and the place of each in `devices`, which ascend."""
        place = np.minimum(np.searchsorted(devices, self.device), max(len(devices) - 1, 0))
        mine = (self.metric == DEVICE_METRICS.index(metric.prometheus_name)) & (devices[place] == self.device)
        return self.rows[mine], place[mine]


@dataclass(frozen=True, slots=True, eq=False)
class DevicePanels:
    """Reads the features of GPUs; it keeps no state, and takes the windows' lock for each read.

    Attributes:
        source: Windows, blocks and attributes.
    """

    source: PanelSource

    def known(self) -> DeviceRows:
        """All rows with a metric that the rules read, those of silent GPUs included."""
        source, known = self.source, self.source.attributes
        with source.lock:
            size = min(len(known.metric), len(source.windows.generation))
            described = known.generation[:size] == source.windows.generation[:size]
            used = described & (source.windows.owner[:size] >= 0) & (source.windows.last_ns[:size] > 0)
            rows = np.flatnonzero(used & (known.metric[:size] >= 0))
            rows = rows[np.argsort(source.windows.last_ns[rows], kind="stable")]
            newest = source.windows.newest[rows]
        host = known.host[rows]
        of_host = np.full(int(host.max(initial=0)) + 1, newest.min(initial=0))
        np.maximum.at(of_host, host, newest)
        return DeviceRows(rows, known.metric[rows], known.device[rows], host, of_host[host])

    def features(self, known: DeviceRows, devices: Ints, around: Around) -> FeatureRows:
        """Features of GPUs whose hosts have the same newest block.

        Args:
            known: Of all rows.
            devices: Shape (n,), numbers of the GPUs, ascending.
            around: What else is known of them; its numbers of nodes are added here.
        """
        newest, host, labels = self._described(known, devices)
        end_ns = ((newest + 1) * self.source.windows.interval_ns).tolist()
        block = int(newest.max(initial=0)) // self.source.histories.block_intervals - 1
        # An instance of a divided GPU may be removed at any time: its silence shows nothing.
        instance = np.array([any(name == "GPU_I_ID" and value for name, value in own) for own in labels], np.bool_)
        node = np.where(instance, -1 - np.arange(len(devices)), host)
        around = Around(node=node, limits=around.limits, beyond=around.beyond)
        columns: dict[Feature, FeatureColumn] = {}
        for values, seconds, facts in (
            (self._gauges(known, devices, block, newest), BLOCK_SECONDS, around),
            (self._states(known, devices, block, newest), self.interval_seconds, Around()),
            (self._counters(known, devices, block, newest), BLOCK_SECONDS, Around()),
        ):
            if values:
                columns |= features(Observed(values, seconds, labels, end_ns, facts)).columns
        return FeatureRows(self.scaled(columns), labels, end_ns)

    def gauges(self, metrics: tuple[Metric, ...], known: DeviceRows, devices: Ints, newest: Ints) -> dict[str, Floats]:
        """Blocks of gauges of GPUs that repeat or do not ascend, the last column being the present, by name."""
        wanted, place = np.unique(devices, return_inverse=True)
        last = np.zeros(len(wanted), np.int64)
        last[place] = newest
        block = int(newest.max(initial=0)) // self.source.histories.block_intervals - 1
        panels = {
            metric.prometheus_name: self._joined(metric, known, wanted, self.read_blocks, block, last)
            for metric in metrics
        }
        return {name: values[place] for name, values in panels.items() if values is not None}

    def states(self, known: DeviceRows, devices: Ints, newest: Ints) -> dict[str, Floats]:
        """Intervals of the reasons to lower the clock, for GPUs that repeat or do not ascend, by name."""
        wanted, place = np.unique(devices, return_inverse=True)
        last = np.zeros(len(wanted), np.int64)
        last[place] = newest
        metric = device.CLOCK_EVENT_REASONS
        values = self._joined(metric, known, wanted, self._read_window, 0, last)
        return {} if values is None else {metric.prometheus_name: values[place]}

    def read_blocks(self, rows: Ints, block: int, newest: Ints) -> Floats:
        """A day of blocks; the last column is the median of a block of intervals up to the newest one."""
        means = self.source.histories.blocks(rows, block)[0][:, -DAY_BLOCKS:]
        with self.source.lock:
            recent = self.source.windows.read(rows, newest, self.source.histories.block_intervals)
        means[:, -1] = row_medians(recent.astype(np.float64))
        return means

    def scaled(self, columns: Mapping[Feature, FeatureColumn]) -> dict[Feature, FeatureColumn]:
        """Columns whose spans are in seconds of event time."""
        scale = self._scale
        return {
            name: FeatureColumn(column.figure, column.value, column.reference, column.span_seconds * scale)
            for name, column in columns.items()
        }

    @property
    def interval_seconds(self) -> float:
        """Length of an interval in seconds of the features, whose blocks have 300 s."""
        return self.source.windows.interval_ns / NANOSECONDS_PER_SECOND / self._scale

    def _described(self, known: DeviceRows, devices: Ints) -> tuple[Ints, Ints, list[Labels]]:
        """Newest interval, host and labels of each GPU."""
        first = {number: place for place, number in reversed(list(enumerate(known.device.tolist())))}
        places = np.array([first[number] for number in devices.tolist()], np.int64)
        with self.source.lock:
            subjects = [self.source.windows.subject(row) for row in known.rows[places].tolist()]
        return known.newest[places], known.host[places], [_labels(subject) for subject in subjects]

    def _gauges(self, known: DeviceRows, devices: Ints, block: int, newest: Ints) -> dict[str, Floats]:
        return dict(self._named(GAUGES, known, devices, self.read_blocks, block, newest))

    def _states(self, known: DeviceRows, devices: Ints, block: int, newest: Ints) -> dict[str, Floats]:
        states = dict(self._named(STATES, known, devices, self._read_window, block, newest))
        xid = states.get(device.XID_ERRORS.prometheus_name)
        if xid is not None:
            # An XID that was there before the window began did not occur in it.
            states[device.XID_ERRORS.prometheus_name] = filled(filled(xid)[:, ::-1])[:, ::-1]
        up = self._joined(nvlink.UP, known, devices, self._read_filled, block, newest, summed=True)
        count = self._joined(gpu.XID_ERRORS, known, devices, self._read_totals, block, newest, summed=True)
        pending = self._joined(device.RETIRED_PENDING, known, devices, self._read_newest_total, block, newest)
        for metric, values in ((nvlink.UP, up), (gpu.XID_ERRORS, count), (device.RETIRED_PENDING, pending)):
            if values is not None:
                states[metric.prometheus_name] = values
        return states

    def _counters(self, known: DeviceRows, devices: Ints, block: int, newest: Ints) -> dict[str, Floats]:
        return dict(self._named(COUNTERS, known, devices, self._read_block_totals, block, newest, summed=True))

    def _named(  # noqa: PLR0913
        self,
        metrics: tuple[Metric, ...],
        known: DeviceRows,
        devices: Ints,
        read: Reader,
        block: int,
        newest: Ints,
        *,
        summed: bool = False,
    ) -> Iterator[tuple[str, Floats]]:
        for metric in metrics:
            values = self._joined(metric, known, devices, read, block, newest, summed=summed)
            if values is not None:
                yield metric.prometheus_name, values

    def _joined(  # noqa: PLR0913
        self,
        metric: Metric,
        known: DeviceRows,
        devices: Ints,
        read: Reader,
        block: int,
        newest: Ints,
        *,
        summed: bool = False,
    ) -> Floats | None:
        """A metric of each GPU; several series are summed, or the one with the newest point counts."""
        rows, place = known.of(metric, devices)
        if not len(rows):
            return None
        values = read(rows, block, newest[place])
        joined = np.full((len(devices), values.shape[1]), np.nan)
        for chosen in _in_rounds(place):
            own, new = place[chosen], values[chosen]
            before = np.where(np.isfinite(joined[own]), joined[own], 0.0) if summed else 0.0
            joined[own] = np.where(np.isfinite(new), new + before, joined[own])
        return joined

    # The readers that `_joined` calls; all have the arguments of `Reader`.

    def _read_window(self, rows: Ints, block: int, newest: Ints) -> Floats:
        del block
        with self.source.lock:
            return self.source.windows.read(rows, newest, self.source.windows.points).astype(np.float64)

    def _read_filled(self, rows: Ints, block: int, newest: Ints) -> Floats:
        return filled(self._read_window(rows, block, newest))

    def _read_totals(self, rows: Ints, block: int, newest: Ints) -> Floats:
        """Totals of counters since the begin of the window; a rate holds since the value before it."""
        rates = self._read_window(rows, block, newest)
        held = filled(rates[:, ::-1])[:, ::-1]
        own_seconds = self.source.windows.interval_ns / NANOSECONDS_PER_SECOND
        totals: Floats = np.cumsum(np.nan_to_num(held), axis=1) * own_seconds
        return totals

    def _read_newest_total(self, rows: Ints, block: int, newest: Ints) -> Floats:
        values = self._read_window(rows, block, newest)
        with self.source.lock:
            totals = self.source.windows.totals.numerator[rows].astype(np.float64)
        return np.where(np.isfinite(values), totals[:, None], np.nan)

    def _read_block_totals(self, rows: Ints, block: int, newest: Ints) -> Floats:
        """Totals of counters in the last two hours, by block; the last column ends with the newest interval."""
        histories, windows = self.source.histories, self.source.windows
        rates = histories.blocks(rows, block)[0][:, -BOTH_BLOCKS:]
        unended = np.maximum(newest + 1 - (block + 1) * histories.block_intervals, 0)
        with self.source.lock:
            recent = windows.read(rows, newest, histories.block_intervals * 2).astype(np.float64)
        recent[np.arange(recent.shape[1]) < (recent.shape[1] - unended)[:, None]] = np.nan
        known = np.isfinite(recent)
        rate = np.where(known, recent, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        interval_seconds = windows.interval_ns / NANOSECONDS_PER_SECOND
        steps = np.nan_to_num(rates) * histories.block_intervals * interval_seconds
        steps = np.concatenate([np.zeros((len(rows), 1)), steps, (rate * unended * interval_seconds)[:, None]], axis=1)
        return np.cumsum(steps, axis=1)

    @property
    def _scale(self) -> float:
        return self.source.histories.block_ns / NANOSECONDS_PER_SECOND / BLOCK_SECONDS


def _labels(subject: Subject | None) -> Labels:
    """Labels of the GPU of a series."""
    pairs = () if subject is None else subject.labels
    return tuple(pair for pair in pairs if pair[0] in device.DEVICE_LABELS)


def _in_rounds(place: Ints) -> Iterator[Bools]:
    """Rows of the first series of each GPU, then those of the second, and so on."""
    order = np.argsort(place, kind="stable")
    ranked = place[order]
    round_number = np.empty(len(place), np.int64)
    round_number[order] = np.arange(len(place)) - np.searchsorted(ranked, ranked)
    for number in range(int(round_number.max(initial=-1)) + 1):
        yield round_number == number

"""Maps the series numbers of one input to those of the directory; `Conversion` has one `KnownSeries` for each input."""

from typing import TYPE_CHECKING, Final

import numpy as np

from kernelcast.bridge.inputs import Input
from kernelcast.bridge.push.remote_write.directory import Directory
from kernelcast.bridge.push.remote_write.targets import TargetInfoProducers
from kernelcast.bridge.tables.columns import TEMPORALITY, FloatArray, Int32Array, UInt8Array, grown
from kernelcast.bridge.translation.translate import Translator
from kernelcast.columnar import (
    EXPLICIT,
    NO_RECORDED_VALUE,
    Decoded,
    HistogramColumns,
    SeriesIdentity,
    Temporality,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from kernelcast.bridge.tables.placement import Placement

UNSEEN: Final = -1
"""Number of a series that is not known yet; below it are reasons for refusal, `UNSEEN - code` (codes of `columns`)."""


class KnownSeries:
    """The series of one input; for one thread.

    Attributes:
        number: int32, by input number: the series in the directory, UNSEEN, or a reason for refusal; 0 for every series
            of histograms (see `native` and `group`).
        native: int32, by input number: the native histogram in the directory, UNSEEN if none was sent.
        classic: bool, by input number: whether classic histograms were sent. Remote write may send both kinds.
        cumulative: uint8, by input number: whether its start time counts.
        target: int32, by input number: its resource's number in `TargetInfoProducers`; UNSEEN without one.
        count: Number of known series, with classic buckets.
    """

    def __init__(
        self, source: Input, directory: Directory, targets: TargetInfoProducers, translator: Translator
    ) -> None:
        self._source, self._directory, self._targets, self._translator = source, directory, targets, translator
        self.number: Int32Array = np.full(1024, UNSEEN, np.int32)
        self.native: Int32Array = np.full(1024, UNSEEN, np.int32)
        self.classic: NDArray[np.bool_] = np.zeros(1024, np.bool_)
        self.cumulative: UInt8Array = np.zeros(1024, np.uint8)
        self.target: Int32Array = np.full(1024, UNSEEN, np.int32)
        self.count = 0
        self._placements: dict[int, Placement] = {}
        self._groups: dict[tuple[int, bytes], int] = {}
        self._last_group: dict[int, tuple[int, int]] = {}

    def learn(self, decoded: Decoded, *, native: bool) -> None:
        """Learn the series of a batch that are new.

        Args:
            decoded: The batch.
            native: Whether exponential histograms go as native ones.
        """
        histograms = decoded.histograms
        self._grow(
            max((int(part.max()) for part in (decoded.numbers.series, histograms.series) if len(part)), default=0)
        )
        for wire in self._new(decoded.numbers.series):
            self._learn(wire, histogram=False)
        for wire in self._new(histograms.series):
            self._learn(wire, histogram=True)
        self._learn_kinds(histograms, native=native)

    def group(self, wire: int, bounds: FloatArray, *, absent: bool) -> tuple[int, int]:
        """Return the first series of a classic histogram, and its number of finite buckets.

        A point without a value (`absent`) has no bounds: those of the last point are used, UNSEEN if there was none.
        """
        if absent:
            return self._last_group.get(wire, (UNSEEN, 0))
        key = (wire, bounds.tobytes())
        first = self._groups.get(key)
        if first is None:
            first = self._groups[key] = self._directory.group(self._placements[wire], bounds)
            self.count += len(bounds) + 3
        self._last_group[wire] = (first, len(bounds))
        return first, len(bounds)

    def _learn_kinds(self, histograms: HistogramColumns, *, native: bool) -> None:
        # The end of a remote write series always has the form of an exponential histogram. Only if it is the first
        # point of its series, it decides the kind.
        wires, explicit = histograms.series, (histograms.flags & EXPLICIT) != 0
        ends = (histograms.flags & NO_RECORDED_VALUE) != 0
        self.classic[wires[~ends & (explicit | (not native))]] = True
        if native:
            natives = wires[~explicit & ~(ends & self.classic[wires])]
            for wire in np.unique(natives[(self.native[natives] == UNSEEN) & (self.number[natives] >= 0)]).tolist():
                self.native[wire] = self._directory.series(self._placements[wire])

    def _new(self, series: Int32Array) -> list[int]:
        unseen: Int32Array = series[self.number[series] == UNSEEN]
        return np.unique(unseen).tolist() if len(unseen) else []

    def _grow(self, largest: int) -> None:
        if largest >= len(self.number):
            missing = grown(len(self.number), largest + 1) - len(self.number)
            self.number = np.concatenate([self.number, np.full(missing, UNSEEN, np.int32)])
            self.native = np.concatenate([self.native, np.full(missing, UNSEEN, np.int32)])
            self.classic = np.concatenate([self.classic, np.zeros(missing, np.bool_)])
            self.target = np.concatenate([self.target, np.full(missing, UNSEEN, np.int32)])
            self.cumulative = np.concatenate([self.cumulative, np.zeros(missing, np.uint8)])

    def _learn(self, wire: int, *, histogram: bool) -> None:
        identity = self._source.identity(wire)
        placement: Placement | int
        if not isinstance(identity, SeriesIdentity):
            placement = identity
        elif identity.temporality is Temporality.DELTA:  # remote write knows cumulative points only
            placement = TEMPORALITY
        else:
            placement = self._translator.place(identity)
        self.count += 1
        if isinstance(placement, int):
            self.number[wire] = UNSEEN - placement
            return
        self.cumulative[wire] = placement.cumulative
        self.target[wire] = self._targets.number(placement.producer, placement.target)
        if histogram:
            self._placements[wire] = placement
            self.number[wire] = 0
        else:
            self.number[wire] = self._directory.series(placement)

"""The predictor's core, with and without Kafka: stores messages in windows, runs cycles and makes snapshots.

Two threads call it: `service` reads Kafka (`take`, `expire`, `leave`), `cycle_loop` runs cycles (`run_cycle`,
`propose`); both save partitions. Threads of the web server call `explain`. A lock guards windows, tunables and hints;
another one, which is taken first, the results of a cycle.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from kernelcast.columnar import Decoded, Decoder
from kernelcast.predictor.cycle.cycle import Cycle
from kernelcast.predictor.cycle.predictions import CycleReport
from kernelcast.predictor.cycle.program_changes import ProgramChanges
from kernelcast.predictor.explain import explain
from kernelcast.predictor.forecasting.deep.pool import Pool
from kernelcast.predictor.intake import WindowFeed
from kernelcast.predictor.series.saved.reader import Restored, StateReader
from kernelcast.predictor.series.saved.rows import RowColumn, SavedRows
from kernelcast.predictor.series.saved.states import States
from kernelcast.predictor.series.saved.writer import Message
from kernelcast.predictor.series.subjects import Subject
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND, PredictorSettings
from kernelcast.predictor.tuning.diagnosis import Diagnosis, ProgramOnDevice, diagnose
from kernelcast.predictor.tuning.hints import HintBook, Issued, OpenHint
from kernelcast.predictor.tuning.signals import read_signals
from kernelcast.predictor.tuning.tunables import GpuTime, TunableReports
from kernelcast.wire.catalogue.diagnosis.rules import Signal
from kernelcast.wire.errors import KernelcastError
from kernelcast.wire.tuning.experience import Experience

Partition = tuple[str, int]
"""Topic and number."""
NOTHING_ACCEPTED: Final[Mapping[str, int]] = MappingProxyType({})
"""No program whose slower deploy a person accepted."""
EXPLAIN_WAIT_SECONDS: Final = 8.0
"""Longest wait of `explain` for the end of a cycle; its command waits for an answer for 10 s."""
TRIALS_NS: Final = 2 * 86_400 * NANOSECONDS_PER_SECOND
"""Trials that ended within this time are reported to a cycle: two days, as long as blocks are kept."""


class Engine:
    """Windows, cycles and hints of the partitions that this process reads.

    Attributes:
        windows: The recent past of every series.
        states: Saves and restores partitions.
        tunables: Tunables and versions that programs report.
        hints: Hints that are open or answered.
        policy: The site's policy for trials.
        cycle: Runs the cycles.
        offsets: By partition, the next message to be read.
        ignored: Points that nothing takes: foreign ones, and those beyond a limit of memory.
    """

    def __init__(
        self,
        settings: PredictorSettings,
        *,
        clock_ns: Callable[[], int],
        decoder: Decoder | None = None,
        pool: Pool | None = None,
    ) -> None:
        self._settings = settings
        self._clock_ns = clock_ns
        self._lock = threading.RLock()
        self._cycle_lock = threading.Lock()
        self._decoder = decoder if decoder is not None else Decoder()
        self._owners: dict[Partition, int] = {}
        self.windows = Windows(
            interval_ns=settings.interval_ns, points=settings.window_points, max_series=settings.max_series
        )
        self.tunables = TunableReports()
        self.hints = HintBook(settings.hints)
        self.policy = settings.hints.site_policy()
        self.cycle = Cycle(settings, self.windows, self._lock, pool=pool)
        self.offsets: dict[Partition, int] = {}
        self._diagnoses: list[Diagnosis] = []
        columns = [
            RowColumn("regime", self.cycle.saved_regimes, self.cycle.restore_regimes),
            RowColumn("alarm", self.cycle.saved_alarms, self.cycle.restore_alarms),
            *self.cycle.deploys.columns,
        ]
        saved = SavedRows(self.windows, self._lock, histories=self.cycle.histories, columns=columns)
        saved.tables[self.cycle.deploys.table.name] = self.cycle.deploys.table
        self.states = States(saved, every_seconds=settings.snapshot_every_seconds, clock_ns=clock_ns)
        self._intake = WindowFeed(self.windows, self._decoder, self.tunables)

    @property
    def ignored(self) -> int:
        """Points that nothing takes, so far."""
        return self._intake.ignored + self.tunables.dropped

    def take(self, values: Sequence[bytes], partitions: Sequence[Partition], offsets: dict[Partition, int]) -> Decoded:
        """Decode messages and write their points into the windows; called by the thread that reads Kafka.

        Args:
            values: The messages.
            partitions: Where each came from.
            offsets: By partition, the next message to be read after these.
        """
        decoded = self._decoder.decode(values)
        now_seconds = self._clock_ns() / NANOSECONDS_PER_SECOND
        owners = [self._owner(partition) for partition in partitions]
        with self._lock:
            self._intake.take(decoded, owners, now_seconds=now_seconds)
            self.offsets.update(offsets)
        return decoded

    @property
    def lock(self) -> threading.RLock:
        """Protects the windows, for a source that writes them itself."""
        return self._lock

    def rename(self, before: Subject, after: Subject) -> None:
        """Let a series go on under other labels."""
        with self._lock:
            row = self.windows.rename(before, after)
            if row is not None:
                self.cycle.attributes.describe_again(row)

    def run_cycle(self, accepted: Mapping[str, int] = NOTHING_ACCEPTED) -> CycleReport:
        """Run one cycle: evaluate every live series, and forecast those that are published.

        Args:
            accepted: Programs of which a person accepted that a deploy made them slower, and when, Unix nanoseconds.
        """
        with self._cycle_lock:
            return self._completed(accepted)

    def _completed(self, accepted: Mapping[str, int]) -> CycleReport:
        now_ns = self._clock_ns()
        with self._lock:
            changes = ProgramChanges(
                redeployed=self.tunables.runs.take_redeployed(),
                versioned=self.tunables.versioned,
                retuned=self.tunables.take_retuned(),
                trials=self.hints.trials(now_ns - TRIALS_NS),
                runs=self.tunables.runs.all(),
                versions=self.tunables.versions,
                accepted=accepted,
            )
        return self.cycle.run(now_seconds=now_ns / NANOSECONDS_PER_SECOND, changes=changes)

    def change(self, settings: PredictorSettings) -> None:
        """Apply thresholds, horizons and selections with the next cycle, and the settings of hints at once."""
        self.cycle.change(settings)
        with self._lock:
            self.hints.change(settings.hints)
            self.policy = settings.hints.site_policy()

    def explain(self, selector: str) -> list[dict[str, Any]]:
        """Explain the series that a selector matches, between two cycles.

        Raises:
            ConfigurationError: It is no selector.
            KernelcastError: A cycle takes too long.
        """
        if not self._cycle_lock.acquire(timeout=EXPLAIN_WAIT_SECONDS):
            raise KernelcastError(f"the present cycle has not ended within {EXPLAIN_WAIT_SECONDS:g} s; ask again")
        try:
            with self._lock:
                return explain(self.cycle, self.windows, selector)
        finally:
            self._cycle_lock.release()

    def propose(self) -> list[Issued]:
        """Hints that are due now."""
        with self._lock:
            tunables = self.tunables.current()
            gpu_time = GpuTime(self.windows) if tunables else None
            if gpu_time is None:
                return []
            return self.hints.propose(tunables, gpu_time, now_ns=self._clock_ns(), diagnoses=self._diagnoses)

    def withdraw(self, issued: Iterable[Issued]) -> None:
        """Forget proposed hints that could not be written, so that none is shown as open."""
        with self._lock:
            for issued_hint in issued:
                self.hints.withdraw(issued_hint.hint)

    def changed_experiences(self) -> list[Experience]:
        """Results of searches that have changed since the last call."""
        with self._lock:
            return self.hints.experiences.take_changed()

    def open_hints(self) -> list[OpenHint]:
        """Hints that no program has kept or refused yet."""
        with self._lock:
            return self.hints.open_hints(self.tunables.current(), now_ns=self._clock_ns())

    def signals(self) -> dict[ProgramOnDevice, dict[Signal, float]]:
        """Compute the signals of every program on every GPU; hints follow the rules that hold from now on."""
        signals = read_signals(self.windows, self._lock)
        self._diagnoses = diagnose(signals)
        return signals

    def expire(self) -> int:
        """Set series aside that are silent: their past counts when they return; returns how many."""
        now_ns = self._clock_ns()
        before = now_ns / NANOSECONDS_PER_SECOND - self._settings.expire_seconds
        with self._lock:
            rows = self.windows.expired(before)
            self._intake.forget_rows(rows)
            self._intake.forget_silent(before)
            self.windows.set_aside(rows)
            self.cycle.forget_alerts(rows)
            silent_ns = round(self._settings.expire_seconds * NANOSECONDS_PER_SECOND)
            self.tunables.drop_silent(silent_ns=silent_ns, now_ns=now_ns)
        return len(rows)

    def leave(self, partitions: Sequence[Partition]) -> None:
        """Drop the series and tunables of partitions that another member reads now."""
        with self._lock:
            owners = {self._owners[one] for one in partitions if one in self._owners}
            rows = self.windows.owned_by(sorted(owners))
            self._intake.forget_rows(rows)
            self.windows.drop(rows)
            self.windows.forget_aside()
            self.tunables.drop_owned_by(owners)
            for partition in partitions:
                self.offsets.pop(partition, None)
                self.states.leave(partition)

    def save(self, partition: Partition) -> Iterator[Message]:
        """The messages of a partition's next snapshot; none before anything was read from it."""
        with self._lock:
            offset = self.offsets.get(partition)
            rows = self.windows.owned_by([self._owner(partition)])
            rows = rows[self.windows.last_ns[rows] > 0]
            return self.states.save(partition, rows, offset) if offset is not None else iter(())

    def restore_saved(self, partition: Partition, reader: StateReader) -> Restored:
        """Restore a partition's saved state."""
        now_seconds = self._clock_ns() / NANOSECONDS_PER_SECOND
        restored = self.states.restore(partition, reader, owner=self._owner(partition), now_seconds=now_seconds)
        if restored.offset is not None:
            with self._lock:
                self.offsets[partition] = restored.offset
        return restored

    def _owner(self, partition: Partition) -> int:
        with self._lock:
            return self._owners.setdefault(partition, len(self._owners))

"""Finds GPUs that are slower than the other nodes of the fleet, and shares the baselines of the healthy ones.

`Publication` runs it in each cycle; it compares once per block. `state.baselines_topic` reads the baselines of other
nodes from Kafka and writes those of this one. A *worker* is one program on one GPU.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.causes.find import FoundCause
from kernelcast.predictor.causes.fleet import Reference, references, slow_from_birth
from kernelcast.predictor.causes.shared_baselines import MAX_AGE_NS, SharedBaselines
from kernelcast.predictor.cycle.breach_causes import BreachCauses, FleetFigures
from kernelcast.predictor.cycle.candidate_findings import observed_candidate
from kernelcast.predictor.cycle.detector_state import DetectorState
from kernelcast.predictor.cycle.device_panels import DeviceRows
from kernelcast.predictor.cycle.faults.fleet_kernels import (
    PAST_BLOCKS,
    FleetKernels,
    FleetPanel,
    usual_clocks,
)
from kernelcast.predictor.cycle.panels import PanelSource
from kernelcast.predictor.cycle.program_changes import ProgramChanges
from kernelcast.predictor.series.subjects import DURATION, DeviceKey
from kernelcast.wire.baselines import NodeBaseline
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Finding, FindingEvidence, Severity

SLOW_SHARE: Final = 0.5
"""Share of a GPU's kernels that a slow GPU slows; less is a matter of these kernels."""
KNOWN_SHARE: Final = 0.5
"""Share of a GPU's kernels that other nodes run too, if they do the same work."""
MAX_KERNELS_SHOWN: Final = 3
"""Kernels that a candidate names as evidence, the slowest ones."""

Worker = tuple[str, DeviceKey]
"""Program and GPU."""


@dataclass(frozen=True, slots=True, eq=False)
class _Compared:
    """Kernels with their references; n rows.

    Attributes:
        panel: The kernels.
        references: Of each row; None where fewer than three other nodes run it.
        slow: Shape (n,), whether it is slower than the fleet, usually and now.
    """

    panel: FleetPanel
    references: Sequence[Reference | None]
    slow: Bools

    def workers(self) -> dict[Worker, list[int]]:
        """Places of the kernels of each worker."""
        places: dict[Worker, list[int]] = defaultdict(list)
        for place, kernel in enumerate(self.panel.kernels):
            places[kernel.member.program, kernel.device].append(place)
        return places


class FleetComparison:
    """Compares the GPUs of this predictor with the fleet. Only the thread that runs cycles uses it, besides `explain`.

    Attributes:
        shared: Baselines of all nodes, read from Kafka and written to it by their owner.
        compared: Kernels on GPUs that have a reference at present.
    """

    def __init__(self, source: PanelSource, breaches: BreachCauses, state: DetectorState) -> None:
        self._source = source
        self._breaches = breaches
        self._state = state
        self._kernels = FleetKernels(source)
        self._block: int | None = None
        self._candidates: dict[int, Finding] = {}
        self._leads: dict[Worker, int] = {}
        self.shared = SharedBaselines()
        self.compared = 0

    def run(
        self, live: Ints, newest: Ints, known: DeviceRows, others: Sequence[Finding], changes: ProgramChanges
    ) -> list[Finding]:
        """Compare at the end of a block.

        Args:
            live: Shape (n,), rows that report.
            newest: Shape (n,), newest interval of each.
            known: Rows of the metrics of GPUs.
            others: The cycle's other candidates: their GPUs are not healthy.
            changes: Versions and tunables of programs.

        Returns:
            One candidate for each slow GPU and program.
        """
        mine = self._source.attributes.kernel[live]
        rows, newest = live[mine], newest[mine]
        if not len(rows):
            self._candidates, self.compared = {}, 0
            return []
        block = self._source.common_block(newest)
        if block != self._block and self.shared.caught_up:
            self._block = block
            self._kernels.update(rows, known, changes)
            compared = self._compare(self._kernels.panel(self._judged(rows, newest), block), block)
            self._candidates = self._candidates_of(compared, live, known, block)
            # A deploy concerns a program, not the health of a GPU.
            unhealthy = {
                _device_of(candidate)
                for candidate in (*others, *self._candidates.values())
                if candidate.cause is not Cause.DEPLOY
            }
            self._offer(compared, unhealthy | self._alarmed(live), block)
        here = set(rows.tolist())
        self._candidates = {row: candidate for row, candidate in self._candidates.items() if row in here}
        # The comparison of a program's own ranks shows the same, and sooner.
        stragglers = {_device_of(candidate) for candidate in others if candidate.cause is Cause.STRAGGLER}
        named = self._candidates.values()
        return [
            candidate
            for candidate in named
            if candidate.cause is not Cause.AGEING or _device_of(candidate) not in stragglers
        ]

    def explain(self, row: int) -> dict[str, Any]:
        """Reference of the fleet for a kernel, or the reason why there is none. Call it under the lock."""
        if not self.shared.caught_up or self._block is None:
            return {"compared": False, "reason": "the topic of the shared baselines has not been read yet"}
        kernel = self._kernels.of(row)
        if isinstance(kernel, str):
            return {"compared": False, "reason": kernel}
        compared = self._compare(self._kernels.panel(np.array([row]), self._block), self._block)
        if not len(compared.panel.rows):
            return {"compared": False, "reason": "its process has run for less than an hour"}
        reference, own = compared.references[0], float(compared.panel.usual[0])
        facts = {"kernel_baseline": kernel.member.key, "code_version": kernel.member.code_version, "own_seconds": own}
        if reference is None:
            return {"compared": False, "reason": "fewer than three other nodes run it", **facts}
        return {
            "compared": True,
            **facts,
            "fleet_seconds": reference.median_seconds,
            "fleet_nodes": reference.nodes,
            "slow_from_seconds": reference.bar_seconds,
            "slow": bool(compared.slow[0]),
        }

    def _judged(self, rows: Ints, newest: Ints) -> Ints:
        """Kernels that have a usual duration, and are not in a trial or in their first minutes."""
        trial = self._source.trials.within(rows, newest * self._source.windows.interval_ns)
        return rows[~(self._state.wide[rows] | self._state.opening[rows] | trial)]

    def _compare(self, panel: FleetPanel, block: int) -> _Compared:
        members = [one.member for one in panel.kernels]
        oldest_ns = self._end_ns(block) - MAX_AGE_NS
        fleet_references = references(members, self.shared.known(one.key for one in members), oldest_ns=oldest_ns)
        bars = np.array([np.nan if one is None else one.bar_seconds for one in fleet_references])
        slow = slow_from_birth(panel.usual, bars) & slow_from_birth(panel.recent, bars)
        return _Compared(panel, fleet_references, slow)

    def _candidates_of(self, compared: _Compared, live: Ints, known: DeviceRows, block: int) -> dict[int, Finding]:
        """Findings by the row of the kernel that shows each best."""
        self.compared = sum(reference is not None for reference in compared.references)
        workers = {worker: places for worker, places in compared.workers().items() if _is_slow(compared, places)}
        leads = self._leads_of(compared, workers)
        chosen = np.array(list(leads.values()), np.int64)
        causes = self._causes(compared, chosen, live, known, block) if len(chosen) else []
        return {
            int(compared.panel.rows[place]): self._candidate(compared, place, workers[worker], cause, block)
            for (worker, place), cause in zip(leads.items(), causes, strict=True)
            if cause is not None
        }

    def _leads_of(self, compared: _Compared, workers: dict[Worker, list[int]]) -> dict[Worker, int]:
        """Place of the kernel that shows each slow worker, the one of the last block while it is slow."""
        kernels = compared.panel.kernels
        divided = Counter(
            (worker[0], kernels[place].member.key)
            for worker, places in workers.items()
            for place in places
            if compared.slow[place]
        )
        leads: dict[Worker, int] = {}
        for worker, places in workers.items():
            slow = self._by_slowness(compared, places)
            # Several ranks that are slow in the same kernel: the work is divided unevenly.
            if self._kernels.has_ranks(worker[0]) and divided[worker[0], kernels[slow[0]].member.key] > 1:
                continue
            before = [place for place in slow if compared.panel.rows[place] == self._leads.get(worker)]
            leads[worker] = (before or slow)[0]
        self._leads = {worker: int(compared.panel.rows[place]) for worker, place in leads.items()}
        return leads

    def _causes(
        self, compared: _Compared, places: Ints, live: Ints, known: DeviceRows, block: int
    ) -> list[FoundCause | None]:
        rows = compared.panel.rows[places]
        fleet_references = [
            reference for place in places.tolist() if (reference := compared.references[place]) is not None
        ]
        figures = FleetFigures(
            usual=compared.panel.usual[places],
            fleet=np.array([reference.median_seconds for reference in fleet_references]),
            clock=self._clocks(rows, block),
            fleet_clock=np.array([reference.sm_clock_mhz for reference in fleet_references]),
        )
        newest = np.full(len(rows), (block + 1) * self._source.histories.block_intervals - 1)
        return self._breaches.of_fleet(rows, newest, live, known, figures)

    def _candidate(
        self, compared: _Compared, lead: int, places: Sequence[int], cause: FoundCause, block: int
    ) -> Finding:
        rest = [place for place in self._by_slowness(compared, places) if place != lead]
        facts = [self._fact(compared, place, block) for place in (lead, *rest[: MAX_KERNELS_SHOWN - 1])]
        facts += [evidence for evidence in cause.evidence if (evidence.metric, evidence.against) != (DURATION, "peers")]
        # The GPU is as fast as it always was, so it can wait for working hours.
        shown = FoundCause(cause.cause, Severity.TICKET, tuple(facts))
        return observed_candidate(shown, compared.panel.kernels[lead].labels, self._end_ns(block), DURATION)

    def _fact(self, compared: _Compared, place: int, block: int) -> FindingEvidence:
        kernel, reference, end_ns = compared.panel.kernels[place], compared.references[place], self._end_ns(block)
        return FindingEvidence(
            metric=DURATION,
            labels=kernel.labels,
            value=float(compared.panel.usual[place]),
            reference=None if reference is None else reference.median_seconds,
            against="peers",
            begin_ns=end_ns - PAST_BLOCKS * self._source.histories.block_ns,
            end_ns=end_ns,
            peers=0 if reference is None else reference.nodes,
            code_version=kernel.member.code_version,
        )

    def _by_slowness(self, compared: _Compared, places: Sequence[int]) -> list[int]:
        """The slow ones among the kernels of a worker, the slowest first."""

        def ratio(place: int) -> float:
            reference = compared.references[place]
            return 0.0 if reference is None else float(compared.panel.usual[place]) / reference.median_seconds

        return sorted((place for place in places if compared.slow[place]), key=lambda place: (-ratio(place), place))

    def _offer(self, compared: _Compared, unhealthy: set[DeviceKey], block: int) -> None:
        """Share the usual durations of the healthy GPUs of each node."""
        panel, end_ns = compared.panel, self._end_ns(block)
        groups: dict[tuple[str, str], list[int]] = defaultdict(list)
        for place, kernel in enumerate(panel.kernels):
            if kernel.device not in unhealthy:
                groups[kernel.member.key, kernel.member.hostname].append(place)
        clocks = self._clocks_by_device(panel.rows, block)
        for (_, hostname), places in groups.items():
            kernels = [panel.kernels[place] for place in places]
            known = [clocks.get(kernel.device, np.nan) for kernel in kernels]
            part = NodeBaseline(
                hostname=hostname,
                median_seconds=float(np.median(panel.usual[places])),
                spread_ratio=float(np.median(panel.spread[places])),
                count=int(panel.blocks[places].sum()) * self._source.histories.block_intervals,
                code_version=_common(kernel.member.code_version for kernel in kernels),
                time_ns=end_ns,
                program=_common(kernel.member.program for kernel in kernels),
                sm_clock_mhz=float(np.nan_to_num(np.nanmedian(known))) if np.isfinite(known).any() else 0.0,
            )
            own = kernels[0].baseline
            self.shared.offer(own.kernel, own.configuration, own.device_model, part)

    def _alarmed(self, live: Ints) -> set[DeviceKey]:
        """GPUs with a series whose alert fires, or that is at its limit."""
        state = self._state
        alarmed = live[state.firing[live] | state.passed[live] | state.beyond[live]]
        return set(self._devices(alarmed))

    def _clocks_by_device(self, rows: Ints, block: int) -> dict[DeviceKey, float]:
        _, first = np.unique(self._source.attributes.device[rows], return_index=True)
        return dict(zip(self._devices(rows[first]), self._clocks(rows[first], block).tolist(), strict=True))

    def _devices(self, rows: Ints) -> list[DeviceKey]:
        with self._source.lock:
            subjects = [self._source.windows.subject(row) for row in rows.tolist()]
        return [("", "", "") if subject is None else subject.device for subject in subjects]

    def _clocks(self, rows: Ints, block: int) -> Floats:
        return usual_clocks(self._source.companion_blocks(device.SM_CLOCK.prometheus_name, rows, block))

    def _end_ns(self, block: int) -> int:
        return (block + 1) * self._source.histories.block_ns


def _is_slow(compared: _Compared, places: Sequence[int]) -> bool:
    """Whether a worker does the same work as other nodes, and most of it slower."""
    known = [place for place in places if compared.references[place] is not None]
    slow = sum(bool(compared.slow[place]) for place in known)
    return slow > 0 and len(known) >= KNOWN_SHARE * len(places) and slow >= SLOW_SHARE * len(known)


def _device_of(candidate: Finding) -> DeviceKey:
    labels = dict(candidate.labels)
    return labels.get("Hostname", ""), labels.get("UUID", ""), labels.get("GPU_I_ID", "")


def _common(texts: Iterable[str]) -> str:
    """The text that all have; empty where they differ."""
    distinct = set(texts)
    return distinct.pop() if len(distinct) == 1 else ""

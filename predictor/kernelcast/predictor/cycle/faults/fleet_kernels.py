"""Kernels on GPUs as `FleetComparison` compares them between nodes: by kernel, configuration and model of the GPU."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import numpy as np

from kernelcast.predictor.arrays import Bools, Floats, Ints
from kernelcast.predictor.causes.fleet import NodeKernel, usual_durations
from kernelcast.predictor.causes.observed import changed_at
from kernelcast.predictor.cycle.device_panels import DeviceRows
from kernelcast.predictor.cycle.panels import PanelSource
from kernelcast.predictor.cycle.program_changes import ProgramChanges
from kernelcast.predictor.passage.baseline import OPENING_BLOCKS
from kernelcast.predictor.robust import row_medians, row_quantiles
from kernelcast.predictor.series.subjects import DeviceKey, Subject
from kernelcast.predictor.tuning.runs import ProgramRun
from kernelcast.predictor.tuning.tunables import names_kernel
from kernelcast.wire.baselines import KernelBaseline
from kernelcast.wire.identity import Labels

PAST_BLOCKS: Final = 36
"""Blocks of which the median is the usual duration."""
RECENT_BLOCKS: Final = 3
"""Blocks of which the median is the present duration."""
CHUNK_ROWS: Final = 2048
"""Rows read under the lock at a time."""


@dataclass(frozen=True, slots=True)
class FleetKernel:
    """One kernel of a program on one GPU.

    Attributes:
        baseline: Its kernel, configuration and model, without nodes.
        member: As it is found among the shared baselines.
        device: Its GPU.
        labels: Of its series.
        rank: Rank of the program's process; empty where it has none.
    """

    baseline: KernelBaseline
    member: NodeKernel
    device: DeviceKey
    labels: Labels
    rank: str


@dataclass(frozen=True, slots=True, eq=False)
class FleetPanel:
    """Kernels with a usual duration; n rows.

    Attributes:
        rows: Shape (n,).
        kernels: Of each row.
        usual: Shape (n,), median of the last three hours without the first minutes of the process, seconds.
        spread: Shape (n,), standard deviation of a block relative to it.
        recent: Shape (n,), median of the last 15 minutes.
        blocks: Shape (n,), blocks that the median is made of.
    """

    rows: Ints
    kernels: tuple[FleetKernel, ...]
    usual: Floats
    spread: Floats
    recent: Floats
    blocks: Ints


class FleetKernels:
    """Describes the kernels of this predictor's windows. Only the thread that runs cycles uses it."""

    def __init__(self, source: PanelSource) -> None:
        self._source = source
        self._models: dict[int, str] = {}
        self._numbering = 0
        self._subjects: dict[int, tuple[int, Subject]] = {}
        self._changes = ProgramChanges()
        self._ranks: dict[str, set[str]] = {}

    def update(self, live: Ints, known: DeviceRows, changes: ProgramChanges) -> None:
        """Read the models of GPUs and the programs as they are now.

        Args:
            live: Rows of kernels that report.
            known: Rows of the metrics of GPUs.
            changes: Versions and tunables of programs.
        """
        self._changes = changes
        self._learn_models(known)
        self._subjects = self._read(live)
        ranks: dict[str, set[str]] = defaultdict(set)
        for _, subject in self._subjects.values():
            ranks[subject.program].add(subject.label("rank"))
        self._ranks = ranks

    def has_ranks(self, program: str) -> bool:
        """Whether a program has several ranks, whose work may differ."""
        return len(self._ranks.get(program, ())) > 1

    def of(self, row: int) -> FleetKernel | str:
        """The kernel in a row, or the reason why it is not compared."""
        generation, subject = self._subjects.get(row, (-1, None))
        if subject is None or generation != int(self._source.windows.generation[row]):
            return "it has just appeared, or is judged by its variants"
        run = self._changes.runs.get((subject.program, subject.device))
        model = self._models.get(int(self._source.attributes.device[row]), "") or (run.device_model if run else "")
        if not model:
            return "the model of its GPU is not known"
        variant = subject.label("variant")
        if not variant and self.has_ranks(subject.program):
            return "its program has several ranks, and its configuration is not known"
        version = self._version(subject.program, run)
        if version is None:
            return "its program runs with several versions"
        configuration = variant or f"program={subject.program}"
        configuration += _tuned(run, subject.label("kernel")) if run is not None else ""
        baseline = KernelBaseline(subject.label("kernel"), configuration, model)
        return FleetKernel(
            baseline=baseline,
            member=NodeKernel(baseline.key, subject.device[0], subject.program, version),
            device=subject.device,
            labels=subject.without_variant.labels,
            rank=subject.label("rank"),
        )

    def panel(self, rows: Ints, block: int) -> FleetPanel:
        """Those of the rows that are compared, with their usual durations at the end of a block."""
        described = [self.of(row) for row in rows.tolist()]
        places = np.array([isinstance(kernel, FleetKernel) for kernel in described], np.bool_)
        kernels = [kernel for kernel in described if isinstance(kernel, FleetKernel)]
        values = self._blocks(rows[places], block)
        usual, spread = usual_durations(values)
        known = np.isfinite(usual) & (usual > 0)
        return FleetPanel(
            rows=rows[places][known],
            kernels=tuple(kernels[place] for place in np.flatnonzero(known).tolist()),
            usual=usual[known],
            spread=spread[known],
            recent=row_medians(values[known][:, -RECENT_BLOCKS:]),
            blocks=np.isfinite(values[known]).sum(axis=1),
        )

    def _blocks(self, rows: Ints, last: int) -> Floats:
        """Medians of the last blocks of the present process and regime, without its first minutes and trials."""
        medians = np.empty((len(rows), PAST_BLOCKS))
        source = self._source
        for begin in range(0, len(rows), CHUNK_ROWS):
            part = rows[begin : begin + CHUNK_ROWS]
            median = source.histories.blocks(part, last)[1]
            known = np.isfinite(median)
            length = median.shape[1]
            process = source.histories.processes(part, last) + source.regimes.expand(part, last, length)
            since = np.maximum(changed_at(process), np.argmax(known, axis=1))
            usable: Bools = np.arange(length) >= (since + OPENING_BLOCKS)[:, None]
            medians[begin : begin + len(part)] = np.where(usable, median, np.nan)[:, -PAST_BLOCKS:]
        (medians,) = source.trials.masked(rows, last, medians)
        return medians

    def _version(self, program: str, run: ProgramRun | None) -> str | None:
        """The version of a program on a GPU; None during a rollout, where it is not known."""
        versions = self._changes.versions.get(program, ())
        if len(versions) <= 1:
            return next(iter(versions), "")
        return None if run is None else run.code_version

    def _learn_models(self, known: DeviceRows) -> None:
        numbering = self._source.attributes.numbering
        if numbering != self._numbering:
            self._numbering = numbering
            self._models.clear()
        # Rows with the newest point come last: a MIG instance may have been created again with another profile.
        for begin in range(0, len(known.rows), CHUNK_ROWS):
            part = slice(begin, begin + CHUNK_ROWS)
            with self._source.lock:
                subjects = [self._source.windows.subject(row) for row in known.rows[part].tolist()]
            for number, subject in zip(known.device[part].tolist(), subjects, strict=True):
                model = "" if subject is None else subject.label("modelName")
                if subject is not None and model:
                    self._models[number] = " ".join(filter(None, (model, subject.label("GPU_I_PROFILE"))))

    def _read(self, rows: Ints) -> dict[int, tuple[int, Subject]]:
        """Generation and series of rows."""
        subjects: dict[int, tuple[int, Subject]] = {}
        for begin in range(0, len(rows), CHUNK_ROWS):
            part = rows[begin : begin + CHUNK_ROWS].tolist()
            with self._source.lock:
                for row in part:
                    subject = self._source.windows.subject(row)
                    if subject is not None:
                        subjects[row] = int(self._source.windows.generation[row]), subject
        return subjects


def _tuned(run: ProgramRun, label: str) -> str:
    """Values of the tunables that concern a kernel, as a part of its configuration."""
    mine = sorted(
        (name, value) for name, (value, named) in run.values.items() if not named or names_kernel(named, label)
    )
    return "".join(f" {name}={value}" for name, value in mine)


def usual_clocks(blocks: Floats) -> Floats:
    """Clock of each GPU under load: an upper quantile of its blocks, shape (n,); NaN where none is known."""
    return row_quantiles(blocks[:, -PAST_BLOCKS:], 0.9)

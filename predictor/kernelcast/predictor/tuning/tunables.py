"""The tunables that running programs have registered, and the share of the GPU's time that their kernels take.

`WindowFeed` records the reports; `HintBook.propose` reads both. The engine's lock guards them.
"""

from dataclasses import dataclass, field
from typing import Final

from kernelcast.columnar import Attributes
from kernelcast.predictor.series.subjects import DURATION
from kernelcast.predictor.series.windows import Windows
from kernelcast.predictor.tuning.runs import ProgramRuns, record
from kernelcast.wire import kernels
from kernelcast.wire.kernels import normalise
from kernelcast.wire.tuning.approvals import RESTART, changes_results

MAX_TUNABLES: Final = 10_000
"""Reported tunables, and programs with versions, that are kept; further ones are refused: memory stays bounded."""
_DECLARED: Final = {"true": True, "false": False}

Key = tuple[str, str, str]
"""Program, tunable, device model: one open hint for each."""


@dataclass(frozen=True, slots=True)
class ReportedTunable:
    """A tunable as a program last reported it.

    Attributes:
        program, name, value, kind, device_model, code_version: As registered.
        allowed: The values the program takes.
        kernel: The kernels that it speeds up: labels or names, joined by semicolons (signatures have commas);
            empty where the program names none.
        time_ns: When it was last reported.
        owner: Number of the partition that it came from.
        scope: `local`, or `collective`: all ranks change it together.
        granularity: `step`, `epoch` or `restart`.
        changes_results: Whether another value changes the program's results, as it declares; None without declaration.
    """

    program: str
    name: str
    value: str
    allowed: tuple[str, ...]
    kind: str
    kernel: str = ""
    device_model: str = ""
    code_version: str = ""
    time_ns: int = 0
    owner: int = field(default=-1, compare=False)
    scope: str = "local"
    granularity: str = "step"
    changes_results: bool | None = None

    @property
    def needs_approval(self) -> bool:
        """Whether a person has to approve another value: it changes results, or somebody has to restart the program."""
        return self.granularity == RESTART or changes_results(self.kind, self.changes_results)

    @property
    def key(self) -> Key:
        """The key of its hint; at most one hint for each is open."""
        return self.program, self.name, self.device_model


class TunableReports:
    """The latest report of each tunable.

    Attributes:
        retuned: Program and kernels of tunables that have come to have another value since the last `take_retuned`.
        refused: Reports of tunables beyond the limit.
        runs: Versions and tunables by program and GPU.
    """

    def __init__(self) -> None:
        self._latest: dict[Key, ReportedTunable] = {}
        self._reported_ns: dict[Key, int] = {}
        self._versions: dict[str, dict[str, int]] = {}
        self._values: dict[Key, dict[str, int]] = {}
        self.retuned: set[tuple[str, str]] = set()
        self.refused = 0
        self.runs = ProgramRuns()

    def __len__(self) -> int:
        return len(self._latest)

    @property
    def dropped(self) -> int:
        """Reports of tunables and of programs beyond the limits."""
        return self.refused + self.runs.refused

    def observe(self, attributes: Attributes, *, time_ns: int, owner: int, now_ns: int) -> None:
        """Take a point of `kernelcast.tunable.info`."""
        labels = dict(attributes)
        tunable = ReportedTunable(
            program=labels.get("program", ""),
            name=labels.get("tunable", ""),
            value=labels.get("value", ""),
            allowed=tuple(part for part in labels.get("allowed", "").split(",") if part),
            kind=labels.get("kind", ""),
            kernel=labels.get("kernel", ""),
            device_model=labels.get("device_model", ""),
            code_version=labels.get("code_version", ""),
            time_ns=time_ns,
            owner=owner,
            scope=labels.get("scope", "local"),
            granularity=labels.get("granularity", "step"),
            changes_results=_DECLARED.get(labels.get("changes_results", "")),
        )
        before = self._latest.get(tunable.key)
        if before is None and len(self._latest) >= MAX_TUNABLES:
            self.refused += 1
            self.runs.observe_versions(labels, time_ns=time_ns, now_ns=now_ns)
            return
        self.runs.observe(labels, time_ns=time_ns, now_ns=now_ns)
        if before is not None and before.time_ns > time_ns:
            return
        self._latest[tunable.key] = tunable
        self._reported_ns[tunable.key] = now_ns
        record(self._versions.setdefault(tunable.program, {}), tunable.code_version, now_ns)
        if record(self._values.setdefault(tunable.key, {}), tunable.value, now_ns) is not None:
            self.retuned.add((tunable.program, tunable.kernel))

    def observe_versions(self, attributes: Attributes, *, time_ns: int, now_ns: int) -> None:
        """Take a point of `kernelcast.program.info`."""
        labels = dict(attributes)
        self.runs.observe_versions(labels, time_ns=time_ns, now_ns=now_ns)
        program, version = labels.get("program", ""), labels.get("code_version", "")
        if program in self._versions or len(self._versions) < MAX_TUNABLES:
            record(self._versions.setdefault(program, {}), version, now_ns)

    def current(self) -> list[ReportedTunable]:
        """All of them."""
        return list(self._latest.values())

    @property
    def versions(self) -> dict[str, tuple[str, ...]]:
        """Code versions that each program runs now; several during a rollout."""
        return {program: tuple(versions) for program, versions in self._versions.items()}

    @property
    def versioned(self) -> set[str]:
        """Programs that report their code version."""
        return {program for program, versions in self._versions.items() if any(versions)}

    def take_retuned(self) -> set[tuple[str, str]]:
        """Program and kernels of tunables with another value since the last call."""
        retuned, self.retuned = self.retuned, set()
        return retuned

    def drop_owned_by(self, owners: set[int]) -> None:
        """Drop the tunables of partitions that another member reads now."""
        self._latest = {key: reported for key, reported in self._latest.items() if reported.owner not in owners}

    def drop_silent(self, *, silent_ns: int, now_ns: int) -> None:
        """Drop tunables without a report for `silent_ns`, by this process's clock."""
        self._latest = {
            key: reported for key, reported in self._latest.items() if self._reported_ns[key] >= now_ns - silent_ns
        }
        self._reported_ns = {key: self._reported_ns[key] for key in self._latest}
        self.runs.drop_silent(now_ns - silent_ns)
        self._values = {key: values for key, values in self._values.items() if key in self._latest}
        alive = {reported.program for reported in self._latest.values()} | {program for program, _ in self.runs.all()}
        self._versions = {program: versions for program, versions in self._versions.items() if program in alive}


class GpuTime:
    """GPU time by kernel since the windows first saw it, for a kernel's share of its program."""

    def __init__(self, windows: Windows) -> None:
        self._seconds: dict[str, dict[str, float]] = {}
        for subject, row in windows.items():
            if subject.metric == DURATION:
                spent = float(windows.totals.numerator[row] - windows.totals.first_numerator[row])
                if spent > 0:
                    by_kernel = self._seconds.setdefault(subject.program, {})
                    label = subject.label("kernel")
                    by_kernel[label] = by_kernel.get(label, 0.0) + spent

    def share(self, program: str, named: str) -> float | None:
        """Share of a program's GPU time that the named kernels take, all if none is named; None if none was seen."""
        by_kernel = self._seconds.get(program, {})
        total = sum(by_kernel.values())
        if not named.strip("; "):
            return 1.0 if total else None
        spent = sum(seconds for label, seconds in by_kernel.items() if names_kernel(named, label))
        return spent / total if spent and total else None


def names_kernel(named: str, label: str) -> bool:
    """Whether one of the names a program gave is this kernel's label, signature, or the readable head of the label."""
    head = label.rpartition("#")[0]
    for part in named.split(";"):
        name = part.strip()
        if name and (name in {label, head} or kernels.label(normalise(name)) == label):
            return True
    return False

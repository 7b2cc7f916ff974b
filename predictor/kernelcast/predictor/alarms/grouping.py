"""Groups candidates that one cause explains: by rack, node or program where several GPUs have it, else by GPU.

Pure functions, which `Alarms` calls once a cycle with the accepted candidates. A *unit* is one rack, node, program, GPU
or series; a *wide* group is one about a rack, node or program.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from kernelcast.predictor.alarms.candidates import IMMINENT_SECONDS, FindingCandidate
from kernelcast.predictor.alarms.racks import RackOf
from kernelcast.wire.catalogue.kernel import DURATION
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Finding, FindingState, Scope

Labels = tuple[tuple[str, str], ...]
DevicePrograms = Mapping[tuple[str, str, str], str]
"""Program that runs alone on each GPU, by host, UUID and MIG instance; GPUs with none or several are missing."""
NO_PROGRAMS: Final[DevicePrograms] = MappingProxyType({})
"""No GPU of which the program is known."""

PHYSICAL: Final = (Scope.RACK, Scope.NODE)
"""Scopes of causes such as cooling and power, which all programs on the GPUs notice."""
LOGICAL: Final = (Scope.PROGRAM, Scope.NODE)
"""Scopes of causes that a program brings along."""
WIDER: Final[Mapping[Cause, tuple[Scope, ...]]] = MappingProxyType(
    {
        Cause.THERMAL: PHYSICAL,
        Cause.POWER_BRAKE: PHYSICAL,
        Cause.HARDWARE_SLOWDOWN: PHYSICAL,
        Cause.CLOCK_LOW: PHYSICAL,
        Cause.TELEMETRY_LOST: PHYSICAL,
        Cause.PCIE_ERRORS: (Scope.NODE,),
        Cause.PCIE_LINK: (Scope.NODE,),
        Cause.NVLINK: (Scope.NODE,),
        Cause.CONTENTION: LOGICAL,
        Cause.MEMORY_LEAK: LOGICAL,
        Cause.AGEING: LOGICAL,
        Cause.DEPLOY: LOGICAL,
        Cause.LOAD: LOGICAL,
        Cause.KERNEL_SLOWDOWN: LOGICAL,
        Cause.UNKNOWN: LOGICAL,
    }
)
"""Scopes wider than a GPU that a cause can have, the first that fits; others concern one GPU."""

LEAST_GPUS: Final[Mapping[Scope, int]] = MappingProxyType({Scope.RACK: 3, Scope.NODE: 2, Scope.PROGRAM: 2})
"""GPUs with the same cause from which on a rack, node or program is named; of a rack also two nodes.

Two GPUs of a node are two findings where one has a fault and the other a prediction for later than an hour.
"""
LEAST_NODES: Final = 2
"""Nodes with the same cause from which on a rack is named."""
LEAST_JOINED: Final = 3
"""GPUs from which on predictions that are weak alone join an accepted one; the second of two may be a coincidence."""

ALWAYS_PROGRAM: Final = frozenset({Cause.DEPLOY})
"""Causes that lie in the program, however few of its series show them: their group is always the program."""
DEPTH: Final[Mapping[Cause, int]] = MappingProxyType(
    {
        Cause.CLOCK_LOW: 1,
        Cause.HARDWARE_SLOWDOWN: 1,
        Cause.AGEING: 2,
        Cause.STRAGGLER: 3,
        Cause.KERNEL_SLOWDOWN: 4,
        Cause.LOAD: 4,
        Cause.UNKNOWN: 4,
    }
)
"""Distance of a cause from the root: a cause of less depth on the same GPU explains it. Others have 0."""


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a series: empty texts where it has none.

    Attributes:
        gpu: Host and identifier of the GPU.
        node: Host.
        program: Program; of a series of the GPU itself the one that runs alone there.
        rack: Rack of the host.
    """

    gpu: str
    node: str
    program: str
    rack: str

    def at(self, scope: Scope) -> str:
        """Name of the unit of a scope."""
        return {Scope.RACK: self.rack, Scope.NODE: self.node, Scope.PROGRAM: self.program, Scope.GPU: self.gpu}[scope]


@dataclass(frozen=True, slots=True)
class CandidateGroup:
    """A group of candidates with the unit that they concern.

    Attributes:
        scope: Its extent.
        unit: Name of the rack, node, program, GPU or series.
        cause: The cause that all share; None for a GPU or a series, whose causes are ranked.
        members: The candidates.
    """

    scope: Scope
    unit: str
    cause: Cause | None
    members: tuple[FindingCandidate, ...]


@dataclass(frozen=True, slots=True)
class Places:
    """Finds the places of series from their labels.

    Attributes:
        rack_of: From a host to its rack.
        programs: Program that runs alone on each GPU.
    """

    rack_of: RackOf
    programs: DevicePrograms

    def of(self, labels: Labels) -> Place:
        """Place of the series with these labels."""
        found = dict(labels)
        node = found.get("Hostname", "")
        device = found.get("UUID") or found.get("gpu", "")
        instance = found.get("GPU_I_ID", "")
        program = found.get("program") or self.programs.get((node, device, instance), "")
        return Place(f"{node}|{device}|{instance}" if device else "", node, program, self.rack_of(node) if node else "")

    def unit_of(self, found: Finding) -> tuple[Scope, str, Cause]:
        """The widest unit that a finding's cause can have, by which series with it depend on each other."""
        place = self.of(found.labels)
        scopes = [scope for scope in (*WIDER.get(found.cause, ()), Scope.GPU) if place.at(scope)]
        if scopes:
            return scopes[0], place.at(scopes[0]), found.cause
        return Scope.SERIES, repr(found.labels), found.cause


def joining(candidates: Iterable[FindingCandidate], places: Places, least_log_score: float) -> list[FindingCandidate]:
    """Predictions that are too weak alone, but share a unit and a cause with an accepted candidate.

    The first page about a hot rack then names the rack, instead of one GPU after the other.

    Args:
        candidates: All of them.
        places: Finds the places of series.
        least_log_score: Logarithm of the score that a prediction needs to join.
    """
    able = [one for one in candidates if one.is_accepted or one.log_score >= least_log_score]
    if all(one.is_accepted for one in able) or not any(one.is_accepted for one in able):
        return []
    placed = [(one, places.of(one.latest.labels)) for one in able]
    taken: set[int] = set()
    for choice in range(max(map(len, WIDER.values()))):
        for (scope, _, cause), rows in _buckets(placed, choice, taken).items():
            members = [placed[row] for row in rows]
            are_several = len({place.gpu for _, place in members}) >= LEAST_JOINED
            is_wide = are_several and _is_wide(scope, cause, members)
            if is_wide and any(candidate.is_accepted for candidate, _ in members):
                taken.update(rows)
    return [able[row] for row in sorted(taken) if not able[row].is_accepted]


def groups(
    candidates: Iterable[FindingCandidate], wide: Callable[[Scope, str, Cause], bool], places: Places
) -> list[CandidateGroup]:
    """Divide candidates into groups.

    Args:
        candidates: The accepted ones.
        wide: Whether a finding about this rack, node or program with this cause lasts; then one GPU suffices.
        places: Finds the places of series.
    """
    placed = [(one, places.of(one.latest.labels)) for one in candidates]
    followers = _followers(placed)
    taken = set(followers)
    found = []
    for choice in range(max(map(len, WIDER.values()))):
        for (scope, unit, cause), rows in _buckets(placed, choice, taken).items():
            if wide(scope, unit, cause) or _is_wide(scope, cause, [placed[row] for row in rows]):
                found.append((scope, unit, cause, rows))
                taken.update(rows)
    explained = {
        placed[row][1].gpu: number
        for number, (_, _, cause, rows) in enumerate(found)
        if cause not in ALWAYS_PROGRAM
        for row in rows
    }
    rest: dict[tuple[Scope, str], list[int]] = defaultdict(list)
    for row, (one, place) in enumerate(placed):
        if row in taken and row not in followers:
            continue
        number = explained.get(place.gpu) if row in followers else None
        if number is not None:
            found[number][3].append(row)
        elif place.gpu:
            rest[Scope.GPU, place.gpu].append(row)
        else:
            rest[Scope.SERIES, repr(one.key)].append(row)
    made = [CandidateGroup(scope, unit, cause, _members(placed, rows)) for scope, unit, cause, rows in found]
    return made + [CandidateGroup(scope, unit, None, _members(placed, rows)) for (scope, unit), rows in rest.items()]


def primary(members: Sequence[FindingCandidate]) -> Finding:
    """The leading candidate of a group: a passed limit, else the most urgent of the cause that explains most.

    A limit of a kernel's duration does not precede: heat or a power brake explains it.
    """
    findings = [candidate.latest for candidate in members]
    members_by_cause = Counter(finding.cause for finding in findings)

    def order(finding: Finding) -> tuple[Any, ...]:
        is_beyond = finding.state is FindingState.PASSED and finding.metric != DURATION.prometheus_name
        explains = _depth(finding.cause), -_ADVANCE[finding.state], -members_by_cause[finding.cause], finding.cause
        when = _median_seconds(finding), finding.passed_ns
        return (not is_beyond, *explains, *when, finding.metric, finding.labels)

    return min(findings, key=order)


_ADVANCE: Final = {
    FindingState.OVER: 0,
    FindingState.PREDICTED: 1,
    FindingState.OBSERVED: 2,
    FindingState.PASSED: 3,
}


def _depth(cause: Cause) -> int:
    return DEPTH.get(cause, 0)


def _median_seconds(one: Finding) -> float:
    median = one.seconds_to_limit[1] if one.seconds_to_limit is not None else None
    return float("inf") if median is None else median


def _followers(placed: Sequence[tuple[FindingCandidate, Place]]) -> set[int]:
    """Candidates that another cause on the same GPU explains; they join the group of that cause."""
    least: dict[str, int] = {}
    for one, place in placed:
        if one.latest.cause not in ALWAYS_PROGRAM:
            least[place.gpu] = min(_depth(one.latest.cause), least.get(place.gpu, len(DEPTH)))
    return {
        row
        for row, (one, place) in enumerate(placed)
        if place.gpu and one.latest.cause not in ALWAYS_PROGRAM and _depth(one.latest.cause) > least[place.gpu]
    }


def _buckets(
    placed: Sequence[tuple[FindingCandidate, Place]], choice: int, taken: set[int]
) -> dict[tuple[Scope, str, Cause], list[int]]:
    """Candidates by unit and cause, at the first, second, … scope that their cause can have."""
    found: dict[tuple[Scope, str, Cause], list[int]] = defaultdict(list)
    for row, (one, place) in enumerate(placed):
        scopes = WIDER.get(one.latest.cause, ())
        if row not in taken and choice < len(scopes) and place.at(scopes[choice]):
            found[scopes[choice], place.at(scopes[choice]), one.latest.cause].append(row)
    return found


def _is_wide(scope: Scope, cause: Cause, placed: Sequence[tuple[FindingCandidate, Place]]) -> bool:
    if scope is Scope.PROGRAM and cause in ALWAYS_PROGRAM:
        return True
    gpus = {place.gpu for _, place in placed if place.gpu}
    if len(gpus) < LEAST_GPUS[scope]:
        return False
    if scope is Scope.RACK:
        return len({place.node for _, place in placed}) >= LEAST_NODES
    findings = [candidate.latest for candidate, _ in placed]
    return scope is not Scope.NODE or len(gpus) >= LEAST_JOINED or _at_one_time(findings)


def _at_one_time(findings: Iterable[Finding]) -> bool:
    """Whether no fault is there already while another is predicted for later than an hour."""
    seconds_left = [
        _median_seconds(finding) if finding.state is FindingState.PREDICTED else 0.0 for finding in findings
    ]
    return min(seconds_left) > 0.0 or max(seconds_left) <= IMMINENT_SECONDS


def _members(placed: Sequence[tuple[FindingCandidate, Place]], rows: Iterable[int]) -> tuple[FindingCandidate, ...]:
    return tuple(placed[row][0] for row in rows)

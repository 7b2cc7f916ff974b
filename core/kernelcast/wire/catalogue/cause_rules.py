"""Rules that find the cause of a degradation from features, as a table.

The predictor (`causes/find.py`) tests the rules in order, for each GPU and program on it, at each cycle. Rules of one
topic answer one question (`MeaningQuestion`), and the first that holds decides; rules without a topic are
independent. Of several rules with one cause, the first that holds decides whether it is a page. An excuse is a result
that names the reason for which there is no cause; it ends its topic as a cause does. A condition on an unknown
feature does not hold. A limit without a source was chosen by us.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kernelcast.wire.catalogue import xids
from kernelcast.wire.catalogue.features import Feature
from kernelcast.wire.catalogue.meanings import Cause, MeaningQuestion
from kernelcast.wire.catalogue.xids import XidSubject


class ComparisonOperator(StrEnum):
    """Comparisons of a feature with the value of a condition."""

    AT_LEAST = "at least"
    AT_MOST = "at most"
    ONE_OF = "one of"


class Excuse(StrEnum):
    """Reasons for which a degradation has no cause that needs action."""

    NO_DATA = "no_data"
    NORMAL = "normal"
    SOFTWARE_POWER_CAP = "software_power_cap"
    FIRST_MINUTES = "first_minutes"
    APPLICATION_XID = "application_xid"


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a feature.

    Attributes:
        feature: The feature.
        comparison: The comparison.
        limit: Compared with it by `AT_LEAST` and `AT_MOST`.
        members: Compared with it by `ONE_OF`.
    """

    feature: Feature
    comparison: ComparisonOperator
    limit: float = 0.0
    members: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    Attributes:
        result: Cause that it finds, or the reason why there is none.
        conditions: All must hold.
        page: Whether the finding is a page; else it is a ticket.
        topic: Question that it answers; None for a rule of its own.
        evidence: Features that show it, beside those of the conditions.
        source: Origin of its limits.
    """

    result: Cause | Excuse
    conditions: tuple[Condition, ...]
    page: bool = False
    topic: MeaningQuestion | None = None
    evidence: tuple[Feature, ...] = ()
    source: str = ""


def _at_least(feature: Feature, limit: float) -> Condition:
    return Condition(feature, ComparisonOperator.AT_LEAST, limit)


def _at_most(feature: Feature, limit: float) -> Condition:
    return Condition(feature, ComparisonOperator.AT_MOST, limit)


_XID_CATALOGUE: Final = "NVIDIA, XID errors (docs.nvidia.com/deploy/xid-errors)"
_NVML: Final = "NVML API reference, nvmlClocksEventReasons"
_REMAPPING: Final = "NVIDIA GPU memory error management (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt)"
_POWER_CAP: Final = "NVSentinel issues 1447 and 1708: the cap is active under any heavy load"
_BRAKE: Final = "NVSentinel issue 1666: 9 of 288 nodes were braked for 36 hours"
_MATCHED: Final = 0.97
"""From this ratio on, the SM clock counts as equal to its usual value."""
_HALF: Final = 0.5
_SLOWER: Final = 1.1
"""Ratio of a duration, power or utilisation to its reference from which on it counts as changed."""
_SLOWER_THAN_FLEET: Final = 1.07
"""As `_SLOWER`, against other nodes: usual durations of many launches spread less than present ones."""
_KNOWN_PROGRAM: Final = 900.0
"""Seconds after the start of a process in which slow kernels are warm-up, not a cause."""

_MATCHED_CLOCK: Final = _at_least(Feature.CLOCK_RATIO, _MATCHED)


def _of_xids(
    result: Cause | Excuse, part: XidSubject, *, page: bool = False, evidence: tuple[Feature, ...] = ()
) -> Rule:
    """Return a rule for the XIDs about a part: the urgent ones if `page`, else the others."""
    members = xids.numbers(part, urgent=page)
    condition = Condition(Feature.XID_CODE, ComparisonOperator.ONE_OF, members=members)
    return Rule(result, (condition,), page=page, topic=MeaningQuestion.XID, evidence=evidence, source=_XID_CATALOGUE)


def _of_xids_to_recover(result: Cause, part: XidSubject) -> Rule:
    """Return a page for XIDs about a part that are a ticket by themselves, while the driver asks for a reset."""
    rule = _of_xids(result, part)
    return replace(rule, conditions=(*rule.conditions, _at_least(Feature.RECOVERY_ACTION, 1)), page=True)


_FAULTS: Final = (
    Rule(Cause.TELEMETRY_LOST, (_at_most(Feature.GPU_UP, 0.5),), page=True),
    Rule(
        Cause.TELEMETRY_LOST,
        (_at_least(Feature.SILENT_INTERVALS, 5), _at_most(Feature.NODE_SILENT_INTERVALS, 2)),
        page=True,
        source="GWDG, Fail quietly (arXiv 2603.28781): a GPU that leaves the bus loses its metrics first",
    ),
    Rule(
        Cause.TELEMETRY_LOST,
        (_at_least(Feature.METRICS_LOST, 1),),
        source="NVSentinel issue 1748: a failing GPU stalls its monitor",
    ),
    _of_xids(Cause.MEMORY_ERRORS, XidSubject.MEMORY, page=True),
    _of_xids(Cause.ROW_REMAPPING, XidSubject.REMAPPING, page=True),
    _of_xids(Cause.NVLINK, XidSubject.NVLINK, page=True),
    _of_xids(Cause.XID, XidSubject.GPU, page=True, evidence=(Feature.XID_COUNT, Feature.RECOVERY_ACTION)),
    # One page, although a counter of the same cause rises as well.
    _of_xids_to_recover(Cause.MEMORY_ERRORS, XidSubject.MEMORY),
    _of_xids_to_recover(Cause.ROW_REMAPPING, XidSubject.REMAPPING),
    # Before the XIDs that are no page: the last XID after a fault often is 154, which announces the recovery action, or
    # that of a program which the fault ended.
    Rule(
        Cause.XID,
        (_at_least(Feature.RECOVERY_ACTION, 1),),
        page=True,
        topic=MeaningQuestion.XID,
        evidence=(Feature.XID_CODE,),
        source="NVML, field 230: the driver asks for a reset or a reboot",
    ),
    Rule(Cause.ROW_REMAPPING, (_at_least(Feature.REMAP_FAILURE, 1),), page=True, source=_REMAPPING),
    # XID 94 stands before the counter of double-bit errors, which counts contained errors, too.
    _of_xids(Cause.MEMORY_ERRORS, XidSubject.MEMORY),
    _of_xids(Cause.ROW_REMAPPING, XidSubject.REMAPPING),
    _of_xids(Excuse.APPLICATION_XID, XidSubject.PROGRAM),
    Rule(
        Cause.XID,
        (_at_least(Feature.XID_CODE, 1),),
        topic=MeaningQuestion.XID,
        evidence=(Feature.XID_COUNT, Feature.RECOVERY_ACTION),
        source=_XID_CATALOGUE,
    ),
    Rule(Cause.MEMORY_ERRORS, (_at_least(Feature.DOUBLE_BIT_ERRORS, 1),), page=True, source=_REMAPPING),
    Rule(Cause.MEMORY_ERRORS, (_at_least(Feature.SINGLE_BIT_ERRORS, 60), _at_least(Feature.SINGLE_BIT_RATIO, 10))),
    Rule(
        Cause.ROW_REMAPPING,
        (_at_least(Feature.UNCORRECTABLE_REMAPS, 1),),
        evidence=(Feature.PENDING_RETIREMENTS,),
        source=_REMAPPING,
    ),
    Rule(Cause.ROW_REMAPPING, (_at_least(Feature.CORRECTABLE_REMAPS, 1),), source=_REMAPPING),
    Rule(Cause.ROW_REMAPPING, (_at_least(Feature.PENDING_RETIREMENTS, 1),), source=_REMAPPING),
    Rule(Cause.NVLINK, (_at_least(Feature.NVLINKS_DOWN, 1),), page=True),
    Rule(Cause.NVLINK, (_at_least(Feature.NVLINK_ERRORS, 100),)),
    Rule(
        Cause.PCIE_LINK,
        (_at_most(Feature.PCIE_WIDTH_RATIO, _HALF),),
        page=True,
        source="NVSentinel issue 890: links that came up with fewer lanes, without an XID",
    ),
    Rule(
        Cause.PCIE_LINK,
        (_at_most(Feature.PCIE_GENERATION_RATIO, 0.99), _at_least(Feature.UTILIZATION, 20)),
        source="NVSentinel issue 890; an idle GPU lowers its generation to save power",
    ),
    Rule(Cause.PCIE_ERRORS, (_at_least(Feature.PCIE_REPLAYS, 60), _at_least(Feature.PCIE_REPLAY_RATIO, 10))),
)

_SPEED: Final = (
    Rule(
        Cause.POWER_BRAKE,
        (_at_least(Feature.POWER_BRAKE_SHARE, _HALF),),
        page=True,
        topic=MeaningQuestion.SPEED,
        evidence=(Feature.CLOCK_RATIO, Feature.POWER_CAP_RATIO, Feature.DURATION_RATIO),
        source=f"{_NVML}; {_BRAKE}",
    ),
    Rule(
        Cause.THERMAL,
        (_at_least(Feature.HARDWARE_THERMAL_SHARE, _HALF),),
        page=True,
        topic=MeaningQuestion.SPEED,
        evidence=(Feature.LIMIT_MARGIN, Feature.THERMAL_MARGIN, Feature.CLOCK_RATIO, Feature.DURATION_RATIO),
        source=_NVML,
    ),
    Rule(
        Cause.THERMAL,
        (_at_least(Feature.SOFTWARE_THERMAL_SHARE, _HALF), _at_most(Feature.CLOCK_RATIO, _MATCHED)),
        page=True,
        topic=MeaningQuestion.SPEED,
        evidence=(Feature.LIMIT_MARGIN, Feature.THERMAL_MARGIN, Feature.DURATION_RATIO),
        source=_NVML,
    ),
    Rule(
        Cause.HARDWARE_SLOWDOWN,
        (_at_least(Feature.HARDWARE_SLOWDOWN_SHARE, _HALF),),
        page=True,
        topic=MeaningQuestion.SPEED,
        evidence=(Feature.CLOCK_RATIO, Feature.DURATION_RATIO),
        source=_NVML,
    ),
    Rule(
        Excuse.SOFTWARE_POWER_CAP,
        (_at_least(Feature.POWER_CAP_SHARE, _HALF), _at_most(Feature.CLOCK_RATIO, _MATCHED)),
        topic=MeaningQuestion.SPEED,
        source=_POWER_CAP,
    ),
    Rule(
        Cause.CLOCK_LOW,
        (_at_most(Feature.CLOCK_RATIO, 0.9),),
        page=True,
        topic=MeaningQuestion.SPEED,
        evidence=(Feature.UTILIZATION, Feature.DURATION_RATIO),
    ),
    Rule(
        Cause.THERMAL,
        (_at_least(Feature.SOFTWARE_THERMAL_SHARE, _HALF), _at_most(Feature.FLEET_CLOCK_RATIO, _MATCHED)),
        topic=MeaningQuestion.SPEED,
        evidence=(Feature.LIMIT_MARGIN, Feature.THERMAL_MARGIN, Feature.FLEET_RATIO),
        source=_NVML,
    ),
    Rule(
        Excuse.SOFTWARE_POWER_CAP,
        (_at_least(Feature.POWER_CAP_SHARE, _HALF), _at_most(Feature.FLEET_CLOCK_RATIO, _MATCHED)),
        topic=MeaningQuestion.SPEED,
        source=_POWER_CAP,
    ),
    Rule(
        Cause.CLOCK_LOW,
        (_at_least(Feature.FLEET_RATIO, _SLOWER_THAN_FLEET), _at_most(Feature.FLEET_CLOCK_RATIO, _MATCHED)),
        topic=MeaningQuestion.SPEED,
        evidence=(Feature.UTILIZATION,),
    ),
    Rule(
        Cause.AGEING,
        (_at_least(Feature.FLEET_RATIO, _SLOWER_THAN_FLEET), _at_most(Feature.PROGRAMS, 1)),
        topic=MeaningQuestion.SPEED,
        evidence=(Feature.FLEET_CLOCK_RATIO, Feature.UTILIZATION),
        source="SC22, Not all GPUs are created equal (arXiv 2208.11035): outliers are 1.5 times as slow",
    ),
    Rule(
        Excuse.FIRST_MINUTES,
        (_at_least(Feature.DURATION_RATIO, _SLOWER), _at_most(Feature.PROCESS_AGE, _KNOWN_PROGRAM)),
        topic=MeaningQuestion.SPEED,
    ),
    Rule(
        Cause.CONTENTION,
        (
            _at_least(Feature.DURATION_RATIO, _SLOWER),
            _at_least(Feature.PROGRAMS, 2),
            _at_least(Feature.MOVED_SHARE, _HALF),
            _MATCHED_CLOCK,
        ),
        page=True,
        topic=MeaningQuestion.SPEED,
    ),
    Rule(
        Cause.AGEING,
        (_at_least(Feature.DURATION_RATIO, _SLOWER), _MATCHED_CLOCK, _at_most(Feature.PROGRAMS, 1)),
        page=True,
        topic=MeaningQuestion.SPEED,
        evidence=(Feature.PEER_RATIO, Feature.UTILIZATION),
    ),
    Rule(
        Cause.AGEING,
        (_at_least(Feature.DURATION_CERTAINTY, 4), _at_least(Feature.DURATION_RATIO, 1.03), _MATCHED_CLOCK),
        page=True,
        topic=MeaningQuestion.SPEED,
        evidence=(Feature.PEER_RATIO, Feature.UTILIZATION),
        source="contention comes at once, ageing over hours",
    ),
    Rule(
        Cause.AGEING,
        (_at_least(Feature.PEER_RATIO, _SLOWER), _MATCHED_CLOCK, _at_most(Feature.PROGRAMS, 1)),
        topic=MeaningQuestion.SPEED,
        evidence=(Feature.DURATION_RATIO,),
        source="SC22, Not all GPUs are created equal (arXiv 2208.11035): outliers are 1.5 times as slow",
    ),
    Rule(
        Cause.KERNEL_SLOWDOWN,
        (_at_least(Feature.DURATION_RATIO, _SLOWER),),
        page=True,
        topic=MeaningQuestion.SPEED,
        evidence=(Feature.PEER_RATIO,),
    ),
)
# A version has its own baseline: what changed with it, and what slows it down now, are two findings.
_DEPLOY: Final = (Rule(Cause.DEPLOY, (_at_least(Feature.DEPLOY_RATIO, _SLOWER),)),)

_LEVELS: Final = (
    Rule(Cause.THERMAL, (_at_most(Feature.LIMIT_MARGIN, 0),), page=True, topic=MeaningQuestion.HEAT),
    Rule(Cause.THERMAL, (_at_most(Feature.THERMAL_MARGIN, 0),), page=True, topic=MeaningQuestion.HEAT),
    Rule(
        Cause.THERMAL,
        (_at_least(Feature.HEAT_CERTAINTY, 4), _at_most(Feature.HOURS_TO_LIMIT, 24)),
        page=True,
        topic=MeaningQuestion.HEAT,
        evidence=(Feature.LIMIT_MARGIN, Feature.POWER_RATIO),
    ),
    Rule(
        Cause.LOAD,
        (_at_least(Feature.POWER_RATIO, _SLOWER), _at_most(Feature.LIMIT_MARGIN, 10)),
        topic=MeaningQuestion.HEAT,
        evidence=(Feature.UTILIZATION,),
    ),
    Rule(
        Cause.MEMORY_LEAK,
        (
            _at_least(Feature.LEAK_CERTAINTY, 4),
            _at_most(Feature.HOURS_TO_FULL, 24),
            _at_most(Feature.MEMORY_FALL, 0.05),
        ),
        page=True,
    ),
    Rule(Cause.LOAD, (_at_least(Feature.UTILIZATION, 95), _at_least(Feature.UTILIZATION_RATIO, _SLOWER))),
    Rule(Cause.UNKNOWN, (_at_least(Feature.BEYOND_LIMIT, 1),), topic=MeaningQuestion.LAST),
)

RULES: Final[tuple[Rule, ...]] = (*_FAULTS, *_SPEED, *_DEPLOY, *_LEVELS)
"""In the order in which causes have precedence."""

SLOW_WORKER_PAGE: Final = 1.1
"""Ratio of a slow worker's time to its peers' from which it is a page; less is a ticket. No rule finds a slow worker:
the comparison of a program's workers does."""

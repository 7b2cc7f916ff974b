"""`python -m benchmarks.predictor others-fleet`: pages of a fleet that others wrote, through passages and the alarms.

No page is held by a budget. Each series is a row of its node, GPU and kind; evaluations begin after the first hour and
a half, so that the first day counts. Causes are those of the metrics: the fleet has no companions but power.
"""

import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from benchmarks.predictor.options import Options
from benchmarks.predictor.worlds.others_fleet import GRID_S, fleet
from benchmarks.predictor.worlds.series import World, WorldSeries

from kernelcast.predictor.alarms.alarms import Alarms
from kernelcast.predictor.alarms.settings import AlarmSettings
from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.passage.alert_rule import AlarmState
from kernelcast.predictor.passage.calibration import shipped
from kernelcast.predictor.passage.node import node_medians
from kernelcast.predictor.passage.run import MIN_BLOCKS, DetectorOptions
from kernelcast.predictor.passage.run import run as evaluations
from kernelcast.predictor.passage.series import BLOCK_SECONDS, SeriesBlocks, Traits
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.meanings import MEANINGS, OTHER, Cause
from kernelcast.wire.findings import Finding, FindingState, Scope, Severity

DAYS: Final = 7.0
GPUS: Final = 1000
SMALL_GPUS: Final = 128
FAULTS_PER_DAY: Final = 1.5
_SMALL_FAULTS: Final = 8.0
"""Times as many faults in the small case: else it has one."""
SEEDS: Final = 5
DAY_SECONDS: Final = 86_400.0
LONG_SECONDS: Final = 3 * 3600.0
_AFTER_SECONDS: Final = 600.0
"""A fault that reaches its limit within 40 minutes is found where the page comes within ten minutes after that."""
_SOON_SECONDS: Final = 2400.0
_WATCHED: Final = 3 * GPUS
"""Series that the evidence is weighed against, also in the small case: a part of such a fleet."""
_ROWS: Final = 250
_UNLIMITED: Final = AlarmSettings(pages_per_day=10_000)


@dataclass(frozen=True, slots=True)
class Row:
    """A series of the fleet."""

    node: str
    gpu: str
    world: World
    series: WorldSeries

    @property
    def labels(self) -> tuple[tuple[str, str], ...]:
        """Labels of its findings."""
        own = {"Hostname": self.node, "UUID": self.gpu}
        if self.series.metric == kernel.DURATION.prometheus_name:
            own |= {"program": f"train-{self.node}", "kernel": "gemm", "rank": self.gpu}
        return tuple(sorted(own.items()))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A series that alerts after some evaluation."""

    row: int
    beyond: bool
    level: float
    limit: float
    probability: float
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A page, with the rows that it is about and the Unix time at which each became a part of it."""

    at: float
    finding: Finding
    rows: dict[int, float]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault with the Unix times of its onset, its breach, and the first alert and page since the onset; inf: none."""

    kind: str
    onset: float
    breach: float
    alerted: float
    paged: float

    @property
    def is_slow(self) -> bool:
        """Whether its lead is compared."""
        return self.breach - self.onset >= LONG_SECONDS

    def is_in_time(self, first: float) -> bool:
        """Whether an alert or page at this time finds it."""
        soon = self.breach - self.onset <= _SOON_SECONDS
        return first <= self.breach + _AFTER_SECONDS if soon else first < self.breach

    def lead_minutes(self, first: float) -> float:
        """From an alert or page at this time to the breach; 0 for a miss."""
        return float(max(self.breach - first, 0.0)) / 60


def candidates(rows: Sequence[Row], first: int = MIN_BLOCKS) -> list[list[Candidate]]:
    """Series that alert at the end of each block, from the evaluation of all of them."""
    length = len(rows[0].series.times)
    found: list[list[Candidate]] = [[] for _ in range(length + 1)]
    options = DetectorOptions(calibration=shipped())
    node = _node_medians(rows)
    for begin in range(0, len(rows), _ROWS):
        part = rows[begin : begin + _ROWS]
        quiet = AlarmState.quiet(len(part))
        blocks = _blocks(part, node[begin : begin + _ROWS])
        for result in evaluations(blocks, _traits(part), options, ends=range(first, length + 1), alarms=quiet):
            now = result.found
            probability = np.nan_to_num(np.where(result.answered, now.passage.probability, np.nan)).max(axis=1)
            for place in np.flatnonzero(result.alarms.firing | now.beyond).tolist():
                seconds = tuple(now.passage.seconds[place].tolist())
                numbers = (float(now.trend.level[place]), float(now.limit[place]), float(probability[place]))
                found[result.end].append(Candidate(begin + place, bool(now.beyond[place]), *numbers, seconds))
    return found


def pages(rows: Sequence[Row], found: Sequence[Sequence[Candidate]], watched: int) -> list[Page]:
    """Pages that the control of alarms sends."""
    alarms = Alarms(_UNLIMITED)
    sent: dict[str, Page] = {}
    number = {(row.series.metric, row.labels): place for place, row in enumerate(rows)}
    started = float(rows[0].series.times[0])
    for end, now in enumerate(found):
        at = started + end * GRID_S
        changes = alarms.step((_finding(rows[one.row], one) for one in now), watched, round(at * 1e9))
        for one in changes:
            if one.severity is Severity.PAGE and one.state is not FindingState.OVER:
                sent.setdefault(one.finding_id, Page(at, one, {}))
        for each in alarms.candidates.by_series.values():
            if each.is_accepted and each.finding_id in sent:
                sent[each.finding_id].rows.setdefault(number[each.series], at)
    return list(sent.values())


def score(rows: Sequence[Row], sent: Sequence[Page], gpus: int, found: Sequence[Sequence[Candidate]]) -> dict[str, Any]:
    """Pages a day, their precision, and faults that were paged before the limit, from day two on and on day one.

    Args:
        rows: The series.
        sent: Pages.
        gpus: GPUs of the fleet.
        found: Series that alerted at the end of each block, to compare faults that were paged with those that alerted.
    """
    started = float(rows[0].series.times[0])
    spans = {place: _span(row) for place, row in enumerate(rows) if row.series.onset is not None}
    true = [page for page in sent if _true(page, rows, spans)]
    later = [page for page in sent if page.at >= started + DAY_SECONDS]
    alerts: dict[int, list[float]] = {}
    for end, now in enumerate(found):
        for one in now:
            alerts.setdefault(one.row, []).append(started + end * GRID_S)
    faults = []
    for place, (onset, breach, _) in spans.items():
        if breach < started + DAY_SECONDS:
            continue
        gpu, kind = rows[place].gpu, rows[place].world.name.split("_", 3)[3]
        paged = [at for page in true for one, at in page.rows.items() if rows[one].gpu == gpu]
        faults.append(Fault(kind, onset, breach, _first(alerts.get(place, []), onset), _first(paged, onset)))
    slow = [fault for fault in faults if fault.is_slow]
    false = [page for page in later if page not in true]
    return {
        "gpus": gpus,
        "pages_per_day": len(later) / (DAYS - 1),
        "precision": 1 - len(false) / len(later) if later else None,
        "false": len(false),
        "paged": sum(fault.is_in_time(fault.paged) for fault in faults),
        "faults": len(faults),
        "lead_minutes": [fault.lead_minutes(fault.paged) for fault in slow],
        "pages_on_day_one": len(sent) - len(later),
        "by_fault": {
            kind: _of_kind([fault for fault in faults if fault.kind == kind])
            for kind in sorted({fault.kind for fault in faults})
        },
        "false_pages": [_shown(page, rows, started) for page in false],
        "false_by_world": dict(Counter(min(rows[one].world.name for one in page.rows) for page in false if page.rows)),
    }


def _first(times: Sequence[float], since: float) -> float:
    return min((at for at in times if at >= since), default=np.inf)


def _of_kind(faults: Sequence[Fault]) -> dict[str, Any]:
    slow = [fault for fault in faults if fault.is_slow]
    return {
        "faults": len(faults),
        "alerted": sum(fault.is_in_time(fault.alerted) for fault in faults),
        "paged": sum(fault.is_in_time(fault.paged) for fault in faults),
        "alert_lead_minutes": [fault.lead_minutes(fault.alerted) for fault in slow],
        "lead_minutes": [fault.lead_minutes(fault.paged) for fault in slow],
    }


def run_seed(seed: int, gpus: int, more_faults: float = 1.0) -> dict[str, Any]:
    """Score one fleet, with some times the usual number of faults."""
    rng = np.random.default_rng([seed, gpus])
    rows = [Row(*one) for one in fleet(rng, gpus, DAYS, FAULTS_PER_DAY * gpus / GPUS * more_faults)]
    found = candidates(rows)
    figures = score(rows, pages(rows, found, _WATCHED), gpus, found)
    return {"seed": seed, **figures, "alone": one_at_a_time(rows, found)}


def one_at_a_time(rows: Sequence[Row], found: Sequence[Sequence[Candidate]]) -> dict[str, Any]:
    """Faults that are paged where each is the only one: predictions at the same time need less evidence each."""
    paged, faults, leads = 0, 0, []
    for place, row in enumerate(rows):
        if row.series.onset is None:
            continue
        mine = [[replace(one, row=0) for one in now if one.row == place] for now in found]
        figures = score([row], pages([row], mine, _WATCHED), 1, mine)
        paged, faults = paged + figures["paged"], faults + figures["faults"]
        leads += figures["lead_minutes"]
    return {"paged": paged, "faults": faults, "lead_minutes": leads}


def _seeds(options: Options) -> Iterator[dict[str, Any]]:
    """Score each seed, and print its line at once, as a seed takes half an hour."""
    gpus = options.series or (SMALL_GPUS if options.small else GPUS)
    for seed in range(options.seed, options.seed + (options.seeds or SEEDS)):
        figures = run_seed(seed, gpus, _SMALL_FAULTS if options.small else 1.0)
        sys.stderr.write(f"{_seed_line(figures)}\n")
        yield figures


def _span(row: Row) -> tuple[float, float, float]:
    series = row.series
    assert series.onset is not None
    assert series.breach is not None
    return series.onset, series.breach, float(series.times[-1])


def _true(page: Page, rows: Sequence[Row], spans: dict[int, tuple[float, float, float]]) -> bool:
    """Whether a page is about a GPU with a fault, after its onset."""
    faulty: dict[str, float] = {}
    for place, (onset, _, _) in spans.items():
        faulty[rows[place].gpu] = min(onset, faulty.get(rows[place].gpu, np.inf))
    return any(at >= faulty.get(rows[one].gpu, np.inf) for one, at in page.rows.items())


def _shown(page: Page, rows: Sequence[Row], started: float) -> str:
    one = page.finding
    names = ",".join(sorted({rows[each].world.name for each in page.rows}))
    gpu = dict(one.labels).get("UUID", "")[:10]
    return (
        f"day {(page.at - started) / DAY_SECONDS:.2f} {one.scope} {dict(one.labels).get('Hostname')} {gpu} {names} "
        f"{one.state} {one.series}"
    )


def _finding(row: Row, one: Candidate) -> Finding:
    meaning = MEANINGS.get(row.series.metric, OTHER)
    early, median, late = (float(value) if np.isfinite(value) else None for value in one.seconds)
    return Finding(
        finding_id="",
        cause=meaning.cause if row.series.metric in MEANINGS else Cause.MEMORY_LEAK,
        state=FindingState.PASSED if one.beyond else FindingState.PREDICTED,
        severity=Severity.PAGE,
        scope=Scope.SERIES,
        labels=row.labels,
        metric=row.series.metric,
        value=one.level,
        limit=one.limit,
        probability=one.probability,
        seconds_to_limit=(early, median, late),
    )


def _node_medians(rows: Sequence[Row]) -> Floats:
    """Medians of each row's metric over the GPUs of its node, shape (n, t)."""
    numbers: dict[tuple[str, str], int] = {}
    keys = [(row.node, row.series.metric) for row in rows]
    groups = np.array([numbers.setdefault(key, len(numbers)) for key in keys])
    return node_medians(np.stack([row.series.values for row in rows]), groups)


def _blocks(rows: Sequence[Row], node: Floats) -> SeriesBlocks:
    values: Floats = np.stack([row.series.values for row in rows])
    nothing = np.full(values.shape[1], np.nan)
    power = device.POWER_USAGE.prometheus_name
    load: Floats = np.stack([row.series.companions.get(power, nothing) for row in rows])
    none: Ints = np.zeros(values.shape, np.int64)
    averaged = np.array([MEANINGS.get(row.series.metric, OTHER).resolution > 0 for row in rows])
    return SeriesBlocks.of(values, values, load, none, none - 1, averaged=averaged, node=node)


def _traits(rows: Sequence[Row]) -> Traits:
    meanings = [MEANINGS.get(row.series.metric, OTHER) for row in rows]
    own = np.array([row.series.metric == kernel.DURATION.prometheus_name for row in rows])
    limits = np.array([row.series.limit for row in rows])
    return Traits(
        limit=np.where(own, np.nan, limits),
        baseline_ratio=np.array([one.own_ratio or np.nan for one in meanings]),
        below=np.zeros(len(rows), np.bool_),
        resolution=np.array([one.resolution for one in meanings]),
        settling_blocks=np.array([round(one.settling_seconds / BLOCK_SECONDS) for one in meanings], np.int64),
        reserves=np.array([one.reserved for one in meanings]),
    )


def run(options: Options) -> dict[str, Any]:
    """Score fleets of some seeds."""
    return {"simulated": True, "seeds": list(_seeds(options))}


def table(result: dict[str, Any]) -> str:
    """Text for people: each seed, then each kind of fault over all seeds."""
    heads = f"{'seed':>6}{'pages/day':>11}{'precision':>11}{'false':>7}{'paged':>10}{'lead':>6}{'alone':>10}{'lead':>6}"
    lines = [f"{heads}{'day one':>9}"]
    lines += [_seed_line(one) for one in result["seeds"]]
    lines += ["", f"{'fault':20}{'of':>5}{'alerted':>9}{'lead':>6}{'paged':>7}{'lead':>6}"]
    for kind in sorted({kind for one in result["seeds"] for kind in one["by_fault"]}):
        lines.append(_kind_line(kind, [one["by_fault"][kind] for one in result["seeds"] if kind in one["by_fault"]]))
    return "\n".join(lines)


def _seed_line(one: dict[str, Any]) -> str:
    alone = one["alone"]
    return (
        f"{one['seed']:>6}{one['pages_per_day']:>11.2f}{one['precision'] or 0:>11.2f}{one['false']:>7}"
        f"{one['paged']:>6}/{one['faults']:<3}{_median(one['lead_minutes']):>6}"
        f"{alone['paged']:>6}/{alone['faults']:<3}{_median(alone['lead_minutes']):>6}{one['pages_on_day_one']:>9}"
    )


def _kind_line(kind: str, parts: Sequence[dict[str, Any]]) -> str:
    count = {name: sum(part[name] for part in parts) for name in ("faults", "alerted", "paged")}
    alert_lead = _median([lead for part in parts for lead in part["alert_lead_minutes"]])
    lead = _median([lead for part in parts for lead in part["lead_minutes"]])
    return f"{kind:20}{count['faults']:>5}{count['alerted']:>9}{alert_lead:>6}{count['paged']:>7}{lead:>6}"


def _median(leads: Sequence[float]) -> str:
    return f"{statistics.median(leads):.0f}" if leads else "-"

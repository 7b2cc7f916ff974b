"""Rates from pages over time: of kernels launches, GPU time and mean duration, of programs steps, items and phases.

`model.Recent` keeps a `History` of the newest pages.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final, NamedTuple, TypeAlias

from kernelcast.view.page import (
    KernelStats,
    KernelTotals,
    ProgramTimes,
    ScrapedPage,
    SeriesKey,
    StepTotals,
    program_of,
    work_of,
)

NOW_SECONDS: Final = 30.0
"""Time over which a rate is measured: sources report every 1 to 10 s, so it spans several reports."""
REPORT_SECONDS: Final = 10.0
"""The exporter's default interval."""
LEAST_STEPS: Final = 3.0
"""Steps between two pages from which ranks are compared."""
SLOW_RATIO: Final = 0.1
"""Part of a step by which a rank's own work is longer than its peers' before it is named."""

_Shares: TypeAlias = Mapping[SeriesKey, float]
"""Share of measured time by program; 0 if nothing was measured, and no entry for programs that do not count it."""
_Work: TypeAlias = tuple[SeriesKey | None, SeriesKey | None]
"""Launch configuration of a kernel, and versions of its program, as their labels; None where they are not known."""


@dataclass(frozen=True, slots=True)
class KernelNow:
    """One kernel in the time between two pages.

    Attributes:
        name: The label `kernel`.
        programs: Programs that launch it.
        collective: Whether it waits for other GPUs.
        launches: Launches since the beginning.
        launches_per_second: None before there are two pages, and where nothing was measured between them.
        busy_ratio: GPU seconds a second: 1 is a whole GPU.
        mean_seconds: Mean duration of the launches in this time; None where none was timed.
        before_seconds: Mean duration of all launches before this time, with the present configuration and versions.
        p50_seconds, p99_seconds: Median and 99th percentile since the beginning.
        change_ratio: Duration now by before, each program on each GPU by itself; None where none can be compared.
    """

    name: str
    programs: tuple[str, ...]
    collective: bool
    launches: float
    launches_per_second: float | None
    busy_ratio: float | None
    mean_seconds: float | None
    before_seconds: float | None
    p50_seconds: float | None
    p99_seconds: float | None
    change_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class ProgramNow:
    """One program, over all its ranks, in the time between two pages.

    Attributes:
        name: The label `program`; with its job, where two jobs have the same name.
        ranks: Ranks that have reported steps or kernels.
        processes: Live processes; more than the ranks where several programs have one name. 0 if that is not known.
        steps: Steps of the rank that has made the most, since the beginning.
        steps_per_second: Of a rank, on average; None before there are two reports, and without steps.
        items_per_second: Of all ranks together; None where the program counts none.
        step_seconds: Mean time of a step; of the steps since the beginning, where none ended between the two pages.
        phases: Share of each phase, the largest first; since the beginning, where nothing was added since.
        regions: Share of the steps' time in each region that the program has named; without steps, share of all time.
        now: Phases that its processes are in.
        idle_seconds: Time since the last step or change of phase of its slowest rank; None where that is not known.
        launches_per_second: Kernel launches; None before there are two pages, and if nothing was measured.
        slow_rank: The rank that the others wait for in backward; None where none stands out.
    """

    name: str
    ranks: int
    processes: int
    steps: float
    steps_per_second: float | None
    items_per_second: float | None
    step_seconds: float | None
    phases: tuple[tuple[str, float], ...]
    regions: tuple[tuple[str, float], ...]
    now: tuple[str, ...]
    idle_seconds: float | None
    launches_per_second: float | None
    slow_rank: "SlowRank | None" = None


class SlowRank(NamedTuple):
    """A rank whose own work takes longer than that of its peers, which wait for it in backward.

    Attributes:
        rank: Its label `rank`.
        own_seconds: Time of a step outside backward.
        peers_seconds: The median of the others' time outside backward.
    """

    rank: str
    own_seconds: float
    peers_seconds: float


@dataclass(slots=True)
class History:
    """Pages of the last `NOW_SECONDS`, oldest first; at least the two newest. For one thread.

    Attributes:
        changed_seconds: Time of the last rise of the exporter's or predictor's count of intervals; None if unknown.
    """

    changed_seconds: float | None = None
    _pages: deque[tuple[float, ScrapedPage]] = field(default_factory=deque)
    _works: dict[SeriesKey, tuple[_Work, KernelTotals]] = field(default_factory=dict)

    def add(self, now_seconds: float, page: ScrapedPage) -> None:
        """Add a page; those before the measured time are forgotten, and all after a clock that has been set back."""
        if self._pages and now_seconds < self.page_seconds:
            self._pages.clear()
            self.changed_seconds = None
        if self._pages and page.ticks is not None and page.ticks != self._pages[-1][1].ticks:
            self.changed_seconds = now_seconds
        self._pages.append((now_seconds, page))
        self._works = {
            series: self._since(series, totals, page)
            for stats in page.kernels.values()
            for series, totals in stats.series.items()
        }
        while len(self._pages) > 2 and self._pages[1][0] <= now_seconds - NOW_SECONDS:
            self._pages.popleft()

    def _since(self, series: SeriesKey, totals: KernelTotals, page: ScrapedPage) -> tuple["_Work", KernelTotals]:
        """What a series' kernel works on, and its totals when that began."""
        labels = dict(series)
        work = (page.works.get(work_of(labels)), page.works.get(program_of(labels)))
        before, begun = self._works.get(series, (work, KernelTotals()))
        if totals.count < begun.count:
            begun = KernelTotals()
        return work, begun if work == before else replace(totals)

    @property
    def page(self) -> ScrapedPage | None:
        """The newest page."""
        return self._pages[-1][1] if self._pages else None

    @property
    def page_seconds(self) -> float:
        """Time of the newest page."""
        return self._pages[-1][0]

    @property
    def span_seconds(self) -> float:
        """Time between the oldest and the newest page."""
        return self._pages[-1][0] - self._pages[0][0] if self._pages else 0.0

    def age_seconds(self, now_seconds: float) -> float | None:
        """Age of the newest figures: as the bridge says it, or since an exporter's last interval; None if unknown."""
        page = self.page
        if page is None:
            return None
        # A clock may have been set back since then.
        if page.age_seconds is not None:
            return page.age_seconds + max(0.0, now_seconds - self.page_seconds)
        return max(0.0, now_seconds - self.changed_seconds) if self.changed_seconds is not None else None

    def kernels(self) -> list[KernelNow]:
        """Every kernel of the newest page."""
        if not self._pages:
            return []
        (_, old), (_, new) = self._pages[0], self._pages[-1]
        shares = _shares(new, old)
        return [
            _kernel_rates(name, stats, old.kernels.get(name), (self.span_seconds, shares), self._works)
            for name, stats in new.kernels.items()
        ]

    def programs(self, now_seconds: float) -> list[ProgramNow]:
        """Every program of the newest page."""
        if not self._pages:
            return []
        (_, old), (_, new), span = self._pages[0], self._pages[-1], self.span_seconds
        launches = _launch_rates(new, old, span)
        jobs: dict[str, set[str]] = {}
        for key, totals in new.steps.items():
            jobs.setdefault(dict(key).get("program", ""), set()).add(totals.job)
        members: dict[str, dict[SeriesKey, StepTotals]] = {name: {} for name in launches}
        for key, totals in new.steps.items():
            name = dict(key).get("program", "")
            several = len(jobs[name]) > 1 and totals.job
            members.setdefault(f"{name} ({totals.job})" if several else name, {})[key] = totals
        return [
            _program(
                name,
                {key: self._grown(key, ranks[key]) for key in ranks},
                now_seconds,
                launches.get(name),
                _processes(new, ranks or [key for key in new.processes if dict(key).get("program", "") == name]),
            )
            for name, ranks in sorted(members.items())
        ]

    def _grown(self, key: SeriesKey, totals: StepTotals) -> "_RankNow":
        """A rank's totals, and their increase since the oldest page that has it: it may join with an old total.

        Reports come less often than pages, so the time of the steps is that between the last steps of two reports;
        that of the pages for a rank that stands still or does not say when it was. Without a step it is not known
        before a report must have come.
        """
        time, oldest = next((time, page.steps[key]) for time, page in self._pages if key in page.steps)
        grown, span_seconds = _step_increase(totals, oldest), self.page_seconds - time
        moved_seconds = totals.progress_seconds - oldest.progress_seconds if oldest.progress_seconds else 0.0
        runs = self.page_seconds - totals.progress_seconds < 1.5 * REPORT_SECONDS
        if grown.steps and runs and moved_seconds > 0:
            span_seconds = moved_seconds
        elif not grown.steps and span_seconds < REPORT_SECONDS:
            span_seconds = 0.0
        return _RankNow(totals, grown, span_seconds)


@dataclass(frozen=True, slots=True)
class _RankNow:
    """Steps of one rank: since the beginning, and their increase within some seconds."""

    totals: StepTotals
    grown: StepTotals
    span_seconds: float


def _launch_rates(new: ScrapedPage, old: ScrapedPage, span_seconds: float) -> dict[str, float | None]:
    """Launches a second by program."""
    shares = _shares(new, old)
    grown: dict[str, dict[SeriesKey, KernelTotals]] = {program: {} for program in new.programs}
    for name, stats in new.kernels.items():
        for series, increase in _increases(stats, old.kernels.get(name)).items():
            grown.setdefault(dict(series).get("program", ""), {})[series] = increase
    return {program: _rate(increases, span_seconds, shares) for program, increases in grown.items()}


def _processes(page: ScrapedPage, series: Iterable[SeriesKey]) -> int:
    """Number of a program's live processes. A process that works on several GPUs counts in the series of each."""
    by_rank: dict[tuple[str, str], float] = {}
    for key in series:
        labels = dict(key)
        rank = labels.get("Hostname", ""), labels.get("rank", "")
        by_rank[rank] = max(by_rank.get(rank, 0.0), page.processes.get(key, 0.0))
    return round(sum(by_rank.values()))


def _program(
    name: str, by_rank: Mapping[SeriesKey, _RankNow], now_seconds: float, launches: float | None, processes: int
) -> ProgramNow:
    ranks = list(by_rank.values())
    totals, grown = [rank.totals for rank in ranks], [rank.grown for rank in ranks]
    measured = [rank for rank in ranks if rank.span_seconds]
    steps = [rank.grown.steps / rank.span_seconds for rank in measured]
    items = [rank.grown.items / rank.span_seconds for rank in measured]
    timed = grown if any(steps) else totals
    timed_steps = sum(rank_totals.steps for rank_totals in timed)
    progress = [rank_totals.progress_seconds for rank_totals in totals if rank_totals.progress_seconds]
    return ProgramNow(
        name,
        len(ranks) or 1,
        processes,
        max((rank_totals.steps for rank_totals in totals), default=0.0),
        sum(steps) / len(steps) if steps else None,
        sum(items) if items and any(rank_totals.items for rank_totals in totals) else None,
        sum(rank_totals.seconds for rank_totals in timed) / timed_steps if timed_steps else None,
        _phase_shares(grown if any(sum(rank_totals.phases.values()) for rank_totals in grown) else totals),
        _region_shares(grown, sum(rank.span_seconds for rank in ranks)) or _region_shares(totals, 0.0),
        tuple(sorted(set().union(*(rank_totals.now for rank_totals in totals)))),
        max(0.0, now_seconds - min(progress)) if progress else None,
        launches,
        _slow_rank({dict(key).get("rank", ""): rank.grown for key, rank in by_rank.items()}),
    )


def _slow_rank(grown: Mapping[str, StepTotals]) -> SlowRank | None:
    """Return the rank that does most outside backward, where that is a tenth of a step more than the others do.

    In data-parallel training the ranks meet in backward: one that comes later waits less there, the others wait more.
    """
    own, step_seconds = {}, []
    for rank, increase in grown.items():
        whole = sum(increase.phases.values())
        if increase.steps < LEAST_STEPS or not increase.phases.get("backward"):
            return None
        own[rank] = (whole - increase.phases["backward"]) / increase.steps
        step_seconds.append(whole / increase.steps)
    if len(own) < 2 or "" in own:
        return None
    slowest = max(own, key=lambda rank: own[rank])
    peers = median(seconds for rank, seconds in own.items() if rank != slowest)
    stands_out = own[slowest] - peers >= SLOW_RATIO * median(step_seconds)
    return SlowRank(slowest, own[slowest], peers) if stands_out else None


def _step_increase(new: StepTotals, old: StepTotals) -> StepTotals:
    """The increase of one rank; one that began again between two pages began at 0."""
    if new.steps < old.steps or sum(new.phases.values()) < sum(old.phases.values()):
        return new
    phases = {phase: seconds - old.phases.get(phase, 0.0) for phase, seconds in new.phases.items()}
    regions = {region: seconds - old.regions.get(region, 0.0) for region, seconds in new.regions.items()}
    return StepTotals(new.steps - old.steps, new.items - old.items, new.seconds - old.seconds, phases, regions)


def _phase_shares(totals: Sequence[StepTotals]) -> tuple[tuple[str, float], ...]:
    seconds = _summed(rank_totals.phases for rank_totals in totals)
    return _shares_of(seconds, sum(seconds.values()))


def _region_shares(totals: Sequence[StepTotals], span_seconds: float) -> tuple[tuple[str, float], ...]:
    seconds = {name: part for name, part in _summed(rank_totals.regions for rank_totals in totals).items() if part}
    return _shares_of(seconds, sum(rank_totals.seconds for rank_totals in totals) or span_seconds)


def _summed(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for rank_parts in parts:
        for name, part in rank_parts.items():
            seconds[name] = seconds.get(name, 0.0) + max(0.0, part)
    return seconds


def _shares_of(seconds: Mapping[str, float], whole_seconds: float) -> tuple[tuple[str, float], ...]:
    """Return the share of each part, the largest first."""
    shares = [(name, part / whole_seconds) for name, part in seconds.items()] if whole_seconds else []
    return tuple(sorted(shares, key=lambda share: -share[1]))


def _shares(new: ScrapedPage, old: ScrapedPage) -> _Shares:
    """Return the share of measured time between two pages; 1 for a program that did not run."""
    shares = {}
    for program, now in new.times.items():
        before = old.times.get(program, ProgramTimes())
        if now.running < before.running or now.measured < before.measured:
            before = ProgramTimes()
        running = now.running - before.running
        shares[program] = (now.measured - before.measured) / running if running else 1.0
    return shares


def _rate(increases: Mapping[SeriesKey, KernelTotals], span_seconds: float, shares: _Shares) -> float | None:
    """Return launches a second of wall time; None if nothing was measured."""
    measured = [
        increase.launches / share
        for series, increase in increases.items()
        if (share := shares.get(program_of(dict(series)), 1.0)) > 0
    ]
    return sum(measured) / span_seconds if measured and span_seconds else None


def _increases(new: KernelStats, old: KernelStats | None) -> dict[SeriesKey, KernelTotals]:
    """Return the increase of each series, as Prometheus' `increase` has it.

    A series whose total fell was started again, and one of a new kernel began: both at 0. A further series of a known
    kernel, such as one of another rank, joins with an old total, so it counts from the next page on.
    """
    increases: dict[SeriesKey, KernelTotals] = {}
    for key, totals in new.series.items():
        before = KernelTotals() if old is None else old.series.get(key, totals)
        if totals.launches < before.launches or totals.count < before.count:
            before = KernelTotals()
        increases[key] = grown = KernelTotals()
        grown.add(totals)
        grown.add(before, -1)
    return increases


def _kernel_rates(
    name: str,
    new: KernelStats,
    old: KernelStats | None,
    measured: tuple[float, _Shares],
    works: Mapping[SeriesKey, tuple[_Work, KernelTotals]],
) -> KernelNow:
    """Return a kernel's rates, and its mean duration against that of the launches before this time."""
    span_seconds, shares = measured
    grown, before, compared, expected = KernelTotals(), KernelTotals(), 0.0, 0.0
    increases = _increases(new, old)
    for series, increase in increases.items():
        grown.add(increase)
        own = replace(new.series[series])
        own.add(increase, -1)
        own.add(works[series][1], -1)
        if own.count <= 0:
            continue  # the work, or the series itself, began within this time
        before.add(own)
        if increase.count:
            compared, expected = compared + increase.seconds, expected + increase.count * own.seconds / own.count
    mean = grown.seconds / grown.count if grown.count else None
    rate = _rate(increases, span_seconds, shares)
    # Launches a second times mean duration: all launches count, although only some were timed.
    busy = rate * mean if rate is not None and mean is not None else 0.0 if rate == 0 else None
    return KernelNow(
        name,
        tuple(sorted(new.programs)),
        new.collective,
        new.launches,
        rate,
        busy,
        mean if span_seconds else None,
        before.seconds / before.count if before.count else None,
        new.quantile_seconds(0.5),
        new.quantile_seconds(0.99),
        compared / expected if expected and span_seconds else None,
    )

"""Replays one seed: a campaign whose requests the oracle answers; `lab.tune_replay` calls it for each seed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from kernelcast.tuning.campaign import Campaign, LaunchRequest, Proved
from kernelcast.tuning.formats.measurements import Measurements
from kernelcast.tuning.search import OWN, named_search, warm
from kernelcast.tuning.space import Space
from lab.replay.client import MeasuredLaunches, Oracle


@dataclass
class SeedResult:
    """The result of one seed."""

    seed: int
    document: dict[str, Any] = field(default_factory=dict)
    refusals: int = 0


def replay(oracle: Oracle, *, seed: int, budget: int, devices: Sequence[Measurements], search: str = OWN) -> SeedResult:
    """Tune against an oracle.

    Args:
        oracle: A connection of its own.
        seed: The seed.
        budget: Most different configurations; the oracle's own limit holds as well.
        devices: Measurements of other devices.
        search: Name of the search.

    Raises:
        ConfigurationError: There is no such search.
        OracleError: The oracle broke off, or broke the protocol.
    """
    task = oracle.space(seed)
    space = task.space
    seeds = warm.seeds(space, [device.ordered(space) for device in devices])
    allowed = min(budget, task.budget)
    chosen = named_search(search, space, seed=seed, budget=allowed, seeds=seeds)
    campaign = Campaign(space, seed=seed, budget=allowed, search=chosen)
    run = SeedResult(seed)
    reported = 0
    while (request := campaign.next()) is not None:
        _answer(campaign, request, oracle.measure(space.values(request.ordinal), request.launches), run)
        for verdict in campaign.verdicts[reported:]:
            oracle.verdict(_verdict(space, verdict))
        reported = len(campaign.verdicts)
    oracle.end(space.values(campaign.kept))
    run.document = document(campaign, seed)
    return run


def _answer(campaign: Campaign, request: LaunchRequest, measured: MeasuredLaunches, run: SeedResult) -> None:
    if measured.refused:
        run.refusals += 1
        campaign.refused(measured.refused)
        return
    if measured.left is not None:
        campaign.limit(measured.left, after=request.ordinal)
    if measured.failed:
        campaign.failed(measured.failed)
    else:
        campaign.measured(measured.times)


def _verdict(space: Space, proved: Proved) -> dict[str, Any]:
    return {
        "config": list(space.values(proved.ordinal)),
        "against": list(space.values(proved.against)),
        "decision": str(proved.decision),
        "ratio": proved.ratio,
        "interval": None if proved.interval is None else list(proved.interval),
    }


def document(campaign: Campaign, seed: int) -> dict[str, Any]:
    """Return the findings of a campaign, as a part of the command's document."""
    space = campaign.space
    return {
        "seed": seed,
        "evaluations": campaign.evaluations,
        "launches": campaign.times.launches,
        "kept": list(space.values(campaign.kept)),
        "best": list(space.values(campaign.best)),
        "verdicts": [_verdict(space, verdict) for verdict in campaign.verdicts],
        "suggest_ms_median": median(campaign.suggest_ms) if campaign.suggest_ms else 0.0,
        "lost_ratio": campaign.lost_ratio(),
    }

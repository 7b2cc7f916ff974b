"""Breach probabilities of simulated series: reliability, and skill against the base rate; and coverage of intervals.

Two ways to draw a claim's time: `any moment` of the evaluation, as a person who looks at a dashboard; and `under way`,
between onset and breach of a faulty series. The first has no claims for 24 hours, as they would all be made before the
first fault, and none of contention before it begins: neither can be foreseen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from benchmarks.predictor.breaches import interval_coverage, passage_run
from benchmarks.predictor.breaches.reliability import Claims, draw_claims, reliability, skill_at_prevalence
from benchmarks.predictor.options import Options
from benchmarks.predictor.simulation.generate import PER_CLASS, generate
from benchmarks.predictor.simulation.scenario import CONTENTION, DRIFTS, NEGATIVES, Scenarios

from kernelcast.predictor.passage.calibration import shipped
from kernelcast.predictor.passage.first_passage import HORIZONS_SECONDS

SEEDS: Final = 3
ANY_MOMENT, UNDER_WAY = "any moment", "under way"
RARE_SHARES: Final = (0.02, 0.001)
"""Shares of faulty series to which the claims are reweighted."""
_LONGEST_AT_ANY_MOMENT_SECONDS: Final = 14_400.0
FEW_FAULTS: Final[Mapping[str, int]] = dict.fromkeys(DRIFTS, 3) | dict.fromkeys(NEGATIVES, 61)
"""2 per cent of 561 series are faulty."""
POPULATIONS: Final[Mapping[str, Mapping[str, int]]] = {
    "29 % faulty": dict.fromkeys((*DRIFTS, CONTENTION, *NEGATIVES), PER_CLASS),
    "2 % faulty": FEW_FAULTS,
}


def run(options: Options) -> dict[str, Any]:
    """Score three seeds, from the given one on, together."""
    populations, intervals = {}, {}
    for name, counts in POPULATIONS.items():
        scenarios = [generate(options.seed + number, counts) for number in range(SEEDS)]
        populations[name] = _population(options.seed, scenarios)
        intervals[name] = interval_coverage.coverage(scenarios)
    return {
        "simulated": True,
        "calibration": shipped().origin,
        "seeds": [options.seed, options.seed + SEEDS - 1],
        "goals": {"tolerance": 0.10, "skill": 0.75, "coverage_tolerance": interval_coverage.TOLERANCE},
        "populations": populations,
        "intervals": intervals,
    }


def table(result: dict[str, Any]) -> str:
    """Text for people."""
    lines = ["simulated; calibrated from simulation (other seeds)"]
    for population, moments in result["populations"].items():
        for moment, figures in moments.items():
            judged = f"{figures['judged_bins']} bins have 50 series"
            holds = f"{judged}, {'all hold' if figures['holds'] else 'NOT all hold'}"
            counts = f"{figures['claims']} claims, {figures['came']} came"
            score = f"Brier {figures['brier']}, skill {figures['skill']}"
            lines += ["", f"{population}, {moment}: {counts}, {score}; {holds}"]
            lines += [_bin_line(bin_) for bin_ in figures["bins"] if bin_["claims"]]
            lines += [_horizon_line(float(seconds), scores) for seconds, scores in figures["horizons"].items()]
            for share, skills in figures["at_prevalence"].items():
                lines += [_rare_line(float(share), float(seconds), skill) for seconds, skill in skills.items()]
        lines += ["", f"{population}, all series", *interval_coverage.lines(result["intervals"][population])]
    return "\n".join(lines)


def _bin_line(bin_: dict[str, Any]) -> str:
    verdict = "" if bin_["holds"] is None else ", holds" if bin_["holds"] else ", DOES NOT HOLD"
    figures = f"{bin_['series']:5} series, said {bin_['said']}, came {bin_['came']} {bin_['interval']}"
    return f"  {bin_['from']:.2f} to {bin_['to']:.2f}: {figures}{verdict}"


def _horizon_line(seconds: float, scores: dict[str, Any]) -> str:
    counts = f"{scores['claims']} claims, {scores['came']} came"
    return f"  {seconds / 3600:.2g} h: {counts}, Brier {scores['brier']}, skill {scores['skill']}"


def _rare_line(share: float, seconds: float, score: dict[str, Any]) -> str:
    counts = f"{score['faults']} faults, {score['healthy']} healthy"
    skill = f"skill {score['skill']} {score['interval']}"
    return f"  {share:.1%} faulty by weight, {seconds / 3600:.2g} h: {counts}, {skill}"


def _population(seed: int, seeds: Sequence[Scenarios]) -> dict[str, Any]:
    by_moment: dict[str, list[Claims]] = {ANY_MOMENT: [], UNDER_WAY: []}
    for number, scenarios in enumerate(seeds):
        issued = passage_run.run(scenarios)
        rng = np.random.default_rng([seed, number])
        for moment, claims in by_moment.items():
            drawn = draw_claims(
                scenarios, issued.probability, issued.issued, HORIZONS_SECONDS, rng, under_way=moment == UNDER_WAY
            )
            claims.append(_foreseeable(scenarios, drawn, moment, number))
    return {moment: _score(claims, seed) for moment, claims in by_moment.items()}


def _foreseeable(scenarios: Scenarios, claims: Claims, moment: str, number: int) -> Claims:
    """Leave out contention, and a day ahead at any moment; number the series of each seed apart."""
    kept = scenarios.classes[claims.series] != CONTENTION
    if moment == ANY_MOMENT:
        kept &= claims.horizon_seconds <= _LONGEST_AT_ANY_MOMENT_SECONDS
    chosen = claims.select(kept)
    return replace(chosen, series=chosen.series + number * len(scenarios))


def _score(parts: list[Claims], seed: int) -> dict[str, Any]:
    claims = Claims(*(np.concatenate([getattr(part, column) for part in parts]) for column in Claims.__slots__))
    figures = reliability(claims, np.random.default_rng(seed))
    judged = [bin_["holds"] for bin_ in figures["bins"] if bin_["judged"]]
    rare = {f"{share:g}": skill_at_prevalence(claims, share, np.random.default_rng(seed)) for share in RARE_SHARES}
    return {**figures, "holds": all(judged), "judged_bins": len(judged), "at_prevalence": rare}

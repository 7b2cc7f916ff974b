"""The search beside its peers: `python -m benchmarks.tuning [--seeds N] [--spaces NAME …] [--json FILE]`.

A campaign searches a space whose every configuration was measured before (Kernel Tuner's cache files), so a "launch" is
a draw of a recorded time. Every seed runs all methods on the same space, start and noise, with the same number of
launches; only the search differs. `scores` explains the columns of the tables.

`--kernel-tuner` adds two strategies of Kernel Tuner, where it is installed (`pip install 'kernelcast[kernel-tuner]'`).
The settings were chosen on convolution_A4000, convolution_A6000 and dedispersion_MI250X; other spaces were held out.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from benchmarks.tuning.peers import KERNEL_TUNER, PEERS, peer
from benchmarks.tuning.scores import Score, Truth, interval, quantile, score
from lab.replay.oracle import Session

from kernelcast.tuning.campaign import Campaign, CampaignRules
from kernelcast.tuning.formats import kernel_tuner, measurements
from kernelcast.tuning.formats.kernel_tuner import KernelTunerRecording
from kernelcast.tuning.search import Search, warm
from kernelcast.tuning.search.kernel_tuner_search import KernelTunerSearch
from kernelcast.tuning.space import Space

SHARED: Final = Path(__file__).parents[3] / "shared" / "data" / "kernel-tuner"
OURS: Final = "kernelcast"
WARM: Final = "warm"
DEVELOPED_ON: Final = ("convolution_A4000", "convolution_A6000", "dedispersion_MI250X")
"""Spaces on which the search's settings were chosen; figures of the others are the honest ones."""
FLAT_EXCESS: Final = 0.1
"""Excess of plain local search below which a space is too flat for a comparison of costs."""

Scores = Mapping[str, Sequence[Score]]


class Replay:
    """Runs campaigns on one recording."""

    def __init__(self, recording: KernelTunerRecording, budget: int) -> None:
        self.recording = recording
        self.budget = budget
        self.truth = Truth.of(recording, budget)
        self.suggest_ms: list[float] = []
        self._space: Space | None = None

    def run(self, method: str, seed: int, *, devices: Sequence[measurements.Measurements] = ()) -> Score:
        """Run one campaign."""
        session = Session(self.recording, self.budget, lambda _: None)
        answer = session.answer({"op": "space", "seed": seed})
        space = self._with_start(answer)
        seeds = warm.seeds(space, [device.ordered(space) for device in devices])
        search: Search | None = None if method == OURS else peer(space, method, seed=seed, budget=self.budget)
        rules = CampaignRules() if method == OURS else CampaignRules(finalists=1, proofs=0)
        campaign = Campaign(space, seed=seed, budget=self.budget, seeds=seeds, rules=rules, search=search)
        order: dict[int, None] = {}
        while (request := campaign.next()) is not None:
            order.setdefault(request.ordinal)
            values = list(space.values(request.ordinal))
            answer = session.answer({"op": "measure", "config": values, "launches": request.launches})
            if "times" in answer:
                campaign.measured(answer["times"])
            else:
                campaign.failed(answer["failed"])
        if method == OURS:
            self.suggest_ms += campaign.suggest_ms
        if isinstance(search, KernelTunerSearch):
            search.close()
        kept = space.values(campaign.kept if method == OURS else campaign.best)
        return score(self.recording, self.truth, [space.values(one) for one in order], kept, campaign.times.launches)

    def _with_start(self, answer: Mapping[str, Any]) -> Space:
        if self._space is None:
            self._space = Space.listed("space", answer["parameters"], start=answer["start"], valid=answer["valid"])
        known = self._space
        return Space(known.name, known.parameters, known.ordinals, answer["start"])


def main() -> int:
    """Run the benchmark and print its tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__)
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with cache files; default: the shared ones")
    parser.add_argument("--seeds", type=int, default=100, help="default: 100")
    parser.add_argument("--first-seed", type=int, default=0, help="default: 0")
    parser.add_argument("--budget", type=int, default=200, help="default: 200")
    parser.add_argument("--spaces", nargs="*", help="names of cache files; default: all")
    parser.add_argument("--kernel-tuner", action="store_true", help="also Kernel Tuner's generated strategies")
    parser.add_argument("--warm", action="store_true", help="also with seeds from all other devices of the same kernel")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    chosen = parser.parse_args()
    paths = {path.name.partition(".")[0]: path for path in sorted(chosen.data.glob("*.json*"))}
    if not paths:
        parser.error(f"{chosen.data} has no cache files; name a folder with --data")
    names = chosen.spaces or list(paths)
    if unknown := set(names) - set(paths):
        parser.error(f"{min(unknown)} is not there; there are {', '.join(paths)}")
    seeds = range(chosen.first_seed, chosen.first_seed + chosen.seeds)
    peers = [*PEERS, *(KERNEL_TUNER if chosen.kernel_tuner else ())]
    results: dict[str, dict[str, list[Score]]] = {}
    for name in names:
        replay = Replay(kernel_tuner.read(paths[name]), chosen.budget)
        found: dict[str, list[Score]] = {method: [] for method in (OURS, *peers)}
        for seed in seeds:
            for method, scores in found.items():
                scores.append(replay.run(method, seed))
        if chosen.warm:
            kernel = name.partition("_")[0]
            others = [
                measurements.read(path) for other, path in paths.items() if other.startswith(kernel) and other != name
            ]
            if others:
                found[WARM] = [replay.run(OURS, seed, devices=others) for seed in seeds]
        results[name] = found
        sys.stdout.write(table(name, found, replay.suggest_ms) + "\n")
        sys.stdout.flush()
    sys.stdout.write(summary(results) + "\n")
    if chosen.json:
        plain = {name: {m: [vars(one) for one in s] for m, s in found.items()} for name, found in results.items()}
        chosen.json.write_text(json.dumps(plain) + "\n")
    return 0


def table(name: str, found: Scores, suggest_ms: Sequence[float]) -> str:
    """Return the figures of one space."""
    held_out = "developed on" if name in DEVELOPED_ON else "held out"
    head = (
        f"── {name} ({held_out}); processor time of a suggestion: median {median(suggest_ms):.2f} ms, "
        f"mean {fmean(suggest_ms):.2f} ms\n"
        f"{'':22}{'P':>7}{'@20':>7}{'@50':>7}{'@100':>7}{'@end':>7}{'p90':>7}{'≤1.05':>7}{'kept':>7}"
        f"{'excess':>8}{'failing':>9}{'late':>7}{'lost':>7}{'launches':>9}"
    )
    lines = [head]
    for method, scores in found.items():
        at = [
            median([one.best[min(k, len(one.best)) - 1] for one in scores]) for k in (20, 50, 100, len(scores[0].best))
        ]
        ends = [one.best[-1] for one in scores]
        lines.append(
            f"{method:22}{fmean([one.performance for one in scores]):7.3f}"
            + "".join(f"{value:7.3f}" for value in at)
            + f"{quantile(ends, 0.9):7.3f}{sum(end <= 1.05 for end in ends) / len(ends):7.2f}"
            + f"{median([one.kept / one.best[-1] for one in scores]):7.3f}"
            + f"{fmean([one.excess for one in scores]):8.2f}{fmean([one.failing for one in scores]):9.4f}"
            + f"{fmean([one.failing_late for one in scores]):7.4f}{fmean([one.lost for one in scores]):7.3f}"
            + f"{max(one.launches for one in scores):9d}"
        )
    return "\n".join(lines)


def summary(results: Mapping[str, Scores]) -> str:
    """Return the paired difference to the best peer, and the cost beside plain local search."""
    peers = [method for method in next(iter(results.values())) if method not in {OURS, WARM}]
    means = {
        method: fmean([one.performance for found in results.values() for one in found[method]]) for method in peers
    }
    best = max(means, key=means.__getitem__)
    count = len(next(iter(results.values()))[OURS])
    differences = [
        fmean([found[OURS][place].performance - found[best][place].performance for found in results.values()])
        for place in range(count)
    ]
    mean, low, high = interval(differences)
    ours = fmean([one.performance for found in results.values() for one in found[OURS]])
    lines = [
        f"mean performance score: {OURS} {ours:.3f}, "
        + ", ".join(f"{name} {value:.3f}" for name, value in means.items()),
        f"difference to {best}: {mean:.3f}, 95 % interval [{low:.3f}, {high:.3f}]",
    ]
    for name, found in results.items():
        plain = fmean([one.excess for one in found["local"]])
        note = (
            "flat, reported only"
            if plain < FLAT_EXCESS
            else f"{fmean([one.excess for one in found[OURS]]) / plain:.2f}"
        )
        fails = fmean([one.failing for one in found["local"]])
        share = f"{fmean([one.failing for one in found[OURS]]) / fails:.2f}" if fails else "none fail"
        lines.append(f"{name}: excess over plain local search's {note}; failing {share}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())

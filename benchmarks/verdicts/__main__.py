"""Verdicts under noise: `python -m benchmarks.verdicts FOLDER [--trials N] [--null-trials N] [--json FILE]`.

Recorded launch noise of every cache file in FOLDER, under each disturbance, with a true gain of 0, -3, +2 and +5 %; the
experiment beside the rule of revision f236111, in the same run and on the same seeds. `--campaigns N` adds campaigns of
50 useless candidates.
"""

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.verdicts.campaigns import Campaigns, run_campaigns
from benchmarks.verdicts.disturbances import DISTURBANCES
from benchmarks.verdicts.judges import JUDGES
from benchmarks.verdicts.recordings import recordings
from benchmarks.verdicts.trials import Cell, Result, run_cell

GAINS: Final = (0.0, -0.03, 0.02, 0.05)
"""True gains of the candidate; 0.02 is 2 % faster."""
CAMPAIGN_DISTURBANCES: Final = ("none", "drift and spikes", "load every 6", "bursty neighbour")
"""Disturbances under which campaigns run: one of each kind."""


def main() -> int:
    """Run the matrix and print its tables."""
    chosen = _arguments()
    found = [one for one in recordings(chosen.data) if not chosen.recording or one.name in chosen.recording]
    started = time.process_time()
    results, campaigns = [], []
    for judge in chosen.judge:
        for recording in found:
            for disturbance in chosen.disturbance or DISTURBANCES:
                for gain in GAINS:
                    trials = chosen.null_trials if gain <= 0 else chosen.trials
                    cell = Cell(recording.name, disturbance, gain)
                    results.append(run_cell(judge, recording, cell, trials, seed=chosen.seed, delay=chosen.delay))
            sys.stderr.write(f"{judge} {recording.name}: {time.process_time() - started:.0f} s of processor time\n")
        if chosen.campaigns:
            campaigns += [
                run_campaigns(judge, found, disturbance, chosen.campaigns, chosen.seed)
                for disturbance in CAMPAIGN_DISTURBANCES
            ]
    print(table(results, campaigns))
    if chosen.json:
        rows = {"cells": [asdict(one) for one in results], "campaigns": [asdict(one) for one in campaigns]}
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


def table(results: list[Result], campaigns: list[Campaigns]) -> str:
    """Format the shares kept by disturbance over all recordings, with the worst recording in brackets."""
    lines = []
    for judge in dict.fromkeys(one.judge for one in results):
        mine = [one for one in results if one.judge == judge]
        lines.append(f"\n{judge}: share kept over all recordings (worst recording)")
        lines.append(f"{'disturbance':26}" + "".join(f"{gain:>+17.0%}" for gain in GAINS) + f"{'launches':>11}")
        for name in dict.fromkeys(one.cell.disturbance for one in mine):
            row = [one for one in mine if one.cell.disturbance == name]
            mean = sum(one.mean_launches for one in row) / len(row)
            lines.append(f"{name:26}" + "".join(_shares(row, gain) for gain in GAINS) + f"{mean:>11.0f}")
        null = [one for one in mine if one.cell.gain <= 0]
        share = sum(one.kept for one in null) / sum(one.trials for one in null)
        worst = max(null, key=lambda one: one.kept / one.trials)
        lines.append(
            f"kept without a gain: {share:.2%} of {sum(one.trials for one in null)}; worst cell "
            f"{worst.kept / worst.trials:.2%} ({worst.cell}); most launches on a candidate: "
            f"{max(one.most_new for one in mine)}"
        )
    lines.extend(
        f"{one.judge}, {one.campaigns} campaigns under {one.disturbance}: {one.slower} more than 1 % slower at the "
        f"end, {one.kept} candidates kept, worst {one.worst_ratio:.3f}"
        for one in campaigns
    )
    return "\n".join(lines)


def _shares(row: list[Result], gain: float) -> str:
    cells = [one for one in row if one.cell.gain == gain]
    share = sum(one.kept for one in cells) / sum(one.trials for one in cells)
    shares = [one.kept / one.trials for one in cells]
    return f"{share:>9.3f} ({min(shares) if gain > 0 else max(shares):.3f})"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verdicts", description=__doc__)
    parser.add_argument("data", type=Path, help="folder with Kernel Tuner's cache files (*.json.gz)")
    parser.add_argument("--trials", type=int, default=400, help="trials of a cell with a gain; default: 400")
    parser.add_argument("--null-trials", type=int, default=2000, help="trials of a cell without; default: 2000")
    parser.add_argument("--campaigns", type=int, default=0, help="campaigns under each of four disturbances")
    parser.add_argument("--recording", action="append", default=[], help="a recording's name; default: all")
    parser.add_argument("--disturbance", action="append", default=[], choices=DISTURBANCES, help="default: all")
    parser.add_argument("--judge", nargs="+", default=list(JUDGES), choices=JUDGES, help="default: both")
    parser.add_argument("--delay", type=int, default=0, help="launches by which records are late; default: 0")
    parser.add_argument("--seed", type=int, default=1, help="of everything random; default: 1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all cells here")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

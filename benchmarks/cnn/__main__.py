"""The CNN, tuned: `python -m benchmarks.cnn [--campaigns N] [--pairs N] [--ranks N] [--json FILE]`.

Each campaign runs `examples/cnn.py` with planted faults (a loader without workers, four threads on fewer processors)
beside exporter, predictor and a broker inside this process. The loader's hints come from the predictor's diagnosis.
Three hints are written here: one for the threads, one that takes the loader's workers away again, and one whose trial
is stopped by `kernelcast hints stop`. Then the program restarts without exporter and Kafka. Each kept outcome is
measured again by whole runs with and without it, in random order, and the two gains are compared. With the defaults
that takes hours: a run that finds its FILE goes on from there.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Final

from benchmarks.cnn.campaign import Campaign, CampaignResult, Claim, result_of
from benchmarks.cnn.program import Launcher, Settings, seconds_per_sample
from benchmarks.cnn.statistics import Ratio, difference, paired
from tests.service.stack import Stack

from kernelcast.runtime.kafka.embedded import EmbeddedBroker

DEBIAN: Final = "/usr/bin/python3"
"""Debian's interpreter, for which its package python3-torch installs PyTorch."""

HEAD: Final = (
    "campaign", "tunable", "change", "hint from", "claimed time", "interval", "again", "interval", "log difference",
    "joint interval", "within",
)  # fmt: skip
"""Columns of the last table: claimed time, the same measured again, and the logarithm of their ratio."""


def main() -> int:
    """Run the campaigns, measure the kept values again, and print the tables."""
    options = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # noqa: TID251  so that the processes are ended
    launcher, random = Launcher(options.python, options.ranks, options.samples), Random(options.seed)
    results, rows = _read(options.json)
    with tempfile.TemporaryDirectory() as name, EmbeddedBroker() as broker:
        folder = Path(name)
        with Stack(folder, broker.bootstrap_servers) as stack:
            for service in ("exporter", "predictor"):
                stack.service(service)
            for number in range(len(results), options.campaigns):
                campaign = Campaign(stack, launcher, f"cnn-{number}", options.patience)
                results.append(campaign.run(Settings()))
                print(_campaign_text(number, results[-1]), flush=True)
                _write(options.json, rows, results)
    print("\n" + " | ".join(HEAD), flush=True)
    kept = [(number, claim) for number, result in enumerate(results) for claim in result.claims]
    for place, (number, claim) in enumerate(kept):
        if place >= len(rows):
            rows.append(_measured_again(number, claim, launcher, options, random))
            _write(options.json, rows, results)
        print(" | ".join(str(rows[place][name]) for name in rows[place] if name != "pairs"), flush=True)
    if compared := [row for row in rows if row["within"] is not None]:
        bias = fmean(row["difference"] for row in compared)
        inside = sum(row["within"] for row in compared)
        print(f"{inside} of {len(compared)} within their joint interval; mean bias of claimed times {bias:+.3f} (log)")
    return 0


def _read(path: Path | None) -> tuple[list[CampaignResult], list[dict[str, Any]]]:
    """Return the campaigns and rows of an earlier run that was ended; none without its file."""
    if path is None or not path.exists():
        return [], []
    found = json.loads(path.read_text())
    return [result_of(one) for one in found["campaigns"]], found["rows"]


def _write(path: Path | None, rows: list[dict[str, Any]], results: list[CampaignResult]) -> None:
    """Write everything found so far; a run takes more than an hour, and may be ended early."""
    if path is not None:
        found = {"load": os.getloadavg(), "rows": rows, "campaigns": [asdict(one) for one in results]}
        path.write_text(json.dumps(found, indent=1, default=str) + "\n")


def _measured_again(
    number: int, claim: Claim, launcher: Launcher, options: argparse.Namespace, random: Random
) -> dict[str, Any]:
    """Measure a kept change by whole runs with and without it, in random order within each pair."""
    pairs = []
    for _ in range(options.pairs):
        order = [claim.settings, claim.changed]
        random.shuffle(order)
        seconds = {one: seconds_per_sample(launcher.run(one, options.epochs)) for one in order}
        pairs.append((seconds[claim.changed], seconds[claim.settings]))
    outcome, claimed, measured = claim.outcome, claim.ratio, paired(pairs)
    apart, joint = difference(claimed, measured) if claimed else (None, None)
    return {
        "campaign": number,
        "tunable": outcome.tunable,
        "change": f"{outcome.previous} -> {outcome.value}",
        "hint": "diagnosis" if claim.from_diagnosis else "person",
        "claimed": outcome.measured_ratio and round(outcome.measured_ratio, 3),
        "claimed_interval": claimed and _interval(claimed),
        "again": round(measured.ratio, 3),
        "again_interval": _interval(measured),
        "difference": None if apart is None else round(apart, 3),
        "joint": None if joint is None else round(joint, 3),
        "within": None if apart is None or joint is None else abs(apart) <= joint,
        "pairs": pairs,
    }


def _interval(ratio: Ratio) -> str:
    return f"{ratio.low:.3f} to {ratio.high:.3f}"


def _campaign_text(number: int, result: CampaignResult) -> str:
    lines = [f"campaign {number}, load {os.getloadavg()[0]:.1f}: last verdict after {result.seconds:.0f} s"]
    for one in result.outcomes:
        ratio = "" if one.measured_ratio is None else f" {one.measured_ratio:.3f} {one.measured_interval}"
        lines.append(
            f"  {one.tunable} {one.previous} -> {one.hint_id}: {one.decision or one.state}{ratio}, "
            f"{one.candidate_steps} on trial: {one.reason}"
        )
    lines.append(f"  samples/s before {result.before:.0f}, after {result.after:.0f}")
    stopped = "no trial ran" if result.stop_seconds is None else f"outcome {result.stop_seconds:.1f} s after the order"
    lines.append(f"  stop in the middle: {stopped}; first epoch after a restart: {result.restarted}")
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cnn", description=__doc__)
    parser.add_argument("--campaigns", type=int, default=7, help="campaigns; default: 7")
    parser.add_argument("--pairs", type=int, default=10, help="runs with and without each kept change; default: 10")
    parser.add_argument("--epochs", type=int, default=25, help="epochs of such a run; default: 25")
    parser.add_argument("--ranks", type=int, default=1, help="processes of the program; default: 1")
    parser.add_argument("--samples", type=int, default=64, help="samples of an epoch; default: 64")
    parser.add_argument("--patience", type=float, default=300.0, help="longest wait for a verdict, s; default: 300")
    parser.add_argument("--python", default=DEBIAN, help=f"an interpreter with PyTorch; default: {DEBIAN}")
    parser.add_argument("--seed", type=int, default=1, help="of the order of runs; default: 1")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write here after each campaign and row; go on from it if it exists"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

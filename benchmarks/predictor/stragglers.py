"""Scores the comparison of workers with their peers: recordings, injected slowdowns and simulated jobs."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.predictor.options import Options
from benchmarks.predictor.traces.peers import PEERS
from benchmarks.predictor.traces.reading import Trace, files, read
from benchmarks.predictor.traces.simulation import KINDS, simulate
from benchmarks.predictor.traces.tables import text
from numpy.typing import NDArray

from kernelcast.predictor.peers import PeerDetector, WorkerFinding

FEWEST_REPLICAS: Final = 4
SLOWDOWNS: Final = {0.05: 10, 0.10: 10, 0.20: 3, 0.50: 3}
"""Injected slowdown, and the number of steps within which it is to be named."""
JOBS_OF_A_KIND: Final = 30
MOST_INJECTED: Final = 32
"""Workers of a recording that are slowed down, one at a time."""


@dataclass(frozen=True)
class Outcome:
    """Result of the detector on one trace.

    Attributes:
        first: The first finding of each worker that was ever named.
        last: The last state of that worker's finding.
        named: Shape (steps, workers), whether the worker was under a finding after the step.
    """

    first: dict[int, WorkerFinding]
    last: dict[int, WorkerFinding]
    named: NDArray[np.bool_]


def detect(trace: Trace) -> Outcome:
    """Run the detector over a trace, step by step."""
    detector = PeerDetector(trace.groups)
    named = np.zeros((len(trace.steps), len(trace.stage)), dtype=np.bool_)
    first: dict[int, WorkerFinding] = {}
    last: dict[int, WorkerFinding] = {}
    for at, step in enumerate(trace.steps):
        for finding in detector.observe(step) + detector.findings:
            first.setdefault(finding.worker, finding)
            last[finding.worker] = finding
        named[at, [finding.worker for finding in detector.findings]] = True
    return Outcome(first, last, named)


def run(options: Options) -> dict[str, Any]:
    """Score the recordings, and simulated jobs unless there is a single recording.

    Returns:
        The result of a single recording; else the results of all by file name in `recordings`, and `simulated`.
    """
    paths = files(options.recordings("straggler"))
    recordings = {path.name: _recording(path, np.random.default_rng(options.seed)) for path in paths}
    result: dict[str, Any] = dict(next(iter(recordings.values()))) if len(paths) == 1 else {"recordings": recordings}
    if len(paths) > 1:
        result["simulated"] = simulated(np.random.default_rng(options.seed), JOBS_OF_A_KIND)
    return result


def _recording(path: Path, rng: np.random.Generator) -> dict[str, Any]:
    trace = read(path)
    outcome = detect(trace)
    result: dict[str, Any] = {
        "named": [
            {
                **_worker(trace, worker),
                "ratio": round(outcome.last[worker].ratio, 4),
                "step": found.step,
                "since": found.since_step,
                "until": outcome.last[worker].until_step,
                "basis": str(found.basis),
                "peers": found.peers,
            }
            for worker, found in sorted(outcome.first.items(), key=lambda item: item[1].step)
        ],
        "steps": len(trace.steps),
        "workers": len(trace.stage),
        "other_detectors": {name: _peer_named(trace, named) for name, named in _peers(trace).items()},
    }
    healthy = [worker for worker in range(len(trace.stage)) if worker not in outcome.first]
    if int(trace.groups.peers.min()) >= FEWEST_REPLICAS - 1:
        chosen = rng.permutation(healthy)[:MOST_INJECTED].tolist()
        result["injected"] = injected(trace, chosen, healthy, rng)
    return result


def injected(trace: Trace, chosen: list[int], healthy: list[int], rng: np.random.Generator) -> list[dict[str, Any]]:
    """Slow down each chosen worker, one at a time and from a random step on, and see when it is named."""
    return [_injected(trace, chosen, healthy, slowdown, rng) for slowdown in SLOWDOWNS]


def _injected(
    trace: Trace, chosen: list[int], healthy: list[int], slowdown: float, rng: np.random.Generator
) -> dict[str, Any]:
    delays: dict[str, list[int | None]] = {}
    false: Counter[str] = Counter()
    worker_steps = 0
    for worker in chosen:
        start = int(rng.integers(0, max(1, len(trace.steps) - SLOWDOWNS[slowdown])))
        slowed = slow_down(trace, worker, start, slowdown)
        worker_steps += len(trace.steps) * (len(healthy) - 1) + start
        for name, named in {"kernelcast": detect(slowed).named, **_peers(slowed)}.items():
            delays.setdefault(name, []).append(_delay(named[:, worker], start))
            others = [other for other in healthy if other != worker]
            false[name] += int(named[:, others].sum()) + int(named[:start, worker].sum())
    limit = SLOWDOWNS[slowdown]
    detectors = {
        name: {
            "named_within": sum(delay is not None and delay <= limit for delay in found) / len(found),
            "median_steps": _median_delay(found),
            "false_per_1000_worker_steps": round(1000 * false[name] / worker_steps, 3),
        }
        for name, found in delays.items()
    }
    return {"slowdown": slowdown, "within_steps": limit, "runs": len(chosen), "detectors": detectors}


def slow_down(trace: Trace, worker: int, start: int, slowdown: float) -> Trace:
    """Lengthen the compute time of one worker from a step on."""
    steps = list(trace.steps)
    for at in range(start, len(steps)):
        units = steps[at].unit_seconds.copy()
        units[worker] *= 1 + slowdown
        steps[at] = replace(steps[at], unit_seconds=units)
    return replace(trace, steps=steps)


def simulated(rng: np.random.Generator, jobs: int) -> dict[str, Any]:
    """Score simulated jobs of every kind: named workers and false accusations."""
    return {kind: _simulated(kind, rng, jobs) for kind in KINDS}


def _simulated(kind: str, rng: np.random.Generator, jobs: int) -> dict[str, Any]:
    delays: list[int | None] = []
    false = worker_steps = falsely_named = 0
    for job in (simulate(kind, rng) for _ in range(jobs)):
        outcome = detect(job.trace)
        delays += [_delay(outcome.named[:, worker], start) for worker, start in job.slow.items()]
        healthy = np.ones(outcome.named.shape, dtype=np.bool_)
        for worker, start in job.slow.items():
            healthy[start:, worker] = False
        false += int((outcome.named & healthy).sum())
        falsely_named += len(set(np.flatnonzero((outcome.named & healthy).any(axis=0))) - set(job.slow))
        worker_steps += int(healthy.sum())
    return {
        "jobs": jobs,
        "slow_workers": len(delays),
        "named_within_3": sum(delay is not None and delay <= 3 for delay in delays) if delays else None,
        "median_steps": _median_delay(delays),
        "falsely_named": falsely_named,
        "false_per_1000_worker_steps": round(1000 * false / worker_steps, 3),
    }


def _delay(named: NDArray[np.bool_], start: int) -> int | None:
    """Number of slow steps until the worker was named, the naming one included."""
    found = np.flatnonzero(named[start:])
    return int(found[0]) + 1 if len(found) else None


def _median_delay(delays: list[int | None]) -> float | None:
    found = [delay for delay in delays if delay is not None]
    return float(np.median(found)) if found else None


def _peers(trace: Trace) -> dict[str, NDArray[np.bool_]]:
    seconds = np.stack([step.mean_seconds for step in trace.steps])
    return {name: detector(seconds, trace.stage) for name, detector in PEERS.items()}


def _peer_named(trace: Trace, named: NDArray[np.bool_]) -> list[dict[str, int]]:
    return [_worker(trace, int(worker)) for worker in np.flatnonzero(named.any(axis=0))]


def _worker(trace: Trace, worker: int) -> dict[str, int]:
    return {"stage": int(trace.stage[worker]), "dp_rank": int(trace.dp_rank[worker])}


def table(result: dict[str, Any]) -> str:
    """The scores as text."""
    return text(result)

"""Tables of the benchmark of stragglers."""

from typing import Any


def text(result: dict[str, Any]) -> str:
    """Recordings, injected slowdowns and simulated jobs, as text."""
    recordings = result.get("recordings", {"recording": result})
    parts = [_recording(name, recording) for name, recording in recordings.items()]
    if "simulated" in result:
        parts.append(_simulated(result["simulated"]))
    return "\n\n".join(parts)


def _recording(name: str, recording: dict[str, Any]) -> str:
    named = [
        f"stage {found['stage']}, dp_rank {found['dp_rank']}: {found['ratio']:.2f}-fold, named at step {found['step']}"
        for found in recording["named"]
    ]
    lines = [
        f"{name}: {recording['workers']} workers, {recording['steps']} steps",
        f"  named: {'; '.join(named) or 'no worker'}",
        *(f"  {detector}: {len(found)} workers" for detector, found in recording["other_detectors"].items()),
    ]
    if "injected" in recording:
        lines += ["", *_injected(recording["injected"])]
    return "\n".join(lines)


def _injected(rows: list[dict[str, Any]]) -> list[str]:
    lines = [f"  {'injected':>8} {'detector':36} {'named':>6} within {'median':>6} false per 1,000 worker-steps"]
    for row in rows:
        for detector, score in row["detectors"].items():
            median = "-" if score["median_steps"] is None else f"{score['median_steps']:g}"
            lines.append(
                f"  {row['slowdown']:>8.0%} {detector:36} {score['named_within']:>6.0%} {row['within_steps']:>6}"
                f" {median:>6} {score['false_per_1000_worker_steps']:>10}"
            )
    return lines


def _simulated(kinds: dict[str, Any]) -> str:
    lines = [f"{'simulated jobs':30} {'jobs':>5} {'slow':>5} {'named ≤ 3':>9} {'false':>5} per 1,000 worker-steps"]
    for kind, score in kinds.items():
        named = "-" if score["named_within_3"] is None else score["named_within_3"]
        lines.append(
            f"{kind:30} {score['jobs']:>5} {score['slow_workers']:>5} {named:>9}"
            f" {score['falsely_named']:>5} {score['false_per_1000_worker_steps']:>8}"
        )
    return "\n".join(lines)

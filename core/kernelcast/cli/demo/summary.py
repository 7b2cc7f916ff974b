"""Summary of a run of the demo, as text and as JSON; `run.Demo` makes it at the end, `command` prints and writes it."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from kernelcast.cli.demo.state import DemoState
from kernelcast.runtime.terminal import printable
from kernelcast.view.words import subject_of

HOTTEST = 5
"""Kernels with the most GPU time in the summary."""


def summarise(state: DemoState, published: dict[str, Any] | None, exits: dict[str, int | None]) -> dict[str, Any]:
    """The run as one JSON object.

    Args:
        state: The last state.
        published: Counts that the replay or the simulation reported as sent; None if there was neither.
        exits: Exit codes of the demo's processes.
    """
    source = state.source
    return {
        "source": {"kind": source.kind, "path": str(source.path) if source.path else None, "label": source.label},
        "statement": source.banner,
        "broker": {"kind": state.broker, "bootstrap_servers": state.workspace.bootstrap_servers},
        "elapsed_seconds": round(state.elapsed_seconds, 1),
        "endpoints": state.workspace.endpoints.urls(),
        "published": published,
        "kernels": {
            "names": len(state.snapshot.kernels),
            "launches": state.snapshot.launches,
            "duration_seconds": state.snapshot.kernel_seconds,
            "hottest": [
                {"name": name, "seconds": stats.seconds, "launches": stats.launches}
                for name, stats in state.snapshot.hottest(HOTTEST)
            ],
            "prometheus_launches": state.prometheus_launches,
            "prometheus_duration_seconds": state.prometheus_seconds,
        },
        "forecast_series": state.peak_forecasts,
        "degradations": list(state.peak_degradations.values()),
        "hints": [event["data"] for event in state.hints],
        "outcomes": [event["data"] for event in state.outcomes],
        "alerts": [event["data"] for event in state.alerts],
        "dead_letters": state.dead_letters,
        "pipeline": {name: value for name, value in state.snapshot.bridge.items() if not name.endswith("_bucket")},
        "processes": exits,
    }


def write(summary: dict[str, Any], path: Path) -> None:
    """Write the summary as JSON."""
    path.write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def sentences(summary: dict[str, Any]) -> list[str]:
    """The summary for people, a line each."""
    kernels = summary["kernels"]
    lines = [summary["statement"], _kernel_sentence(kernels, summary["published"])]
    if kernels["prometheus_launches"] is not None:
        lines.append(
            f"in Prometheus: {kernels['prometheus_launches']:,.0f} launches, "
            f"{kernels['prometheus_duration_seconds'] or 0.0:.6f} s of GPU time"
        )
    states = Counter(outcome["state"] for outcome in summary["outcomes"])
    outcomes = ", ".join(f"{count} {state}" for state, count in states.items()) or "none"
    alerts = sorted({alert["labels"].get("alertname", "?") for alert in summary["alerts"]})
    lines.append(f"forecast series: {summary['forecast_series']}; degradations predicted: {_causes(summary)}")
    lines += [
        f"predicted: {one['labels'].get('cause', '?')} of {subject_of(one['labels'])}"
        for one in summary["degradations"]
    ]
    lines.append(f"hints: {len(summary['hints'])}; outcomes: {outcomes}")
    lines.append(f"alerts on Kafka: {', '.join(alerts) or 'none'}; dead letters: {summary['dead_letters']}")
    lines += [f"hottest: {one['seconds']:.2f} s of GPU time in {one['name']}" for one in kernels["hottest"]]
    return [printable(line) for line in lines]


def _kernel_sentence(kernels: dict[str, Any], published: dict[str, Any] | None) -> str:
    if published is not None and not published.get("gpu_activity", True):
        return "no kernels: the recording shows no GPU activity"
    if not kernels["launches"]:
        return "no kernels arrived at the bridge; see the logs (--directory keeps them)"
    return (
        f"kernels: {kernels['launches']:,.0f} launches under {kernels['names']} names, "
        f"{kernels['duration_seconds']:.6f} s of GPU time"
    )


def _causes(summary: dict[str, Any]) -> str:
    causes = Counter(item["labels"].get("cause", "?") for item in summary["degradations"])
    return ", ".join(f"{count} {cause}" for cause, count in sorted(causes.items())) or "none"

"""Every fault of the table in real time: `python -m tests.nightly.real_time_faults [--only FAULT …] [--output FILE]`.

A simulated fleet has one fault on each node, and one node without. A real Prometheus and Alertmanager watch it with all
durations divided by 20. The table says when each fault's alert fired and ended, and how many messages were sent.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests.service.grafana.test_faults_in_real_time import Site, watched
from tests.service.servers import wait_for
from tests.support.exporter.simulated_series import Fleet

from kernelcast.grafana.faults import FAULTS, Fault

HEALTHY_SECONDS: Final = 200
"""The baseline of kernels lies two minutes back, and is a minute long."""
FAULT_SECONDS: Final = 200
AFTER_SECONDS: Final = 150
OPTIONS: Final[Mapping[str, str]] = {
    "memory-leak": "rate=3000,gpu=1",
    "thermal-drift": "rate=240,gpu=1",
    "memory-errors": "rate=12000,rows=120,gpu=1",
    "pcie-replays": "rate=600,gpu=1",
    "power-brake": "ratio=0.5",
    "nvml-hang": "",
    "clock-skew": "",
}
"""Options of the simulated faults, which are as quick as the clocks of the rules."""


def main() -> int:
    """Run all faults and print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="file for the table")
    known = [fault for fault in FAULTS if not fault.is_service]
    parser.add_argument("--only", nargs="*", default=[], choices=[fault.name for fault in known], metavar="FAULT")
    options = parser.parse_args()
    output: Path | None = options.output
    faults = [fault for fault in known if fault.name in options.only or not options.only]
    start_ns = time.time_ns()
    started = [_option(fault, node) for node, fault in enumerate(faults)]
    leaks = [node for node, fault in enumerate(faults) if fault.name == "memory-leak"]
    started += [f"preallocated-memory:node={node},share=0.94" for node in leaks]
    site = Site(Fleet(*started, start_ns=start_ns, nodes=len(faults) + 1, step_seconds=1.0))
    with tempfile.TemporaryDirectory() as folder, watched(Path(folder), site) as prometheus:
        wait_for("the first samples", lambda: prometheus.query("count(kernelcast_gpu_up) > 0"))
        end_seconds = start_ns / 1e9 + HEALTHY_SECONDS + FAULT_SECONDS + AFTER_SECONDS
        while (left := end_seconds - time.time()) > 0:
            time.sleep(min(left, 5))
    began = start_ns / 1e9 + HEALTHY_SECONDS
    rows = [_row(fault, node, site.messages, began) for node, fault in enumerate(faults)]
    healthy = _alerts(site.messages, f"sim-node-{len(faults)}")
    text = "\n".join(line for line, _ in rows) + f"\nOf the node without a fault: {dict(healthy) or 'nothing'}\n"
    sys.stdout.write(text)
    if output is not None:
        output.write_text(text)
    return 0 if all(good for _, good in rows) and not healthy else 1


def _option(fault: Fault, node: int) -> str:
    own = OPTIONS.get(fault.name, "gpu=1")
    times = f"start={HEALTHY_SECONDS}s,length={FAULT_SECONDS}s"
    return f"{fault.name}:node={node},{times}{',' if own else ''}{own}"


def _about(alert: dict[str, Any], host: str, own: str) -> bool:
    """Whether an alert is about a node; a fault's own alert may name no node, as the bridge's about its topics do."""
    return bool(alert["labels"].get("Hostname", host if alert["labels"]["alertname"] == own else "") == host)


def _alerts(messages: list[dict[str, Any]], host: str, own: str = "") -> Counter[str]:
    """Messages in which each alert about a node fires."""
    found: Counter[str] = Counter()
    for message in messages:
        firing = [alert for alert in message["alerts"] if alert["status"] == "firing" and _about(alert, host, own)]
        found.update({alert["labels"]["alertname"] for alert in firing})
    return found


def _row(fault: Fault, node: int, messages: list[dict[str, Any]], began: float) -> tuple[str, bool]:
    """A line of the table, and whether the fault's own alert alone was sent, once, after the fault began."""
    host = f"sim-node-{node}"
    firing = _alerts(messages, host, fault.alert)
    every = [alert for message in messages for alert in message["alerts"] if _about(alert, host, fault.alert)]
    own = [alert for alert in every if alert["labels"]["alertname"] == fault.alert]
    fired = min((_seconds(alert["startsAt"]) for alert in own), default=0.0) - began
    ends = [_seconds(alert["endsAt"]) for alert in own if alert["status"] == "resolved"]
    ended = f"{max(ends) - began:.0f} s" if ends else "not yet"
    others = ", ".join(f"{name} ({count})" for name, count in sorted(firing.items()) if name != fault.alert)
    times = f"{fired:.0f} s" if own else "never"
    line = f"| {fault.name} | {fault.alert} | {times} | {firing[fault.alert]} | {others or 'none'} | {ended} |"
    return line, firing == Counter({fault.alert: 1}) and fired > 0


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


if __name__ == "__main__":
    sys.exit(main())

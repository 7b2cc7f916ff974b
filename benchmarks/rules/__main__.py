"""Processor time of each group of rules, and of each panel, for a large fleet.

    python -m benchmarks.rules --gpus 1000 --tsdb /tmp/fleet [--pages] [--rules DIR] [--json FILE]

A real Prometheus reads blocks of a simulated fleet: ten minutes at 30 s before a fixed instant, and of the day before
an hour of the recorded means and ten minutes of what was launched. promtool evaluates the recording rules over the last
minutes, one level of dependence after the other. Then Prometheus evaluates each expression alone, at that instant. A
group's time is the processor time of its expressions (the least of two rounds), which does not depend on what else the
machine does; its limit is a third of its interval. With `--pages` each query of each page is sent as the page opens: a
graph over the ten minutes.

`--tsdb` keeps the blocks of the fleet, which take the most time, for the next run; recordings are computed each time.
"""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import yaml
from benchmarks.rules import blocks, panels
from tests.service.servers import PrometheusServer, stopping

from kernelcast.grafana import rules

ROUNDS: Final = 2
MAX_INTERVAL_RATIO: Final = 1 / 3
"""Limit of a group's processor time over its interval."""
MAX_PANEL_SECONDS: Final = 2.0
"""Limit of the processor time of the slowest panel."""
COSTLIEST_RULES: Final = 6
"""Rules of a group that are reported."""
RECORDED_SECONDS: Final = 5 * 60
"""Length of the recordings before the instant; an alert with a longer range reads no more."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_DURATION: Final = re.compile(r"(\d+)([smh])")
_OPTIONS: Final = ("--query.timeout=10m", "--query.max-samples=500000000", "--storage.tsdb.retention.time=100y")


@dataclass(slots=True)
class Cost:
    """Processor time and wall time of queries, and the series that they return."""

    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    series: int = 0

    def add(self, other: "Cost") -> None:
        """Add the cost of further queries."""
        self.cpu_seconds += other.cpu_seconds
        self.wall_seconds += other.wall_seconds
        self.series += other.series

    def as_json(self) -> dict[str, Any]:
        """Return the figures of a report."""
        return {
            "cpu_seconds": round(self.cpu_seconds, 2),
            "wall_seconds": round(self.wall_seconds, 2),
            "series": self.series,
        }


def rule_files(directory: Path) -> dict[str, str]:
    """Return the texts of the rule files in a directory, by name."""
    return {name: (directory / name).read_text() for name in (rules.CLASSIC_FILE, rules.ALERTS_FILE)}


def cpu_seconds(pid: int) -> float:
    """Return the processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def query(server: PrometheusServer, path: str, **parameters: str) -> list[Any]:
    """Return the result of a query of Prometheus's API: of `query` or `query_range`."""
    body = urlencode({**parameters, "timeout": "10m"}).encode()
    with urlopen(Request(f"{server.url}/api/v1/{path}", body), timeout=600) as response:  # noqa: S310  loopback only
        result: list[Any] = json.load(response)["data"]["result"]
    return result


def measure(server: PrometheusServer, path: str, **parameters: str) -> tuple[Cost, list[Any]]:
    """Return the cost of a query, the least of some rounds, and its result."""
    assert server.process is not None
    cpu_times, wall_times = [], []
    result: list[Any] = []
    for _ in range(ROUNDS):
        wall_start, cpu_start = time.monotonic(), cpu_seconds(server.process.pid)
        result = query(server, path, **parameters)
        wall_times.append(time.monotonic() - wall_start)
        cpu_times.append(cpu_seconds(server.process.pid) - cpu_start)
    return Cost(min(cpu_times), min(wall_times), len(result)), result


def seconds_of(text: str) -> int:
    """Return a duration of one unit, such as `5m`, in seconds."""
    match = _DURATION.fullmatch(text)
    assert match is not None, text
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def levels(recordings: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the recordings by level: an expression reads what earlier levels record, and may read its own past."""
    remaining, unrecorded = list(recordings), {rule["record"] for rule in recordings}
    while remaining:
        waiting = {
            rule["record"]
            for rule in remaining
            if ({*re.findall(r"[\w:]+", rule["expr"])} & unrecorded) - {rule["record"]}
        }
        ready = [rule for rule in remaining if rule["record"] not in waiting]
        yield ready
        unrecorded -= {rule["record"] for rule in ready}
        remaining = [rule for rule in remaining if rule["record"] in waiting]


def record(directory: Path, groups: list[dict[str, Any]], end: int) -> None:
    """Evaluate the recording rules over the last minutes, into blocks."""
    recordings = [rule for group in groups for rule in group["rules"] if "record" in rule]
    for number, level in enumerate(levels(recordings)):
        file = directory / f"level{number}.yaml"
        file.write_text(yaml.safe_dump({"groups": [{"name": "level", "interval": "30s", "rules": level}]}))
        with stopping(server := prometheus(directory)):
            server.run()
            times = (f"--start={end - RECORDED_SECONDS}", f"--end={end}", "--eval-interval=30s")
            output = f"--output-dir={directory / 'tsdb'}"
            url = f"--url={server.url}"
            blocks.promtool("create-blocks-from", "rules", *times, url, output, str(file))


def prometheus(directory: Path) -> PrometheusServer:
    """Return a Prometheus that reads the blocks, and neither scrapes nor evaluates rules."""
    configuration = directory / "prometheus.yaml"
    configuration.write_text("scrape_configs: []\n")
    return PrometheusServer(directory, configuration, options=_OPTIONS)


def measured_group(server: PrometheusServer, group: dict[str, Any], end: int) -> dict[str, Any]:
    """Return the cost of a group's expressions; the series are those that it records."""
    costs: dict[str, Cost] = {}
    for rule in group["rules"]:
        cost, result = measure(server, "query", query=f"count({rule['expr']})", time=str(end))
        cost.series = int(result[0]["value"][1]) if result and "record" in rule else 0
        costs.setdefault(rule.get("alert") or rule["record"], Cost()).add(cost)
    total = Cost()
    for cost in costs.values():
        total.add(cost)
    interval_seconds = seconds_of(group["interval"])
    costliest = sorted(costs.items(), key=lambda item: -item[1].cpu_seconds)[:COSTLIEST_RULES]
    return {
        "group": group["name"],
        "interval_seconds": interval_seconds,
        **total.as_json(),
        "within": total.cpu_seconds <= interval_seconds * MAX_INTERVAL_RATIO,
        "rules": {name: cost.as_json() for name, cost in costliest},
    }


def measured_panels(server: PrometheusServer, options: argparse.Namespace, end: int) -> Iterator[dict[str, Any]]:
    """Yield the cost of each panel of each page, as the page opens."""
    range_times = {"start": str(end - panels.RANGE_SECONDS), "end": str(end), "step": "30"}
    for panel in panels.opened(options.gpus, every_program=options.every_program, kernel=options.kernel):
        total = Cost()
        for panel_query in panel.queries:
            path, times = ("query", {"time": str(end)}) if panel_query.is_instant else ("query_range", range_times)
            cost, _ = measure(server, path, query=panel_query.expr, **times)
            total.add(cost)
        yield {
            "page": panel.page,
            "panel": panel.title,
            **total.as_json(),
            "within": total.cpu_seconds <= MAX_PANEL_SECONDS,
        }


def log(figures: dict[str, Any]) -> None:
    """Write the figures of a group or a panel to standard error, while others are still measured."""
    sys.stderr.write(f"{json.dumps({name: value for name, value in figures.items() if name != 'rules'})}\n")


def run(directory: Path, texts: dict[str, str], options: argparse.Namespace) -> dict[str, Any]:
    """Build the fleet's blocks, evaluate the recordings, and return the report of all groups and panels."""
    fleet_options = {name: getattr(options, name) for name in ("gpus", "kernels", "detailed", "share", "pages")}
    expressions = " ".join((*texts.values(), panels.expressions() if options.pages else ""))
    metrics = {*re.findall(r"[A-Za-z_]\w+", expressions)}
    fleet = blocks.built(options.tsdb or directory / "fleet", metrics, fleet_options)
    shutil.copytree(fleet.directory, directory / "tsdb", copy_function=os.link)
    groups = [group for text in texts.values() for group in yaml.safe_load(text)["groups"]]
    record(directory, groups, fleet.end)
    measured_groups, measured_pages = [], []
    with stopping(server := prometheus(directory)):
        server.run()
        for group in groups:
            measured_groups.append(measured_group(server, group, fleet.end))
            log(measured_groups[-1])
        for panel in measured_panels(server, options, fleet.end) if options.pages else ():
            measured_pages.append(panel)
            log(panel)
    return {
        "gpus": options.gpus,
        "kernels": options.kernels,
        "detailed_kernels": options.detailed,
        "series_read": fleet.series,
        "series_of_a_gpu": fleet.series_of_a_gpu,
        "series_recorded": sum(group["series"] for group in measured_groups),
        "groups": measured_groups,
        "panels": sorted(measured_pages, key=lambda panel: -panel["cpu_seconds"]),
    }


def main() -> None:
    """Measure, and print the report; with `--json` also write it to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=248)
    parser.add_argument("--kernels", type=int, default=100)
    parser.add_argument("--detailed", type=int, default=20)
    parser.add_argument(
        "--share", type=float, default=0.01, help="least share of kernels with a mean of the day before"
    )
    parser.add_argument("--rules", type=Path, help="directory of rule files; by default those of this checkout's code")
    parser.add_argument("--pages", action="store_true", help="measure the panels of the pages, too")
    parser.add_argument(
        "--every-program",
        action="store_true",
        help="choose all programs on their page, which is the work of one program on all GPUs",
    )
    parser.add_argument("--kernel", default=".+", help="pattern of the kernels chosen on the page of a program")
    parser.add_argument(
        "--tsdb", type=Path, help="folder that keeps the fleet's blocks for later runs with the same options"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    texts = rule_files(options.rules) if options.rules else rules.render(rules.PRODUCTION)
    texts.pop(rules.NATIVE_FILE, None)
    with tempfile.TemporaryDirectory(prefix="kernelcast-rules-", dir=options.tsdb and options.tsdb.parent) as folder:
        result = run(Path(folder), texts, options)
    print(json.dumps(result, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

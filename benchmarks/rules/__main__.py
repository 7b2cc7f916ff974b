"""Processor time of each group of rules, and of each panel, for a large fleet.

    python -m benchmarks.rules --gpus 1000 --tsdb /tmp/fleet [--pages] [--rules DIR] [--json FILE]

A real Prometheus reads blocks of a simulated fleet: ten minutes at 30 s before a fixed instant, and an hour of the day
before of the recorded means. promtool evaluates the recording rules over the last minutes, one level of dependence
after the other. Then each expression is asked at that instant, alone. A group's time is the processor time of its
expressions (the least of two), which does not depend on what else the machine does, and its bar a third of its
interval. With `--pages` each query of each page is asked as the page opens: a graph over the ten minutes.

`--tsdb` keeps the blocks of the fleet, which take the most time, for the next run; recordings are always made again.
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
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import yaml
from benchmarks.rules import blocks, panels
from tests.service.servers import PrometheusServer, stopping

from kernelcast.grafana import rules

ROUNDS: Final = 2
SHARE: Final = 1 / 3
"""Bar: the share of its interval that a group may take."""
PANEL_SECONDS: Final = 2.0
"""Bar: the processor time of the slowest panel."""
RECORDED_SECONDS: Final = 5 * 60
"""Length of the recordings before the instant; alerts that look back over more read as much."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_DURATION: Final = re.compile(r"(\d+)([smh])")
_OPTIONS: Final = ("--query.timeout=10m", "--query.max-samples=500000000", "--storage.tsdb.retention.time=100y")


def read(directory: Path) -> dict[str, str]:
    """The rule files of a directory."""
    return {name: (directory / name).read_text() for name in (rules.CLASSIC_FILE, rules.ALERTS_FILE)}


def cpu_seconds(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def ask(server: PrometheusServer, path: str, **parameters: str) -> list[Any]:
    """Result of a query."""
    body = urlencode({**parameters, "timeout": "10m"}).encode()
    with urlopen(Request(f"{server.url}/api/v1/{path}", body), timeout=600) as answer:  # noqa: S310  loopback only
        result: list[Any] = json.load(answer)["data"]["result"]
    return result


def measure(server: PrometheusServer, path: str, **parameters: str) -> tuple[float, float, list[Any]]:
    """Processor seconds and wall seconds of a query, the least of some, and its result."""
    assert server.process is not None
    spent, waited = [], []
    result: list[Any] = []
    for _ in range(ROUNDS):
        began, cpu = time.monotonic(), cpu_seconds(server.process.pid)
        result = ask(server, path, **parameters)
        waited.append(time.monotonic() - began)
        spent.append(cpu_seconds(server.process.pid) - cpu)
    return min(spent), min(waited), result


def seconds_of(text: str) -> int:
    """A duration of one unit in seconds."""
    found = _DURATION.fullmatch(text)
    assert found is not None, text
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def levels(recordings: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Recordings whose expressions name none that comes later; a rule may read what it recorded before."""
    left, known = list(recordings), {rule["record"] for rule in recordings}
    while left:
        waiting = {
            rule["record"] for rule in left if ({*re.findall(r"[\w:]+", rule["expr"])} & known) - {rule["record"]}
        }
        ready = [rule for rule in left if rule["record"] not in waiting]
        yield ready
        known -= {rule["record"] for rule in ready}
        left = [rule for rule in left if rule["record"] in waiting]


def record(directory: Path, parsed: list[dict[str, Any]], end: int) -> None:
    """Evaluate the recording rules over the last minutes, into blocks."""
    every = [rule for one in parsed for group in one["groups"] for rule in group["rules"] if "record" in rule]
    for number, level in enumerate(levels(every)):
        file = directory / f"level{number}.yaml"
        file.write_text(yaml.safe_dump({"groups": [{"name": "level", "interval": "30s", "rules": level}]}))
        with stopping(server := prometheus(directory)):
            server.run()
            times = (f"--start={end - RECORDED_SECONDS}", f"--end={end}", "--eval-interval=30s")
            output = f"--output-dir={directory / 'tsdb'}"
            url = f"--url={server.url}"
            blocks.promtool("create-blocks-from", "rules", *times, url, output, str(file))


def prometheus(directory: Path) -> PrometheusServer:
    """A Prometheus over the blocks, which evaluates nothing."""
    configuration = directory / "prometheus.yaml"
    configuration.write_text("scrape_configs: []\n")
    return PrometheusServer(directory, configuration, options=_OPTIONS)


def measured_group(server: PrometheusServer, group: dict[str, Any], end: int) -> dict[str, Any]:
    """Processor time and series of a group's expressions."""
    each: dict[str, list[Any]] = {}
    for rule in group["rules"]:
        cpu, wall, result = measure(server, "query", query=f"count({rule['expr']})", time=str(end))
        own = each.setdefault(rule.get("alert") or rule["record"], [0.0, 0.0, 0])
        own[0] += cpu
        own[1] += wall
        own[2] += int(result[0]["value"][1]) if result and "record" in rule else 0
    interval, spent = seconds_of(group["interval"]), sum(cpu for cpu, _, _ in each.values())
    return {
        "group": group["name"],
        "interval_seconds": interval,
        "cpu_seconds": round(spent, 2),
        "wall_seconds": round(sum(wall for _, wall, _ in each.values()), 2),
        "within": spent <= interval * SHARE,
        "series": sum(count for _, _, count in each.values()),
        "rules": {
            name: {"cpu_seconds": round(cpu, 2), "wall_seconds": round(wall, 2), "series": count}
            for name, (cpu, wall, count) in sorted(each.items(), key=lambda item: -item[1][0])[:6]
        },
    }


def measured_panels(server: PrometheusServer, gpus: int, end: int) -> Iterator[dict[str, Any]]:
    """Processor time of each panel and variable of each page, as it opens."""
    for page, title, queries in panels.opened(gpus):
        spent = waited = 0.0
        count = 0
        for query in queries:
            times = {"start": str(end - panels.RANGE_SECONDS), "end": str(end), "step": "30"}
            times = {"time": str(end)} if query.is_instant else times
            cpu, wall, result = measure(
                server, "query" if query.is_instant else "query_range", query=query.expr, **times
            )
            spent, waited, count = spent + cpu, waited + wall, count + len(result)
        yield {
            "page": page,
            "panel": title,
            "cpu_seconds": round(spent, 2),
            "wall_seconds": round(waited, 2),
            "series": count,
            "within": spent <= PANEL_SECONDS,
        }


def run(directory: Path, texts: dict[str, str], options: argparse.Namespace) -> dict[str, Any]:
    """Build, record, measure."""
    of = {name: getattr(options, name) for name in ("gpus", "kernels", "detailed", "share", "pages")}
    asked = " ".join((*texts.values(), panels.queries() if options.pages else ""))
    fleet = blocks.built(options.tsdb or directory / "fleet", {*re.findall(r"[A-Za-z_]\w+", asked)}, of)
    shutil.copytree(fleet.directory, directory / "tsdb", copy_function=os.link)
    parsed = [yaml.safe_load(one) for one in texts.values()]
    record(directory, parsed, fleet.end)
    with stopping(server := prometheus(directory)):
        server.run()
        groups = []
        for group in (one for document in parsed for one in document["groups"]):
            groups.append(measured_group(server, group, fleet.end))
            sys.stderr.write(f"{json.dumps({key: value for key, value in groups[-1].items() if key != 'rules'})}\n")
        shown = []
        for panel in measured_panels(server, options.gpus, fleet.end) if options.pages else ():
            shown.append(panel)
            sys.stderr.write(f"{json.dumps(panel)}\n")
    return {
        "gpus": options.gpus,
        "kernels": options.kernels,
        "detailed_kernels": options.detailed,
        "series_read": fleet.series,
        "series_of_a_gpu": fleet.series_of_a_gpu,
        "series_recorded": sum(one["series"] for one in groups),
        "groups": groups,
        "panels": sorted(shown, key=lambda panel: -panel["cpu_seconds"]),
    }


def main() -> None:
    """Measure, print, and write the requested output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=248)
    parser.add_argument("--kernels", type=int, default=100)
    parser.add_argument("--detailed", type=int, default=20)
    parser.add_argument(
        "--share", type=float, default=0.01, help="least share of kernels with a mean of the day before"
    )
    parser.add_argument("--rules", type=Path, help="directory of rule files; by default those of this checkout's code")
    parser.add_argument("--pages", action="store_true", help="measure the panels of the pages, too")
    parser.add_argument("--tsdb", type=Path, help="folder that keeps the fleet's blocks; used again where it is full")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    texts = read(options.rules) if options.rules else rules.render(rules.PRODUCTION)
    texts.pop(rules.NATIVE_FILE, None)
    with tempfile.TemporaryDirectory(prefix="kernelcast-rules-", dir=options.tsdb and options.tsdb.parent) as folder:
        result = run(Path(folder), texts, options)
    print(json.dumps(result, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

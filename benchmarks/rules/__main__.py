"""Processor time of each group of rules for a large fleet.

    python -m benchmarks.rules --gpus 248 [--rules DIR] [--json FILE]

A real Prometheus reads blocks of a simulated fleet: ten minutes at 30 s that end at its start, and an hour of the day
before of the recorded means. It evaluates all groups as they are until each has been evaluated three times; then the
rules are taken out, and each expression is asked at that instant, alone. A group's time is the processor time of its
expressions (the least of three), which does not depend on what else the machine does, and its bar a third of its
interval. Series are those that a group wrote in one evaluation.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import yaml
from benchmarks.rules.fleet import GPUS_OF_A_NODE, Template, present, templates, write, write_yesterday, yesterday
from tests.service.require import binary
from tests.service.servers import PrometheusServer, stopping, wait_for
from tests.support.exporter.simulated_series import name_of

from kernelcast.grafana import rules
from kernelcast.grafana.rules.recording import KERNEL_MEAN

SAMPLES_A_SECOND: Final = 10_000
"""Of promtool on a busy core, at least."""
ROUNDS: Final = 3
SHARE: Final = 1 / 3
"""Bar: the share of its interval that a group may take."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def read(directory: Path) -> dict[str, str]:
    """The rule files of a directory."""
    return {name: (directory / name).read_text() for name in (rules.CLASSIC_FILE, rules.ALERTS_FILE)}


def blocks(text: Path, tsdb: Path) -> None:
    """Make blocks of OpenMetrics text."""
    command = [binary("promtool", "prometheus"), "tsdb", "create-blocks-from", "openmetrics", str(text), str(tsdb)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    text.unlink()


def means(made: list[Template], gpus: int, least: float) -> Iterator[tuple[str, float]]:
    """The recorded mean of each kernel with at least a share of its program's time."""
    counts = {one.series.partition("{")[2]: one.rate for one in made if name_of(one.series).endswith("seconds_count")}
    sums = {
        one.series.partition("{")[2]: one.rate
        for one in made
        if name_of(one.series) == "cuda_kernel_duration_seconds_sum"
    }
    every: dict[str, float] = {}
    for labels, rate in sums.items():
        every[_program(labels)] = every.get(_program(labels), 0.0) + rate
    for node in range(gpus // GPUS_OF_A_NODE):
        host = f"node-{node:04d}"
        for labels, rate in sums.items():
            if rate > 0 and rate >= least * every[_program(labels)]:
                named = labels.replace("sim-node-0", host).replace("GPU-", f"GPU-{node:04d}-")
                yield f'{KERNEL_MEAN}{{{named[:-1]},job="kernelcast-exporter"}}', rate / counts[labels]


def _program(labels: str) -> str:
    return re.sub(r',kernel="[^"]*"|,kernel_class="[^"]*"', "", labels)


def cpu_seconds(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def ask(server: PrometheusServer, expr: str, at: float) -> int:
    """Number of series of an expression."""
    body = urlencode({"query": f"count({expr})", "time": f"{at:.3f}", "timeout": "10m"}).encode()
    with urlopen(Request(f"{server.url}/api/v1/query", body), timeout=600) as answer:  # noqa: S310  loopback only
        result = json.load(answer)["data"]["result"]
    return int(result[0]["value"][1]) if result else 0


def measure(server: PrometheusServer, expr: str, at: float) -> tuple[float, float, int]:
    """Processor seconds and wall seconds of an expression, the least of some, and its series."""
    assert server.process is not None
    spent, waited, series = [], [], 0
    for _ in range(ROUNDS):
        began, cpu = time.monotonic(), cpu_seconds(server.process.pid)
        series = ask(server, expr, at)
        waited.append(time.monotonic() - began)
        spent.append(cpu_seconds(server.process.pid) - cpu)
    return min(spent), min(waited), series


def seconds_of(text: str) -> int:
    """A duration of one unit in seconds."""
    return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}[text[-1]]


def evaluated(server: PrometheusServer, times: int) -> bool:
    """Whether each group has been evaluated some times."""
    groups = server.api("rules")["groups"]
    page = {one["name"]: one for one in groups}
    text = urlopen(f"{server.url}/metrics", timeout=60).read().decode()  # noqa: S310  loopback only
    done = re.findall(r'prometheus_rule_group_iterations_total\{rule_group="[^;]*;([^"]*)"\} (\S+)', text)
    return len(done) == len(page) and all(float(count) >= times for _, count in done)


def run(directory: Path, texts: dict[str, str], options: argparse.Namespace) -> dict[str, Any]:
    """Build, evaluate, measure."""
    wanted = set(re.findall(r"[A-Za-z_]\w+", "".join(texts.values())))
    found = templates(options.kernels, options.detailed)
    made = [one for one in found if name_of(one.series) in wanted]
    past = list(means(made, options.gpus, options.share))
    total = len(made) * options.gpus // GPUS_OF_A_NODE * len(present(0)) + len(past) * len(yesterday(0))
    end = int(time.time()) + options.lead + total // SAMPLES_A_SECOND
    tsdb, text = directory / "tsdb", directory / "series.om"
    series = write(text, made, options.gpus, end)
    blocks(text, tsdb)
    before = write_yesterday(text, past, end)
    blocks(text, tsdb)
    left = end - time.time()
    print(f"{series} series, {before} samples of the day before; {left:.0f} s before the start", file=sys.stderr)
    if left < 0:
        raise SystemExit("the blocks were not ready in time; raise --lead")
    parsed = [yaml.safe_load(one) for one in texts.values()]
    for name, one in texts.items():
        # Groups of minutes are evaluated as often as the others here, so that each has been three times.
        (directory / name).write_text(re.sub(r"(?m)^  interval: \w+$", "  interval: 30s", one))
    configuration = directory / "prometheus.yaml"
    configuration.write_text(yaml.safe_dump({"global": {"evaluation_interval": "30s"}, "rule_files": [*texts]}))
    server = PrometheusServer(
        directory, configuration, options=["--query.timeout=10m", "--query.max-samples=200000000"]
    )
    with stopping(server):
        time.sleep(max(0.0, end - time.time()))
        server.run()
        wait_for("each group evaluated", lambda: evaluated(server, 2), 1200)
        assert server.process is not None
        cpu, began = cpu_seconds(server.process.pid), time.monotonic()
        wait_for("another round", lambda: evaluated(server, 3), 1200)
        round_seconds = time.monotonic() - began
        spent = cpu_seconds(server.process.pid) - cpu
        at = time.time()
        text_ = urlopen(f"{server.url}/metrics", timeout=60).read().decode()  # noqa: S310  loopback only
        written = dict(
            re.findall(r'prometheus_rule_group_last_evaluation_samples\{rule_group="[^;]*;([^"]*)"\} (\S+)', text_)
        )
        walls = dict(
            re.findall(r'prometheus_rule_group_last_duration_seconds\{rule_group="[^;]*;([^"]*)"\} (\S+)', text_)
        )
        configuration.write_text(yaml.safe_dump({"global": {"evaluation_interval": "30s"}}))
        urlopen(Request(f"{server.url}/-/reload", method="POST"), timeout=600).read()  # noqa: S310  loopback only
        rows = []
        for group in (one for document in parsed for one in document["groups"]):
            each: dict[str, list[Any]] = {}
            for rule in group["rules"]:
                cpu, wall, count = measure(server, rule["expr"], at)
                key = rule.get("alert") or rule["record"]
                own = each.setdefault(key, [0.0, 0.0, 0])
                own[0] += cpu
                own[1] += wall
                own[2] += count
            interval = seconds_of(group["interval"])
            cpu = sum(one[0] for one in each.values())
            rows.append(
                {
                    "group": group["name"],
                    "interval_seconds": interval,
                    "cpu_seconds": round(cpu, 3),
                    "wall_seconds": round(sum(one[1] for one in each.values()), 3),
                    "last_duration_seconds": float(walls.get(group["name"], "nan")),
                    "within": cpu <= interval * SHARE,
                    "series": int(float(written.get(group["name"], 0))),
                    "rules": {
                        name: {"cpu_seconds": round(one[0], 3), "wall_seconds": round(one[1], 3), "series": one[2]}
                        for name, one in sorted(each.items(), key=lambda item: -item[1][0])[:6]
                        if one[0] >= 0.05 or one[2]
                    },
                }
            )
            print(json.dumps({key: value for key, value in rows[-1].items() if key != "rules"}), file=sys.stderr)
    return {
        "gpus": options.gpus,
        "kernels": options.kernels,
        "detailed_kernels": options.detailed,
        "series_read": series,
        "series_of_a_gpu": len(found) / GPUS_OF_A_NODE,
        "cpu_seconds_of_all": round(spent * 30 / round_seconds, 2),
        "series_recorded": sum(one["series"] for one in rows),
        "groups": rows,
    }


def main() -> None:
    """Measure, print, and write the requested output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=248)
    parser.add_argument("--kernels", type=int, default=100)
    parser.add_argument("--detailed", type=int, default=20)
    parser.add_argument("--share", type=float, default=0.0, help="least share of kernels with a mean of the day before")
    parser.add_argument("--rules", type=Path, help="directory of rule files; by default those of this checkout's code")
    parser.add_argument("--lead", type=int, default=30, help="seconds left for simulating, beside those of the blocks")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    texts = read(options.rules) if options.rules else rules.render(rules.PRODUCTION)
    texts.pop(rules.NATIVE_FILE, None)
    with tempfile.TemporaryDirectory(prefix="kernelcast-rules-") as folder:
        result = run(Path(folder), texts, options)
    print(json.dumps(result, indent=2))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

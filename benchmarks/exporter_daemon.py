"""Cost of the exporter for its node: processor time and memory of the daemon and of the process that calls NVML.

`python benchmarks/exporter_daemon.py [--gpus N] [--seconds N] [--interval SECONDS] [--json FILE]
[--kafka.bootstrap-servers HOST:PORT]`

The real daemon, started as its command starts it, with every default row, the profiling rows and four processes on each
GPU, to Kafka (the embedded broker, in this process, without one), and scraped every 15 s. nvidia-ml-py calls a
libnvidia-ml of ours in C, which answers at once, where the driver's costs system calls. One run has no program, a
second run has a program that launches nothing. The start is the processor time of both processes until `/-/ready`.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # the double's answers and the ports come from the tests

from tests.support.exporter.nvml_library import environment
from tests.support.ports import free_ports

from kernelcast.runtime.kafka.embedded import EmbeddedBroker

WARM_UP_SECONDS = 10
SCRAPE_SECONDS = 15
READY_SECONDS = 60
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")

PROGRAM = """
import sys, time
import kernelcast.probe
kernelcast.probe.start(program="idle", source="simulated", socket_path=sys.argv[1])
for kernel in range(50):
    kernelcast.probe.observe(f"kernel_{kernel}", 1_000)
time.sleep(3600)
"""


@dataclass(frozen=True, slots=True)
class Usage:
    """Resource usage of one process.

    Attributes:
        core_percent: Processor time over wall time.
        resident_mebibytes: Memory at the end.
        own_mebibytes: Of that, its share where pages are shared with others (PSS).
    """

    core_percent: float
    resident_mebibytes: float
    own_mebibytes: float


@contextlib.contextmanager
def daemon(directory: Path, bootstrap: str, interval_seconds: float, gpus: int) -> Iterator[tuple[int, str]]:
    """The exporter; its process and its address."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {
        "state_directory": str(directory / "state"),
        "socket_path": str(directory / "probe.sock"),
        "interval_seconds": interval_seconds,
        "nvml": "on",
        "device_metrics": "on",
        "web": {"listen_address": address},
        "kafka": {"bootstrap_servers": bootstrap},
    }
    path = directory / "kernelcast.yaml"
    path.write_text(json.dumps({"exporter": settings}))
    command = [sys.executable, "-m", "kernelcast.cli", "exporter", "--config", str(path)]
    env = environment(directory, gpus)
    with subprocess.Popen(command, stderr=(directory / "log").open("w"), env=env) as process:
        try:
            yield process.pid, f"http://{address}"
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


@contextlib.contextmanager
def program(directory: Path) -> Iterator[None]:
    """A program that is connected and idle."""
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(directory / "probe.sock")]) as process:
        try:
            yield
        finally:
            process.kill()


def seconds_of(pid: int) -> float:
    """Processor time, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def memory_of(pid: int) -> tuple[float, float]:
    """Resident, and its own part of it, MiB."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
    return kib["Rss"] / 1024, kib["Pss"] / 1024


def child_of(pid: int) -> int:
    """Return the id of the daemon's child, which calls NVML."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    assert len(children) == 1, children
    return int(children[0])


def start_seconds(pid: int, url: str) -> float:
    """Wait until the exporter is ready; the processor time of both processes until then."""
    for _ in range(READY_SECONDS * 20):
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/-/ready", timeout=5):  # noqa: S310  our own
            return round(seconds_of(pid) + seconds_of(child_of(pid)), 2)
        time.sleep(0.05)
    raise TimeoutError(f"the exporter at {url} is not ready after {READY_SECONDS} s")


def scrape(url: str) -> int:
    """One scrape; how many series of GPUs it shows."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:  # noqa: S310  our own address
        return sum(line.startswith(b"DCGM_FI_") for line in answer)


def measure(pid: int, url: str, seconds: float) -> dict[str, Any]:
    """Usage of both processes over a period."""
    time.sleep(WARM_UP_SECONDS)
    scrape(url)  # the first one imports modules
    pids = {"daemon": pid, "nvml process": child_of(pid)}
    began, before = time.monotonic(), {name: seconds_of(one) for name, one in pids.items()}
    series = 0
    while (left := began + seconds - time.monotonic()) > 0:
        series = scrape(url)
        time.sleep(min(SCRAPE_SECONDS, left))
    wall = time.monotonic() - began
    usage = {
        name: Usage(round((seconds_of(one) - before[name]) / wall * 100, 2), *(round(m, 1) for m in memory_of(one)))
        for name, one in pids.items()
    }
    return {"series": series, **{name: asdict(one) for name, one in usage.items()}, "all": asdict(together(usage))}


def together(usage: dict[str, Usage]) -> Usage:
    """Return the usage of both processes together."""
    parts = [asdict(one) for one in usage.values()]
    return Usage(**{key: round(sum(part[key] for part in parts), 2) for key in parts[0]})


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--kafka.bootstrap-servers", dest="bootstrap")
    options = parser.parse_args()
    result: dict[str, Any] = {"gpus": options.gpus, "interval_seconds": options.interval}
    with contextlib.ExitStack() as stack:
        bootstrap = options.bootstrap or stack.enter_context(EmbeddedBroker()).bootstrap_servers
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pid, url = stack.enter_context(daemon(directory, bootstrap, options.interval, options.gpus))
        result["start, cpu seconds"] = start_seconds(pid, url)
        result["by itself"] = measure(pid, url, options.seconds)
        with program(directory):
            result["with an idle program"] = measure(pid, url, options.seconds)
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result))


if __name__ == "__main__":
    main()

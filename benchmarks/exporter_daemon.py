"""Cost of the exporter for its node: processor time and memory of the daemon and of the process that calls NVML.

`python benchmarks/exporter_daemon.py [--gpus N] [--seconds N] [--interval SECONDS] [--json FILE]
[--kafka.bootstrap-servers HOST:PORT]`

The real daemon, started as its command starts it, with every default row, the profiling rows and four processes on each
GPU, to Kafka (the embedded broker, in this process, without one), and scraped every 15 s. Instead of NVML a double
answers, which costs processor time in Python where the real library costs system calls; so the child's share is that of
the double, and is reported separately. One run has no program, a second run has a program that launches nothing.
"""

import argparse
import contextlib
import json
import os
import random
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

from tests.support.exporter.nvml_double import gpu, node
from tests.support.ports import free_ports

from kernelcast.exporter.nvml.recordings.recording import NODE, Answers, RecordedChanges, write
from kernelcast.runtime.kafka.embedded import EmbeddedBroker

WARM_UP_SECONDS = 10
SCRAPE_SECONDS = 15
PROCESSES = 4
MOMENTS = 30
"""Seconds of the recording, which is played again from its start."""
IDLE = ("memUtil", "encUtil", "decUtil")
"""Fields of a process' utilisation that are always 0 here."""
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


def moments(gpus: int) -> Iterator[RecordedChanges]:
    """Values that move from second to second, as real ones do."""
    rng = random.Random(1)
    for second in range(MOMENTS):
        answers: Answers = node(*(gpu(f"GPU-{index:08x}-0000-0000-0000-000000000000", index) for index in range(gpus)))
        for index in range(gpus):
            answers[str(index)] |= varied(rng, index, second)
        if second == 0:
            answers[NODE] = {
                "nvmlDeviceGetCount": gpus,
                "nvmlSystemGetDriverVersion": "590.48.01",
            }
        yield RecordedChanges(second * 10**9, answers)


def varied(rng: random.Random, index: int, second: int) -> dict[str, Any]:
    """NVML's answers for a busy GPU in one second."""
    pids = [10_000 + index * PROCESSES + one for one in range(PROCESSES)]
    running = [{"pid": pid, "usedGpuMemory": rng.randrange(2**34)} for pid in pids]
    used = [
        {"pid": pid, "timeStamp": second * 10**6, "smUtil": rng.randrange(100), **dict.fromkeys(IDLE, 0)}
        for pid in pids
    ]
    return {
        "nvmlDeviceGetPowerUsage": rng.randrange(70_000, 700_000),
        "nvmlDeviceGetTotalEnergyConsumption": second * 500_000 + index,
        "nvmlDeviceGetUtilizationRates": {"gpu": rng.randrange(100), "memory": rng.randrange(100)},
        "nvmlDeviceGetComputeRunningProcesses": running,
        "nvmlDeviceGetProcessUtilization": used,
        **{f"nvmlGpmMetricsGet:{one}": rng.uniform(0, 100) for one in (1, 2, 3, 5, 10)},
    }


@contextlib.contextmanager
def daemon(directory: Path, bootstrap: str, interval_seconds: float, gpus: int) -> Iterator[tuple[int, str]]:
    """The exporter; its process and the address of its metrics."""
    recording = directory / "nvml.jsonl"
    write(recording, moments(gpus))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    settings = {
        "state_directory": str(directory / "state"),
        "socket_path": str(directory / "probe.sock"),
        "interval_seconds": interval_seconds,
        "nvml_recording": str(recording),
        "device_metrics": "on",
        "web": {"listen_address": address},
        "kafka": {"bootstrap_servers": bootstrap},
    }
    path = directory / "kernelcast.yaml"
    path.write_text(json.dumps({"exporter": settings}))
    command = [sys.executable, "-m", "kernelcast.cli", "exporter", "--config", str(path)]
    with subprocess.Popen(command, stderr=(directory / "log").open("w")) as process:
        try:
            yield process.pid, f"http://{address}/metrics"
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


def scrape(url: str) -> int:
    """One scrape; how many series of GPUs it shows."""
    with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  our own address
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
        result["by itself"] = measure(pid, url, options.seconds)
        with program(directory):
            result["with an idle program"] = measure(pid, url, options.seconds)
    print(json.dumps(result, indent=1))
    if options.json:
        options.json.write_text(json.dumps(result))


if __name__ == "__main__":
    main()

"""Measures the start of the bridge until it is ready: with no machine code on disk (cold), and with all of it (warm).

    python benchmarks/start.py
    python benchmarks/start.py --python OTHER/bin/python --warm 5     another installation

The broker is the embedded one, in this process, and not counted. Processor time is that of the bridge and of the second
process that it compiles with. `everything` ends when no part is left to compile, including the parts that readiness
does not need.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))  # the ports come from the tests

from tests.support.ports import free_ports

from kernelcast.runtime.kafka.embedded import EmbeddedBroker

POLL_SECONDS = 0.1
"""Interval of questions to /-/ready, and of readings of /proc."""
QUIET_SECONDS = 3.0
"""The bridge has compiled everything once it was idle for this long."""
LIMIT_SECONDS = 900.0
QUIET_SHARE = 0.2
"""Processor seconds of one second below which it is idle."""
TICKS = os.sysconf("SC_CLK_TCK")
MIB = 1024 * 1024


@dataclass(frozen=True)
class Start:
    """One start.

    Attributes:
        ready_seconds: From the command to the first 200 of `/-/ready`.
        ready_cpu_seconds: Processor time until then, of both processes.
        ready_own_cpu_seconds: Processor time of the bridge alone: the time of a start where a second core is free.
        everything_cpu_seconds: Processor time until nothing is left to compile.
        resident_mib: Resident memory of the bridge, once nothing is left to compile.
        anonymous_mib: The part of it that no file backs.
        most_resident_mib: The most that all its processes held at one reading.
    """

    ready_seconds: float
    ready_cpu_seconds: float
    ready_own_cpu_seconds: float
    everything_cpu_seconds: float
    resident_mib: float
    anonymous_mib: float
    most_resident_mib: float


class Watched:
    """A bridge and the processes below it."""

    def __init__(self, command: list[str], environ: dict[str, str]) -> None:
        self.process = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._cpu_seconds: dict[int, float] = {}
        self.most_resident_mib = 0.0

    def read_processes(self) -> float:
        """Read /proc; returns the processor seconds of all processes so far, ended ones included."""
        if self.process.poll() is not None:
            raise SystemExit(f"the bridge ended with {self.process.returncode}; start it by hand to see why")
        resident_mib = 0.0
        for pid in (self.process.pid, *self.children()):
            try:
                words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            self._cpu_seconds[pid] = (int(words[11]) + int(words[12])) / TICKS
            resident_mib += int(words[21]) * os.sysconf("SC_PAGE_SIZE") / MIB
        self.most_resident_mib = max(self.most_resident_mib, resident_mib)
        return sum(self._cpu_seconds.values())

    @property
    def own_cpu_seconds(self) -> float:
        """Processor seconds of the bridge alone, at the last reading."""
        return self._cpu_seconds[self.process.pid]

    def children(self) -> list[int]:
        """Process numbers of those below the bridge."""
        lists = [path.read_text() for path in Path(f"/proc/{self.process.pid}/task").glob("*/children")]
        return [int(number) for text in lists for number in text.split()]

    def status(self, name: str) -> float:
        """A memory line of the bridge's status, in MiB."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024


def is_ready(url: str) -> bool:
    """Whether the bridge says that it is."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310  our own server
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def start(python: str, bootstrap_servers: str, cache: Path) -> Start:
    """Start a bridge, wait until it has compiled everything, and stop it."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    options = ["--kafka.bootstrap-servers", bootstrap_servers, "--web.listen-address", address]
    began = time.perf_counter()
    watched = Watched(
        [python, "-m", "kernelcast.cli", "bridge", *options], {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    )
    try:
        while not is_ready(f"http://{address}/-/ready"):
            watched.read_processes()
            time.sleep(POLL_SECONDS)
            if time.perf_counter() - began > LIMIT_SECONDS:
                raise SystemExit(f"the bridge was not ready after {LIMIT_SECONDS:.0f} s")
        ready_seconds, ready_cpu_seconds = time.perf_counter() - began, watched.read_processes()
        ready_own_cpu_seconds = watched.own_cpu_seconds
        settle(watched)
        return Start(
            ready_seconds,
            ready_cpu_seconds,
            ready_own_cpu_seconds,
            watched.read_processes(),
            watched.status("VmRSS"),
            watched.status("RssAnon"),
            watched.most_resident_mib,
        )
    finally:
        watched.process.terminate()
        watched.process.wait()


def settle(watched: Watched) -> None:
    """Wait until it uses hardly any processor time for some seconds."""
    quiet_since, before = time.perf_counter(), watched.read_processes()
    while time.perf_counter() - quiet_since < QUIET_SECONDS:
        time.sleep(1.0)
        now = watched.read_processes()
        if now - before > QUIET_SHARE or watched.children():
            quiet_since = time.perf_counter()
        before = now


def show(name: str, starts: list[Start]) -> None:
    """Print the medians of some starts."""
    for field in Start.__dataclass_fields__ if starts else ():
        values = [getattr(each, field) for each in starts]
        print(f"{name:<5} {field:<24} {statistics.median(values):8.1f}   {min(values):.1f} to {max(values):.1f}")


def main() -> None:
    """One cold start, and some warm starts with its machine code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the installation to start; default: this one")
    parser.add_argument("--warm", type=int, default=5, help="warm starts")
    parser.add_argument("--json", type=Path, help="write the results to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kernelcast-start-") as cache, EmbeddedBroker() as broker:
        cold = start(arguments.python, broker.bootstrap_servers, Path(cache))
        show("cold", [cold])
        warm = [start(arguments.python, broker.bootstrap_servers, Path(cache)) for _ in range(arguments.warm)]
        show("warm", warm)
    if arguments.json:
        result: dict[str, Any] = {"cold": asdict(cold), "warm": [asdict(each) for each in warm]}
        arguments.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()

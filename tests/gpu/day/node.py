"""Programs of the day, alone or below the probe, and the exporter that they report to."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from prometheus_client.parser import text_string_to_metric_families
from tests.gpu.day.driver import REPOSITORY
from tests.gpu.day.report import Skipped
from tests.support.ports import free_ports

PROGRAMS: Final = "tests.gpu.day.programs"
START_SECONDS: Final = 30.0
SKIP: Final = "skip"
"""Key of a program's output that says why it cannot work here."""


class ProgramError(Exception):
    """A program of the day did not end well."""


class Sample(NamedTuple):
    """One line of a page of metrics."""

    name: str
    labels: Mapping[str, str]
    value: float


def program(
    module: str,
    *arguments: object,
    seconds: float = 120.0,
    probe: Sequence[object] | None = None,
    environ: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Run a program of `programs/` and return the JSON object that it prints as its last line.

    Args:
        module: Its module.
        arguments: Its arguments.
        seconds: Longest run.
        probe: Options of `kernelcast probe`, below which it runs; None runs it alone.
        environ: Variables besides ours.

    Raises:
        Skipped: It cannot work here.
        ProgramError: It ended with another exit code than 0.
    """
    own = [sys.executable, "-m", f"{PROGRAMS}.{module}", *map(str, arguments)]
    below = [sys.executable, "-m", "kernelcast.probe", *map(str, probe), "--"] if probe is not None else []
    done = run([*below, *own], seconds, environ)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        last = crashed_at(done.stderr) or (done.stderr.strip().splitlines() or ["no message"])[-1]
        code = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
        raise ProgramError(f"{module} {' '.join(map(str, arguments))}: {code}: {last}")
    output: dict[str, Any] = json.loads(lines[-1])
    if SKIP in output:
        raise Skipped(output[SKIP])
    return output


def crashed_at(stderr: str) -> str:
    """Return the innermost three frames that faulthandler printed, of the thread that crashed; "" without any."""
    frames = re.search(r"^Current thread .*\n((?:  File .*\n?)+)", stderr, re.MULTILINE)
    return " < ".join(line.strip() for line in frames[1].splitlines()[:3]) if frames else ""


def run(
    command: Sequence[str], seconds: float, environ: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run a command in the repository's root; one that takes too long raises `subprocess.TimeoutExpired`."""
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONFAULTHANDLER": "1", **(environ or {})},
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


class Exporter:
    """An exporter that serves `/metrics` and writes to no Kafka.

    Attributes:
        socket: Path of the socket that programs report to.
        url: Address of its page.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.socket = folder / "probe.sock"
        self.url = url

    @classmethod
    def at(cls, url: str) -> Self:
        """Return the exporter of a page that runs already, to read it."""
        return cls(Path(), url)

    def probe(self, name: str, *options: str) -> list[str]:
        """Return the options of `kernelcast probe` for a program that reports to it."""
        return ["--program", name, "--socket", str(self.socket), *options]

    def samples(self) -> list[Sample]:
        """Return all lines of its page."""
        with urllib.request.urlopen(self.url, timeout=10) as page:  # noqa: S310  loopback only
            text = page.read().decode()
        return [
            Sample(sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def settled(
        self, holds: Callable[[list[Sample]], bool], seconds: float = 15.0, pause_seconds: float = 0.5
    ) -> list[Sample]:
        """Return the page once a condition holds, or as it is after some seconds."""
        end = time.monotonic() + seconds
        while True:
            samples = self.samples()
            if holds(samples) or time.monotonic() > end:
                return samples
            time.sleep(pause_seconds)


@contextmanager
def exporter(*options: str, nvml: str = "auto") -> Iterator[Exporter]:
    """Run an exporter for the duration of the block."""
    folder = Path(tempfile.mkdtemp(prefix="day-"))  # short: a socket's path has 107 characters at most
    address = f"127.0.0.1:{free_ports(1)[0]}"
    node = Exporter(folder, f"http://{address}/metrics")
    command = [sys.executable, "-m", "kernelcast.cli", "exporter", "--kafka", "off", "--interval", "1", "--nvml", nvml]
    command += ["--probe.socket", str(node.socket), "--state.directory", str(folder / "state")]
    daemon = subprocess.Popen([*command, "--web.listen-address", address, *options], stdout=sys.stderr)
    try:
        _wait(node, daemon)
        yield node
    finally:
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(node: Exporter, daemon: "subprocess.Popen[bytes]") -> None:
    end = time.monotonic() + START_SECONDS
    while True:
        try:
            node.samples()
        except OSError:
            if daemon.poll() is not None or time.monotonic() > end:
                raise ProgramError(f"the exporter does not answer; exit code {daemon.poll()}") from None
            time.sleep(0.1)
        else:
            return


def total(samples: Sequence[Sample], name: str, **labels: str) -> float:
    """Return the sum of the samples with a name and labels."""
    return sum(sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items())


def has(samples: Sequence[Sample], name: str) -> bool:
    """Whether a page has a metric."""
    return any(sample.name == name for sample in samples)


def launches(samples: Sequence[Sample], program_name: str, metric: str) -> dict[str, int]:
    """Return a metric of a program's kernels by the kernel's plain name, without its parameters and number."""
    sums: dict[str, int] = {}
    for sample in samples:
        if sample.name == metric and sample.labels.get("program") == program_name:
            name = plain(sample.labels["kernel"])
            sums[name] = sums.get(name, 0) + int(sample.value)
    return sums


def plain(kernel: str) -> str:
    """Return a kernel's name without its parameters and the number of its label."""
    return kernel.partition("#")[0].partition("(")[0].strip()


def states(samples: Sequence[Sample], metric: str) -> list[str]:
    """Return the states of live processes with their reasons."""
    return sorted(
        f"{sample.labels.get('state')}: {sample.labels.get('reason')}".rstrip(": ")
        for sample in samples
        if sample.name == metric and sample.value
    )

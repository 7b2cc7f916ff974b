"""An exporter beside the program: found or started, shared by ranks, gone with the last of them."""

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.waiting import wait_for

pytestmark = pytest.mark.service

PROGRAM = """
import sys, time
from kernelcast import probe
probe.start("train", source="simulated", standalone=True, method="manual")
while True:
    probe.observe("conv", 1000)
    time.sleep(0.05)
"""


@pytest.fixture(scope="session")
def compiled() -> None:
    """The exporter has no machine code of its own to wait for."""


class Ranks:
    """Programs that run until they are ended."""

    def __init__(self, runtime: Path) -> None:
        self.directory = runtime / "kernelcast"
        self._environ = {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "KERNELCAST_PROBE_INTERVAL_SECONDS": "0.2"}
        self.running: list[subprocess.Popen[str]] = []

    def start(self, rank: int, code: str = PROGRAM) -> "subprocess.Popen[str]":
        environ = {**self._environ, "RANK": str(rank), "PYTHONPATH": os.pathsep.join(sys.path)}
        pipe = subprocess.PIPE
        program = subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=pipe, stderr=pipe, text=True)
        self.running.append(program)
        return program

    def metrics(self) -> str:
        port = (self.directory / "port").read_text()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as response:
            text: str = response.read().decode()
            return text

    def launches(self) -> dict[str, float]:
        try:
            found = re.findall(r'^cuda_kernel_launches_total\{.*rank="(\d)".*\} (\S+)$', self.metrics(), re.MULTILINE)
        except OSError:
            return {}
        return {rank: float(value) for rank, value in found}


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    made = Ranks(tmp_path)
    yield made
    for program in made.running:
        program.kill()
        program.wait()
        for end in filter(None, (program.stdout, program.stderr)):
            end.close()
    assert wait_for(lambda: not alive(made.directory)), "the exporter outlived its programs"


def alive(directory: Path) -> bool:
    return (directory / "life.sock").exists()


WAITING = """
import os, subprocess, sys, time
from pathlib import Path
from kernelcast import probe
probe.start("train", source="simulated", standalone=True, method="manual")
port = Path(os.environ["XDG_RUNTIME_DIR"], "kernelcast", "port")
while not port.exists():
    time.sleep(0.05)
own = subprocess.Popen(["true"])  # kept: an object that is deleted reaps its process
ended = []
try:
    while True:
        ended.append(os.wait()[0])
except ChildProcessError:
    print(ended == [own.pid])
"""


def test_a_program_that_waits_for_all_its_children_does_not_wait_for_the_exporter(ranks: Ranks) -> None:
    waiting = ranks.start(0, WAITING)
    assert waiting.communicate(timeout=60)[0] == "True\n"


def test_ranks_share_one_exporter_that_ends_with_the_last_of_them_even_by_kill_9(ranks: Ranks) -> None:
    first, second = ranks.start(0), ranks.start(1)
    assert wait_for(lambda: set(ranks.launches()) == {"0", "1"}), (ranks.directory / "exporter.log").read_text()
    assert "kernelcast_exporter_probe_processes 2" in ranks.metrics()
    first.send_signal(signal.SIGKILL)
    printed = first.communicate()[1]
    before = ranks.launches()["1"]
    assert wait_for(lambda: ranks.launches().get("1", 0) > before)
    second.send_signal(signal.SIGKILL)
    printed += second.communicate()[1]
    assert wait_for(lambda: not alive(ranks.directory))
    port = (ranks.directory / "port").read_text()
    assert printed.count(f"see http://127.0.0.1:{port}/ or run: kernelcast top 127.0.0.1:{port}\n") == 1
    assert printed.count("kernelcast: ") == 1
    assert "found no exporter" not in printed, "the program has just started one, so it must not ask for another"
    assert ranks.directory.stat().st_mode & 0o777 == 0o700

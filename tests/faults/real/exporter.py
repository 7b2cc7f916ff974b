"""An exporter as a real process in a schedule: its state and spool lie on a disk that can be full; its programs."""

import contextlib
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml
from tests.faults.model.bridges import Mode
from tests.faults.model.invariants import Violation
from tests.faults.real.disk import SmallDisk
from tests.faults.real.waiting import PATIENCE_SECONDS, check_health
from tests.service.nursery import ForkedServer, Nursery
from tests.service.servers import ServerProcess, answers, free_ports

from kernelcast.wire.topics import KERNELS

STOP_SECONDS: Final = 30.0
PROGRAM: Final = Path(__file__).with_name("program.py")
TOPICS: Final = (KERNELS.name,)
"""Topics that a bridge reads to expose the programs."""


@dataclass
class Program:
    """A process with a probe, whose launches are known.

    Attributes:
        name: On its series.
        seen: By target of Prometheus, the last value that was exposed.
    """

    name: str
    directory: Path
    environ: dict[str, str]
    seen: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._begun, self._done, self._stop = (
            self.directory / f"{self.name}.{end}" for end in ("begun", "done", "stop")
        )
        command = [sys.executable, str(PROGRAM), self.name, str(self._begun), str(self._done), str(self._stop)]
        self._server = ServerProcess(self.name, command, self.directory, self.environ).start()
        self._sample = re.compile(
            rf'^cuda_kernel_launches_total\{{(?=[^}}]*program="{self.name}")[^}}]*\}} (\S+)$', re.MULTILINE
        )

    @property
    def begun(self) -> int:
        """Launches that may have been reported."""
        return _number(self._begun)

    @property
    def done(self) -> int:
        """Launches that have been reported."""
        return _number(self._done)

    def calm(self) -> None:
        """Report no more."""
        self._stop.touch()

    def kill(self) -> None:
        """End it."""
        self._server.kill()

    def exposed(self, page: str) -> float | None:
        """Its launches on a page."""
        found = [float(value) for value in self._sample.findall(page)]
        return sum(found) if found else None

    def judge(self, target: int, page: str) -> None:
        """Compare the counter on a page with the launches that the program has reported.

        Raises:
            Violation: Its counter falls, or counts more.
        """
        value = self.exposed(page)
        if value is None:
            return
        if value < self.seen.get(target, 0.0):
            raise Violation("a program's counter falls", f"{self.name} {self.seen[target]:.0f} -> {value:.0f}")
        if value > self.begun:
            raise Violation("more launches than there were", f"{self.name}: {value:.0f}, the program: {self.begun}")
        self.seen[target] = value


@dataclass
class RealExporter:
    """A place where an exporter process runs; its programs run on while it does not.

    Attributes:
        disk: Has its state and its spool.
    """

    bootstrap_servers: str
    tag: str
    mode: Mode
    directory: Path
    disk: SmallDisk
    nursery: Nursery
    programs: list[Program] = field(default_factory=list)
    server: ServerProcess | None = None

    def __post_init__(self) -> None:
        (port,) = free_ports(1)
        self._answered = False
        self.url = f"http://127.0.0.1:{port}"
        self._socket = self.directory / "p"  # a path of a socket has 107 bytes at most
        settings: dict[str, Any] = {
            "web": {"listen_address": f"127.0.0.1:{port}"},
            "interval_seconds": 0.5,
            "hostname": f"node-{self.tag}",
            "socket_path": str(self._socket),
            "state_directory": str(self.disk.folder / "state"),
            "spool": {"memory_seconds": 1, "max_bytes": 2**20, "replay_jitter_seconds": 0},
            "nvml": "off",
            "tpu": "off",
            "kubernetes": "off",
            "device_metrics": "off",
        }
        kafka = {"bootstrap_servers": self.bootstrap_servers}
        self._configuration = self.directory / "exporter.yaml"
        self._configuration.write_text(yaml.safe_dump({"kafka": kafka, "exporter": settings}))

    @property
    def ready(self) -> bool:
        """Whether `/-/ready` reports the exporter as ready."""
        return answers(f"{self.url}/-/ready")

    def start(self) -> None:
        """Start one, unless it runs."""
        if self.server is not None:
            return
        arguments = ["exporter", "--config", str(self._configuration)]
        self.server = ForkedServer("exporter", arguments, self.disk.folder, self.nursery)
        self._answered = False
        self.server.start()

    def kill(self) -> None:
        """`kill -9`."""
        if self.server is not None:
            self.server.kill()
        self.server = None

    def run_program(self) -> None:
        """Start a program."""
        name = f"p{len(self.programs)}-{self.tag}"
        self.programs.append(Program(name, self.directory, {"KERNELCAST_SOCKET": str(self._socket)}))

    def healthy(self) -> None:
        """Ask `/-/healthy` of an exporter that was started.

        Raises:
            Violation: It has ended, no longer answers, or takes longer than a second twice.
        """
        if self.server is None:
            return
        code = self.server.poll()
        if code is not None:
            raise Violation("an exporter ends", f"exit code {code}: {self.server.tail(1500)}")
        check_health(self._healthy, self.server)

    def _healthy(self) -> bool:
        """Whether it answers, or has not yet since it was started."""
        answered = answers(f"{self.url}/-/healthy", PATIENCE_SECONDS)
        self._answered |= answered
        return answered or not self._answered

    def judge(self, pages: dict[int, str]) -> None:
        """Compare the bridges' pages with what programs have reported.

        Raises:
            Violation: A counter falls, or counts more than there was.
        """
        for program in self.programs:
            for number, page in pages.items():
                program.judge(number if self.mode == "replica" else -1, page)

    def calm(self) -> None:
        """End all faults: there is room on the disk, and an exporter runs."""
        self.disk.free()
        self.start()
        for program in self.programs:
            program.calm()

    def differs(self, pages: dict[int, str]) -> str:
        """The first difference between exposed and reported launches; empty when there is none."""
        if not self.ready:
            return "the exporter is not ready"
        for program in self.programs:
            shown = [value for page in pages.values() if (value := program.exposed(page)) is not None]
            targets = (len(pages) if self.mode == "replica" else 1) if program.done else 0
            if shown != [program.done] * targets:
                return f"launches of {program.name} are {shown}, the program reported {program.done}"
        return ""

    def close(self) -> None:
        """Stop everything."""
        for program in self.programs:
            program.kill()
        self.kill()


@contextlib.contextmanager
def exporter_of(
    bootstrap_servers: str, tag: str, mode: Mode, directory: Path, disk: SmallDisk, nursery: Nursery
) -> Iterator[RealExporter]:
    """An exporter with one program; both are stopped in the end."""
    made = RealExporter(bootstrap_servers, tag, mode, directory, disk, nursery)
    try:
        made.start()
        made.run_program()
        yield made
    finally:
        made.close()


def _number(path: Path) -> int:
    with contextlib.suppress(FileNotFoundError):
        return int(path.read_text())
    return 0

"""One run of the demo: starts everything, watches it, waits until the last data have arrived, stops in order.

`command` makes one `Demo` and calls `run`, on the main thread.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kernelcast.cli.demo import summary, workspace
from kernelcast.cli.demo.children import KERNELCAST, DemoProcess, Supervisor
from kernelcast.cli.demo.event_log import EventLog
from kernelcast.cli.demo.http import answers
from kernelcast.cli.demo.progress import StartProgress
from kernelcast.cli.demo.sources import DemoSource
from kernelcast.cli.demo.state import DemoState, Gatherer
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import KernelcastError

READY_SECONDS: Final = 900.0
"""A service that ends is noticed at once; this is for one that hangs, and a first start compiles on a busy machine."""
SETTLE_SECONDS: Final = 20.0
"""Longest wait at the end until Prometheus has the last data."""
SHORT_SETTLE_SECONDS: Final = 8.0
"""The same after Ctrl-C; a second Ctrl-C ends it."""

FIGURES_SECONDS: Final = 10.0
"""Longest wait for the first figures; the screen then says what is missing."""
GATHER_SECONDS: Final = 1.0
"""Time between two readings of the state."""
EXAMPLE_PROGRAM: Final = "example"
_STEPS: Final = 3
"""Steps of a start, for its progress: the bridge, the exporter, and the first figures."""

Show = Callable[[DemoState], None]


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of the demo.

    Attributes:
        source: The source of the measurements.
        kernels: Limit of kernel names per program and GPU, or `all`.
        speed: Replay speed, or `max`.
        duration_seconds: Time until the stop, from the moment when everything is ready; None runs until Ctrl-C.
        program: Command that runs in place of the example program; empty for none.
        example: Whether a program runs beside the source: the example with a badly tuned kernel, or `program`.
        servers: Whether Prometheus and Alertmanager are started where they are found.
        seed: The simulation's.
        faults: Faults of the simulation, as `kernelcast simulate --fault` takes them; empty for the demo's own.
    """

    source: DemoSource
    kernels: str = "100"
    speed: str = "1"
    duration_seconds: float | None = None
    program: tuple[str, ...] = ()
    example: bool = True
    servers: bool = True
    seed: int = 1
    faults: tuple[str, ...] = ()


class Demo:
    """A run on a broker that is already there. For the main thread.

    Args:
        options: The options.
        directory: Folder of configurations, logs and states.
        addresses: One for each of the three services, Prometheus and Alertmanager, reserved until the run ends.
        bootstrap_servers: The broker.
        broker: Its kind: `embedded` or `kafka`.
    """

    def __init__(
        self, options: DemoOptions, directory: Path, addresses: Sequence[str], bootstrap_servers: str, broker: str
    ) -> None:
        self._options = options
        self._prometheus = workspace.find(workspace.PROMETHEUS) if options.servers else None
        self._alertmanager = workspace.find(workspace.ALERTMANAGER) if self._prometheus else None
        endpoints = workspace.Endpoints(
            exporter=addresses[0],
            bridge=addresses[1],
            predictor=addresses[2],
            prometheus=addresses[3] if self._prometheus else "",
            alertmanager=addresses[4] if self._alertmanager else "",
        )
        self.workspace = workspace.Workspace(directory, endpoints, bootstrap_servers)
        self.state = DemoState(options.source, self.workspace, broker)
        self._supervisor = Supervisor()
        self._source: DemoProcess | None = None

    def missing(self) -> list[str]:
        """Return the programs that were not found on this machine, each with a remedy."""
        if not self._options.servers:
            return []
        remedy = "install it (Debian: apt-get install {}) to see rules fire and alerts arrive"
        lines = [] if self._prometheus else [f"Prometheus is not on PATH: {remedy.format('prometheus')}"]
        if not self._alertmanager:
            lines.append(f"Alertmanager is not on PATH: {remedy.format('prometheus-alertmanager')}")
        return lines

    def run(self, shutdown: Shutdown, show: Show, progress: StartProgress) -> dict[str, Any]:
        """Run until the time is up or somebody stops it.

        Args:
            shutdown: Ends the run when requested.
            show: Called once a second with the newest state.
            progress: Receives the steps of the start.

        Returns:
            The summary.

        Raises:
            KernelcastError: A part did not start, or died.
        """
        events = EventLog(
            KafkaSettings(bootstrap_servers=self.workspace.bootstrap_servers), int(time.time() * 1000) - 1000
        )
        with ExitStack() as stack:
            stack.callback(self._supervisor.stop)
            stack.callback(progress.end)
            self._start_all(shutdown, progress)
            events.start()
            stack.callback(events.stop)
            gatherer = Gatherer(self.state, self._supervisor, events)
            self._wait_for_figures(gatherer, shutdown, progress)
            progress.end()
            self._watch_until_predicting(gatherer, shutdown, show)
            started = time.monotonic()
            self._watch(gatherer, shutdown, show, started)
            self._wait_for_last_data(
                gatherer, show, started, SHORT_SETTLE_SECONDS if shutdown.requested else SETTLE_SECONDS
            )
            exits = self._supervisor.stop()
        return summary.summarise(self.state, self._published(), exits)

    def _start_all(self, shutdown: Shutdown, progress: StartProgress) -> None:
        """Start services, servers and sources; after a request to stop, nothing more.

        The predictor starts once the bridge is ready: both run the same machine code, and the bridge compiles it where
        there is none. The first picture needs no predictor, so nothing waits for it here.
        """
        options = self._options
        self.workspace.write_config(nvml="on" if options.source.kind == "nvml" else "off", kernels=options.kernels)
        for name in ("bridge", "exporter"):
            self._start_service(name)
        if self._prometheus:
            self.workspace.write_observability()
        self._wait_for("bridge", 1, shutdown, progress)
        self._wait_for("exporter", 2, shutdown, progress)
        if not shutdown.requested:
            self._start_service("predictor")
            self._start_servers()
            self._start_source()

    def _start_service(self, name: str) -> None:
        self._start(name, (*KERNELCAST, name, "--config", str(self.workspace.config)))

    def _start_servers(self) -> None:
        directory, endpoints = self.workspace.directory, self.workspace.endpoints
        if self._alertmanager:
            options = [
                f"--config.file={directory / 'alertmanager.yml'}",
                f"--storage.path={directory / 'alertmanager'}",
            ]
            options += [f"--web.listen-address={endpoints.alertmanager}", "--cluster.listen-address="]
            self._start("alertmanager", (self._alertmanager, *options), unblocks=False)
        if self._prometheus:
            options = [
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'prometheus'}",
            ]
            options += [f"--web.listen-address={endpoints.prometheus}"]
            self._start("prometheus", (self._prometheus, *options), unblocks=False)

    def _start_source(self) -> None:
        options = self._options
        self._published_path.unlink(missing_ok=True)  # of an earlier demo in the same folder
        environ = {
            "KERNELCAST_SOCKET": str(self.workspace.socket),
            "KERNELCAST_TUNING_DIRECTORY": str(self.workspace.directory / "tuning"),
        }
        if options.source.kind != "nvml":
            self._source = self._start("source", self._source_command(), ends=options.source.path is not None)
        if options.example:
            example = (sys.executable, "-m", "kernelcast.probe.example", "--program", EXAMPLE_PROGRAM)
            own = not options.program
            self._start("example", options.program or example, ends=not own, environ=environ, unblocks=own)

    def _source_command(self) -> tuple[str, ...]:
        options = self._options
        shared = ["--kafka.bootstrap-servers", self.workspace.bootstrap_servers, "--kernels", options.kernels]
        shared += ["--speed", options.speed, "--summary", str(self._published_path)]
        if options.source.path is not None:
            return (*KERNELCAST, "replay", options.source.kind, str(options.source.path), *shared)
        return (*KERNELCAST, "simulate", "--seed", str(options.seed), *simulation(options.faults), *shared)

    def _wait_for_figures(self, gatherer: Gatherer, shutdown: Shutdown, progress: StartProgress) -> None:
        """Wait until the bridge has figures of the source, so that the first picture has some."""
        deadline = time.monotonic() + FIGURES_SECONDS
        while not shutdown.requested and time.monotonic() < deadline:
            page = gatherer.gather(0.0).snapshot
            self._check()
            if page.gpus or (page.kernels and self._options.source.path is not None):
                return
            progress.report(_STEPS, _STEPS, "waiting for the first figures")
            shutdown.wait(0.2)

    def _watch_until_predicting(self, gatherer: Gatherer, shutdown: Shutdown, show: Show) -> None:
        """Show the state until the predictor is ready, too; the run's time counts from then on."""
        deadline = time.monotonic() + READY_SECONDS
        while not shutdown.requested and not self._is_ready("predictor", deadline):
            show(gatherer.gather(0.0))
            shutdown.wait(GATHER_SECONDS)

    def _watch(self, gatherer: Gatherer, shutdown: Shutdown, show: Show, started: float) -> None:
        limit = self._options.duration_seconds
        while not shutdown.requested:
            elapsed_seconds = time.monotonic() - started
            show(gatherer.gather(elapsed_seconds))
            self._check()
            if limit is not None and elapsed_seconds >= limit:
                return
            remaining = GATHER_SECONDS if limit is None else min(GATHER_SECONDS, max(0.05, limit - elapsed_seconds))
            shutdown.wait(remaining)

    def kill(self) -> None:
        """End every process at once."""
        self._supervisor.kill()

    def _wait_for_last_data(self, gatherer: Gatherer, show: Show, started: float, limit_seconds: float) -> None:
        """Stop the sources of data, and wait until Prometheus has the last of it, or until the time limit."""
        for child in reversed(self._supervisor.children):
            if child.name in ("example", "source"):
                child.stop()
        deadline = time.monotonic() + limit_seconds
        previous: tuple[float, float | None] | None = None
        while time.monotonic() < deadline:
            state = gatherer.gather(time.monotonic() - started)
            show(state)
            seen = (state.snapshot.launches, state.prometheus_launches)
            if seen == previous and (not self._prometheus or (seen[1] or 0.0) == seen[0]):
                return
            previous = seen
            time.sleep(1.5 * GATHER_SECONDS)

    def _start(
        self, name: str, command: tuple[str, ...], *, ends: bool = False, environ: Any = None, unblocks: bool = True
    ) -> DemoProcess:
        log = self.workspace.log(name)
        child = DemoProcess(name, command, log, ends=ends, unblocks=unblocks, environ=environ or {})
        return self._supervisor.start(child)

    def _wait_for(self, name: str, number: int, shutdown: Shutdown, progress: StartProgress) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not self._is_ready(name, deadline) and not shutdown.requested:
            compiled = _compiled(self.workspace.log(name))
            progress.report(
                number, _STEPS, f"the {name} {compiled}" if compiled else f"waiting until the {name} is ready"
            )
            shutdown.wait(0.1)

    def _is_ready(self, name: str, deadline: float) -> bool:
        """Whether a service is ready.

        Raises:
            KernelcastError: It is not, and a process has failed or the time is up.
        """
        if answers(f"http://{getattr(self.workspace.endpoints, name)}/-/ready"):
            return True
        self._check()
        if time.monotonic() > deadline:
            child = next(each for each in self._supervisor.children if each.name == name)
            raise KernelcastError(f"{name} was not ready within {READY_SECONDS:.0f} s; {_log_end(child)}")
        return False

    def _check(self) -> None:
        for child in self._supervisor.failed():
            raise KernelcastError(f"{child.name} {child.state}; {_log_end(child)}")

    @property
    def _published_path(self) -> Path:
        return self.workspace.directory / "published.json"

    def _published(self) -> dict[str, Any] | None:
        """The counts that the source has written at its end; None without one, or if it was killed meanwhile."""
        try:
            published: dict[str, Any] = json.loads(self._published_path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return published


def _compiled(log: Path) -> str:
    """What a service's log says of the machine code that it compiles, in few words; empty where it compiles none."""
    text = log.read_text(errors="replace")
    if 'event="compiling' not in text:
        return ""
    done = re.findall(r" done=(\d+)/(\d+)", text)
    parts = f": {done[-1][0]} of {done[-1][1]} parts" if done else ""
    return f"compiles, once on a machine{parts}"


def _log_end(child: DemoProcess) -> str:
    return f"its log (--directory keeps it) ends with:\n{child.log_end()}"


def simulation(faults: Sequence[str]) -> tuple[str, ...]:
    """Options of `kernelcast simulate`: its size, the faults, and a GPU that is hot and has no fault.

    Args:
        faults: Chosen faults; without any, one GPU's cooling fails slowly.
    """
    chosen = [word for fault in faults or (USUAL_FAULT,) for word in ("--fault", fault)]
    return ("--nodes", "1", "--gpus", "4", *chosen, "--background", "hot-but-stable:node=0,gpu=3")


USUAL_FAULT: Final = "thermal-drift:node=0,gpu=1,start=30s,rate=12"
"""The predictor must distinguish this GPU, whose cooling fails slowly, from one that is hot and has no fault."""

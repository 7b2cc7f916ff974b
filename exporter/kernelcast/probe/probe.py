"""One probe: the recorder and the tunables of a program, connected to the sender."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from time import monotonic, time_ns
from typing import Final

from kernelcast.probe.hints import HintReceiver, RejectionReason
from kernelcast.probe.methods.environment import MethodEnvironment
from kernelcast.probe.methods.selection import MethodSelection
from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.process.driver import claims
from kernelcast.probe.recording.recorder import Recorder, plain
from kernelcast.probe.reporting.connection import Link
from kernelcast.probe.reporting.sender import ReportedProcess, ReportSender
from kernelcast.probe.tunables import Terms, Tunable, TunableSet, Value, printable_kernels
from kernelcast.probe.verdict import CanaryPolicy
from kernelcast.wire.events import Outcome
from kernelcast.wire.frames import DeviceClaim, Hello
from kernelcast.wire.identity import LIVE, PROGRAM_PATTERN, SOURCES, new_nonce

STOP_SECONDS: Final = 0.2
SHORTEST_SECONDS: Final = 0.02
LONGEST_SECONDS: Final = 3600.0
MAX_VERSION_CHARACTERS: Final = 128
MAX_METHOD_CHARACTERS: Final = 64
RANK_VARIABLES: Final = (
    "KERNELCAST_RANK",
    "RANK",  # torchrun
    "OMPI_COMM_WORLD_RANK",  # Open MPI
    "PMIX_RANK",  # PMIx: Open MPI 5, PRRTE, Slurm's
    "PMI_RANK",  # MPICH, Intel MPI
    "MV2_COMM_WORLD_RANK",  # MVAPICH2
    "JAX_PROCESS_ID",  # jax.distributed
    "SLURM_PROCID",  # last: it is 0 in every program that is started without srun
)


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """Settings of one probe.

    Attributes:
        program: The user's name for the job.
        rank: Its rank; empty for a single process.
        socket_path: The exporter's socket.
        interval_seconds: Time between frames.
        source: Empty for a live GPU, `simulated` for a program without one.
        method: How kernels are measured: `auto`, `cupti`, `event`, `count`, or `manual`: by the program itself.
        code_version: The program's version; a hint for another one is refused.
        devices: The devices in CUDA's order; None asks the driver at the first frame.
        policy: How a hinted value is tried.
    """

    program: str
    rank: str = ""
    socket_path: str = "/run/kernelcast/probe.sock"
    interval_seconds: float = 1.0
    source: str = LIVE
    method: str = "manual"
    code_version: str = ""
    devices: tuple[DeviceClaim, ...] | None = None
    policy: CanaryPolicy = field(default_factory=CanaryPolicy)


class Probe:
    """Measures one process; `start` makes it.

    Its methods `observe`, `count`, `copy`, `sync`, `step` and `stop` take the same arguments as the module's functions;
    only the first of `observe` and `count` is called `signature` here.

    Attributes:
        settings: The settings in force, among them `program`, `rank`, `socket_path` and `method`.
        outcomes: The results of the last hints, oldest first: `hint_id`, `tunable`, `state`, `value`, `measured_ratio`.

    Args:
        settings: Who reports, and where to.
        environ: Where the kill switch `KERNELCAST_HINTS` stands.
        clock: Unix nanoseconds.
        each_interval: Called once an interval, on the probe's own thread.
    """

    def __init__(
        self,
        settings: ProbeSettings,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], int] = time_ns,
        each_interval: Callable[[], None] | None = None,
    ) -> None:
        self.settings = settings
        self.nonce = new_nonce()
        self._clock = clock
        self._start_ns = clock()
        self._silent = False
        self.steps = 0
        self.recorder = Recorder()
        self._tunables = TunableSet()
        ground = RejectionReason(
            settings.program,
            settings.rank,
            settings.code_version,
            self._device_model,
            environ,
            clock,
            settings.policy,
        )
        self._outcomes = OutcomeQueue(settings.program, settings.rank, clock, self._wake)
        self._desk = HintReceiver(self._tunables, self.recorder, self._outcomes, ground)
        self.ladder = MethodSelection(
            self.recorder, settings.method, MethodEnvironment(each_poll=each_interval) if each_interval else None
        )
        subject = ReportedProcess(self.recorder, self._tunables, self._outcomes, self._desk, self.ladder)
        link = Link(settings.socket_path, monotonic)
        self._sender = ReportSender(subject, link, settings.interval_seconds, self._hello)
        self.observe = self.recorder.observe
        self.count = self.recorder.count
        self.sync = self.recorder.sync

    @property
    def dropped_frames(self) -> int:
        """Frames that could not be sent; totals are cumulative, so later frames include their content."""
        return self._sender.dropped_frames

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Outcomes of the last hints, oldest first."""
        return self._outcomes.history

    @property
    def connected(self) -> bool:
        """Whether the exporter has accepted this process."""
        return bool(self._sender.devices)

    def copy(
        self, kind: str, copied_bytes: int, duration_ns: int, *, pinned: bool | None = None, device: int = 0
    ) -> None:
        """Add one copy; `kind` is `h2d`, `d2h`, `d2d`, `p2p` or `h2h`."""
        known = "" if pinned is None else str(pinned).lower()
        self.recorder.copy(kind, copied_bytes, duration_ns, pinned=known, device=device)

    def tunable(self, name: str, allowed: Sequence[Value], value: Value, terms: Terms | None = None) -> Tunable[Value]:
        """Register a tunable.

        Args:
            name: Its name, unique in the program.
            allowed: The values it may take, of one type.
            value: The value it has now; one of them.
            terms: Scope, granularity, kind and kernels.

        Raises:
            TunableError: The name, a value or the number of them is not acceptable.
        """
        terms = terms or Terms()
        kernels = printable_kernels(terms.kernels)
        fitted = Terms(terms.scope, terms.granularity, terms.kind, kernels, terms.agree)
        tunable: Tunable[Value] = Tunable(name, allowed, value, fitted)
        self._tunables.add(tunable)
        self._desk.watch(tunable)
        return tunable

    def step(self, *, epoch: bool = False) -> None:
        """A step of the program has ended: the only place where a tunable's value changes.

        Args:
            epoch: An epoch has ended, too.
        """
        if self._silent:
            return
        if not self.steps:
            self.recorder.touch()
        self.steps += 1
        self._desk.at_boundary(epoch=epoch)

    def start(self) -> None:
        """Begin to measure, and start the sender."""
        self.ladder.begin()
        self._sender.start()

    def stop(self) -> None:
        """Send the last totals and `Bye`, and end, in at most 200 ms; safe to call twice."""
        if not self._silent:
            self._silent = True
            self._sender.stop(STOP_SECONDS)
            self.ladder.stop()

    def abandon(self) -> None:
        """Stop reporting in a forked child; the parent continues unchanged."""
        self._silent = True
        self.observe = self.count = self.sync = _nothing
        self.ladder.forked()
        self.recorder.forked()
        self._sender.abandon()

    def _hello(self) -> Hello:
        settings = self.settings
        return Hello(
            program=settings.program,
            nonce=self.nonce,
            start_ns=self._start_ns,
            pid=os.getpid(),
            rank=settings.rank,
            source=settings.source,
            method=self.ladder.method,
            version=package_version(),
            code_version=settings.code_version,
            devices=settings.devices or claims(settings.source),
        )

    def _device_model(self) -> str:
        devices = self._sender.devices
        return devices[0].model_name if devices else ""

    def _wake(self) -> None:
        self._sender.wake()


def package_version() -> str:
    """The installed version of kernelcast; empty where it is not installed as a package."""
    try:
        return version("kernelcast")
    except PackageNotFoundError:
        return ""


def settings_from(program: str | None, rank: str | int | None, environ: Mapping[str, str]) -> ProbeSettings:
    """Settings from arguments and environment; an unusable value is replaced, because a probe stops no program.

    Args:
        program: Its name; None takes `KERNELCAST_PROGRAM`, else `program`.
        rank: Its rank; None takes the first of `RANK_VARIABLES` that is set.
        environ: The environment.
    """
    named = plain(str(program or environ.get("KERNELCAST_PROGRAM", "")))
    clean = "".join(character for character in named if PROGRAM_PATTERN.fullmatch(character))[:128] or "program"
    ranks = (environ.get(name) for name in RANK_VARIABLES)
    shown = str(rank) if rank is not None else next((found for found in ranks if found), "")
    try:
        interval_seconds = float(environ.get("KERNELCAST_PROBE_INTERVAL_SECONDS", "1"))
    except ValueError:
        interval_seconds = 1.0
    return ProbeSettings(
        program=clean,
        rank=plain(shown[:64]),
        socket_path=environ.get("KERNELCAST_SOCKET") or "/run/kernelcast/probe.sock",
        interval_seconds=min(max(SHORTEST_SECONDS, interval_seconds), LONGEST_SECONDS),  # in this order NaN loses
        code_version=plain(environ.get("KERNELCAST_CODE_VERSION", "")[:MAX_VERSION_CHARACTERS]),
    )


def known_source(source: str) -> str:
    """A source that the contract knows; anything else is no live GPU, so it counts as simulated."""
    return source if source in SOURCES else "simulated"


def _nothing(*_arguments: object, **_named: object) -> None:
    """The report of a forked child: nothing."""

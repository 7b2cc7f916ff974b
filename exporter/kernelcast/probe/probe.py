"""One probe: the recorder and the tunables of a program, connected to the sender."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from math import inf
from pathlib import Path
from threading import get_ident
from time import monotonic, perf_counter_ns, time_ns
from typing import Any, Final

from kernelcast.probe.conditions.orders import StopOrders
from kernelcast.probe.conditions.pauses import PauseChecks
from kernelcast.probe.given_values import given_configurations
from kernelcast.probe.hints import HintContext, HintReceiver
from kernelcast.probe.methods.environment import MethodEnvironment
from kernelcast.probe.methods.selection import CUPTI_SWITCH, FRAMEWORKS, METHODS, MethodSelection
from kernelcast.probe.outcomes import OutcomeQueue
from kernelcast.probe.process.driver import claims, runtime_version
from kernelcast.probe.process.machine import driver_version, memory
from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.reporting.connection import ExporterConnection
from kernelcast.probe.reporting.left_outcomes import LeftOutcomes, Origin
from kernelcast.probe.reporting.sender import ReportedProcess, ReportSender
from kernelcast.probe.settings import ProbeSettings
from kernelcast.probe.terminal.messages import UserMessages
from kernelcast.probe.terminal.situation import Situation
from kernelcast.probe.terminal.summary import RunSummary, summary
from kernelcast.probe.terminal.tuning import TuningResult, tuning_results
from kernelcast.probe.trial_budget import TrialBudget
from kernelcast.probe.tunables import AnyTunable, Terms, Tunable, TunableSet, Value, printable_kernels
from kernelcast.probe.tuned.checks import Check
from kernelcast.probe.tuned.collective import FunctionSearches
from kernelcast.probe.tuned.reports import SearchOutcome, into
from kernelcast.probe.tuned.space import ProgramSpace, SpaceServices, SpaceTerms, make_space
from kernelcast.probe.tuned.steps import FirstStep
from kernelcast.tuning.journal import KeptConfiguration
from kernelcast.wire.errors import TunableError
from kernelcast.wire.events import Outcome, OutcomeState
from kernelcast.wire.frames import DeviceClaim, Hello
from kernelcast.wire.identity import CPU, LIVE, new_nonce
from kernelcast.wire.tuning.experience import Experience

__all__ = ["Probe", "ProbeSettings", "package_version"]

# Longest delay of the program's end.
STOP_SECONDS: Final = 0.2
# Spaces of which results of other nodes are kept for functions that are decorated later.
MAX_EXPERIENCES: Final = 256


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
        each_interval: Called once an interval, on the probe's own thread; it watches an exporter that this program
            has started.
        messages: Writes what the program's user is to read; None writes nothing.
    """

    def __init__(
        self,
        settings: ProbeSettings,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], int] = time_ns,
        each_interval: Callable[[], None] | None = None,
        messages: UserMessages | None = None,
    ) -> None:
        self.settings = settings
        self._environ = environ
        self._messages = messages
        self._began_at, self._ended_at = monotonic(), 0.0
        self.nonce = new_nonce()
        self._clock = clock
        self._start_ns = clock()
        self._silent = self._on_cpu = False
        self._stepping_thread = 0
        self.steps = 0
        self.recorder = Recorder()
        self.recorder.budget = TrialBudget(settings.trial_share)
        self._progress = self.recorder.progress
        self._tunables = TunableSet()
        self._searches: list[FunctionSearches] = []
        self._restored_values: dict[str, tuple[str, str]] = {}
        self._has_own_exporter = each_interval is not None
        self._tuning_at_end: tuple[TuningResult, ...] | None = None
        self._elsewhere: dict[str, Experience] = {}
        folder = settings.state_directory
        given = given_configurations(environ, settings.program, self._claims, remembers=bool(folder))
        self._journal = memory(Path(folder), settings.program, self._claims, clock, given) if folder else None
        folders = (str(Path(settings.socket_path).parent), folder)
        context = HintContext(
            settings.program,
            settings.rank,
            settings.code_version,
            self._device_model,
            clock,
            settings.rules,
            orders=StopOrders(folders, program=settings.program, environ=environ),
            pauses=PauseChecks(folders, settings.program),
            budget=self.recorder.budget,
            journal=self._journal,
        )
        self._outcomes = OutcomeQueue(settings.program, settings.rank, clock, self._wake)
        self._add_search = into(self._outcomes)
        self._left = LeftOutcomes(self._journal.path, settings.rank, clock) if self._journal else None
        self._receiver = HintReceiver(self._tunables, self.recorder, self._outcomes, context)
        self._receiver.learned = self._learn
        self.selection = MethodSelection(
            self.recorder, settings.method, MethodEnvironment(each_poll=each_interval) if each_interval else None
        )
        subject = ReportedProcess(self.recorder, self._tunables, self._outcomes, self._receiver, self.selection)
        link = ExporterConnection(settings.socket_path, monotonic)
        self._sender = ReportSender(
            subject, link, settings.interval_seconds, self._hello, moved=self._has_moved, speak=self._speak
        )
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
        """Whether an exporter is connected, and has not refused this process as far as known."""
        return self._sender.connected

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
        tunable: Tunable[Value] = Tunable(name, allowed, value, replace(terms, kernels=kernels))
        restored = self._restored(tunable)
        self._tunables.add(tunable)
        if restored is not None and terms.scope == "local":
            self._put_restored(tunable, restored)
        self._receiver.watch(tunable, restored.config if restored else None)
        return tunable

    def attach(self, tunable: AnyTunable) -> None:
        """Let hints change a tunable that was declared before the start.

        The value that this node kept before is in force from the next step or epoch on.

        Raises:
            TunableError: It is collective, or there are too many.
        """
        name, terms = tunable.name, tunable.terms
        if terms.scope == "collective":
            raise TunableError(f"tunable {name} is collective, so that its ranks must declare it after start()")

        start = tunable.kept

        def restore() -> None:
            is_free = tunable.kept == start and not self._receiver.busy()  # else a hint has come first
            restored = self._restored(tunable) if is_free else None
            if restored is not None:
                self._put_restored(tunable, restored)

        self._tunables.add(tunable)
        if terms.granularity != "restart":  # of such a one the program has used the value
            self._receiver.drive(FirstStep(restore, by_epoch=terms.granularity == "epoch"))

    def space(  # noqa: PLR0913  the terms of a space, each with a default
        self,
        name: str,
        parameters: Mapping[str, Sequence[Any]],
        *,
        start: Mapping[str, Any],
        valid: Callable[[Any], Any] | None = None,
        check: Check | None = None,
        terms: SpaceTerms | None = None,
        share: float | None = None,
    ) -> ProgramSpace:
        """Make a space of joint configurations; arguments as of the module's `space`, whose last ones are `terms`.

        Raises:
            SpaceError: Parameters, start, restriction or terms cannot be used.
            TunableError: A collective space has no group that can be used, or there are too many tunables.
        """
        return make_space(name, parameters, start, valid, check, self.surroundings, terms=terms, share=share)

    @property
    def surroundings(self) -> SpaceServices:
        """Services of this program that a space uses."""
        return SpaceServices(
            True,
            self._journal,
            self._receiver.trial_prevented,
            self.settings.code_version,
            self.settings.rank,
            self.recorder.budget,
            self._report_search,
            self._register_search,
            self.tunable,
            self._receiver.drive,
            self._receiver.approvals.of,
            self._receiver.councils.search_together,
            self._receiver.approvals.refuse,
            self._receiver.stopped,
        )

    @property
    def unsent_outcomes(self) -> int:
        """Number of outcomes that wait to be sent."""
        return len(self._outcomes)

    @property
    def configuration(self) -> int:
        """Number of the configuration in force, for `observe` of launches whose time is known later."""
        return self.recorder.configuration

    def step(self, *, items: float = 0, flops: float = 0, epoch: bool = False) -> None:
        """A step of the program has ended: the only place where a tunable's value changes.

        Args:
            items: Units of work, such as samples, that the step processed; 0 if the program does not count them.
            flops: Floating-point operations that the step needs on this process; 0 if they are not known.
            epoch: An epoch has ended, too.
        """
        if self._silent:
            return
        if not self.steps:
            self.recorder.touch()
        self.steps += 1
        items = _units(items)
        self._progress.advance(perf_counter_ns(), items)
        flops = _units(flops)
        if flops:
            self._progress.add_flops(flops)
        if self._stepping_thread != get_ident():  # else a signal handler has interrupted a step of its own thread
            self._at_boundary(items or 1.0, epoch=epoch)

    def start(self) -> None:
        """Begin to measure, and start the sender."""
        self.selection.begin()
        self._sender.start()

    def stop(self) -> None:
        """Send the last totals and `Bye`, and end, in at most 200 ms; safe to call twice."""
        if not self._silent:
            self._silent = True
            if self._messages is not None and self._messages.has_summary:
                self._guarded(self._note_tuning)  # before searches end
            if self._stepping_thread != get_ident():
                self._end_trials()
            deadline = monotonic() + STOP_SECONDS
            self._sender.stop(STOP_SECONDS)
            self._guarded(self._save_outcomes)
            self._guarded(lambda: self.selection.stop(max(0.0, deadline - monotonic())))
            self._ended_at = monotonic()

    def show_summary(self) -> None:
        """Write the summary of the run, and its report, where this process is to; after `stop`."""
        if self._messages is not None:
            self._messages.finish(self._summary)

    def abandon(self) -> None:
        """Stop reporting in a forked child; the parent continues unchanged."""
        self._silent = True
        self.observe = self.count = self.sync = _nothing
        self.selection.forked()
        self.recorder.forked()
        self._receiver.forked()
        self._sender.abandon()

    def _speak(self, *, ends: bool) -> float:
        messages = self._messages
        return inf if messages is None else messages.poll(self._situation(), self._summary, ends=ends)

    def _situation(self) -> Situation:
        recorder, settings, link = self.recorder, self.settings, self._sender.link
        if not recorder.touched:
            return Situation(has_begun=False)
        uses_gpu = self.selection.has_seen_context
        reports_itself = settings.method not in METHODS or settings.source != LIVE
        return Situation(
            has_begun=True,
            uses_gpu=uses_gpu,
            reports_itself=reports_itself or (recorder.uses_devices and not uses_gpu),
            source=settings.source,
            status=recorder.current,
            cupti=self._environ.get(CUPTI_SWITCH, "") or ("1" if settings.method == "cupti" else ""),
            framework=next((shown for name, shown in FRAMEWORKS.items() if name in sys.modules), ""),
            socket_path=settings.socket_path,
            is_connected=self._sender.connected,
            failure=link.failure,
            reception=self._sender.reception,
        )

    def _summary(self, has_ended: bool) -> RunSummary:  # noqa: FBT001  the only argument
        return summary(
            self.recorder,
            self._situation(),
            self.settings,
            running_seconds=(self._ended_at or monotonic()) - self._began_at,
            has_ended=has_ended,
            tuning=self._tuning() if self._tuning_at_end is None else self._tuning_at_end,
        )

    def _note_tuning(self) -> None:
        self._tuning_at_end = self._tuning()

    def _tuning(self) -> tuple[TuningResult, ...]:
        unhinted = {}
        if self._has_own_exporter:  # which knows no Kafka; spaces are searched without hints
            unhinted = {tunable.name: tunable.kept for tunable in self._tunables.all() if tunable.terms.kind != "space"}
        return tuning_results(
            self._outcomes.results, list(self._searches), self._restored_values, self._receiver.stopped(), unhinted
        )

    def _put_restored(self, tunable: AnyTunable, restored: KeptConfiguration) -> None:
        start = tunable.kept
        tunable.put(restored.config)
        if restored.config != start:
            self._restored_values[tunable.name] = start, restored.config
        if tunable.terms.granularity != "restart" and restored.config != start:
            self._receiver.kept_values.kept(tunable, start, restored)

    def _restored(self, tunable: AnyTunable) -> KeptConfiguration | None:
        """Return the value that was kept before for this code version, unless hints are switched off.

        One that changes results counts only if a person had approved it.
        """
        if self._journal is None or self._receiver.stopped():
            return None

        def unfit(kept: KeptConfiguration) -> str:
            if kept.config not in tunable.allowed:
                return f"{tunable.name} allows {', '.join(tunable.allowed)}"
            needs = tunable.terms.needs_approval and not kept.approved_by
            return "it changes results, and no person approved it" if needs else ""

        return self._journal.last_kept(tunable.name, self.settings.code_version, unfit)

    def _at_boundary(self, items: float, *, epoch: bool) -> None:
        self._stepping_thread = get_ident()
        try:
            self._receiver.at_boundary(epoch=epoch, items=items)
        except Exception as error:  # noqa: BLE001  nothing here may reach the program
            self._sender.add_failure(error)
        finally:
            self._stepping_thread = 0
            if self._silent:  # a signal handler has called `stop` in the middle of this step
                self._end_trials()
                self._guarded(self._save_outcomes)

    def _end_trials(self) -> None:
        self._guarded(self._receiver.close)
        for search in self._searches:
            self._guarded(partial(search.close, "the program ended"))

    def _save_outcomes(self) -> None:
        if self._left is not None:
            self._left.update(self._outcomes.left(), self._origin(self._sender.devices))

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  nothing here may reach the program
            self._sender.add_failure(error)

    def _register_search(self, search: FunctionSearches) -> None:
        self._searches.append(search)
        for experience in list(self._elsewhere.values()):
            search.learn(experience)

    def _learn(self, experience: Experience) -> None:
        self._elsewhere[experience.space] = experience
        while len(self._elsewhere) > MAX_EXPERIENCES:
            del self._elsewhere[next(iter(self._elsewhere))]
        for search in list(self._searches):
            search.learn(experience)

    def _report_search(self, outcome: SearchOutcome) -> None:
        if not self._silent or outcome.state is not OutcomeState.APPLIED:
            self.recorder.touch()  # a program that only searches has nothing else to report
            self._add_search(outcome)

    def _origin(self, devices: tuple[DeviceClaim, ...]) -> Origin:
        return Origin(devices[0].model_name if devices else "", self.settings.code_version)

    def _hello(self) -> Hello:
        settings = self.settings
        if self._on_cpu:  # and now it uses a GPU: another series, with all totals so far
            self.nonce = new_nonce()
        self._on_cpu = self._works_on_cpu()
        source = CPU if self._on_cpu else settings.source
        devices = claims(CPU) if self._on_cpu else self._claims()
        if self._left is not None:
            self._outcomes.restore(self._left.restore(self._origin(devices)))
        on_gpu = source == LIVE and all(claim.uuid for claim in devices)
        return Hello(
            program=settings.program,
            nonce=self.nonce,
            start_ns=self._start_ns,
            pid=os.getpid(),
            rank=settings.rank,
            source=source,
            method=self.selection.method,
            version=package_version(),
            code_version=settings.code_version,
            devices=devices,
            image=settings.image,
            cuda_version=runtime_version() if on_gpu else "",
            driver_version=driver_version() if on_gpu else "",
        )

    def _works_on_cpu(self) -> bool:
        """Whether nothing that is reported needs a GPU, and the program has named neither a GPU nor another source."""
        named = self.settings.source != LIVE or self.settings.devices
        return not named and not self.recorder.uses_devices and not self.selection.has_context

    def _has_moved(self) -> bool:
        """Whether the program is known as one without a GPU, and uses one since."""
        return self._on_cpu and not self._works_on_cpu()

    def _claims(self) -> tuple[DeviceClaim, ...]:
        return self.settings.devices or claims(self.settings.source)

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


def _units(items: Any) -> float:
    """Return the units of work that a program gives for a step; 0 for anything that is no number above 0."""
    try:
        number = items if type(items) is int else float(items)
    except Exception:  # noqa: BLE001  an array, or a value that is no number, must not end the program's step
        return 0
    return number if 0 < number < inf else 0


def _nothing(*_arguments: object, **_named: object) -> None:
    """The report of a forked child: nothing."""

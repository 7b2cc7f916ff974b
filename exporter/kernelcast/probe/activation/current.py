"""The probe of this process, for programs that do not want to carry it around."""

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from logging import getLogger
from typing import TYPE_CHECKING, Any, Final, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from kernelcast.probe.activation.context_waiter import start_at_step, stop_waiting
from kernelcast.probe.given_values import set_outside
from kernelcast.probe.marks.process import marks
from kernelcast.probe.probe import Probe
from kernelcast.probe.ranks.council import stay_away
from kernelcast.probe.recording.recorder import Dimensions, plain
from kernelcast.probe.settings import (
    MAX_METHOD_CHARACTERS,
    MAX_VERSION_CHARACTERS,
    known_source,
    program_name,
    settings_from,
)
from kernelcast.probe.switch import OFF
from kernelcast.probe.terminal.messages import UserMessages
from kernelcast.probe.terminal.role import launch_role
from kernelcast.probe.tunables import AnyTunable, Terms, Tunable, Value, printable_kernels
from kernelcast.probe.tuned.checks import Check
from kernelcast.probe.tuned.space import ProgramSpace, SpaceServices, SpaceTerms, make_space
from kernelcast.wire.frames import DeviceClaim
from kernelcast.wire.identity import LIVE

if TYPE_CHECKING:
    from kernelcast.probe.activation.standalone import Standalone
    from kernelcast.probe.process.imports import ImportWatch


Item = TypeVar("Item")

_log: Final = getLogger("kernelcast.probe")


class _Current:
    """Holds the active probe, so that the functions below need no `global`."""

    def __init__(self) -> None:
        self.probe: Probe | None = None
        self.follows_forks = self.stops_at_exit = False
        # Held while a probe starts; a second thread that starts one waits for the first, which takes milliseconds.
        self.starting = threading.RLock()
        self.standalone: Standalone | None = None
        self.nvtx: ImportWatch | None = None
        # Declared while no probe ran, and still in use: spaces, each with its share, and tunables.
        self.early_spaces: WeakKeyDictionary[ProgramSpace, float | None] = WeakKeyDictionary()
        self.early_tunables: WeakValueDictionary[str, AnyTunable] = WeakValueDictionary()

    def attach(self, probe: Probe) -> None:
        """Let a probe that has started tune the spaces and tunables that were declared before."""
        spaces, self.early_spaces = list(self.early_spaces.items()), WeakKeyDictionary()
        tunables, self.early_tunables = list(self.early_tunables.values()), WeakValueDictionary()
        for made, share in spaces:
            try:
                made.attach(probe.surroundings, share)
            except Exception as error:  # noqa: BLE001  nothing here may reach the program
                _log.warning("kernelcast probe does not tune a space that was declared before start(): %s", error)
        for tunable in tunables:
            try:
                probe.attach(tunable)
            except Exception as error:  # noqa: BLE001  likewise
                _log.warning("kernelcast probe does not tune a tunable that was declared before start(): %s", error)

    def forked(self) -> None:
        self.starting = threading.RLock()  # the parent's may be held by a thread that does not survive the fork
        probe, self.probe = self.probe, None
        if probe:
            probe.abandon()
        marks.forked()
        self.let_go()

    def let_go(self) -> None:
        standalone, self.standalone = self.standalone, None
        if standalone:
            standalone.let_go()
        nvtx, self.nvtx = self.nvtx, None
        if nvtx:
            nvtx.stop()


_current = _Current()


def start(  # noqa: PLR0913  the door of the library; everything has a default
    program: str | None = None,
    rank: str | int | None = None,
    *,
    socket_path: str | None = None,
    devices: Sequence[DeviceClaim] | None = None,
    source: str = LIVE,
    code_version: str | None = None,
    method: str = "auto",
    standalone: bool | None = None,
    nvtx: bool | None = None,
) -> Probe:
    """Start to report this process; a second call returns the probe that already runs.

    Args:
        program: The name of the job; default `KERNELCAST_PROGRAM`, else the name of the script or module.
        rank: Its rank; default what `KERNELCAST_RANK`, torchrun, MPI, JAX or Slurm say in the environment.
        socket_path: The exporter's socket; default `KERNELCAST_SOCKET`, else `/run/kernelcast/probe.sock`.
        devices: The GPUs, in CUDA's order; by default the probe asks the CUDA driver, once this process uses it.
        source: `cpu` for a program that works on the CPU, `simulated` for one that invents its work; neither has a GPU.
        code_version: Your program's version: hints for another one are refused.
        method: The method of measurement: `cupti`, `event`, `count` (see docs/probe.md), `auto` for the best of these
            that is possible, or `manual` for a program that measures and calls `observe` itself.
        standalone: Start an exporter beside the program; default `KERNELCAST_PROBE_STANDALONE`.
        nvtx: NVTX ranges of CuPy and PyTorch become regions; default `KERNELCAST_PROBE_NVTX`.

    Returns:
        The probe. It never raises into the program, never blocks it, and is silent after a fork until started again.
    """
    if not _current.follows_forks:
        _current.follows_forks = True
        os.register_at_fork(after_in_child=_current.forked)
    with _current.starting:
        if _current.probe:
            return _current.probe
        stop_waiting()
        main = getattr(sys.modules.get("__main__"), "__spec__", None)
        settings = settings_from(program, rank, os.environ, program_name(sys.argv, getattr(main, "name", "")))
        beside = _standalone(standalone)
        settings = replace(
            settings,
            socket_path=str(socket_path or (beside.socket_path if beside else settings.socket_path)),
            devices=tuple(devices) if devices else None,
            source=known_source(source),
            code_version=settings.code_version
            if code_version is None
            else plain(str(code_version)[:MAX_VERSION_CHARACTERS]),
            method=plain(str(method)[:MAX_METHOD_CHARACTERS]),
        )
        if switched_on(nvtx, "KERNELCAST_PROBE_NVTX"):
            from kernelcast.probe.recording.nvtx import watch_nvtx  # noqa: PLC0415  few ask for it

            _current.nvtx = watch_nvtx()
        messages = UserMessages(
            lambda: launch_role(os.environ, sys.modules, settings.rank), os.environ, beside.failure if beside else None
        )
        probe = Probe(settings, each_interval=beside.poll if beside else None, messages=messages)
        probe.start()
        _current.probe, _current.standalone = probe, beside
        marks.watch()
        marks.attach(probe.recorder)
        _current.attach(probe)
        if not _current.stops_at_exit:
            _current.stops_at_exit = True
            atexit.register(stop)
        return probe


def start_from_environment(environ: Mapping[str, str] = os.environ) -> Probe:
    """Start the probe of a program that does not call `start` itself."""
    return start(method=environ.get("KERNELCAST_PROBE_METHOD", "auto"))


def stop() -> None:
    """Send the last totals and end, in at most 200 ms, then write summary and report; nothing where no probe runs.

    A program that ends by `os._exit` calls it before: nothing else runs at such an end.
    """
    probe, _current.probe = _current.probe, None
    if probe:
        probe.stop()
        marks.detach()
        probe.show_summary()
    _current.let_go()


def observe(  # noqa: PLR0913  a launch has this many properties
    kernel_signature: str,
    duration_ns: int,
    *,
    grid: Dimensions = None,
    block: Dimensions = None,
    registers: int = 0,
    shared_memory_bytes: int = 0,
    device: int = 0,
    configuration: int | None = None,
) -> None:
    """Report one timed launch. `Probe.observe` does the same without looking the probe up.

    Args:
        kernel_signature: The kernel's demangled name.
        duration_ns: Its time on the device, in nanoseconds.
        grid: Blocks of the launch, as `"48x1x1"` or `(48, 1, 1)`.
        block: Threads of a block, in the same form.
        registers: Registers of a thread.
        shared_memory_bytes: Shared memory of a block.
        device: Index into the devices of this process.
        configuration: `Probe.configuration` at the launch, where its time is reported a step later or more.
    """
    probe = _current.probe
    if probe:
        probe.observe(
            kernel_signature,
            duration_ns,
            grid=grid,
            block=block,
            registers=registers,
            shared_memory_bytes=shared_memory_bytes,
            device=device,
            configuration=configuration,
        )


def count(kernel_signature: str, launches: int = 1, *, device: int = 0) -> None:
    """Report launches that were not timed.

    Args:
        kernel_signature: The kernel's demangled name.
        launches: The number of launches.
        device: Index into the devices of this process.
    """
    probe = _current.probe
    if probe:
        probe.count(kernel_signature, launches, device=device)


def copy(kind: str, copied_bytes: int, duration_ns: int, *, pinned: bool | None = None, device: int = 0) -> None:
    """Report one copy of memory.

    Args:
        kind: `h2d`, `d2h`, `d2d`, `p2p` or `h2h`: from host (`h`) or device (`d`) to host or device.
        copied_bytes: The size of the copy.
        duration_ns: Its time, in nanoseconds.
        pinned: Whether the host's memory is page-locked; None where that is not known.
        device: Index into the devices of this process.
    """
    probe = _current.probe
    if probe:
        probe.copy(kind, copied_bytes, duration_ns, pinned=pinned, device=device)


def sync(kind: str, waited_ns: int, *, device: int = 0) -> None:
    """Report that a thread of the program waited for the device.

    Args:
        kind: The object of the wait: `stream`, `event`, `context` or `device`.
        waited_ns: The length of the wait, in nanoseconds.
        device: Index into the devices of this process.
    """
    probe = _current.probe
    if probe:
        probe.sync(kind, waited_ns, device=device)


def step(*, items: float = 0, flops: float = 0, epoch: bool = False) -> None:
    """Mark the end of a step, such as one batch; tunables change their values here and nowhere else.

    Args:
        items: Units of work that the step processed, such as samples or tokens; a program that gives them has a rate
            of work on the dashboards, and its trials compare times per unit. 0 if it does not count them.
        flops: Floating-point operations that the step needs on this process, such as 6 times parameters times tokens
            in training; from them comes the share of the GPU's peak that is used at least. 0 if they are not known.
        epoch: The step also ends an epoch; tunables with `granularity="epoch"` change only then.
    """
    if not _current.probe:
        start_at_step()
    probe = _current.probe
    if probe:
        probe.step(items=items, flops=flops, epoch=epoch)


def data(batches: Iterable[Item]) -> Iterator[Item]:
    """Yield the items of an iterable, and measure the program's wait for each as the phase `data` of its steps.

    For loaders other than PyTorch's `DataLoader`, whose waits are measured without it. ::

        for images, labels in probe.data(batches):
            train(images, labels)

    Args:
        batches: The loader, or anything else that can be iterated.

    Returns:
        An iterator of the same items; errors of the loader reach the program as they are.
    """
    return marks.iterate(batches)


def tunable(  # noqa: PLR0913  the terms of a tunable, each with a default
    name: str,
    allowed: Sequence[Value],
    value: Value,
    *,
    scope: str = "local",
    granularity: str = "step",
    kind: str = "generic",
    kernels: Sequence[str] = (),
    group: Any = None,
    changes_results: bool | None = None,
    worst: float | None = None,
    settle: int | None = None,
    run_seconds: float | None = None,
    objective: str = "mean",
) -> Tunable[Value]:
    """Register a tunable; its `.value` changes at step boundaries only, and only to an allowed value.

    Args:
        name: Its name, unique in the program.
        allowed: The values it may take, all of one type: int, float or str.
        value: The value it starts with; another one that `KERNELCAST_SET` gives, as `{"NAME": "VALUE"}` or a file of
            kept values (`@FILE`), precedes it.
        scope: `local`, or `collective` where all ranks need the same value.
        granularity: `call` or `step` (may change in `step()`), `epoch` (in `step(epoch=True)`), `restart` (never here).
        kind: `block_size` or another word that hint rules know.
        kernels: Signatures of the kernels it acts on; empty for all.
        group: For `collective`: how ranks communicate: a `torch.distributed` process group, an mpi4py communicator, an
            object with `all_gather(text)`, or with `broadcast(text, root)`, `rank` and `size`. Every rank registers
            the tunable at the same place of the program; they exchange its value there.
        changes_results: Whether another value changes the program's results, so that a person has to approve it.
            Without it, values of the kinds `batch_size`, `precision` and `checkpointing` do.
        worst: Longest time of a launch, step or epoch that is reckoned with while few were seen, over a typical one;
            None for 6 of launches and steps, 1.5 of epochs.
        settle: Launches or steps after a change that are not compared; None learns it, up to 33.
        run_seconds: Time in which a value must pay back what its first launches cost, as when they compile; None for
            an hour.
        objective: What a value must lower to be kept, in seconds an item: the `mean`, or `p99`, the 99th percentile of
            launches or steps, which takes 1,000 to 5,000 of each value. Not of epochs, and not `collective`.

    Returns:
        The tunable; read its `value` in every step.

    Raises:
        TunableError: The name, a value or the number of them is not acceptable.
    """
    terms = Terms(
        scope, granularity, kind, tuple(kernels), group, changes_results, worst, settle, run_seconds, objective
    )
    value = set_outside(name, allowed, value)
    probe = _current.probe
    if probe:
        return probe.tunable(name, allowed, value, terms)
    if scope == "collective":
        stay_away(group)
    early = Tunable(name, allowed, value, replace(terms, kernels=printable_kernels(terms.kernels)))
    _current.early_tunables[name] = early
    return early


def space(  # noqa: PLR0913  the terms of a space, each with a default
    name: str,
    parameters: Mapping[str, Sequence[Any]],
    *,
    start: Mapping[str, Any],
    valid: Callable[[Any], Any] | None = None,
    check: Check | None = None,
    per: str = "call",
    scope: str = "local",
    group: Any = None,
    changes_results: bool = False,
    share: float | None = None,
    search: Any = "own",
    worst: float | None = None,
    settle: int | None = None,
    run_seconds: float | None = None,
    objective: str = "mean",
) -> ProgramSpace:
    """Declare a space of joint configurations, which is searched and proved while the program works.

    Args:
        name: Its name, unique in the program.
        parameters: The values of each parameter, by name.
        start: The configuration of the untuned program, a value for each parameter.
        valid: Takes a configuration, returns whether it may be used; all may without it.
        check: Compares a candidate's result with the kept configuration's, as `close` and `finite` do.
        per: When the configuration may change: at each `call` of a function that is decorated with the space's `tuned`,
            at the end of a `step`, or of an `epoch` (`step(epoch=True)`), whose times per item are compared.
        scope: `local`, or `collective` where all ranks need the same configuration: the ranks search it together, and
            hints propose configurations besides. It has at most 256.
        group: For `collective`: how ranks communicate, as of `tunable`.
        changes_results: Another configuration changes the program's results, so that the program tries none by itself;
            with `per="step"` or `"epoch"` hints that a person has approved may.
        share: Share of the steps' time that a search may cost; None for that of the process (1 %, or
            `KERNELCAST_TRIAL_SHARE`). Of calls, `tuned` has it.
        search: What proposes configurations: `own`; `optuna` or `kernel-tuner`, from the extras of these names; the
            name of an entry point in `kernelcast.searches`, or such a function itself; or an object with `ask()`, which
            returns a value for each parameter by name, or None at the end, and `tell(configuration, cost)`, whose cost
            is the time over the start's, or None for a configuration that cannot be run.
        worst: Longest time of a call, step or epoch that is reckoned with, as of `tunable`.
        settle: Calls or steps after a change that are not compared, as of `tunable`.
        run_seconds: Time in which a configuration must pay back what its first calls cost, as of `tunable`.
        objective: `mean` or `p99`, as of `tunable`; the search itself goes by the mean.

    Returns:
        The space: decorate functions with its `tuned`, read its attributes. The start is in force until a probe starts.

    Raises:
        SpaceError: Parameters, start, restriction or terms cannot be used.
        TunableError: A collective space has no group that can be used, or there are too many tunables.
        ConfigurationError: Where a probe runs: there is no search of that name, or its package is not installed.
    """
    terms = SpaceTerms(per, scope, group, changes_results, search, worst, settle, run_seconds, objective)
    with _current.starting:
        probe = _current.probe
        if not probe:
            made = make_space(name, parameters, start, valid, check, SpaceServices(), terms=terms)
            _current.early_spaces[made] = share
    if probe:
        return probe.space(name, parameters, start=start, valid=valid, check=check, terms=terms, share=share)
    if scope == "collective":
        stay_away(group)
    return made


def switched_on(chosen: bool | None, variable: str) -> bool:  # noqa: FBT001  True, False, or as the environment says
    """A switch of `start`; None leaves it to the environment."""
    return os.environ.get(variable, "").lower() not in OFF if chosen is None else chosen


def _standalone(chosen: bool | None) -> "Standalone | None":  # noqa: FBT001  likewise
    if not switched_on(chosen, "KERNELCAST_PROBE_STANDALONE"):
        return None
    from kernelcast.probe.activation.standalone import Standalone  # noqa: PLC0415  few ask for it; it imports subprocess

    beside = Standalone()
    beside.start()
    return beside

"""Session of one process: its last totals, and the changes since the last poll."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernelcast.exporter.hints.received import ReceivedOutcome
from kernelcast.exporter.programs.limits import (
    ProbeLimits,
    check_counters,
    check_names,
    check_rows,
    check_status,
    check_tunables,
    check_variants,
)
from kernelcast.exporter.programs.outbox import ProcessOutbox
from kernelcast.exporter.programs.outcomes import checked_id
from kernelcast.exporter.programs.pending import PendingTotals
from kernelcast.exporter.programs.standing import ProgressWatch
from kernelcast.exporter.totals.report import ProcessReport, Standing
from kernelcast.wire.errors import EventError, FrameError
from kernelcast.wire.events import Hint, outcome_from
from kernelcast.wire.frames import (
    MAX_VARIANTS,
    Bye,
    Counters,
    Frame,
    Hello,
    KernelName,
    KernelRow,
    KernelRows,
    Names,
    OutcomeFrame,
    Status,
    TunableClaim,
    Tunables,
    VariantRows,
)
from kernelcast.wire.identity import Device, Process
from kernelcast.wire.tuning.approvals import Approval
from kernelcast.wire.tuning.experience import Experience


class ProbeSession:
    """State of one process across its connections. Totals replace earlier ones, so nothing is counted twice.

    Not thread-safe; the server calls it under its lock.

    Args:
        process: The process, with its pid from the kernel.
        hello: Its Hello frame.
        devices: Its completed devices, in its own order.
        limits: Limits of memory.
        keep_unsaved: Whether to keep the reports of a poll until `saved` is called, so that `unsaved` has them.

    Attributes:
        uid: The user of the process from the kernel; -1 if unknown.
        outbox: Packets that wait for the process.
        progress: Its progress.
        lost: Whether it has ended without a word.
    """

    def __init__(
        self,
        process: Process,
        hello: Hello,
        devices: tuple[Device, ...],
        limits: ProbeLimits,
        *,
        keep_unsaved: bool = False,
    ) -> None:
        self.process = process
        self.uid = -1
        self.hello = hello
        self.devices = devices
        self.tunables: tuple[TunableClaim, ...] = ()
        self.status: Status | None = None
        self.ended = False
        self._limits = limits
        self._names: dict[int, KernelName] = {}
        self._names_characters = 0
        self._announced_names: dict[int, dict[int, KernelName]] = {}
        self._new = PendingTotals()
        self._polled = PendingTotals()
        self._keep_unsaved = keep_unsaved
        self._variants: dict[int, dict[int, set[str]]] = {}
        self._variants_known = 0
        self._described: set[int] = set()
        """Devices whose reports have included the tunables and the status."""
        self._buckets = 0
        self._active: set[int] = set()
        self.outbox = ProcessOutbox(limits.hints)
        self.progress = ProgressWatch()
        self.lost = False
        self._home = 0
        self._standing: Standing | None = None
        self._standing_changed = False

    def take(self, frame: Frame) -> ReceivedOutcome | None:
        """Process one frame.

        Returns:
            The outcome of a hint, if the frame has one.

        Raises:
            FrameError: The frame violates the contract or a limit; nothing of it is used.
        """
        if self.ended:
            raise FrameError(f"{type(frame).__name__} frame came after Bye; it is ignored")
        match frame:
            case Names():
                self._add_names(frame)
            case KernelRows():
                self._add_rows(frame)
            case Counters():
                self._add_counters(frame)
            case VariantRows():
                self._add_variants(frame)
            case Status():
                check_status(frame)
                self.status = frame
                self._described.clear()
            case Tunables():
                self._add_tunables(frame)
            case OutcomeFrame():
                return self._outcome(frame)
            case Bye():
                self.ended = True
            case _:
                raise FrameError(f"{type(frame).__name__} frame cannot come from a program here; it is ignored")
        return None

    def reports(self) -> list[ProcessReport]:
        """Return new totals since the last call, one report per device; all used devices if the process has ended."""
        undescribed = self._active - self._described
        changed = self._active if self.ended else undescribed | self._new.devices
        if self._standing_changed:
            changed = changed | {self._home}
        found = [self._report(device) for device in sorted(changed)]
        if self._keep_unsaved:
            self._polled.update(self._new)
        self._new = PendingTotals()
        self._standing_changed = False
        self._described |= changed
        self._buckets = 0
        return found

    def judged(self, standing: Standing | None) -> None:
        """Add to the next reports whether the process stands still."""
        self._standing_changed = standing != self._standing
        self._standing = standing

    def saved(self) -> None:
        """Note that the state on disk holds the reports of the last poll."""
        self._polled = PendingTotals()

    def unsaved(self) -> Iterator[Frame]:
        """The part of the process's totals that the state on disk does not include."""
        totals = PendingTotals()
        totals.update(self._polled)
        totals.update(self._new)
        return totals.frames(self._names)

    @property
    def has_unsaved(self) -> bool:
        """Whether `unsaved` has totals."""
        return bool(self._new.devices or self._polled.devices)

    @property
    def method(self) -> str:
        """Measurement method of the process, from its last status."""
        return self.status.method if self.status and self.status.method else self.hello.method

    def fits(self, hint: Hint) -> TunableClaim | None:
        """Return the tunable of a hint that is new and matches this process; None if it does not.

        Program, rank, tunable and, if both are known, GPU model must match.
        """
        matches = (
            not self.ended
            and not self.outbox.has(hint)
            and hint.program == self.process.program
            and hint.rank in ("*", self.process.rank)
            and (not hint.device_model or self.devices[0].model_name in ("", hint.device_model))
        )
        return next((one for one in self.tunables if matches and one.name == hint.tunable), None)

    def confirm(self, event_ids: Sequence[str]) -> bool:
        """Queue the confirmation of outcomes; False if the program has ended, or too many packets wait."""
        return not self.ended and self.outbox.confirmation(event_ids)

    def concerns(self, experience: Experience) -> bool:
        """Whether results of searches are about this program, device model and code version."""
        mine = (self.process.program, self.devices[0].model_name, self.hello.code_version)
        return not self.ended and mine == (experience.program, experience.device_model, experience.code_version)

    def searches(self, approval: Approval) -> bool:
        """Whether an answer is about a search of this program."""
        return not self.ended and approval.is_search and approval.program == self.process.program

    def rejoin(self, hello: Hello) -> None:
        """Restart the session after a reconnect: the program sends all totals again, and hints are sent again."""
        self.hello = hello
        self.outbox.clear()

    def _add_names(self, frame: Names) -> None:
        check_names(frame)
        names = {name.kernel: name for name in frame.names}
        added = sum(_length(name) - _length(self._names.get(kernel)) for kernel, name in names.items())
        kernels = len(self._names.keys() | names)
        if kernels > self._limits.kernels or self._names_characters + added > self._limits.names_characters:
            raise FrameError(
                f"process has {kernels} kernels with names of {self._names_characters + added} characters; "
                f"the limits are {self._limits.kernels} and {self._limits.names_characters}; measure fewer kernels"
            )
        self._names.update(names)
        self._names_characters += added

    def _add_counters(self, frame: Counters) -> None:
        check_counters(frame, len(self.devices))
        self._new.counters[frame.device] = frame
        self._active.add(frame.device)
        if frame.steps:
            self._home = frame.device
        self.progress.counters(frame)

    def _add_rows(self, frame: KernelRows) -> None:
        check_rows(frame, len(self.devices), self._names)
        rows = self._new.rows.get(frame.device, {})
        added = sum(_buckets(row) - _buckets(rows.get(row.kernel)) for row in frame.rows)
        if self._buckets + added > self._limits.buckets:
            raise FrameError(
                f"process has {self._buckets + added} histogram buckets waiting; the limit is {self._limits.buckets}; "
                "measure fewer kernels"
            )
        self._buckets += added
        self.progress.kernels(frame)
        self._new.rows.setdefault(frame.device, rows).update((row.kernel, row) for row in frame.rows)
        self._active.add(frame.device)

    def _add_variants(self, frame: VariantRows) -> None:
        check_variants(frame, len(self.devices), self._names)
        rows = {(row.kernel, row.variant): row for row in frame.rows}
        known = self._variants.setdefault(frame.device, {})
        texts: dict[int, set[str]] = {}
        for kernel, variant in rows:
            if variant not in known.get(kernel, ()):
                texts.setdefault(kernel, set(known.get(kernel, ()))).add(variant)
        most = max(map(len, texts.values()), default=0)
        total = self._variants_known + sum(len(found) - len(known.get(kernel, ())) for kernel, found in texts.items())
        if most > MAX_VARIANTS or total > self._limits.variants:
            raise FrameError(
                f"process has {total} variants, {most} of one kernel; the limits are "
                f"{self._limits.variants} and {MAX_VARIANTS}; sum the others as one"
            )
        known.update(texts)
        self._variants_known = total
        self._new.variants.setdefault(frame.device, {}).update(rows)
        self._active.add(frame.device)

    def _add_tunables(self, frame: Tunables) -> None:
        check_tunables(frame)
        self.tunables = tuple(self._completed(tunable) for tunable in frame.tunables)
        self._described.clear()

    def _completed(self, claim: TunableClaim) -> TunableClaim:
        """Add the device model to a tunable, so that a hint can name the model for which it was derived."""
        return claim if claim.device_model else replace(claim, device_model=self.devices[0].model_name)

    def _outcome(self, frame: OutcomeFrame) -> ReceivedOutcome:
        try:
            outcome = outcome_from(frame.event)
        except EventError as error:
            raise FrameError(f"Outcome frame is malformed: {error}") from error
        home = self.devices[min(self._active, default=0)]
        process = self.process
        completed = replace(
            outcome,
            program=process.program,
            rank=process.rank,
            hostname=home.hostname,
            uuid=home.uuid,
            device_model=home.model_name,
            code_version=self.hello.code_version,
            granularity=next(
                (one.granularity for one in self.tunables if one.name == outcome.tunable), outcome.granularity
            ),
        )
        return ReceivedOutcome(completed, checked_id(frame.event["id"]), process.nonce)

    def _report(self, device: int) -> ProcessReport:
        rows = tuple(self._new.rows.get(device, {}).values())
        announced = self._announced_names.setdefault(device, {})
        variants = self._new.variants.get(device, {})
        names = {
            kernel: self._names[kernel] for kernel in [*(row.kernel for row in rows), *(key[0] for key in variants)]
        }
        new_names = tuple(name for kernel, name in names.items() if _differs(announced.get(kernel), name))
        announced.update(names)
        return ProcessReport(
            self.process,
            self.devices[device],
            names=new_names,
            rows=rows,
            counters=self._new.counters.get(device),
            variants=variants,
            tunables=None if device in self._described else self.tunables,
            method=self.method,
            version=self.hello.version,
            versions=self.hello.versions,
            status=self.status,
            final=self.ended,
            lost=self.ended and self.lost and device == self._home,
            standing=self._standing if device == self._home else None,
        )


def _buckets(row: KernelRow | None) -> int:
    return len(row.durations.buckets) if row else 0


def _differs(announced: KernelName | None, name: KernelName) -> bool:
    return announced is not name and announced != name


def _length(name: KernelName | None) -> int:
    return len(name.signature) if name else 0

"""The frames on the probe's socket as frozen values: the contents of each, with its type number on the wire.

A program sends `Hello` first, then `Names` before any row that uses them, `KernelRows`, `VariantRows`, `Counters`,
`Status`, `Tunables`, `OutcomeFrame` and at its end `Bye`. The exporter answers `Hello` with `Reception`,
and sends `HintFrame`, `OutcomesConfirmed` and `StacksRequest`. All totals are cumulative since the process began: the
next frame that arrives makes good a lost one, and an exporter that restarts has all totals again after one interval.

The probe's sending thread (`probe.reporting`) makes the values, and the exporter's socket thread
(`exporter.programs.session`) reads them. A field that a reader does not know is ignored; a new field needs a default.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from kernelcast.wire.frames.rows import KernelRows, VariantRows
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Versions

MAX_VARIANTS: Final = 64
"""Variants of one kernel that a process counts separately; the rest are summed as `other`."""
COST_BOUNDS: Final = ("lower", "median", "upper")
"""Names of the numbers in `Status.cost`."""
PHASES: Final = ("data", "forward", "backward", "optimizer", "evaluation", "checkpoint", "compilation", "other")
"""Phases of a program's steps; the time of a step is divided among them."""
PERSON: Final = "person"
"""`Counters.standby` of a program in which a prompt or a debugger waits for a person's input."""
ENDED: Final = "ended"
"""`Counters.standby` of a program whose loop over its batches has ended."""
MEMSET: Final = "memset"
"""Kind of `Counters.memcpy` for fills of memory, which CUDA counts apart from copies."""


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """A GPU as the process sees it; the exporter adds missing values from NVML.

    Attributes:
        uuid: NVML's UUID of the GPU, or of the MIG device.
        gpu: The GPU's number on the node; empty if the process does not know it.
        model_name: The model, as NVML names it.
        gi_id: The number of the GPU instance, on a MIG device.
    """

    uuid: str
    gpu: str = "0"
    model_name: str = ""
    gi_id: str = ""


@dataclass(frozen=True, slots=True)
class Hello:
    """Identity of the reporting process: the first frame of a connection.

    Attributes:
        program, nonce, start_ns, pid, rank, source: Those of `wire.identity.Process`.
        method: Measurement method; `Status` replaces it.
        version: Version of the probe.
        code_version, image, cuda_version, driver_version: Versions that the process runs on; empty if unknown.
        devices: GPUs that it uses; `device` of later frames is an index into them.
    """

    TYPE: ClassVar = 1

    program: str
    nonce: str
    start_ns: int
    pid: int
    rank: str = ""
    source: str = ""
    method: str = "manual"
    version: str = ""
    code_version: str = ""
    devices: tuple[DeviceClaim, ...] = ()
    image: str = ""
    cuda_version: str = ""
    driver_version: str = ""

    @property
    def versions(self) -> Versions:
        """Versions that the process runs on."""
        return Versions(self.code_version, self.image, self.cuda_version, self.driver_version)


@dataclass(frozen=True, slots=True)
class KernelName:
    """A kernel's identity and the launch configuration last seen.

    Attributes:
        kernel: The number that rows refer to.
        signature: Normalised.
        grid: Blocks, as `64x1x1`; empty where unknown.
        block: Threads, as `128x1x1`; empty where unknown.
        registers: Per thread.
        shared_memory_bytes: Per block, static and dynamic together.
        local_memory_bytes: Per thread.
        occupancy: Theoretical occupancy: resident warps per capacity of a multiprocessor, 0 to 1; 0 if unknown.
    """

    kernel: int
    signature: str
    grid: str = ""
    block: str = ""
    registers: int = 0
    shared_memory_bytes: int = 0
    local_memory_bytes: int = 0
    occupancy: float = 0.0


@dataclass(frozen=True, slots=True)
class Names:
    """Numbers and names of kernels; rows refer to the numbers."""

    TYPE: ClassVar = 2

    names: tuple[KernelName, ...]


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals of one device that belong to no kernel; cumulative, except `pools`.

    Attributes:
        device: Index into `Hello.devices`.
        memcpy: Rows of kind (`h2d`, `d2h`, `d2d`, `p2p`, `h2h`, `MEMSET` for fills), pinned (`true`, `false`, empty),
            bytes, operations, ns.
        sync: Rows of type, calls and ns waited.
        device_time: Rows of state and ns.
        overhead_ns: Time of the program's threads that the probe used, and processor time of its own thread.
        dropped_frames: Frames that could not be sent.
        decoding_ns: Processor time of the decoder of activity records, on a thread that never holds the program.
        launch_gaps: Idle times of the device between two activities; None if the method does not measure them.
        pools: Rows of pool (`device`, `pinned`), state (`used`, `free`, `total`, `limit`) and bytes, as of now.
        regions: Rows of region, launches within it, their GPU time in ns, and wall time in ns.
        unseen: Rows of reason and number of launches that the method counts but cannot time or name.
        dropped_records: Activity records that were lost before they could be added up.
        steps: Steps that the program has ended; on the device that it used first.
        items: Units of work, such as samples, that it said these steps processed.
        step_ns: Wall time between the ends of consecutive steps.
        trial_lost_ns: Time that trials have cost beyond the kept values.
        trial_allowed_ns: Limit of that time so far; 0 where the process has no trials.
        dropped_outcomes: Outcomes of hints that a full queue dropped before the exporter had them.
        malformed_hints: Frames of the exporter that the probe could not read.
        running_ns: Wall time since the process began to use a GPU; the same on each of its devices.
        measured_ns: The part of it in which kernels were measured.
        waits_measured_ns: The part of it in which waits were measured.
        untimed_records: Activity records whose times could not be used; their launches, copies and waits are counted.
        step_durations: Lengths of the steps that `step_ns` is the sum of; None before the second one.
        skipped_steps: Steps whose update the program's gradient scaler skipped.
        phases: Rows of phase, one of `PHASES`, and ns; only phases that the program has had.
        phase: The phase that it is in now; empty if that is not known.
        progress_ns: Its last step or change of phase, Unix nanoseconds; 0 before the first.
        compilations: Compilations by its framework, such as those of `torch.compile`.
        compile_ns: Wall time of these.
        allocator: Rows of state (`allocated`, `reserved`, `inactive_split`, `peak`) and bytes of the framework's own
            allocator on this device, as of now.
        allocator_retries: Allocations that it repeated after it had emptied its cache.
        out_of_memory: Allocations that failed.
        job: Rows of name and value that tell this job from others: `job`, `local_rank`, `world_size`, `backend`,
            `precision`; only those that are known.
        standby: Why a program that makes no progress may wait: `PERSON` or `ENDED`; empty if neither is known.
        megaflops: Millions of floating-point operations that the program says its steps need.
        gpu_steps: Steps that were timed on the GPU.
        gpu_phases: Rows of phase and ns of the GPU's time in these steps.
    """

    TYPE: ClassVar = 4

    device: int
    memcpy: tuple[tuple[str, str, int, int, int], ...] = ()
    sync: tuple[tuple[str, int, int], ...] = ()
    device_time: tuple[tuple[str, int], ...] = ()
    overhead_ns: int = 0
    dropped_frames: int = 0
    launch_gaps: DurationTotals | None = None
    pools: tuple[tuple[str, str, int], ...] = ()
    regions: tuple[tuple[str, int, int, int], ...] = ()
    unseen: tuple[tuple[str, int], ...] = ()
    dropped_records: int = 0
    steps: int = 0
    items: int = 0
    step_ns: int = 0
    trial_lost_ns: int = 0
    trial_allowed_ns: int = 0
    dropped_outcomes: int = 0
    malformed_hints: int = 0
    running_ns: int = 0
    measured_ns: int = 0
    untimed_records: int = 0
    decoding_ns: int = 0
    step_durations: DurationTotals | None = None
    skipped_steps: int = 0
    phases: tuple[tuple[str, int], ...] = ()
    phase: str = ""
    progress_ns: int = 0
    compilations: int = 0
    compile_ns: int = 0
    allocator: tuple[tuple[str, int], ...] = ()
    allocator_retries: int = 0
    out_of_memory: int = 0
    job: tuple[tuple[str, str], ...] = ()
    waits_measured_ns: int = 0
    standby: str = ""
    gpu_steps: int = 0
    gpu_phases: tuple[tuple[str, int], ...] = ()
    megaflops: int = 0


@dataclass(frozen=True, slots=True)
class Status:
    """Present measurement method of the process; a later frame replaces it.

    Attributes:
        method: `cupti`, `event`, `count` or `manual`.
        state: `active`, `backed_off`, `off`, `yielded` or `dormant`.
        reason: Reason for the state, at most 200 characters.
        sample_ratio: Share of launches that the method tries to time, 0 to 1.
        cost: Step time with measuring over step time without: lower bound, median, upper bound; empty if unknown.
    """

    TYPE: ClassVar = 10

    method: str
    state: str
    reason: str = ""
    sample_ratio: float = 1.0
    cost: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class TunableClaim:
    """A tunable as the program registered it; the program itself refuses a hint outside `allowed`.

    Attributes:
        name: Unique in the program.
        value: Its present value, as text.
        allowed: Values that a hint may propose.
        kind: Meaning of the value, such as `batch_size`; rules propose by it.
        scope: `local`, or `collective` if all ranks change together.
        granularity: When it may change: `call`, `step`, `epoch` or `restart`.
        kernels: Signatures of the kernels that it affects; empty for all.
        device_model: Model of the process's GPU.
        code_version: Version of the program.
        changes_results: The program's declaration; None where it made none.
    """

    name: str
    value: str
    allowed: tuple[str, ...]
    kind: str = "generic"
    scope: str = "local"
    granularity: str = "step"
    kernels: tuple[str, ...] = ()
    device_model: str = ""
    code_version: str = ""
    changes_results: bool | None = None


@dataclass(frozen=True, slots=True)
class Tunables:
    """All tunables of the process; sent whenever one of them changes."""

    TYPE: ClassVar = 5

    tunables: tuple[TunableClaim, ...]


@dataclass(frozen=True, slots=True)
class HintFrame:
    """A hint for this process: a CloudEvent as `kernelcast.wire.events` writes it."""

    TYPE: ClassVar = 6

    event: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutcomeFrame:
    """Outcome of a hint: a CloudEvent, encoded by `kernelcast.wire.events`."""

    TYPE: ClassVar = 7

    event: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OutcomesConfirmed:
    """Ids of outcome events that need not be sent again: Kafka has acknowledged them, or refuses them permanently."""

    TYPE: ClassVar = 11

    event_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reception:
    """Answer of the exporter to a process, in words for the program's user.

    Attributes:
        page: URL of the exporter's page for clients on its machine; empty where it has none.
        refusal: Reason why the exporter closes the connection; empty where it accepts the process.
    """

    TYPE: ClassVar = 12

    page: str = ""
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class StacksRequest:
    """The process is to write the stacks of its threads into its file in `frames.left.stacks_directory`."""

    TYPE: ClassVar = 13


@dataclass(frozen=True, slots=True)
class Bye:
    """The process ends; its totals are final."""

    TYPE: ClassVar = 8

    reason: str = "exit"


Frame = (
    Hello
    | Names
    | KernelRows
    | Counters
    | Tunables
    | HintFrame
    | OutcomeFrame
    | OutcomesConfirmed
    | Reception
    | StacksRequest
    | Bye
    | VariantRows
    | Status
)
"""Any frame."""

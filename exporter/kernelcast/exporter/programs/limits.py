"""Limits of the memory that one program may use in the exporter, and checks of its frames.

`ProbeSession` and `ProbeRegistry` call a check for each frame, under the server's lock, before they use any of it. A
FrameError counts as a bad frame; `ProbeLimits.bad_frames` of them close the connection.
"""

from collections.abc import Container
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from kernelcast.exporter.programs.standing import StandingLimits
from kernelcast.wire.errors import FrameError
from kernelcast.wire.frames import COST_BOUNDS, Counters, Hello, KernelRows, Names, Status, Tunables, VariantRows
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Process
from kernelcast.wire.kernels import MAX_VARIANT_CHARACTERS

MAX_TEXT: Final = 256
"""Characters of a text that becomes a label's value."""
MAX_REASON: Final = 200
"""Characters of a status's reason."""
MAX_DURATION_BUCKETS: Final = 400
"""Buckets of a histogram at scale 3 that span 2**50, from a nanosecond to 13 days."""
BUCKET_INDICES: Final = range(-(2**15), 2**15)
"""Indices that fit into the 16 bits of a packed row."""
MAX_KINDS: Final = 33
"""Rows of one list of Counters: kinds of copies, waits or regions; the probe sums further ones in one row."""
MAX_TOTAL: Final = 2**64
"""Totals are unsigned integers of 64 bits on the wire."""


@dataclass(frozen=True, slots=True)
class ProbeLimits:
    """Bounds of the probe socket.

    Attributes:
        connections: Programs connected at one time.
        hello_seconds: How long a connection may last without `Hello`.
        processes: Processes remembered at one time, connected or not.
        devices: GPUs of one process.
        kernels: Kernels of one process.
        variants: Combinations of kernel and variant of one process.
        names_characters: Characters of all kernel signatures of one process.
        buckets: Histogram buckets of one process that wait for the next poll.
        bad_frames: Invalid frames after which a connection is closed.
        hints: Hints that wait for one process.
        outcomes: Outcomes that wait for the daemon.
        absence_seconds: Time after which the totals of a disconnected process are final, if its pid does not show
            whether it has ended.
        standing: When a program stands still.
    """

    connections: int = 256
    hello_seconds: float = 5.0
    processes: int = 1024
    devices: int = 64
    kernels: int = 8192
    variants: int = 8192
    names_characters: int = 8 * 1024 * 1024
    buckets: int = 400_000
    bad_frames: int = 8
    hints: int = 64
    outcomes: int = 4096
    absence_seconds: float = 60.0
    standing: StandingLimits = field(default_factory=StandingLimits)


def check_hello(hello: Hello, limits: ProbeLimits, pid: int) -> Process:
    """Return the identity of the process that sent a Hello.

    Raises:
        FrameError: Its names are invalid, or it has too many devices.
    """
    devices = _items("Hello", "devices", hello.devices)
    if len(devices) > limits.devices:
        raise FrameError(f"Hello has {len(devices)} devices; the limit is {limits.devices}; report the ones in use")
    texts = [hello.nonce, hello.rank, hello.method, hello.version, *hello.versions.labels().values()]
    texts += [text for claim in devices for text in (claim.uuid, claim.gpu, claim.model_name, claim.gi_id)]
    _check_texts("Hello", texts)
    if not hello.nonce or hello.start_ns < 0:
        raise FrameError(f"Hello has nonce {hello.nonce!r} and start {hello.start_ns}; use the probe of this version")
    return Process(hello.program, hello.nonce, hello.start_ns, hello.rank, pid or max(hello.pid, 0), hello.source)


def check_names(frame: Names) -> None:
    """Raise FrameError if a kernel's configuration cannot be a label."""
    names = _items("Names", "names", frame.names)
    _check_texts("Names", [text for name in names for text in (name.grid, name.block)])
    for name in names:
        if not name.signature or name.kernel < 0:
            raise FrameError(f"Names has kernel {name.kernel} called {name.signature!r}; it is ignored")
        if name.local_memory_bytes < 0 or not 0 <= name.occupancy <= 1:
            raise FrameError(
                f"Names has local memory {name.local_memory_bytes} and occupancy {name.occupancy}; "
                "these lie from 0 on, and between 0 and 1; it is ignored"
            )


def check_rows(frame: KernelRows, devices: int, known: Container[int]) -> None:
    """Raise FrameError if rows name a device or a kernel that was not announced."""
    _check_device(frame.device, devices)
    for row in frame.rows:
        if row.kernel not in known:
            raise FrameError(f"KernelRows has kernel {row.kernel:x} without a name; Names must come first")
        if row.launches < row.durations.count:
            raise FrameError(f"KernelRows has {row.launches} launches but {row.durations.count} timed; it is ignored")
        if row.launches < max(row.queue_delays, row.graph_launches):
            raise FrameError(
                f"KernelRows has {row.launches} launches but {row.queue_delays} queue delays and "
                f"{row.graph_launches} from graphs; it is ignored"
            )


def check_variants(frame: VariantRows, devices: int, known: Container[int]) -> None:
    """Raise FrameError if rows name an unknown kernel, or a variant cannot be a label."""
    _check_device(frame.device, devices)
    for row in frame.rows:
        if row.kernel not in known:
            raise FrameError(f"VariantRows has kernel {row.kernel:x} without a name; Names must come first")
        if not row.variant:
            raise FrameError(f"VariantRows has a variant of kernel {row.kernel:x} without a text; it is ignored")
    _check_texts("VariantRows", [row.variant for row in frame.rows], MAX_VARIANT_CHARACTERS)


def check_status(frame: Status) -> None:
    """Raise FrameError if a status cannot be a label."""
    _check_texts("Status", [frame.method, frame.state, frame.reason], MAX_REASON)
    if not 0 <= frame.sample_ratio <= 1:
        raise FrameError(f"Status has sample_ratio {frame.sample_ratio}; it lies between 0 and 1; it is ignored")
    if frame.cost:
        numbers = [ratio for ratio in _items("Status", "cost", frame.cost) if type(ratio) in {int, float}]
        if len(numbers) != len(COST_BOUNDS) or len(frame.cost) != len(COST_BOUNDS) or not all(map(isfinite, numbers)):
            raise FrameError(f"Status has cost {frame.cost}; it is three finite numbers; it is ignored")


def check_counters(frame: Counters, devices: int) -> None:
    """Raise FrameError if a row violates the contract's shape or range."""
    _check_device(frame.device, devices)
    shapes = (
        ("memcpy", frame.memcpy, (str, str, int, int, int)),
        ("sync", frame.sync, (str, int, int)),
        ("device_time", frame.device_time, (str, int)),
        ("pools", frame.pools, (str, str, int)),
        ("regions", frame.regions, (str, int, int, int)),
        ("unseen", frame.unseen, (str, int)),
        ("phases", frame.phases, (str, int)),
        ("gpu_phases", frame.gpu_phases, (str, int)),
        ("allocator", frame.allocator, (str, int)),
        ("job", frame.job, (str, str)),
    )
    for name, rows, shape in shapes:
        if len(_items("Counters", name, rows)) > MAX_KINDS:
            raise FrameError(f"Counters has {len(rows)} rows of {name}; the limit is {MAX_KINDS}; it is ignored")
        for row in rows:
            _check_row(name, row, shape)
    _check_total("overhead_ns", frame.overhead_ns)
    _check_total("dropped_frames", frame.dropped_frames)
    _check_total("dropped_records", frame.dropped_records)
    _check_total("untimed_records", frame.untimed_records)
    _check_total("steps", frame.steps)
    _check_total("items", frame.items)
    _check_total("megaflops", frame.megaflops)
    _check_total("step_ns", frame.step_ns)
    _check_total("trial_lost_ns", frame.trial_lost_ns)
    _check_total("trial_allowed_ns", frame.trial_allowed_ns)
    _check_total("dropped_outcomes", frame.dropped_outcomes)
    _check_total("malformed_hints", frame.malformed_hints)
    _check_total("decoding_ns", frame.decoding_ns)
    _check_total("running_ns", frame.running_ns)
    _check_total("measured_ns", frame.measured_ns)
    _check_total("waits_measured_ns", frame.waits_measured_ns)
    _check_total("skipped_steps", frame.skipped_steps)
    _check_total("progress_ns", frame.progress_ns)
    _check_total("compilations", frame.compilations)
    _check_total("compile_ns", frame.compile_ns)
    _check_total("allocator_retries", frame.allocator_retries)
    _check_total("out_of_memory", frame.out_of_memory)
    _check_total("gpu_steps", frame.gpu_steps)
    _check_texts("Counters", [frame.phase, frame.standby])
    for name, durations in (("launch_gaps", frame.launch_gaps), ("step_durations", frame.step_durations)):
        if durations is not None:
            _check_durations(name, durations)


def check_tunables(frame: Tunables) -> None:
    """Raise FrameError if a tunable's texts cannot be labels."""
    for item in _items("Tunables", "tunables", frame.tunables):
        lists = (_texts("allowed", item.allowed), _texts("kernels", item.kernels))
        _check_texts("Tunables", [item.name, item.value, item.kind, item.scope, item.granularity, *lists[0]])
        _check_texts("Tunables", [item.device_model, item.code_version])
        if not isinstance(item.changes_results, bool | None):
            raise FrameError(f"Tunables has changes_results {item.changes_results!r}; it is true, false or null")


def _items(frame: str, name: str, value: Any) -> tuple[Any, ...]:
    if not isinstance(value, tuple):
        raise FrameError(f"{frame} has {name} of type {type(value).__name__}, not a list; it is ignored")
    return value


def _texts(name: str, value: Any) -> tuple[str, ...]:
    texts = _items("Tunables", name, value)
    if not all(isinstance(text, str) for text in texts):
        raise FrameError(f"Tunables has {name} that are not texts; it is ignored")
    return texts


def _check_texts(frame: str, texts: list[str], limit: int = MAX_TEXT) -> None:
    for text in texts:
        if len(text) > limit or "\x00" in text:
            raise FrameError(f"{frame} has {text[:40]!r} of {len(text)} characters; the limit is {limit}; shorten it")


def _check_durations(name: str, durations: DurationTotals) -> None:
    buckets = durations.buckets
    if len(buckets) > MAX_DURATION_BUCKETS or not all(index in BUCKET_INDICES for index in buckets):
        raise FrameError(
            f"Counters has {name} of {len(buckets)} buckets; the limits are {MAX_DURATION_BUCKETS} buckets and "
            "indices of 16 bits; it is ignored"
        )
    for total in (durations.count, durations.sum_ns, *buckets.values()):
        _check_total(name, total)
    if durations.sum_squares_ns2 > durations.sum_ns**2:
        raise FrameError(f"Counters has {name} whose squares no such times can have; it is ignored")


def _check_device(device: int, devices: int) -> None:
    if not 0 <= device < devices:
        raise FrameError(f"frame is about device {device}; Hello named {devices}; start the probe with all devices")


def _check_row(name: str, row: Any, shape: tuple[type, ...]) -> None:
    if not isinstance(row, tuple) or tuple(type(part) for part in row) != shape:
        raise FrameError(f"Counters has {name} row {str(row)[:80]}; it is not of the contract's shape")
    for part in row:
        if isinstance(part, int):
            _check_total(name, part)
        else:
            _check_texts("Counters", [part])


def _check_total(name: str, value: int) -> None:
    if not 0 <= value < MAX_TOTAL:
        raise FrameError(f"Counters has {name} {value}; a total lies between 0 and 2**64; it is ignored")

"""Replaces the module pynvml by a recording: the same names, errors and structs; the daemon then runs on any machine.

The NVML process loads it where `exporter.nvml_recording` is set (`devices.pynvml_for`). Constants, errors and structs
are pynvml's own. Tests may change `answers` and inject faults. *Owner* and *answer* are as in
`recordings/recording.py`.
"""

import ctypes
import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pynvml

from kernelcast.exporter.nvml.recordings.any_format import read_any
from kernelcast.exporter.nvml.recordings.recording import ERROR, NODE, Answers, Event, Recording, gpm_owner
from kernelcast.exporter.nvml.recordings.shapes import shaped

MILLISECONDS_PER_SECOND: Final = 1000
NANOSECONDS_PER_MICROSECOND: Final = 1000


@dataclass(frozen=True, slots=True)
class Handle:
    """Replaces a device handle."""

    owner: str


@dataclass(slots=True)
class GpmReading:
    """One sample of GPM's counters.

    Attributes:
        memory: The memory to which the caller's pointer points.
        owner: Owner of the counters; empty until the sample was taken.
        number: Number of the sample, so that the earlier of two is known.
    """

    memory: Any
    owner: str = ""
    number: int = 0


class RecordedNvml:
    """Has the functions of pynvml that the sampler calls; answers are those recorded for the present moment.

    One thread samples; the XIDs' thread calls `nvmlEventSetWait_v2` and may advance the time as well (`_advancing`).

    ::

        nvml = RecordedNvml(read(path))
        nvml.nvmlInit()
        nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(0))

    Args:
        recording: The recorded answers.
        clock: Monotonic nanoseconds; the recording begins at the first call.
        loop: Whether to begin again at the end; otherwise every call then fails as without a driver.

    Attributes:
        answers: The present answers, by owner and call.
        opened: Number of calls of `nvmlInit`, less those of `nvmlShutdown`.
        driver: If False, every call fails as without a driver.
        lost: Owners that fell off the bus.
        gpm_samples: GPM samples that were not freed.
    """

    def __init__(
        self, recording: Recording, *, clock: Callable[[], int] = time.monotonic_ns, loop: bool = True
    ) -> None:
        self._recording = recording
        self._length_ns = recording.length_ns
        self._clock = clock
        self._loop = loop
        self._began_ns: int | None = None
        self._next = 0
        self._round = 0
        # Events are awaited on another thread than the one that reads.
        self._advancing = threading.Lock()
        self._faults: dict[str, Callable[[], None]] = {}
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._watched: set[str] = set()
        self.answers: Answers = {}
        self.opened = 0
        self.driver = True
        self.lost: set[str] = set()
        self.gpm_samples: dict[int, GpmReading] = {}
        self._gpm_samples_taken = 0

    def __getattr__(self, name: str) -> Any:
        """Calls from the recording; constants, errors and structs from pynvml."""
        theirs = getattr(pynvml, name)
        if not name.startswith("nvml") or not callable(theirs) or isinstance(theirs, type):
            return theirs
        return partial(self._call, name)

    def inject(self, call: str, fault: Callable[[], None] | None) -> None:
        """Call a function before each such call is answered, which may raise or block; None removes it."""
        if fault is None:
            self._faults.pop(call, None)
        else:
            self._faults[call] = fault

    def emit(self, event: Event) -> None:
        """Let an event occur now."""
        if event.owner in self._watched:
            self._events.put(event)

    def nvmlInit(self) -> None:  # noqa: N802  pynvml's name
        """Initialise NVML."""
        self._advance()
        self._before("nvmlInit", NODE)
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802  pynvml's name
        """Shut NVML down."""
        if not self.opened:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNINITIALIZED)
        self.opened -= 1

    def process_name(self, pid: int) -> str:
        """The recorded name of a process; empty where there is none. This machine's processes are others."""
        name = self._recorded(NODE, f"nvmlSystemGetProcessName:{pid}")
        return name if isinstance(name, str) else ""

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle:  # noqa: N802  pynvml's name
        """Return the handle of a GPU."""
        return self._handle("nvmlDeviceGetHandleByIndex", str(index))

    def nvmlDeviceGetHandleByPciBusId(self, bus_id: str) -> Handle:  # noqa: N802  pynvml's name
        """Return the handle of the GPU at a PCI address."""
        for owner, calls in self.answers.items():
            if calls.get("nvmlDeviceGetPciInfo", {}).get("busId") == bus_id:
                return self._handle("nvmlDeviceGetHandleByPciBusId", owner)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetIndex(self, gpu: Handle) -> int:  # noqa: N802  pynvml's name
        """Return the index of a GPU."""
        return int(gpu.owner)

    def nvmlDeviceGetMemoryInfo(self, gpu: Handle, version: int | None = None) -> Any:  # noqa: N802  pynvml's name
        """Return a GPU's memory; a driver whose answer has no reserved memory does not have version 2 of the call."""
        memory = self._call("nvmlDeviceGetMemoryInfo", gpu)
        if version is not None and not hasattr(memory, "reserved"):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return memory

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Handle, index: int) -> Handle:  # noqa: N802  pynvml's name
        """A compute instance of a GPU."""
        return self._handle("nvmlDeviceGetMigDeviceHandleByIndex", f"{gpu.owner}/{index}")

    def nvmlDeviceGetFieldValues(self, gpu: Handle, fields: Iterable[Any]) -> Any:  # noqa: N802  pynvml's name
        """Return recorded field values; each was recorded separately with `nvmlReturn`, `valueType` and `value`."""
        self._before("nvmlDeviceGetFieldValues", gpu.owner)
        pairs = [one if isinstance(one, tuple) else (one, 0) for one in fields]
        values = (pynvml.c_nvmlFieldValue_t * len(pairs))()
        for into, (number, scope) in zip(values, pairs, strict=True):
            into.fieldId, into.scopeId = number, scope
            answer = self._recorded(gpu.owner, f"nvmlDeviceGetFieldValues:{number}:{scope}")
            if ERROR in answer:
                into.nvmlReturn = answer[ERROR]
            else:
                into.valueType = answer["valueType"]
                member, _type = pynvml.c_nvmlValue_t._fields_[answer["valueType"]]
                setattr(into.value, member, answer["value"])
        return values

    def fill_structure(self, call: str, gpu: Handle, structure: Any) -> None:
        """Fill a structure of ours with what was recorded; a driver without a member does not know its version."""
        self._before(call, gpu.owner)
        answer = self._recorded(gpu.owner, call)
        members = {name for name, *_ in structure._fields_} - {"version"}
        if ERROR in answer or members - answer.keys():
            raise pynvml.NVMLError(answer.get(ERROR, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH))
        for name in members | answer.keys() & {"version"}:
            value = answer[name]
            setattr(structure, name, type(getattr(structure, name))(*value) if isinstance(value, list) else value)

    def nvmlDeviceGetProcessUtilization(self, gpu: Handle, since_us: int) -> list[Any]:  # noqa: N802  pynvml's name
        """Samples after a time; NotFound where there are none."""
        found = self._call("nvmlDeviceGetProcessUtilization", gpu)
        for one in found:
            # Time goes on when the recording begins again.
            one.timeStamp += self._round * self._recording.length_ns // NANOSECONDS_PER_MICROSECOND
        newer = [one for one in found if one.timeStamp > since_us]
        if not newer:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return newer

    def nvmlGpmSampleAlloc(self) -> Any:  # noqa: N802  pynvml's name
        """Allocate a GPM sample."""
        self._before("nvmlGpmSampleAlloc", NODE)
        memory = ctypes.create_string_buffer(8)
        sample = ctypes.cast(memory, pynvml.c_nvmlGpmSample_t)
        self.gpm_samples[_address(sample)] = GpmReading(memory)
        return sample

    def nvmlGpmSampleFree(self, sample: Any) -> None:  # noqa: N802  pynvml's name
        """Free a GPM sample."""
        if self.gpm_samples.pop(_address(sample), None) is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def nvmlGpmSampleGet(self, gpu: Handle, sample: Any) -> Any:  # noqa: N802  pynvml's name
        """Take a GPM sample of a GPU."""
        return self._take_gpm_sample("nvmlGpmSampleGet", gpu, gpu.owner, sample)

    def nvmlGpmMigSampleGet(self, gpu: Handle, instance: int, sample: Any) -> Any:  # noqa: N802  pynvml's name
        """Take a GPM sample of a GPU instance."""
        return self._take_gpm_sample("nvmlGpmMigSampleGet", gpu, gpm_owner(gpu.owner, instance), sample)

    def nvmlGpmMetricsGet(self, asked: Any) -> Any:  # noqa: N802  pynvml's name
        """Metrics between two samples: recorded as `nvmlGpmMetricsGet:ID`."""
        self._before("nvmlGpmMetricsGet", NODE)
        earlier, later = (self.gpm_samples[_address(sample)] for sample in (asked.sample1, asked.sample2))
        if earlier.owner != later.owner or not 0 < earlier.number < later.number:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        for metric in asked.metrics[: asked.numMetrics]:
            answer = self._recorded(later.owner, f"nvmlGpmMetricsGet:{metric.metricId}")
            if isinstance(answer, dict):
                metric.nvmlReturn = answer[ERROR]
            else:
                metric.nvmlReturn, metric.value = pynvml.NVML_SUCCESS, answer
        return asked

    def nvmlEventSetCreate(self) -> object:  # noqa: N802  pynvml's name
        """A queue of events."""
        self._before("nvmlEventSetCreate", NODE)
        return self._events

    def nvmlDeviceRegisterEvents(self, gpu: Handle, types: int, _events: object) -> None:  # noqa: N802  pynvml's name
        """Register for a GPU's events."""
        if types & ~self._call("nvmlDeviceGetSupportedEventTypes", gpu):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        self._watched.add(gpu.owner)

    def nvmlEventSetWait_v2(self, _events: object, timeout_ms: int) -> Any:  # noqa: N802  pynvml's name
        """The next event; Timeout where none comes."""
        self._advance()
        self._fault("nvmlEventSetWait_v2")
        try:
            event = self._events.get(timeout=timeout_ms / MILLISECONDS_PER_SECOND)
        except queue.Empty:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT) from None
        return SimpleNamespace(
            device=Handle(event.owner),
            eventType=event.type,
            eventData=event.data,
            gpuInstanceId=event.gpu_instance,
            computeInstanceId=0xFFFFFFFF,
        )

    def nvmlEventSetFree(self, _events: object) -> None:  # noqa: N802  pynvml's name
        """Stop reporting events."""
        self._watched.clear()

    def _take_gpm_sample(self, call: str, gpu: Handle, owner: str, sample: Any) -> Any:
        self._before(call, gpu.owner)
        self._gpm_samples_taken += 1
        reading = self.gpm_samples[_address(sample)]
        reading.owner, reading.number = owner, self._gpm_samples_taken
        return sample

    def _handle(self, call: str, owner: str) -> Handle:
        self._before(call, owner)
        if owner not in self.answers:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        ended = self.answers[owner].get(call)
        if ended is not None:
            raise pynvml.NVMLError(ended[ERROR])
        return Handle(owner)

    def _call(self, name: str, *arguments: Any, **_named: Any) -> Any:
        """The recorded answer of any other call."""
        owner = NODE
        if arguments and isinstance(arguments[0], Handle):
            owner, arguments = arguments[0].owner, arguments[1:]
        self._before(name, owner)
        parts = (str(one.owner if isinstance(one, Handle) else one) for one in arguments)
        answer = self._recorded(owner, ":".join((name, *parts)))
        if isinstance(answer, dict) and ERROR in answer:
            raise pynvml.NVMLError(answer[ERROR])
        return shaped(name, answer)

    def _recorded(self, owner: str, call: str) -> Any:
        return self.answers.get(owner, {}).get(call, {ERROR: pynvml.NVML_ERROR_NOT_SUPPORTED})

    def _before(self, call: str, owner: str) -> None:
        """Advance to the present moment; raises the recorded error, if any."""
        self._advance()
        self._fault(call)
        if not self.driver:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        if owner.partition("/")[0] in self.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    def _fault(self, call: str) -> None:
        if call in self._faults:
            self._faults[call]()

    def _advance(self) -> None:
        """Apply the changes up to now."""
        with self._advancing:
            self._advance_to(self._clock())

    def _advance_to(self, now_ns: int) -> None:
        if self._began_ns is None:
            self._began_ns = now_ns
        turn, at_ns = divmod(now_ns - self._began_ns, self._length_ns)
        if turn and not self._loop:
            self.driver = False
            return
        # A round is one pass over the recording; it begins without the answers of the last one.
        answers = self.answers
        if turn != self._round:
            self._round, self._next, answers = turn, 0, {}
        moments = self._recording.moments
        while self._next < len(moments) and moments[self._next].at_ns <= at_ns:
            moment = moments[self._next]
            for owner, calls in moment.changed.items():
                answers.setdefault(owner, {}).update(calls)
            for event in moment.events:
                self.emit(event)
            self._next += 1
        # The other thread sees the old answers or the new ones, never a part.
        self.answers = answers


def open_recording(path: str) -> RecordedNvml:
    """The module that plays a recording, or a capture of `nvidia-smi -q` (`.txt`), over and over.

    Raises:
        TraceError: The file cannot be read, or is neither.
    """
    return RecordedNvml(read_any(Path(path)))


def _address(sample: Any) -> int:
    return ctypes.cast(sample, ctypes.c_void_p).value or 0

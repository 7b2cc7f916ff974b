"""Records the answers of a real NVML while the sampler calls it; `kernelcast replay record` writes them to a file."""

import ctypes
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from kernelcast.exporter.nvml.recordings.recording import (
    ERROR,
    NODE,
    Answers,
    Event,
    RecordedChanges,
    changes,
    gpm_owner,
)
from kernelcast.exporter.nvml.sampling.health import fill
from kernelcast.exporter.nvml.sampling.sampler import Sampler, SamplerOptions
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

ASKED_BY_TIME: Final = ("nvmlDeviceGetProcessUtilization",)
"""Calls whose argument is a time, which differs at each call: it is left out of the recorded name."""
SILENT: Final = (
    "nvmlInit",
    "nvmlShutdown",
    "nvmlGpmSampleAlloc",
    "nvmlGpmSampleFree",
    "nvmlEventSetCreate",
    "nvmlEventSetFree",
    "nvmlDeviceRegisterEvents",
)
"""Calls that are not recorded: their answers carry no information, or the player makes them itself."""


class NotingNvml:
    """A pynvml module that records every answer. *Owner* is as in `recording.py`.

    Args:
        nvml: The pynvml module.

    Attributes:
        answers: The last answer to each call, by owner.
        events: Events since `record` last removed them; the XIDs' thread adds them.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        self._owners: dict[int, str] = {}
        self._gpm_owners: dict[int, str] = {}
        self.answers: Answers = {NODE: {}}
        self.events: list[Event] = []

    def __getattr__(self, name: str) -> Any:
        """Functions are noted; everything else is pynvml's."""
        theirs = getattr(self._nvml, name)
        if not name.startswith("nvml") or not callable(theirs) or isinstance(theirs, type) or name in SILENT:
            return theirs
        return partial(self._noted, name, theirs)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:  # noqa: N802  pynvml's name
        """Return the handle of a GPU, known by its index from now on."""
        return self._handle("nvmlDeviceGetHandleByIndex", str(index), index)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: Any, index: int) -> Any:  # noqa: N802  pynvml's name
        """Return the handle of a compute instance, known by its GPU and its index from now on."""
        return self._handle("nvmlDeviceGetMigDeviceHandleByIndex", f"{self._owner(gpu)}/{index}", gpu, index)

    def nvmlDeviceGetFieldValues(self, gpu: Any, fields: Any) -> Any:  # noqa: N802  pynvml's name
        """Call NVML, and record each field."""
        result = self._nvml.nvmlDeviceGetFieldValues(gpu, fields)
        own = self.answers.setdefault(self._owner(gpu), {})
        for one in result:
            value = getattr(one.value, type(one.value)._fields_[one.valueType][0])
            own[f"nvmlDeviceGetFieldValues:{one.fieldId}:{one.scopeId}"] = (
                {"valueType": one.valueType, "value": value}
                if one.nvmlReturn == self._nvml.NVML_SUCCESS
                else {ERROR: one.nvmlReturn}
            )
        return result

    def fill_structure(self, call: str, gpu: Any, structure: Any) -> None:
        """Let NVML fill a structure, and record its members."""
        own = self.answers.setdefault(self._owner(gpu), {})
        try:
            fill(self._nvml, call, gpu, structure)
        except self._nvml.NVMLError as error:
            own[call] = {ERROR: error.value}
            raise
        members = {name: getattr(structure, name) for name, *_ in structure._fields_}
        own[call] = {name: value if isinstance(value, int) else list(value) for name, value in members.items()}

    def nvmlGpmSampleGet(self, gpu: Any, sample: Any) -> Any:  # noqa: N802  pynvml's name
        """Remember the owner of a GPM sample."""
        self._gpm_owners[_address(sample)] = self._owner(gpu)
        return self._nvml.nvmlGpmSampleGet(gpu, sample)

    def nvmlGpmMigSampleGet(self, gpu: Any, instance: int, sample: Any) -> Any:  # noqa: N802  pynvml's name
        """Remember the owner of a GPM sample."""
        self._gpm_owners[_address(sample)] = gpm_owner(self._owner(gpu), instance)
        return self._nvml.nvmlGpmMigSampleGet(gpu, instance, sample)

    def nvmlGpmMetricsGet(self, asked: Any) -> Any:  # noqa: N802  pynvml's name
        """Call NVML, and record each metric."""
        result = self._nvml.nvmlGpmMetricsGet(asked)
        own = self.answers.setdefault(self._gpm_owners[_address(asked.sample2)], {})
        for metric in result.metrics[: result.numMetrics]:
            worked = metric.nvmlReturn == self._nvml.NVML_SUCCESS
            own[f"nvmlGpmMetricsGet:{metric.metricId}"] = metric.value if worked else {ERROR: metric.nvmlReturn}
        return result

    def nvmlEventSetWait_v2(self, events: Any, timeout_ms: int) -> Any:  # noqa: N802  pynvml's name
        """Call NVML, and record the event."""
        event = self._nvml.nvmlEventSetWait_v2(events, timeout_ms)
        owner = self._owners.get(_address(event.device), NODE)
        self.events.append(Event(owner, int(event.eventType), int(event.eventData), int(event.gpuInstanceId)))
        return event

    def _noted(self, name: str, theirs: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        owner, rest = NODE, arguments
        if arguments and not isinstance(arguments[0], int | str):
            owner, rest = self._owner(arguments[0]), arguments[1:]
        parts = (str(one) if isinstance(one, int | str) else self._owner(one) for one in rest)
        call = name if name in ASKED_BY_TIME else ":".join((name, *parts))
        own = self.answers.setdefault(owner, {})
        try:
            answer = theirs(*arguments, **named)
        except self._nvml.NVMLError as error:
            own[call] = {ERROR: error.value}
            raise
        own[call] = plain(answer)
        return answer

    def _handle(self, call: str, owner: str, *arguments: Any) -> Any:
        """Return a handle; the end of a known owner is recorded as the call's error, and its return as null."""
        try:
            handle = getattr(self._nvml, call)(*arguments)
        except self._nvml.NVMLError as error:
            if owner in self.answers:
                self.answers[owner][call] = {ERROR: error.value}
            raise
        self._owners[_address(handle)] = owner
        own = self.answers.setdefault(owner, {})
        if call in own:
            own[call] = None
        return handle

    def _owner(self, handle: Any) -> str:
        return self._owners[_address(handle)]


def record(  # noqa: PLR0913  three of them are clocks, which tests replace
    nvml: Any,
    *,
    seconds: float,
    interval_seconds: float,
    options: SamplerOptions,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], int] = time.time_ns,
    monotonic: Callable[[], int] = time.monotonic_ns,
) -> Iterator[RecordedChanges]:
    """Yield the moments of a recording, at least one, in real time.

    Args:
        nvml: The pynvml module.
        seconds: Length of the recording.
        interval_seconds: Time between two moments.
        options: The sampler's options; the recording can answer only these calls.
        sleep: Waits.
        clock: Unix nanoseconds, for the sampler.
        monotonic: Nanoseconds of a monotonic clock, for pace and times.

    Raises:
        DeviceError: There is no driver, or it does not answer.
    """
    noting = NotingNvml(nvml)
    sampler = Sampler(noting, options).start()
    before: Answers = {}
    first_ns: int | None = None
    began_ns = monotonic()
    # Profiling rows need two samples, so without this one the first moment would have none.
    sampler.sample(clock())
    try:
        for number in range(max(round(seconds / interval_seconds), 1)):
            due_ns = began_ns + round((number + 1) * interval_seconds * NANOSECONDS_PER_SECOND)
            sleep(max(due_ns - monotonic(), 0) / NANOSECONDS_PER_SECOND)
            now_ns = monotonic()
            sampler.sample(clock())
            events = tuple(noting.events)
            del noting.events[: len(events)]
            first_ns = now_ns if first_ns is None else first_ns
            yield RecordedChanges(now_ns - first_ns, changes(before, noting.answers), events)
            before = {owner: dict(calls) for owner, calls in noting.answers.items()}
    finally:
        sampler.close()


def plain(answer: Any) -> Any:
    """Convert an answer of pynvml to values that JSON can hold."""
    if isinstance(answer, bytes):
        return answer.decode(errors="replace")
    if isinstance(answer, ctypes.Structure):
        return {str(name): plain(getattr(answer, name)) for name, *_ in answer._fields_}
    if isinstance(answer, list | tuple | ctypes.Array):
        return [plain(one) for one in answer]
    if hasattr(answer, "__dict__"):
        return {name: plain(value) for name, value in vars(answer).items()}
    return answer


def _address(handle: Any) -> int:
    """Key of a handle: pynvml's are pointers."""
    if hasattr(handle, "contents"):
        return ctypes.cast(handle, ctypes.c_void_p).value or 0
    return hash(handle)

"""XID errors (NVIDIA's numbers of GPU errors) as events: counted on a thread, with the time of the last occurrence.

DCGM's gauge of the last XID never resets and hides repeats; it is written as well, for existing dashboards.
Source: nvml.h, "Event Types" and nvmlEventSetWait_v2.
"""

import ctypes
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from kernelcast.exporter.nvml.sampling import fields
from kernelcast.exporter.nvml.sampling.codes import Codes, error_name
from kernelcast.exporter.nvml.sampling.gpu_values import Failed
from kernelcast.exporter.nvml.sampling.inventory import Gpu
from kernelcast.exporter.nvml.sampling.reading import XidTotal
from kernelcast.runtime.threads import Worker

WAIT_MILLISECONDS: Final = 500
"""Length of one wait for an event, and so the longest duration of a stop."""
STOP_SECONDS: Final = 1.0
"""Longest wait of `stop` for the thread; if it is still alive then, it hangs in the driver."""
PAUSE_SECONDS: Final = 1.0
"""Pause after a wait that failed, because it may fail at once each time."""
MAX_XIDS: Final = 256
"""Limit of different XIDs of one GPU; NVIDIA has defined fewer than 200."""

FELL_OFF_THE_BUS: Final = 79
"""The XID of a GPU that the driver can no longer reach. Source: NVIDIA, Xid errors."""

XidListener = Callable[[Mapping[str, Mapping[int, XidTotal]]], None]


class XidEvents:
    """XIDs of all GPUs since the start.

    The sampler's thread calls `watch`, `stop`, `last` and `totals`; a thread per event set calls `wait`. `_lock`
    protects the counts.

    Args:
        nvml: pynvml, or a double of it.
        codes: Its error codes.
        failed: Called for errors other than "not found", on either thread.
        clock: Unix nanoseconds.
        on_xids: Called with all counts by UUID after each XID, on the thread that waits.
    """

    def __init__(
        self,
        nvml: Any,
        codes: Codes,
        failed: Failed,
        *,
        clock: Callable[[], int] = time.time_ns,
        on_xids: XidListener = lambda _counts: None,
    ) -> None:
        self._nvml = nvml
        self._codes = codes
        self._failed = failed
        self._clock, self._on_xids = clock, on_xids
        self._lock = threading.Lock()
        self._counts: dict[str, dict[int, XidTotal]] = {}
        self._last: dict[str, int] = {}
        self._uuids: dict[object, str] = {}
        self._events: Any = None
        self._thread: Worker | None = None

    def watch(self, gpus: Iterable[Gpu]) -> None:
        """Watch these GPUs' XIDs from now on; does nothing for GPUs that are watched already."""
        whole = {_key(gpu.handle): gpu for gpu in gpus if not gpu.gi_id}
        if {key: gpu.uuid for key, gpu in whole.items()} == self._uuids and self._events is not None:
            return
        self.stop()
        try:
            self._events = self._nvml.nvmlEventSetCreate()
        except self._nvml.NVMLError as error:
            self._note_error(fields.EVENT_SET_CALL, error)
            return
        self._uuids = {key: gpu.uuid for key, gpu in whole.items()}
        watched = [gpu for gpu in whole.values() if self._register(gpu)]
        if watched:
            self._thread = thread = Worker("xid", lambda: self._run(thread.stopping))
            thread.start()

    def stop(self) -> None:
        """Stop watching; counts stay. Call before NVML is released."""
        ended = self._thread is None or self._thread.stop(STOP_SECONDS)
        # The event set that a hanging call waits on must not be freed.
        if self._events is not None and ended:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(self._events)
        self._thread = self._events = None
        self._uuids = {}

    def last(self, uuid: str) -> int | None:
        """The last XID of a GPU; 0 before the first; None where it reports none."""
        with self._lock:
            return self._last.get(uuid)

    def totals(self, uuid: str) -> tuple[XidTotal, ...]:
        """XID counts of a GPU."""
        with self._lock:
            return tuple(self._counts.get(uuid, {}).values())

    def wait(self) -> bool:
        """Wait for one event and count it; False where waiting itself failed."""
        try:
            event = self._nvml.nvmlEventSetWait_v2(self._events, WAIT_MILLISECONDS)
        except self._nvml.NVMLError as error:
            if error.value == self._nvml.NVML_ERROR_TIMEOUT:
                return True
            self._note_error(fields.EVENT_WAIT_CALL, error)
            return False
        if event.eventType & self._nvml.nvmlEventTypeXidCriticalError:
            self._count(self._uuids.get(_key(event.device), ""), int(event.eventData))
        return True

    def _run(self, stopping: threading.Event) -> None:
        while not stopping.is_set():
            if not self.wait():
                stopping.wait(PAUSE_SECONDS)

    def _count(self, uuid: str, xid: int) -> None:
        with self._lock:
            own = self._counts.setdefault(uuid, {})
            self._last[uuid] = xid
            if xid in own or len(own) < MAX_XIDS:
                before = own[xid].count if xid in own else 0
                own[xid] = XidTotal(xid, before + 1, self._clock())
                self._on_xids(self._counts)

    def _register(self, gpu: Gpu) -> bool:
        """Whether this GPU reports XIDs."""
        nvml = self._nvml
        try:
            if not nvml.nvmlDeviceGetSupportedEventTypes(gpu.handle) & nvml.nvmlEventTypeXidCriticalError:
                return False
            nvml.nvmlDeviceRegisterEvents(gpu.handle, nvml.nvmlEventTypeXidCriticalError, self._events)
        except nvml.NVMLError as error:
            self._note_error(fields.REGISTER_CALL, error)
            return False
        with self._lock:
            self._last.setdefault(gpu.uuid, 0)
        return True

    def _note_error(self, call: str, error: Any) -> None:
        if not self._codes.expected(error.value):
            self._failed(call, error_name(error))


def _key(handle: Any) -> object:
    """Key of a device handle: pynvml makes a new pointer for each event."""
    if hasattr(handle, "contents"):
        return ctypes.cast(handle, ctypes.c_void_p).value
    return handle

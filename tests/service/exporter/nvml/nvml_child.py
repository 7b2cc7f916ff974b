"""A double of pynvml in the process that calls NVML: a file lists its GPUs and its faults.

The file is JSON: `gpus` (UUIDs), `watts`, `driver` (false: none), `version`, `hang` or `crash` (the call that does),
`xids` (GPU and number of each XID; those that a process has not seen are its events), `files` (a directory: a GPU is
opened there when its handle is asked for, as NVML opens /dev/nvidiaN, and stays open until NVML is shut down).
"""

import ctypes
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pynvml


def absent() -> "ChildNvml":
    """A machine without a driver."""
    return ChildNvml(lambda: {"driver": False})


def controlled(path: str) -> "ChildNvml":
    """Reads the file at each call."""
    return ChildNvml(lambda: json.loads(Path(path).read_text()))


class ChildNvml:
    """The module; constants and errors are pynvml's own."""

    def __init__(self, state: Callable[[], dict[str, Any]]) -> None:
        self._state = state
        self._loaded = ""
        self._devices: list[str] = []
        self._seen = 0
        self._open: list[IO[str]] = []

    def __getattr__(self, name: str) -> Any:
        theirs = getattr(pynvml, name)
        if not name.startswith("nvml") or not callable(theirs) or isinstance(theirs, type):
            return theirs
        return partial(self._call, name)

    def _call(self, name: str, *arguments: Any, **_named: Any) -> Any:
        state = self._state()
        if state.get("hang") == name:
            time.sleep(3600)
        if state.get("crash") == name:
            ctypes.string_at(0)
        if state.get("chatter"):
            print("NVML is verbose today")  # noqa: T201  as some libraries are
        if not state.get("driver", True) or self._loaded not in ("", state.get("version", "1")):
            # The error in a process that has loaded the library of another driver than the one that runs now.
            raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        if name == "nvmlInit":
            self._loaded, self._devices = state.get("version", "1"), state.get("gpus", [])
            return None
        if name == "nvmlEventSetWait_v2":
            return self._event(state.get("xids", []))
        if name in EVENT_CALLS:
            return EVENT_CALLS[name]
        return self._answered(name, state, *arguments)

    def _answered(self, name: str, state: dict[str, Any], *arguments: Any) -> Any:
        if name.startswith("nvmlDeviceGetHandleBy"):
            return self._opened(ANSWERS[name](self, state, *arguments), state)
        if arguments and arguments[0] not in state.get("gpus", []):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        if name not in ANSWERS:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return ANSWERS[name](self, state, *arguments)

    def _opened(self, gpu: str, state: dict[str, Any]) -> str:
        if "files" in state:
            self._open.append((Path(state["files"]) / gpu).open("w"))
        return gpu

    def _event(self, xids: list[tuple[str, int]]) -> Any:
        if len(xids) <= self._seen:
            time.sleep(0.02)
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        self._seen += 1
        device, number = xids[self._seen - 1]
        return SimpleNamespace(device=device, eventData=number, eventType=pynvml.nvmlEventTypeXidCriticalError)


def _of_address(nvml: ChildNvml, address: str) -> str:
    number = int(address.rpartition(":")[2], 16)
    if number >= len(nvml._devices):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
    return nvml._devices[number]


EVENT_CALLS = {
    "nvmlEventSetCreate": "events",
    "nvmlEventSetFree": None,
    "nvmlDeviceGetSupportedEventTypes": pynvml.nvmlEventTypeXidCriticalError,
    "nvmlDeviceRegisterEvents": None,
}
ANSWERS: dict[str, Callable[..., Any]] = {
    "nvmlShutdown": lambda _nvml, _state: None,
    "nvmlSystemGetDriverVersion": lambda nvml, _state: nvml._loaded,
    "nvmlDeviceGetCount": lambda nvml, _state: len(nvml._devices),
    "nvmlDeviceGetHandleByIndex": lambda nvml, _state, index: nvml._devices[index],
    "nvmlDeviceGetHandleByPciBusId": lambda nvml, _state, address: _of_address(nvml, address),
    "nvmlDeviceGetIndex": lambda nvml, _state, gpu: nvml._devices.index(gpu),
    "nvmlDeviceGetUUID": lambda _nvml, _state, gpu: gpu,
    "nvmlDeviceGetName": lambda _nvml, _state, _gpu: "NVIDIA H200",
    "nvmlDeviceGetPciInfo": lambda nvml, _state, gpu: SimpleNamespace(busId=f"0000:{nvml._devices.index(gpu):02X}"),
    "nvmlDeviceGetMinorNumber": lambda nvml, _state, gpu: nvml._devices.index(gpu),
    "nvmlDeviceGetPowerUsage": lambda _nvml, state, _gpu: state.get("watts", 100) * 1000,
}

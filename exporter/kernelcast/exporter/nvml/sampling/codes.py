"""Classifies NVML's error codes: a row is absent, for a reason; the GPU is lost; or an error that is counted."""

from typing import Any, Final

from kernelcast.exporter.nvml.sampling import reading

_ABSENT: Final = {
    "NOT_SUPPORTED": reading.NOT_SUPPORTED,
    "FUNCTION_NOT_FOUND": reading.NOT_SUPPORTED,
    "NOT_FOUND": reading.NO_DATA,
    "ARGUMENT_VERSION_MISMATCH": reading.NOT_SUPPORTED,
    "NO_DATA": reading.NO_DATA,
}
"""Codes of a GPU that lacks a row, and the reason; they are not counted as errors."""
_LOST: Final = ("GPU_IS_LOST", "GPU_NOT_FOUND", "UNINITIALIZED", "DRIVER_NOT_LOADED", "RESET_REQUIRED")
"""Codes after which no call for this GPU can succeed."""


class Codes:
    """The codes of one pynvml module.

    Args:
        nvml: pynvml, or a double of it.
    """

    def __init__(self, nvml: Any) -> None:
        self._reasons = {getattr(nvml, f"NVML_ERROR_{name}"): reason for name, reason in _ABSENT.items()}
        self._no_permission = nvml.NVML_ERROR_NO_PERMISSION
        self._lost = {getattr(nvml, f"NVML_ERROR_{name}") for name in _LOST}

    def reason(self, code: int) -> str:
        """Reason why a row is absent."""
        if code == self._no_permission:
            return reading.NO_PERMISSION
        return self._reasons.get(code, reading.LOST if code in self._lost else reading.ERROR)

    def expected(self, code: int) -> bool:
        """Return whether the code only means that the GPU lacks the row."""
        return code in self._reasons

    def lost(self, code: int) -> bool:
        """Return whether the code means that the GPU is lost."""
        return code in self._lost


def error_name(error: Any) -> str:
    """NVML's name for an error, such as `GpuIsLost`."""
    return type(error).__name__.removeprefix("NVMLError_")

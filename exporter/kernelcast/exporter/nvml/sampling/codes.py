"""NVML's error codes: which say that a row is absent and why, and which that the GPU is gone."""

from typing import Any, Final

from kernelcast.exporter.nvml.sampling import reading

_ABSENT: Final = {
    "NOT_SUPPORTED": reading.NOT_SUPPORTED,
    "FUNCTION_NOT_FOUND": reading.NOT_SUPPORTED,
    "NOT_FOUND": reading.NOT_SUPPORTED,
    "ARGUMENT_VERSION_MISMATCH": reading.NOT_SUPPORTED,
    "NO_DATA": reading.NO_DATA,
}
"""Expected of a GPU that lacks a row: no error."""
_LOST: Final = ("GPU_IS_LOST", "GPU_NOT_FOUND", "UNINITIALIZED", "DRIVER_NOT_LOADED", "RESET_REQUIRED")


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
        """Whether a GPU that lacks something says so in this way."""
        return code in self._reasons

    def lost(self, code: int) -> bool:
        """Whether the whole GPU is gone."""
        return code in self._lost


def error_name(error: Any) -> str:
    """NVML's name for an error, such as `GpuIsLost`."""
    return type(error).__name__.removeprefix("NVMLError_")

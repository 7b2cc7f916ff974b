"""Sources of the demo's data: a real GPU, a recording, or a simulation; a banner always names which.

`command` chooses one from `--source`.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.identity import LIVE, REPLAYED, SIMULATED

KINDS: Final = ("auto", "nvml", "simulate", "kineto", "nsys")


@dataclass(frozen=True, slots=True)
class DemoSource:
    """The source of the demo's data.

    Attributes:
        kind: `nvml`, `simulate`, `kineto` or `nsys`.
        path: The recording; None where there is none.
        reason: Reason for the choice, for people.
    """

    kind: str
    reason: str
    path: Path | None = None

    @property
    def label(self) -> str:
        """The value of the label `source` on its series; empty for a live GPU."""
        return {"nvml": LIVE, "simulate": SIMULATED}.get(self.kind, REPLAYED)

    @property
    def banner(self) -> str:
        """One sentence that names the source and says whether it is real."""
        if self.kind == "nvml":
            return f"LIVE GPU: {self.reason}"
        if self.kind == "simulate":
            return f"SIMULATED, not a real GPU ({self.reason}): every number is invented, with known faults"
        return f"REPLAY of {self.path}: real kernels, recorded elsewhere, shifted to now"


def choose(text: str) -> DemoSource:
    """The source that `--source` asks for; `auto` takes a real GPU if there is one.

    Raises:
        ConfigurationError: Not a source, or a recording that is not there.
    """
    kind, _, path = text.partition(":")
    if kind not in KINDS:
        raise ConfigurationError(
            f"--source is {text!r}; it must be auto, nvml, simulate, kineto:PATH or nsys:PATH; "
            "see kernelcast demo --help"
        )
    if kind in ("kineto", "nsys"):
        return DemoSource(kind, "asked for", _recording(text, path))
    if path:
        raise ConfigurationError(f"--source is {text!r}; {kind} takes no path; leave it out")
    if kind == "simulate":
        return DemoSource(kind, "asked for")
    found, reason = find_gpu()
    if found:
        return DemoSource("nvml", reason)
    if kind == "nvml":
        raise ConfigurationError(f"--source is nvml; {reason}; use --source simulate, or a recording")
    return DemoSource("simulate", reason)


def find_gpu(nvml: Any = None) -> tuple[bool, str]:
    """Return whether NVML finds a GPU, and the GPUs' number and name or the reason.

    Args:
        nvml: Replaces `pynvml` in tests.
    """
    if nvml is None:
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            return False, "pynvml is not installed: pip install 'kernelcast[exporter]'"
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
        name = nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(0)) if count else ""
    except nvml.NVMLError as error:
        return False, f"no NVIDIA GPU was found: {error}"
    return (True, f"{count} x {name}") if count else (False, "the NVIDIA driver sees no GPU")


def _recording(text: str, path: str) -> Path:
    if not path:
        raise ConfigurationError(f"--source is {text!r}; a path is missing; write {text.rstrip(':')}:PATH")
    try:
        found = Path(path).expanduser()
        if not found.is_file():
            raise ConfigurationError(f"--source names {found}; there is no such file; check the path")
        return found.resolve()
    except (OSError, RuntimeError) as error:  # no right to look, a name that is too long, no home of that user
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigurationError(f"--source names {path}: {reason}; check the path") from None

"""Other profilers in this process: where one is at work, ours yields, so that nobody's own trace is spoilt.

CUPTI serves one subscriber on most drivers, and whoever comes second empties the first one's trace; events of ours
would stand in a user's timeline. Sources: CUPTI documentation, section 2.4 (interoperability); GROMACS,
gromacs/gpu_utils (the variables that Nsight sets); torch/autograd/profiler.py.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

INJECTIONS: Final = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems",
    "NV_NSIGHT_INJECTION_PORT_BASE": "Nsight Compute",
    "CUDA_INJECTION64_PATH": "a CUDA injection library",
}
"""Environment variables that these tools set for the programs that they start."""
LIBRARIES: Final = {
    "libToolsInjection64.so": "Nsight Systems",
    "libToolsInjectionPythonBacktrace64.so": "Nsight Systems",
    "libcuda-injection.so": "Nsight Compute",
    "libTreeLauncherTargetInjection.so": "Nsight Compute",
    "libsanitizer-collection.so": "Compute Sanitizer",
}
"""What they load into it."""
SILENT: Final = {
    "libcublas.so": "cuBLAS",
    "libcufft.so": "cuFFT",
    "libcusolver.so": "cuSOLVER",
    "libcusparse.so": "cuSPARSE",
    "libcudnn.so": "cuDNN",
    "libnccl.so": "NCCL",
}
"""Libraries that launch kernels of their own."""
TORCH_PROFILER: Final = "torch.autograd.profiler"
MAPS: Final = Path("/proc/self/maps")


def mapped_libraries(maps: Path = MAPS) -> frozenset[str]:
    """File names of all libraries in this process; empty where the system does not say."""
    try:
        text = maps.read_text(errors="replace")
    except OSError:
        return frozenset()
    return frozenset(line.rsplit("/", 1)[1] for line in text.splitlines() if "/" in line and ".so" in line)


def other_profiler(
    environ: Mapping[str, str], libraries: frozenset[str], modules: Mapping[str, Any] = sys.modules
) -> str:
    """The name of a profiler that is at work in this process; empty where there is none.

    Args:
        environ: The environment.
        libraries: From `mapped_libraries`.
        modules: What is imported.
    """
    torch = modules.get(TORCH_PROFILER)
    if torch is not None and getattr(torch, "_is_profiler_enabled", False):
        return "torch.profiler"
    for variable, tool in INJECTIONS.items():
        if environ.get(variable):
            return f"{tool} ({variable})"
    return next((tool for prefix, tool in LIBRARIES.items() if _any(libraries, prefix)), "")


def silent_libraries(libraries: frozenset[str]) -> tuple[str, ...]:
    """Libraries in this process whose kernels no hook in Python sees."""
    return tuple(name for prefix, name in SILENT.items() if _any(libraries, prefix))


def _any(libraries: frozenset[str], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in libraries)

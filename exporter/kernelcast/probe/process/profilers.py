"""Detects other profilers in this process, by a table of their signs, for all methods of measurement.

Where one is active, the probe yields, so that no user's trace is spoilt: CUPTI serves one subscriber on most drivers,
and a second subscriber empties the first one's trace; our events would appear in a user's timeline. Sources: CUPTI
documentation, section 2.4 (interoperability); GROMACS, gromacs/gpu_utils (the variables that Nsight sets);
torch/autograd/profiler.py; jax/_src/profiler.py.
"""

import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class Sign(NamedTuple):
    """A sign that a profiler is present.

    Attributes:
        mark: An environment variable, or the beginning of the name of a library's file.
        says: The reason for the probe's state, for people.
        records: Whether the profiler already records, and so would record our events, too. Else it may take CUPTI.
    """

    mark: str
    says: str
    records: bool = True


class RunningProfiler(NamedTuple):
    """A sign that a profiler which Python starts is running.

    Attributes:
        module: A module.
        path: Path of an attribute in it that is true while the profiler runs.
        says: The reason for the probe's state, for people.
        records: As in `Sign`.
    """

    module: str
    path: str
    says: str
    records: bool = True


ENVIRONMENT: Final = (
    Sign("CUDA_INJECTION64_PATH", "a tool is injected into CUDA"),
    Sign("NVTX_INJECTION64_PATH", "a tool is injected into NVTX"),
    Sign("NSYS_PROFILING_SESSION_ID", "Nsight Systems records this process"),
    Sign("NV_NSIGHT_INJECTION_PORT_BASE", "Nsight Compute profiles this process"),
    Sign("NV_COMPUTE_PROFILER_PERFWORKS_DIR", "Nsight Compute profiles this process"),
    Sign("KINETO_USE_DAEMON", "Kineto takes traces on demand", records=False),
)
"""Variables that these tools, or their launchers, set."""
LIBRARIES: Final = (
    Sign("libToolsInjection64", "Nsight Systems is loaded"),
    Sign("libToolsInjectionPythonBacktrace64", "Nsight Systems is loaded"),
    Sign("libcuda-injection", "Nsight Compute is loaded"),
    Sign("libTreeLauncherTargetInjection", "Nsight Compute is loaded"),
    Sign("libsanitizer-collection", "Compute Sanitizer is loaded"),
    Sign("libparcagpucupti", "Parca's GPU profiler is loaded", records=False),
)
"""Libraries that these tools load into the program."""
RUNNING: Final = (
    RunningProfiler("torch.autograd.profiler", "_is_profiler_enabled", "PyTorch's profiler runs"),
    RunningProfiler(
        "torch.profiler._cupti.monitor", "CuptiMonitor", "PyTorch's CUPTI monitor is loaded", records=False
    ),
    RunningProfiler("jax._src.profiler", "_profile_state.profile_session", "JAX's profiler runs"),
    RunningProfiler("jax._src.profiler", "_profiler_server", "JAX's profiler server runs", records=False),
)
SILENT: Final = {
    "libcublas.so": "cuBLAS",
    "libcufft.so": "cuFFT",
    "libcusolver.so": "cuSOLVER",
    "libcusparse.so": "cuSPARSE",
    "libcudnn.so": "cuDNN",
    "libnccl.so": "NCCL",
}
"""Libraries that launch kernels of their own."""


def injected(environ: Mapping[str, str], libraries: frozenset[str], *, recording: bool = False) -> str:
    """Name of a tool that was loaded with the process and stays; empty without one.

    Args:
        environ: The environment.
        libraries: From `mapped_libraries`.
        recording: Name only one that records by now.
    """
    for sign in ENVIRONMENT:
        if environ.get(sign.mark) and (sign.records or not recording):
            return f"{sign.says} ({sign.mark} is set)"
    found = (sign for sign in LIBRARIES if (sign.records or not recording) and _any(libraries, sign.mark))
    return next((sign.says for sign in found), "")


def running(modules: Mapping[str, Any] = sys.modules, *, recording: bool = False) -> str:
    """Name of a running profiler that Python started; empty without one.

    Args:
        modules: The imported modules.
        recording: Name only one that records by now.
    """
    return next((one.says for one in RUNNING if (one.records or not recording) and _is_true(modules, one)), "")


def other_profiler(
    environ: Mapping[str, str], libraries: frozenset[str], modules: Mapping[str, Any] = sys.modules
) -> str:
    """Name of the profiler that records this process by now; empty without one.

    Args:
        environ: The environment.
        libraries: From `mapped_libraries`.
        modules: The imported modules.
    """
    return running(modules, recording=True) or injected(environ, libraries, recording=True)


def silent_libraries(libraries: frozenset[str]) -> tuple[str, ...]:
    """Libraries in this process whose kernels no hook in Python sees."""
    return tuple(name for prefix, name in SILENT.items() if _any(libraries, prefix))


def _any(libraries: frozenset[str], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in libraries)


def _is_true(modules: Mapping[str, Any], state: RunningProfiler) -> bool:
    value: Any = modules.get(state.module)
    for name in state.path.split("."):
        value = getattr(value, name, None)
    return bool(value)

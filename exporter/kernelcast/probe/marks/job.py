"""A process's place in its job, from its launcher's environment and its framework; empty parts are left out."""

from collections.abc import Mapping
from typing import Any, Final

from kernelcast.probe.process.job import SIZES, job_of
from kernelcast.probe.recording.texts import plain

LOCAL_RANK: Final = (
    "LOCAL_RANK",  # torchrun
    "OMPI_COMM_WORLD_LOCAL_RANK",  # Open MPI
    "MPI_LOCALRANKID",  # MPICH, Intel MPI
    "MV2_COMM_WORLD_LOCAL_RANK",  # MVAPICH2
    "SLURM_LOCALID",  # last: it is 0 in every program that is started without srun
)
MAX_CHARACTERS: Final = 128
Rows = tuple[tuple[str, str], ...]


def job_rows(environ: Mapping[str, str], modules: Mapping[str, Any], precision: str = "") -> Rows:
    """Return the rows of `Counters.job`.

    Args:
        environ: The process's environment.
        modules: Its imported modules.
        precision: Type of the parameters that it trains; empty if that is not known.
    """
    pod = environ.get("HOSTNAME", "") if environ.get("KUBERNETES_SERVICE_HOST") else ""
    found = {
        "job": job_of(environ).id or pod,
        "local_rank": _first(environ, LOCAL_RANK),
        "world_size": _first(environ, SIZES),
        "backend": _backend(modules.get("torch.distributed")),
        "precision": precision,
    }
    return tuple((name, plain(value[:MAX_CHARACTERS])) for name, value in found.items() if value)


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def _backend(distributed: Any) -> str:
    try:
        return str(distributed.get_backend()) if distributed.is_initialized() else ""
    except Exception:  # noqa: BLE001  not imported to its end, or built without collectives
        return ""

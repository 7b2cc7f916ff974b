"""A process's place in its job, from its launcher's environment and its framework; empty parts are left out."""

from collections.abc import Mapping
from typing import Any, Final

from kernelcast.probe.recording.texts import plain

LOCAL_RANK: Final = (
    "LOCAL_RANK",  # torchrun
    "OMPI_COMM_WORLD_LOCAL_RANK",  # Open MPI
    "MPI_LOCALRANKID",  # MPICH, Intel MPI
    "MV2_COMM_WORLD_LOCAL_RANK",  # MVAPICH2
    "SLURM_LOCALID",  # last: it is 0 in every program that is started without srun
)
WORLD_SIZE: Final = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
MAX_CHARACTERS: Final = 128
Rows = tuple[tuple[str, str], ...]


def job_rows(environ: Mapping[str, str], modules: Mapping[str, Any], precision: str = "") -> Rows:
    """Return the rows of `Counters.job`.

    Args:
        environ: The process's environment.
        modules: Its imported modules.
        precision: Type of the parameters that it trains; empty if that is not known.
    """
    found = {
        "job": _job(environ),
        "local_rank": _first(environ, LOCAL_RANK),
        "world_size": _first(environ, WORLD_SIZE),
        "backend": _backend(modules.get("torch.distributed")),
        "precision": precision,
    }
    return tuple((name, plain(value[:MAX_CHARACTERS])) for name, value in found.items() if value)


def _job(environ: Mapping[str, str]) -> str:
    """The identity that the launcher gives a job: two jobs of one name differ in it.

    Source: torchrun's environment variables (its run id is `none` unless one is given); Slurm's `SLURM_JOB_ID`.
    """
    run = environ.get("TORCHELASTIC_RUN_ID", "")
    if run not in {"", "none"}:
        return run
    if slurm := environ.get("SLURM_JOB_ID"):
        return f"{slurm}.{environ['SLURM_STEP_ID']}" if environ.get("SLURM_STEP_ID") else slurm
    if environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"):
        return f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"
    return environ.get("HOSTNAME", "") if environ.get("KUBERNETES_SERVICE_HOST") else ""  # the pod's name


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")


def _backend(distributed: Any) -> str:
    try:
        return str(distributed.get_backend()) if distributed.is_initialized() else ""
    except Exception:  # noqa: BLE001  not imported to its end, or built without collectives
        return ""

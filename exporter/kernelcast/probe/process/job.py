"""The distributed job of this process, by the environment that its launcher has set: an id that its ranks share.

Sources: torch.distributed.run (TORCHELASTIC_RUN_ID, MASTER_ADDR, MASTER_PORT, WORLD_SIZE), srun(1) (SLURM_JOB_ID,
SLURM_STEP_ID, SLURM_STEP_NUM_TASKS), Open MPI and PMIx (OMPI_COMM_WORLD_SIZE, PMIX_NAMESPACE).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

SIZES: Final = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
"""Variables with the number of ranks; Slurm's is that of `srun`, not of the allocation."""


class Job(NamedTuple):
    """A job.

    Attributes:
        id: The same in all ranks; empty if it is not known.
        ranks: Number of its processes; 1 for a program that no launcher started.

    >>> job_of({"WORLD_SIZE": "8", "MASTER_ADDR": "node-1", "MASTER_PORT": "29500"})
    Job(id='node-1:29500', ranks=8)
    """

    id: str
    ranks: int


def job_of(environ: Mapping[str, str]) -> Job:
    """Return the job of a process with this environment."""
    ranks = next((int(environ[name]) for name in SIZES if environ.get(name, "").isdecimal()), 1)
    return Job(_id(environ), max(1, ranks))


def _id(environ: Mapping[str, str]) -> str:
    run = environ.get("TORCHELASTIC_RUN_ID", "")
    if run and run != "none":  # torchrun's default for a job without rendezvous
        return run
    if number := environ.get("SLURM_JOB_ID", ""):
        return f"{number}.{environ['SLURM_STEP_ID']}" if environ.get("SLURM_STEP_ID") else number
    if environ.get("MASTER_ADDR") and environ.get("MASTER_PORT"):
        return f"{environ['MASTER_ADDR']}:{environ['MASTER_PORT']}"
    return environ.get("PMIX_NAMESPACE", "")

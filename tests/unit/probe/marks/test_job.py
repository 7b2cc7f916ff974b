"""The identity of a job, and PyTorch's allocator, with an environment and a module of the test."""

from types import SimpleNamespace
from typing import Any

import pytest

from kernelcast.probe.marks.allocator import TorchAllocator
from kernelcast.probe.marks.job import job_rows
from kernelcast.probe.process.job import Job, job_of
from kernelcast.probe.recording.device_recorder import AllocatorState


@pytest.mark.parametrize(
    ("environ", "job"),
    [
        ({"TORCHELASTIC_RUN_ID": "run-7", "SLURM_JOB_ID": "5", "MASTER_ADDR": "a", "MASTER_PORT": "1"}, "run-7"),
        ({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "5", "SLURM_STEP_ID": "2"}, "5.2"),
        ({"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "node1", "MASTER_PORT": "29500"}, "node1:29500"),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-0"}, "train-0"),
        ({"HOSTNAME": "laptop"}, None),
    ],
)
def test_two_jobs_of_one_name_differ_in_their_launchers_identity(environ: dict[str, str], job: str | None) -> None:
    assert dict(job_rows(environ, {})).get("job") == job


def test_an_allocation_of_slurm_without_srun_is_a_job_of_one_rank() -> None:
    """`sbatch --ntasks=8` sets the number for the allocation, in which `python` is a single process."""
    batch = {"SLURM_JOB_ID": "5", "SLURM_NTASKS": "8"}
    assert job_of(batch) == Job("5", 1)
    assert job_of({**batch, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}) == Job("5.0", 4)
    assert dict(job_rows(batch, {})) == {"job": "5"}


def test_ranks_and_the_backend_are_given_where_they_are_known() -> None:
    distributed = SimpleNamespace(is_initialized=lambda: True, get_backend=lambda: "nccl")
    rows = job_rows({"LOCAL_RANK": "3", "WORLD_SIZE": "16"}, {"torch.distributed": distributed}, "bfloat16")
    assert rows == (("local_rank", "3"), ("world_size", "16"), ("backend", "nccl"), ("precision", "bfloat16"))
    assert job_rows({}, {}) == ()


class Cuda:
    """`torch.cuda` with one used GPU."""

    def __init__(self) -> None:
        self.backend = "native"
        self.stats: dict[str, Any] = {
            "allocated_bytes.all.current": 10,
            "reserved_bytes.all.current": 40,
            "inactive_split_bytes.all.current": 5,
            "allocated_bytes.all.peak": 30,
            "num_alloc_retries": 2,
            "num_ooms": 1,
        }

    def is_initialized(self) -> bool:
        return True

    def get_allocator_backend(self) -> str:
        return self.backend

    def memory_stats(self, device: int) -> dict[str, Any]:
        assert device == 0
        return self.stats


def test_the_allocator_is_read_where_there_is_a_context_and_is_absent_elsewhere() -> None:
    cuda = Cuda()
    read = TorchAllocator({"torch": SimpleNamespace(cuda=cuda)}, lambda: (0,))
    sizes = (("allocated", 10), ("reserved", 40), ("inactive_split", 5), ("peak", 30))
    assert read(0) == AllocatorState(sizes, 2, 1)
    assert read(1) == AllocatorState()
    cuda.stats["num_alloc_retries"] = 0  # set back by the program
    assert read(0).retries == 2
    cuda.backend = "cudaMallocAsync"
    assert read(0) == AllocatorState()
    assert TorchAllocator({}, lambda: (0,))(0) == AllocatorState()

"""Job of a process, from the environment that its scheduler has set; where a cgroup does not say it.

The kernel shows a process's environment to its own user, and to whoever has CAP_SYS_PTRACE; elsewhere there is no job.
Each process's is read once. Sources: IBM Spectrum LSF, "Environment variables set for job execution" (LSB_JOBID,
LSB_JOBINDEX); OpenPBS, qsub(1B) (PBS_JOBID); flux-environment(7) (FLUX_JOB_ID); srun(1) (SLURM_JOB_ID).
"""

import os
import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from kernelcast.exporter.attribution.cgroup import PROC

MAX_BYTES: Final = 131_072
"""Of an environment; a job's variables beyond that are not seen."""
REMEMBERED: Final = 1024
VARIABLES: Final = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID")
_JOB_ID: Final = re.compile(r"\d+(?:\[\d+\])?|[fƒ][1-9A-HJ-NP-Za-km-z]+")
"""The beginning of an id, without a server's name: `42`, `42[7]`, `ƒ4Vyh5Z`; a program may have set any text."""

_Seen = tuple[int, int]
"""Inode and time of the process's directory, which another process of that pid does not have."""


class JobEnvironment:
    """Reads the environment of each process once. For one thread.

    Args:
        proc: Processes.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._jobs: OrderedDict[int, tuple[_Seen, str]] = OrderedDict()

    def job_of(self, pid: int) -> str:
        """The job of a process; empty where it has none, has ended, or its environment may not be read."""
        try:
            status = os.stat(f"{self._proc}/{pid}")  # noqa: PTH116  a third of a Path's time; at each interval
        except OSError:
            return ""
        seen = status.st_ino, status.st_mtime_ns
        before = self._jobs.get(pid)
        if before is not None and before[0] == seen:
            return before[1]
        while len(self._jobs) >= REMEMBERED:
            self._jobs.popitem(last=False)
        self._jobs[pid] = seen, job_in(self._read(pid))
        return self._jobs[pid][1]

    def _read(self, pid: int) -> Mapping[str, str]:
        try:
            with open(f"{self._proc}/{pid}/environ", "rb") as file:  # noqa: PTH123  as above
                text = file.read(MAX_BYTES).decode(errors="replace")
        except OSError:
            return {}
        return dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)


def job_in(environment: Mapping[str, str]) -> str:
    """The id of the job in an environment; of an array LSF has the index beside it.

    >>> job_in({"LSB_JOBID": "42", "LSB_JOBINDEX": "7"}), job_in({"PBS_JOBID": "42[7].server"})
    ('42[7]', '42[7]')
    """
    found = (_JOB_ID.match(environment.get(name, "")) for name in VARIABLES)
    job = next((match[0] for match in found if match), "")
    index = environment.get("LSB_JOBINDEX", "0")
    return f"{job}[{index}]" if index.isdecimal() and index != "0" and job == environment.get("LSB_JOBID") else job

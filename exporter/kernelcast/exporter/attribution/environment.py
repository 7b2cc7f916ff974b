"""Job of a process, from the environment that its scheduler has set; where a cgroup does not say it.

The kernel shows a process's environment to its own user, and to whoever has CAP_SYS_PTRACE; elsewhere there is no job.
Each process's is read once. Sources: IBM Spectrum LSF, "Environment variables set for job execution" (LSB_JOBID,
LSB_JOBINDEX); OpenPBS, qsub(1B) (PBS_JOBID); flux-environment(7) (FLUX_JOB_ID); srun(1) (SLURM_JOB_ID); HTCondor's
manual, "Environment variables for jobs" (_CONDOR_JOB_AD, a file with ClusterId and ProcId).
"""

import os
import re
import stat
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

CONDOR: Final = "_CONDOR_JOB_AD"
_CONDOR_ID: Final = {name: re.compile(rf"^{name} *= *(\d+)$", re.MULTILINE) for name in ("ClusterId", "ProcId")}

_Seen = tuple[int, int]
"""Inode and time of the process's directory, which another process of that pid does not have."""
Jobs = Mapping[int, tuple[_Seen, str]]
NO_JOBS: Final[Jobs] = {}


class JobEnvironments:
    """Jobs of processes. `read` may wait, as for a process that hangs in a driver: a thread of its own calls it.

    Args:
        proc: Processes.
    """

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._asked: OrderedDict[int, _Seen] = OrderedDict()
        self._known: Jobs = NO_JOBS

    def job_of(self, pid: int, known: Jobs) -> str | None:
        """The job of a process; empty where it has none or has ended, None where it is not known yet. Never waits.

        Args:
            pid: In this process's own pid namespace.
            known: What `read` has returned last.
        """
        try:
            status = os.stat(f"{self._proc}/{pid}")  # noqa: PTH116  a third of a Path's time; at each interval
        except OSError:
            return ""
        seen = status.st_ino, status.st_mtime_ns
        self._asked[pid] = seen
        self._asked.move_to_end(pid)
        while len(self._asked) > REMEMBERED:
            self._asked.popitem(last=False)
        found = known.get(pid)
        return found[1] if found is not None and found[0] == seen else None

    def read(self) -> Jobs:
        """Return the jobs of the processes that were asked for; each environment is read once."""
        before = self._known
        self._known = {
            pid: before[pid] if pid in before and before[pid][0] == seen else (seen, self._job(pid))
            for pid, seen in tuple(self._asked.items())
        }
        return self._known

    def _job(self, pid: int) -> str:
        """Empty where the process has none, or its environment may not be read."""
        try:
            with open(f"{self._proc}/{pid}/environ", "rb") as file:  # noqa: PTH123  as above
                text = file.read(MAX_BYTES).decode(errors="replace")
        except OSError:
            return ""
        environment = dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)
        return job_in(environment) or self._condor_job(pid, environment.get(CONDOR, ""))

    def _condor_job(self, pid: int, path: str) -> str:
        """`ClusterId.ProcId` from the file that HTCondor's job has, in the process's own file system."""
        if not path.startswith("/"):
            return ""
        text = _content(f"{self._proc}/{pid}/root{path}")
        numbers = [found[1] for pattern in _CONDOR_ID.values() if (found := pattern.search(text))]
        return ".".join(numbers) if len(numbers) == len(_CONDOR_ID) else ""


def _content(path: str) -> str:
    """The text of a regular file, or none: a program may name anything, and opening a device may act on it."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (OSError, ValueError):
        return ""
    try:
        if not stat.S_ISREG(os.fstat(place).st_mode):
            return ""
        with open(f"/proc/self/fd/{place}", "rb") as file:  # noqa: PTH123  the file that was looked at
            return file.read(MAX_BYTES).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(place)


def job_in(environment: Mapping[str, str]) -> str:
    """The id of the job in an environment; of an array LSF has the index beside it.

    >>> job_in({"LSB_JOBID": "42", "LSB_JOBINDEX": "7"}), job_in({"PBS_JOBID": "42[7].server"})
    ('42[7]', '42[7]')
    """
    found = (_JOB_ID.match(environment.get(name, "")) for name in VARIABLES)
    job = next((match[0] for match in found if match), "")
    index = environment.get("LSB_JOBINDEX", "0")
    return f"{job}[{index}]" if index.isdecimal() and index != "0" and job == environment.get("LSB_JOBID") else job

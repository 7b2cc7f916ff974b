"""Pod, container or job of a process, from `/proc/PID/cgroup`.

Both versions of cgroups, and what kubelet, containerd, CRI-O, Docker, Podman and schedulers make of them:

* `kubepods-burstable-pod0123_4567….slice/cri-containerd-<id>.scope` (systemd driver; `crio-`, `docker-` likewise)
* `/kubepods/burstable/pod0123-4567…/<id>` (cgroupfs driver)
* `…/kubepods-pod….slice:cri-containerd:<id>` (containerd under systemd without delegation)
* `/docker/<id>`, `docker-<id>.scope`, `libpod-<id>.scope`
* `/slurm/uid_1000/job_42/step_0` (cgroup v1), `slurmstepd.scope/job_42/step_0` (v2)
* `/pbs_jobs.service/jobid/42.server` (PBS, cgroup v1), `/pbs_jobs.service/jobs/42.1` (v2)
* `/lsf/<cluster>/job.42.<pid>.<time>` (LSF), `…/imp-shell-0-<id>.service` (Flux with `sdexec`)
* `/ecs/<task>/<id>` (Amazon ECS), with `<task>-<number>` in place of the id on Fargate

HTCondor's cgroups have the slot alone, no job (`environment.py`).

Format: cgroups(7); one line for each hierarchy, `number:controllers:path`, v2 is number 0.
"""

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

PROC: Final = Path("/proc")
INITIAL_PID_NAMESPACE: Final = 0xEFFFFFFC
MAX_BYTES: Final = 65_536
REMEMBERED: Final = 1024
"""Texts kept parsed: a process's is the same at every interval."""

_HEX: Final = "[0-9a-f]"
_POD: Final = re.compile(
    rf"pod({_HEX}{{8}}[-_]{_HEX}{{4}}[-_]{_HEX}{{4}}[-_]{_HEX}{{4}}[-_]{_HEX}{{12}}|{_HEX}{{32}})(?!{_HEX})"
)
_CONTAINER: Final = re.compile(rf"(?<!{_HEX})({_HEX}{{64}})(?!{_HEX})")
_FARGATE: Final = re.compile(rf"/ecs/{_HEX}{{32}}/({_HEX}{{32}}-\d+)(?:/|$)")
_ARRAY: Final = r"\d+(?:\[\d+\])?"
_JOB: Final = re.compile(
    r"/(?:uid_\d+|slurmstepd\.scope|[^/]*_slurmstepd\.scope)/job_(?P<slurm>\d+)(?:/|$)"
    rf"|/pbs_jobs\.service/job(?:id|s)/(?P<pbs>{_ARRAY})(?:[./]|$)"
    rf"|/lsf/[^/]+/job\.(?P<lsf>{_ARRAY})\."
    r"|/(?:imp-)?shell-\d+-(?P<flux>f[1-9A-HJ-NP-Za-km-z]+)\.service(?:/|$)"
    rf"|/ecs/(?P<ecs>{_HEX}{{32}}|{_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}})/"
)
"""Sources: PBS: openpbs/openpbs, tests of pbs_cgroups; LSF: IBM Spectrum LSF, ceems-dev/ceems; Flux: flux-framework/
flux-core, issues 5901 and 6501; ECS: aws/amazon-ecs-agent, issue 1119, DataDog/dd-trace-dotnet, 1286."""


class CgroupMembership(NamedTuple):
    """Pod, container and job of a process; empty where it has none.

    Attributes:
        pod_uid: Kubernetes's, with hyphens (static pods have none).
        container_id: 64 hex digits; on Fargate the task's 32 and a number.
        job: The scheduler's job id; of Amazon ECS the task's.
    """

    pod_uid: str = ""
    container_id: str = ""
    job: str = ""


def sees_host_pids(proc: Path = PROC) -> bool:
    """Whether this process is in the host's first pid namespace, whose pids the NVIDIA driver reports.

    Source: Linux, include/linux/proc_ns.h, PROC_PID_INIT_INO.
    """
    try:
        return os.stat(f"{proc}/self/ns/pid").st_ino == INITIAL_PID_NAMESPACE  # noqa: PTH116  as below
    except OSError:
        return False


def membership(pid: int, proc: Path = PROC) -> CgroupMembership | None:
    """Return the membership of a process; None if it has ended or may not be read."""
    # Without a Path and a file object this takes a third of the time; it runs for each process at each interval.
    try:
        file = os.open(f"{proc}/{pid}/cgroup", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return parse(os.read(file, MAX_BYTES))
    except OSError:
        return None
    finally:
        os.close(file)


@lru_cache(maxsize=REMEMBERED)
def parse(content: bytes) -> CgroupMembership:
    """Read the content of a cgroup file; the first hierarchy that says something wins, field by field."""
    text = content.decode(errors="replace")
    paths = [line.split(":", 2)[2] for line in text.splitlines() if line.count(":") >= 2]
    return CgroupMembership(
        _first(_POD, paths).replace("_", "-"),
        _last(_CONTAINER, paths) or _first(_FARGATE, paths),
        _first(_JOB, paths),
    )


def _first(pattern: re.Pattern[str], paths: list[str]) -> str:
    return next((found[found.lastindex or 0] for path in paths if (found := pattern.search(path))), "")


def _last(pattern: re.Pattern[str], paths: list[str]) -> str:
    """The innermost: a container may run containers."""
    return next((found[-1] for path in paths if (found := pattern.findall(path))), "")

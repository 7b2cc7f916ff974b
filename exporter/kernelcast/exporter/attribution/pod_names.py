"""Names of pods and containers, from the log directories that the kubelet keeps on every node.

The kubelet's API has neither the uid of a pod nor the id of a container, and cgroups have nothing else. dcgm-exporter
queries the API server, with credentials. The names of two directories contain the same without credentials:

* `/var/log/containers/<pod>_<namespace>_<container>-<container id>.log`
* `/var/log/pods/<namespace>_<pod>_<pod uid>`

Source: Kubernetes, pkg/kubelet/kuberuntime (legacyLogSymlink, BuildPodLogsDirectory). No name holds an underscore.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kernelcast.exporter.attribution.cgroup import CgroupMembership
from kernelcast.exporter.attribution.pod_resources import Container

LOGS: Final = Path("/var/log")
MAX_ENTRIES: Final = 20_000
"""Limit of entries read of each directory: nodes run hundreds of pods, and the kubelet removes old ones."""

_LINK: Final = re.compile(r"([^_]+)_([^_]+)_(.+)-([0-9a-f]{64})\.log")
_DIRECTORY: Final = re.compile(r"([^_]+)_([^_]+)_([0-9a-f-]{32,36})")


@dataclass(frozen=True, slots=True)
class PodNames:
    """Names of containers and pods by the ids in cgroups.

    Attributes:
        containers: By container id.
        pods: By pod uid; the container's name is empty.
        uids: Pod uid by namespace and name; without pods that have several, as one that was made anew under its name.
    """

    containers: Mapping[str, Container] = field(default_factory=dict)
    pods: Mapping[str, Container] = field(default_factory=dict)
    uids: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def of(self, member: CgroupMembership) -> Container | None:
        """Return the container of a process, or else its pod; None if neither name is known."""
        return self.containers.get(member.container_id) or self.pods.get(member.pod_uid)


def read_names(logs: Path = LOGS) -> PodNames:
    """Read both directories.

    Raises:
        OSError: Neither can be read.
    """
    containers = {found[4]: Container(found[2], found[1], found[3]) for found in _matches(logs / "containers", _LINK)}
    pods = {found[3]: Container(found[1], found[2], "") for found in _matches(logs / "pods", _DIRECTORY)}
    if not containers and not pods:
        os.stat(logs / "pods")  # noqa: PTH116  raises the error to be reported
    counts = Counter((pod.namespace, pod.pod) for pod in pods.values())
    uids = {(pod.namespace, pod.pod): uid for uid, pod in pods.items() if counts[pod.namespace, pod.pod] == 1}
    return PodNames(containers, pods, uids)


def _matches(directory: Path, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    try:
        with os.scandir(directory) as entries:
            for number, entry in enumerate(entries):
                if number >= MAX_ENTRIES:
                    return
                if found := pattern.fullmatch(entry.name):
                    yield found
    except OSError:
        return

"""Finds the GPUs of a server: those of its pod, or of the process that listens on its port.

An engine's server often leaves the GPU to a child, so a process of the GPU belongs to it if it or one of its parents
listens. A pod mostly has a network namespace of its own, where its port is another one than the node's of that number.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernelcast.exporter.process_stat import PROC, stat_fields

LISTENS: Final = "0A"
"""State of a listening socket; Linux, include/net/tcp_states.h."""
MAX_PARENTS: Final = 16
MAX_SOCKET_LINES: Final = 65_536


@dataclass(frozen=True, slots=True)
class NodeGpu:
    """A GPU, or MIG instance, of the node, with its users as NVML and the kubelet know them.

    Attributes:
        uuid: NVML's UUID of the GPU.
        index: Its number on the node.
        gi_id: The number of the instance.
        pids: Its processes.
        users: Labels of its users, such as `pod` and `namespace`.
    """

    uuid: str
    index: str
    gi_id: str = ""
    pids: tuple[int, ...] = ()
    users: tuple[Mapping[str, str], ...] = ()


def gpus_of(
    gpus: Sequence[NodeGpu], listens: Callable[[int], bool], labels: Mapping[str, str], proc: Path = PROC
) -> tuple[NodeGpu, ...]:
    """The GPUs that a server uses.

    Args:
        gpus: The node's.
        listens: Whether a pid has the server's port; see `listener`.
        labels: The server's `pod` and `namespace`, where they are known.
        proc: The kernel's directory of processes.
    """
    if labels.get("pod"):
        pod = (labels.get("namespace"), labels["pod"])
        return tuple(gpu for gpu in gpus if any((user.get("namespace"), user.get("pod")) == pod for user in gpu.users))
    return tuple(gpu for gpu in gpus if any(listens(ancestor) for pid in gpu.pids for ancestor in parents(pid, proc)))


def parents(pid: int, proc: Path = PROC) -> Iterator[int]:
    """A process, its parent and so on."""
    for _ in range(MAX_PARENTS):
        if pid <= 1:
            return
        yield pid
        try:
            pid = int(stat_fields(pid, proc)[1])
        except (OSError, ValueError, IndexError):
            return


def listener(port: int, proc: Path = PROC) -> Callable[[int], bool]:
    """A function that says whether a process listens on a TCP port of this network namespace."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    known: dict[int, bool] = {}

    def listens(pid: int) -> bool:
        if pid not in known:
            known[pid] = bool(sockets) and any(link in sockets for link in _descriptors(pid, proc))
        return known[pid]

    return listens


def _inodes(port: int, proc: Path) -> Iterator[str]:
    for name in ("tcp", "tcp6"):
        try:
            with (proc / "net" / name).open() as file:
                for _, line in zip(range(MAX_SOCKET_LINES), file, strict=False):
                    words = line.split()
                    if len(words) > 9 and words[3] == LISTENS and words[1].endswith(f":{port:04X}"):
                        yield words[9]
        except OSError:
            continue


def _descriptors(pid: int, proc: Path) -> Iterator[str]:
    try:
        for descriptor in (proc / str(pid) / "fd").iterdir():
            try:
                yield str(descriptor.readlink())
            except OSError:
                continue
    except OSError:
        return

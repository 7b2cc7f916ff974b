"""A node's files about its processes and pods."""

import os
from pathlib import Path

from tests.support.exporter.gpus import GPU_0

from kernelcast.exporter.attribution import Attribution, AttributionSettings

UID = "0a1b2c3d-1111-2222-3333-444455556666"


FLAT = UID.replace("-", "_")


STATIC = "0123456789abcdef0123456789abcdef"


ID = "ab" * 32


OUTER = "cd" * 32


class Node:
    """A node in a directory."""

    def __init__(self, root: Path, *, jobs: bool = False) -> None:
        self.root = root
        self.errors: list[str] = []
        (root / "log" / "pods").mkdir(parents=True)
        (root / "log" / "containers").mkdir()
        (root / "passwd").write_text(f"someone:x:{os.getuid()}:0::/:/bin/sh\nbroken\n")
        self.jobs = root / "jobs"
        if jobs:
            self.jobs.mkdir()
        self.settings = AttributionSettings(
            kubernetes="auto",
            socket=root / "kubelet.sock",
            logs=root / "log",
            proc=root / "proc",
            passwd=root / "passwd",
            host_pids=True,
            job_directory=self.jobs if jobs else None,
        )
        self.attribution = Attribution(self.settings, on_error=self.errors.append)

    def process(self, pid: int, path: str) -> None:
        (self.root / "proc" / str(pid)).mkdir(parents=True)
        (self.root / "proc" / str(pid) / "cgroup").write_text(f"0::{path}\n")

    def log_of(self, pod: str, namespace: str, container: str, container_id: str = "", uid: str = UID) -> None:
        (self.root / "log" / "pods" / f"{namespace}_{pod}_{uid}" / container).mkdir(parents=True)
        if container_id:
            (self.root / "log" / "containers" / f"{pod}_{namespace}_{container}-{container_id}.log").touch()

    def labels(self, pid: int) -> dict[str, str]:
        self.attribution.refresh()
        return dict(self.attribution.process_labels(GPU_0, pid))

"""Identities of measurements: the GPU, the process, its versions.

The exporter and the probe make them; they become labels of series.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kernelcast.wire.errors import FrameError

LIVE: Final = ""
REPLAYED: Final = "replayed"
SIMULATED: Final = "simulated"
CPU: Final = "cpu"
SOURCES: Final = (LIVE, REPLAYED, SIMULATED, CPU)
"""Values of the label `source`; every series that does not come from a live GPU has it."""

PROGRAM_PATTERN: Final = re.compile(r"[^\x00-\x1f\x7f]{1,128}")
"""Names of programs and nodes: no control characters, because files hold one name a line, with a tab after it."""

VERSION_LABELS: Final = ("code_version", "image", "cuda_version", "driver_version")
"""Labels of `kernelcast_program_info`, in the order of `Versions`' fields."""

Labels = tuple[tuple[str, str], ...]
"""Label names and values, sorted by name, without empty values (Prometheus does not tell empty from absent)."""


def labels(**values: str) -> Labels:
    """Labels from keyword arguments; empty values are left out."""
    return tuple(sorted((name, value) for name, value in values.items() if value))


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU, or one MIG instance of it, under dcgm-exporter's label names.

    Attributes:
        hostname: The node's name; label `Hostname`.
        uuid: NVML's UUID, or one made from a recording.
        gpu: Its index on the node, as text; label `gpu`.
        pci_bus_id: Bus address, where known.
        device: The device file's name, such as `nvidia0`.
        model_name: The product's name; label `modelName`.
        gi_id: MIG GPU instance id; empty without MIG.
        gi_profile: MIG profile such as `1g.18gb`; empty without MIG.
        mig_uuids: CUDA's names of the instance: UUIDs of its compute instances. No label; programs report them.
    """

    hostname: str
    uuid: str
    gpu: str = "0"
    pci_bus_id: str = ""
    device: str = ""
    model_name: str = ""
    gi_id: str = ""
    gi_profile: str = ""
    mig_uuids: tuple[str, ...] = ()

    def device_labels(self, source: str = LIVE) -> Labels:
        """All labels that dcgm-exporter gives a device metric, and `source`."""
        return labels(
            Hostname=self.hostname,
            UUID=self.uuid,
            gpu=self.gpu,
            pci_bus_id=self.pci_bus_id,
            device=self.device,
            modelName=self.model_name,
            GPU_I_ID=self.gi_id,
            GPU_I_PROFILE=self.gi_profile,
            source=source,
        )

    def join_labels(self, source: str = LIVE) -> dict[str, str]:
        """The labels a kernel series shares with the device's, so that joins are plain."""
        return {
            "Hostname": self.hostname,
            "UUID": self.uuid,
            "gpu": self.gpu,
            "GPU_I_ID": self.gi_id,
            "source": source,
        }


@dataclass(frozen=True, slots=True)
class Process:
    """One process that reports kernels.

    Attributes:
        program: The user's name of the job; the key on `kernelcast.kernels`.
        rank: Its rank in a distributed job, as text; empty for a single process.
        pid: Its number in its own namespace (each pod may have a pid 1), for people only.
        nonce: Random number, generated at start and after a fork, that distinguishes processes.
        start_ns: Time when it began to count, Unix nanoseconds.
        source: One of `SOURCES`.
    """

    program: str
    nonce: str
    start_ns: int
    rank: str = ""
    pid: int = 0
    source: str = LIVE

    def __post_init__(self) -> None:
        if not PROGRAM_PATTERN.fullmatch(self.program):
            raise FrameError(f"program is {self.program!r}; it must be 1 to 128 printable characters; set another name")
        if self.source not in SOURCES:
            raise FrameError(f"source is {self.source!r}; it must be one of {SOURCES}; report it as a bug of the probe")


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions that a process runs on; each is empty where it is not known.

    Attributes:
        code: The program's own.
        image: Image of its container.
        cuda: CUDA runtime that it has loaded.
        driver: NVIDIA driver of its node.
    """

    code: str = ""
    image: str = ""
    cuda: str = ""
    driver: str = ""

    def labels(self) -> dict[str, str]:
        """The labels of `kernelcast_program_info`, by name."""
        return dict(zip(VERSION_LABELS, (self.code, self.image, self.cuda, self.driver), strict=True))

    @classmethod
    def of_labels(cls, found: Mapping[str, str]) -> "Versions":
        """The versions in the labels of a series; the inverse of `labels`."""
        return cls(*(found.get(name, "") for name in VERSION_LABELS))


def new_nonce() -> str:
    """16 hex digits from the operating system's randomness."""
    return os.urandom(8).hex()

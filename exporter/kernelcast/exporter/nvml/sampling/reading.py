"""One reading of the node's GPUs: values, reasons for absent ones, processes, XIDs.

`Sampler` makes it, `samples.to_samples` converts it to series. The process that calls NVML sends it as JSON, so each
class converts to and from it. Standard library only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Self

NOT_SUPPORTED: Final = "not_supported"
NO_PERMISSION: Final = "no_permission"
NO_DATA: Final = "no_data"
NEEDS_HOPPER: Final = "needs_hopper"
MIG: Final = "mig"
LOST: Final = "lost"
IMPLAUSIBLE: Final = "implausible"
OLD_PYNVML: Final = "old_pynvml"
ERROR: Final = "error"
REASONS: Final = (
    NOT_SUPPORTED,
    NO_PERMISSION,
    NO_DATA,
    NEEDS_HOPPER,
    MIG,
    LOST,
    IMPLAUSIBLE,
    OLD_PYNVML,
    ERROR,
)
"""Reasons why a row is absent. `mig`: NVML does not give it for a GPU in MIG mode. `implausible`: it contradicts
another row, or the last reading, or no GPU has such a value. `lost`: the GPU is gone. `no_data`: without a value at
present, or not shown by the `nvidia-smi` that is played. `old_pynvml`: the installed nvidia-ml-py does not have the
call or the field."""


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """Use of one GPU, or of one MIG instance, by one process.

    Attributes:
        pid: In the namespace that NVML answers in: the host's, unless the driver cannot see it.
        type: compute, graphics or mps.
        memory_bytes: Device memory; None where the driver does not say.
        sm_percent: Share of the sampling period in which its kernels ran; None if unknown.
        memory_percent: The share with its memory read or written.
        enc_percent: The encoder's share.
        dec_percent: The decoder's share.
        name: The program's name as the kernel has it (at most 15 characters); empty where it cannot be read.
    """

    pid: int
    type: str
    memory_bytes: int | None = None
    sm_percent: int | None = None
    memory_percent: int | None = None
    enc_percent: int | None = None
    dec_percent: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class XidTotal:
    """Count of one XID on one GPU since the sampler began.

    Attributes:
        xid: NVIDIA's number.
        count: Cumulative.
        last_ns: When it occurred last, Unix nanoseconds.
    """

    xid: int
    count: int
    last_ns: int


@dataclass(frozen=True, slots=True)
class LinkReading:
    """One NVLink of a GPU.

    Attributes:
        link: Its number on the GPU.
        up: Whether it is up; None where NVML does not say.
        traffic_bytes: Its traffic, by direction.
        errors: Its errors, by kind.
    """

    link: int
    up: bool | None = None
    traffic_bytes: Mapping[str, int] = field(default_factory=dict)
    errors: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HealthValue:
    """One value of a GPU's health; see `sampling.health`.

    Attributes:
        row: OTLP name of its row.
        value: In the row's unit.
        labels: The row's own labels.
    """

    row: str
    value: int
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EventCount:
    """Count of one sort of event on one GPU within a window; see `nvml.windows`.

    Attributes:
        row: OTLP name of its row.
        count: Within the window that ends with the reading.
        labels: The row's own labels: the window's length, and which event.
    """

    row: str
    count: int
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU, or one MIG instance of it, at one moment.

    Attributes:
        uuid: NVML's; of an instance its parent's, as dcgm-exporter has it.
        index: On this node, as text.
        pci_bus_id: Bus address.
        device: The device file's name; empty where there is none.
        model_name: The product.
        gi_id: MIG GPU instance; empty without MIG.
        gi_profile: Its profile, such as `1g.18gb`.
        mig_uuids: Of all its compute instances.
        gi_placement: Numbers of the instance's profile and of its first memory slice, such as `20-5`; empty where NVML
            does not tell this user.
        gi_alone: Whether it is the GPU's only instance of that profile.
        values: OTLP name of a catalogue row to its value, in the row's unit.
        absent: OTLP name of a row that was asked for to the reason why it has no value.
        processes: Who uses it.
        xids: Its XIDs, cumulative.
        peers: Status of NVLink to each other GPU, by that one's index; empty where it is not asked for.
        events: Counts of events within a window; only the exporter's own process adds them.
        links: Its NVLinks; empty where they are not asked for.
        labels: Labels that the counters table adds to its series, by name.
        health: Its fabric, pending repairs and SRAM errors.
    """

    uuid: str
    index: str
    pci_bus_id: str = ""
    device: str = ""
    model_name: str = ""
    gi_id: str = ""
    gi_profile: str = ""
    mig_uuids: tuple[str, ...] = ()
    gi_placement: str = ""
    gi_alone: bool = False
    values: Mapping[str, int | float] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    processes: tuple[ProcessUse, ...] = ()
    xids: tuple[XidTotal, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    peers: Mapping[str, int] = field(default_factory=dict)
    events: tuple[EventCount, ...] = ()
    links: tuple[LinkReading, ...] = ()
    health: tuple[HealthValue, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Convert to dictionaries, lists, numbers and text; `values` and `absent` are not copied."""
        parts = {
            "processes": [_members(one) for one in self.processes],
            "xids": [_members(one) for one in self.xids],
            "events": [_members(one) for one in self.events],
            "links": [_members(one) for one in self.links],
            "health": [_members(one) for one in self.health],
        }
        return _members(self) | parts

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Self:
        """The reading that `to_json` was made from."""
        parts = {
            "mig_uuids": tuple(made["mig_uuids"]),
            "processes": tuple(ProcessUse(**one) for one in made["processes"]),
            "xids": tuple(XidTotal(**one) for one in made["xids"]),
            "events": tuple(EventCount(**one) for one in made["events"]),
            "links": tuple(LinkReading(**one) for one in made["links"]),
            "health": tuple(HealthValue(**one) for one in made["health"]),
        }
        return cls(**{**made, **parts})


@dataclass(frozen=True, slots=True)
class NodeReading:
    """All GPUs of the node at one moment.

    Attributes:
        time_ns: When they were read, Unix nanoseconds.
        driver_version: Such as `590.48.01`; empty while the driver does not answer.
        gpus: In NVML's order, each followed by its MIG instances. A lost GPU stays, without values, for its XIDs.
        errors: NVML calls that failed since the last reading, and NVML's name for the error.
        missing: UUIDs of GPUs that were there before and are not now, and did not leave the driver's list in order.
        all_answer: Whether every GPU that NVML lists answered when it was listed last.
        released: UUIDs of GPUs that the exporter does not open; only its own process adds them.
    """

    time_ns: int
    driver_version: str = ""
    gpus: tuple[GpuReading, ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    missing: tuple[str, ...] = ()
    all_answer: bool = False
    released: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Convert to dictionaries, lists, numbers and text."""
        return _members(self) | {"gpus": [gpu.to_json() for gpu in self.gpus]}

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Self:
        """The reading that `to_json` was made from."""
        parts = {
            "gpus": tuple(GpuReading.from_json(one) for one in made["gpus"]),
            "errors": tuple((call, error) for call, error in made["errors"]),
            "missing": tuple(made["missing"]),
            "released": tuple(made["released"]),
        }
        return cls(**{**made, **parts})


_NAMES: Final = {
    one: tuple(member.name for member in fields(one))
    for one in (ProcessUse, XidTotal, EventCount, LinkReading, HealthValue, GpuReading, NodeReading)
}


def _members(
    one: ProcessUse | XidTotal | EventCount | LinkReading | HealthValue | GpuReading | NodeReading,
) -> dict[str, Any]:
    """Its members as they are; `dataclasses.asdict` copies all that is in them, which costs four times as much."""
    return {name: getattr(one, name) for name in _NAMES[type(one)]}

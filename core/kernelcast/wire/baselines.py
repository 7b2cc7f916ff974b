"""Baselines of kernels that the nodes of a fleet share, as data and as CloudEvents on `kernelcast.baselines`.

Predictors write and read them. The topic is compacted and has one record for each kernel, configuration and device
model. A record has a part for each node. A predictor may overwrite parts that another one has just written; that one
merges the record with the parts that it knows (`merge`), and writes it again.
"""

from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

from kernelcast.wire.cloudevents import envelope, joined_key
from kernelcast.wire.event_data import Limits, Ratio, event_data, to_data

BASELINE_TYPE: Final = "dev.kernelcast.baseline.v1"
MAX_NODES: Final = 64
"""Largest number of parts in a record; `merge` keeps the newest. 64 are enough for a median."""
MAX_TEXT_CHARACTERS: Final = 512
"""Longest text in a record: a kernel's label has at most 89 characters, a variant 128, a program's name 128."""
Text = Annotated[str, Limits(most=MAX_TEXT_CHARACTERS)]


@dataclass(frozen=True, slots=True)
class NodeBaseline:
    """Usual duration of one kernel on the healthy GPUs of one node: a part of a record.

    Attributes:
        hostname: The node.
        median_seconds: Median duration.
        spread_ratio: Robust standard deviation of the durations, divided by the median.
        count: Number of intervals that the median is of.
        code_version: Version of the program; empty where it is not known.
        time_ns: Time at which it was learnt, Unix nanoseconds.
        program: Program that launched the kernel; empty where it is not known, or where several did.
        sm_clock_mhz: Usual SM clock of these GPUs under load; 0 where it is not known.
    """

    hostname: Text
    median_seconds: Annotated[float, Limits(above=0)]
    spread_ratio: Ratio
    count: Annotated[int, Limits(least=1)]
    code_version: Text = ""
    time_ns: int = 0
    program: Text = ""
    sm_clock_mhz: Annotated[float, Limits(least=0)] = 0.0


@dataclass(frozen=True, slots=True)
class KernelBaseline:
    """Usual duration of one kernel on one device model, by node.

    Attributes:
        kernel: Label of the kernel.
        configuration: Its variant, with the values of its tunables. A kernel without variants has the name of its
            program instead: its mean duration depends on the program's mixture of launches.
        device_model: Model of the GPU.
        nodes: Parts of the nodes, by hostname; at most 64.
    """

    kernel: Text
    configuration: Text
    device_model: Text
    nodes: Annotated[tuple[NodeBaseline, ...], Limits(most=MAX_NODES)] = ()

    @property
    def key(self) -> str:
        """Key of the record."""
        return joined_key(self.kernel, self.configuration, self.device_model)


def baseline_event(baseline: KernelBaseline, *, source: str, time_ns: int, event_id: str = "") -> dict[str, Any]:
    """Return the CloudEvent that carries a baseline, as a JSON object; `encode_event` makes bytes of it.

    Args:
        baseline: Its data; at most `MAX_NODES` nodes, each once, as `merge` returns them.
        source: URI reference of its source, such as `/kernelcast/predictor/host`.
        time_ns: Its time, Unix nanoseconds.
        event_id: Unique per source; generated if empty.
    """
    return envelope(
        to_data(baseline), kind=BASELINE_TYPE, subject=baseline.key, source=source, time_ns=time_ns, event_id=event_id
    )


def baseline_from(event: dict[str, Any]) -> KernelBaseline:
    """The baseline that an event carries.

    Raises:
        EventError: It carries none, or one with impossible values.
    """
    read = event_data(event, KernelBaseline, BASELINE_TYPE)
    nodes = sorted(read.nodes, key=lambda node: node.hostname)
    return KernelBaseline(read.kernel, read.configuration, read.device_model, tuple(nodes))


def merge(first: KernelBaseline, second: KernelBaseline) -> KernelBaseline:
    """Merge two records of one key: the newest part of each node. The order of the two does not matter.

    Raises:
        ValueError: Their keys differ.
    """
    if first.key != second.key:
        raise ValueError(f"baselines of {first.key!r} and {second.key!r} cannot be merged; merge those of one key")
    newest: dict[str, NodeBaseline] = {}
    for part in sorted((*first.nodes, *second.nodes), key=_order_key):
        newest[part.hostname] = part
    kept = sorted(newest.values(), key=_order_key)[-MAX_NODES:]
    return KernelBaseline(
        first.kernel, first.configuration, first.device_model, tuple(sorted(kept, key=lambda one: one.hostname))
    )


def _order_key(part: NodeBaseline) -> tuple[Any, ...]:
    """Return the sort key of a part: its time, then every field, for parts of the same time."""
    return part.time_ns, *(getattr(part, item.name) for item in fields(part))

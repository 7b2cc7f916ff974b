"""Baselines of kernels that the nodes of a fleet share, as data and as CloudEvents on `kernelcast.baselines`.

Predictors write and read them. The topic is compacted and has one record for each kernel, configuration and device
model. A record has a part for each node. A predictor may overwrite parts that another one has just written; that one
merges the record with the parts that it knows (`merge`), and writes it again.
"""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from kernelcast.wire.cloudevents import data_of, envelope, joined_key
from kernelcast.wire.errors import EventError

BASELINE_TYPE: Final = "dev.kernelcast.baseline.v1"
MAX_NODES: Final = 64
"""Largest number of parts in a record; `merge` keeps the newest. 64 are enough for a median."""
MAX_TEXT_CHARACTERS: Final = 512
"""Longest text in a record: a kernel's label has at most 89 characters, a variant 128, a program's name 128."""


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

    hostname: str
    median_seconds: float
    spread_ratio: float
    count: int
    code_version: str = ""
    time_ns: int = 0
    program: str = ""
    sm_clock_mhz: float = 0.0


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

    kernel: str
    configuration: str
    device_model: str
    nodes: tuple[NodeBaseline, ...] = ()

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
        asdict(baseline), kind=BASELINE_TYPE, subject=baseline.key, source=source, time_ns=time_ns, event_id=event_id
    )


def baseline_from(event: dict[str, Any]) -> KernelBaseline:
    """The baseline that an event carries.

    Raises:
        EventError: It carries none, or one with impossible values.
    """
    data = data_of(event, BASELINE_TYPE)
    try:
        return _read_baseline(data)
    except KeyError as error:
        raise EventError(f"event {event['id']} has unusable data: {error} is missing; it is refused") from error
    except (OverflowError, TypeError, ValueError) as error:
        raise EventError(f"event {event['id']} has unusable data: {error}; it is refused") from error


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


def _read_baseline(data: dict[str, Any]) -> KernelBaseline:
    if len(data["nodes"]) > MAX_NODES:
        raise ValueError(f"nodes has {len(data['nodes'])} parts; the limit is {MAX_NODES}")
    nodes = sorted((_read_node(part) for part in data["nodes"]), key=lambda one: one.hostname)
    kernel, configuration, model = (_text(data, name) for name in ("kernel", "configuration", "device_model"))
    return KernelBaseline(kernel, configuration, model, tuple(nodes))


def _read_node(part: dict[str, Any]) -> NodeBaseline:
    count, time_ns = part["count"], part.get("time_ns", 0)
    median, spread = float(part["median_seconds"]), float(part["spread_ratio"])
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in (count, time_ns)):
        raise TypeError(f"count is {count!r} and time_ns {time_ns!r}; both must be integers")
    if not (math.isfinite(median) and median > 0 and math.isfinite(spread) and spread >= 0 and count > 0):
        raise ValueError(f"median_seconds is {median}, spread_ratio {spread}, count {count}; they must be positive")
    clock = float(part.get("sm_clock_mhz", 0.0))
    if not (math.isfinite(clock) and clock >= 0):
        raise ValueError(f"sm_clock_mhz is {clock}; it must be 0 or positive")
    return NodeBaseline(
        _text(part, "hostname"),
        median,
        spread,
        count,
        _text(part, "code_version", ""),
        time_ns,
        _text(part, "program", ""),
        clock,
    )


def _text(data: dict[str, Any], name: str, default: str | None = None) -> str:
    value = data[name] if default is None else data.get(name, default)
    if not isinstance(value, str) or len(value) > MAX_TEXT_CHARACTERS:
        raise TypeError(
            f"{name} is {str(value)[:80]!r}; a text of at most {MAX_TEXT_CHARACTERS} characters is required"
        )
    return value

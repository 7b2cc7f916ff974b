"""The contents of a recording, computed from the file itself without kernelcast's code."""

import gzip
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Truth:
    """Kernel launches and their durations, in all and by the name the file has."""

    launches: int = 0
    seconds: float = 0.0
    by_name: dict[str, tuple[int, float]] = field(default_factory=dict)


def kineto(path: Path) -> Truth:
    """From a Chrome trace: complete events of category `kernel`, durations in microseconds."""
    with gzip.open(path) as file:
        events = json.load(file)["traceEvents"]
    return _sum((event["name"], event["dur"] / 1e6) for event in events if str(event.get("cat")).lower() == "kernel")


def nsys(path: Path) -> Truth:
    """From an Nsight Systems export, by SQL: durations in nanoseconds."""
    query = (
        "SELECT names.value, (kernels.end - kernels.start) / 1e9 FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernels "
        "JOIN StringIds AS names ON names.id = kernels.demangledName"
    )
    connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
    try:
        return _sum(connection.execute(query))
    finally:
        connection.close()


def _sum(kernels: Iterable[tuple[str, float]]) -> Truth:
    counts: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for name, seconds in kernels:
        counts[name][0] += 1
        counts[name][1] += seconds
    by_name = {name: (int(count), seconds) for name, (count, seconds) in counts.items()}
    launches = sum(count for count, _ in by_name.values())
    return Truth(launches, sum(seconds for _, seconds in by_name.values()), by_name)

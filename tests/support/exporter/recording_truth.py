"""Totals of a recording's file, computed event by event in plain Python: the oracle of the replay."""

import gzip
import itertools
import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

KINETO_SYNCS = {"Stream Sync": "stream", "Context Sync": "context", "Event Sync": "event"}
KINETO_SYNCS |= {"Stream Wait Event": "stream_wait"}
CALLED_SYNCS = {"cudaStreamSynchronize": "stream", "cudaDeviceSynchronize": "context"}
CALLED_SYNCS |= {"hipDeviceSynchronize": "context"}
NSYS_COPIES = {1: "h2d", 2: "d2h", 8: "d2d", 10: "p2p"}

Interval = tuple[int, int]


@dataclass
class Launch:
    name: str
    start_ns: int
    duration_ns: int
    delay_ns: int | None = None
    region: str = ""

    @property
    def interval(self) -> Interval:
        return self.start_ns, self.start_ns + self.duration_ns


@dataclass
class Truth:
    """One GPU's recording; every time in whole nanoseconds."""

    launches: list[Launch] = field(default_factory=list)
    copies: list[tuple[str, int, Interval]] = field(default_factory=list)
    fills: list[Interval] = field(default_factory=list)
    fill_bytes: list[int] = field(default_factory=list)
    syncs: list[tuple[str, int]] = field(default_factory=list)
    wall_ns: Counter[str] = field(default_factory=Counter)

    def states(self) -> dict[str, int]:
        """Nanoseconds of compute, collective, copy, overlap and idle, from lengths of unions of intervals alone."""
        collective = [one.interval for one in self.launches if re.search("nccl|rccl", one.name, re.IGNORECASE)]
        compute = [one.interval for one in self.launches if one.interval not in set(collective)]
        moved = [interval for _, _, interval in self.copies] + self.fills
        busy = length(compute + collective + moved)
        overlap = length(compute) + length(collective + moved) - busy
        without_copies = length(compute + collective)
        every = union(compute + collective + moved)
        return {
            "compute": length(compute) - overlap,
            "overlap": overlap,
            "collective": without_copies - length(compute),
            "copy": busy - without_copies,
            "idle": every[-1][1] - every[0][0] - busy,
        }

    def gaps(self) -> list[int]:
        """Lengths of what lies between the pieces of the union of everything that ran."""
        intervals = [one.interval for one in self.launches] + [one for _, _, one in self.copies] + self.fills
        pieces = union(intervals)
        return [later[0] - earlier[1] for earlier, later in itertools.pairwise(pieces)]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Pieces that do not touch, in order."""
    pieces: list[Interval] = []
    for start, end in sorted(intervals):
        if pieces and start <= pieces[-1][1]:
            pieces[-1] = (pieces[-1][0], max(end, pieces[-1][1]))
        else:
            pieces.append((start, end))
    return pieces


def length(intervals: Iterable[Interval]) -> int:
    return sum(end - start for start, end in union(intervals))


def kineto(path: Path) -> Truth:
    with gzip.open(path, "rt") as file:
        events = json.load(file)["traceEvents"]
    truth = Truth()
    calls = {one["args"].get("correlation"): one for one in events if one.get("cat") in ("cuda_runtime", "cuda_driver")}
    ranges = [one for one in events if one.get("cat") == "user_annotation"]
    for one in ranges:
        truth.wall_ns[_region(one)] += round(one["dur"] * 1000)
    for event in events:
        category = event.get("cat")
        if category == "kernel":
            truth.launches.append(_kineto_launch(event, calls.get(event["args"]["correlation"]), ranges))
        elif category == "gpu_memcpy":
            truth.copies.append((_kineto_kind(event["name"]), _kineto_bytes(event, calls), _interval(event)))
        elif category == "gpu_memset":
            truth.fills.append(_interval(event))
            truth.fill_bytes.append(int(event["args"]["bytes"]))
        elif category == "cuda_sync":
            truth.syncs.append((KINETO_SYNCS[event["name"]], round(event["dur"] * 1000)))
    if not truth.syncs:
        waits = [event for event in events if event["name"] in CALLED_SYNCS]
        truth.syncs = [(CALLED_SYNCS[event["name"]], round(event["dur"] * 1000)) for event in waits]
    return truth


def _kineto_launch(event: dict[str, Any], call: dict[str, Any] | None, ranges: list[dict[str, Any]]) -> Launch:
    start, end = _interval(event)
    launch = Launch(event["name"], start, end - start)
    if call:
        launch.delay_ns = start - round(call["ts"] * 1000)
        around = [
            one
            for one in ranges
            if (one["pid"], one["tid"]) == (call["pid"], call["tid"])
            and one["ts"] <= call["ts"] < one["ts"] + one["dur"]
        ]
        if around:
            launch.region = _region(max(around, key=lambda one: (one["ts"], -one["dur"])))
    return launch


def _region(event: dict[str, Any]) -> str:
    return re.sub(r"#\d+\b", "", event["name"]).strip()[:64].strip()


def _interval(event: dict[str, Any]) -> Interval:
    start = round(event["ts"] * 1000)
    return start, start + round(event["dur"] * 1000)


def _kineto_kind(name: str) -> str:
    if name == "CopyHostToDevice":
        return "h2d"
    return {"HtoD": "h2d", "DtoH": "d2h", "DtoD": "d2d"}[name.split()[1]]


def _kineto_bytes(event: dict[str, Any], calls: dict[Any, Any]) -> int:
    if "bytes" in event["args"]:
        return int(event["args"]["bytes"])
    return int(calls[event["args"]["correlation"]]["args"]["size"])


def nsys(path: Path) -> Truth:
    truth = Truth()
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        for name, start, end, called in database.execute(
            "SELECT value, k.start, k.end, r.start FROM CUPTI_ACTIVITY_KIND_KERNEL k "
            "JOIN StringIds s ON s.id = k.demangledName "
            "LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId"
        ):
            truth.launches.append(Launch(name, start, end - start, start - called))
        for kind, size_bytes, start, end in _rows(database, "MEMCPY", "copyKind, bytes, start, end"):
            truth.copies.append((NSYS_COPIES[kind], size_bytes, (start, end)))
        if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'CUPTI_ACTIVITY_KIND_MEMSET'").fetchone():
            for size_bytes, start, end in _rows(database, "MEMSET", "bytes, start, end"):
                truth.fills.append((start, end))
                truth.fill_bytes.append(size_bytes)
        for call, start, end in database.execute(
            "SELECT value, w.start, w.end FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION w "
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME USING (correlationId) JOIN StringIds s ON s.id = nameId"
        ):
            truth.syncs.append((CALLED_SYNCS[call.partition("_v")[0]], end - start))
    return truth


def _rows(database: sqlite3.Connection, kind: str, columns: str) -> Iterator[Any]:
    return database.execute(f"SELECT {columns} FROM CUPTI_ACTIVITY_KIND_{kind}")  # noqa: S608  our own words

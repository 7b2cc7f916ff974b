"""Saving and restoring the state of a predictor with full histories.

One process fills 100,000 series, saves them as a predictor does, and keeps the newest message of each key in a file, as
the compacted topic does. Another process starts, reads the file and restores. Values are simulated: half of the series
are gauges of whole numbers, half are continuous durations.
"""

import struct
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from benchmarks.predictor.memory.full import (
    INTERVAL_SECONDS,
    PARTITION,
    SERIES,
    FullMemory,
    Stopwatch,
    peak_bytes,
    resident_bytes,
)
from benchmarks.predictor.memory.processes import TimedLock, in_process
from benchmarks.predictor.options import Options

from kernelcast.predictor.engine import Engine
from kernelcast.predictor.series.saved.reader import StateReader
from kernelcast.predictor.settings import NANOSECONDS_PER_SECOND, PredictorSettings

MINUTES: Final = 60
_HEAD: Final = struct.Struct("<II")


def save(series: int, seed: int, path: Path) -> dict[str, Any]:
    """Fill a memory, save it for an hour, write the topic's content to a file."""
    memory = FullMemory(series, seed=seed)
    memory.fill()
    lock = TimedLock()
    memory.engine.states.rows.lock = lock  # type: ignore[assignment]
    topic: dict[str, bytes] = {}
    first = Stopwatch()
    base_bytes = snapshots = 0
    while True:
        base_bytes += _snapshot(memory, topic, pages=True)
        snapshots += 1
        if sum(key.startswith("page") for key in topic) * 48 >= series:
            break
    base = {**first.read(), "bytes": base_bytes, "snapshots": snapshots}
    for _ in range(2):  # the next snapshots write the pages again that hold rows of the last ones
        memory.minute()
        _snapshot(memory, topic)
    lock.held_seconds.clear()
    lock.worked_seconds.clear()
    hour, written = Stopwatch(), []
    for _ in range(MINUTES):
        memory.minute()
        written.append(_snapshot(memory, topic))
    with path.open("wb") as file:
        for key, value in topic.items():
            file.write(_HEAD.pack(len(key), len(value)) + key.encode() + value)
    held, worked = np.array(lock.held_seconds), np.array(lock.worked_seconds)
    return {
        "first": base,
        "hour": hour.read(),
        "bytes_a_minute": float(np.mean(written)),
        "bytes_a_minute_max": max(written),
        "topic_bytes": sum(map(len, topic.values())),
        "messages": len(topic),
        "page_bytes": _size(topic, "page"),
        "added_bytes_a_minute": _size(topic, "added") / (MINUTES + snapshots + 2),
        "lock_held_ms": {"p99": 1e3 * float(np.quantile(held, 0.99)), "max": 1e3 * float(held.max())},
        "lock_worked_ms": {"p99": 1e3 * float(np.quantile(worked, 0.99)), "max": 1e3 * float(worked.max())},
        "check": _check(memory.engine, memory.rows),
    }


def _size(topic: dict[str, bytes], kind: str) -> int:
    return sum(len(value) for key, value in topic.items() if key.startswith(kind))


def _snapshot(memory: FullMemory, topic: dict[str, bytes], *, pages: bool = False) -> int:
    size = 0
    for key, value in memory.engine.save(PARTITION):
        if value is None:
            topic.pop(key, None)
            continue
        topic[key] = value
        size += len(value) if not pages or key.startswith("page") else 0
    return size


def restore(series: int, path: Path) -> dict[str, Any]:
    """Start, read the file, restore."""
    watch = Stopwatch()
    started = time.process_time()
    settings = PredictorSettings(interval_seconds=INTERVAL_SECONDS, max_series=series)
    engine = Engine(settings, clock_ns=time.time_ns)
    empty = resident_bytes()
    state = StateReader()
    for key, value in _messages(path):
        state.put(key, value)
    read = watch.read()
    result = engine.restore_saved(PARTITION, state)
    rows = engine.windows.rows()
    engine.cycle.histories.advance(rows)
    return {
        "start_processor_seconds": round(started, 2),
        "read": read,
        **watch.read(),
        "series": result.series,
        "whole": result.offset is not None,
        "resident_bytes": resident_bytes(),
        "peak_bytes": peak_bytes(),
        "empty_bytes": empty,
        "history_bytes": engine.cycle.histories.nbytes,
        "check": _check(engine, rows),
    }


def _check(engine: Engine, rows: Any) -> float:
    """A number that differs where any value differs."""
    windows = engine.windows
    parts = [windows.latest(rows), windows.last_ns[rows] / NANOSECONDS_PER_SECOND]
    parts += [np.nansum(windows.matrix(rows), axis=1, dtype=np.float64)]
    newest = engine.cycle.histories.newest_block(rows)
    for begin in range(0, len(rows), 4096):
        mean, _ = engine.cycle.histories.blocks(rows[begin : begin + 4096], newest)
        parts += [
            np.nansum(mean, axis=1),
            np.nansum(engine.cycle.histories.hours(rows[begin : begin + 4096], newest), axis=1),
        ]
    return float(sum(float(np.sort(part).sum()) for part in parts))


def _messages(path: Path) -> Iterator[tuple[str, bytes]]:
    with path.open("rb") as file:
        while head := file.read(_HEAD.size):
            key, value = _HEAD.unpack(head)
            yield file.read(key).decode(), file.read(value)


def run(options: Options) -> dict[str, Any]:
    """All figures."""
    series = options.series or SERIES
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        saved = in_process(save, series, options.seed, path)
        restored = in_process(restore, series, path)
    same = bool(np.isclose(saved.pop("check"), restored.pop("check"), rtol=1e-9))
    if not same or restored["series"] != series:
        raise RuntimeError(f"the restored state differs from the saved one: {restored}")
    return {"benchmark": "restart", "series": series, "seed": options.seed, "saved": saved, "restored": restored}


def table(result: dict[str, Any]) -> str:
    """The figures beside their goals."""
    saved, restored = result["saved"], result["restored"]
    start = restored["start_processor_seconds"] + restored["processor_seconds"]
    lines = [
        ("figure", "measured", "goal"),
        ("series", f"{result['series']:,}", ""),
        ("state on Kafka, MB a minute over a day, whole pages included", _mb(saved["bytes_a_minute"]), "10"),
        ("  largest minute, MB", _mb(saved["bytes_a_minute_max"]), ""),
        ("  all series whole, MB", _mb(saved["page_bytes"]), ""),
        ("  additions of a minute, MB", _mb(saved["added_bytes_a_minute"]), ""),
        ("saving, processor seconds a minute (reading a value and condensing included)", _per_minute(saved), ""),
        ("lock held while saving, ms by the clock, p99 / max", _held(saved["lock_held_ms"]), "100"),
        ("  processor time under it, ms, p99 / max", _held(saved["lock_worked_ms"]), ""),
        ("restart to ready, processor seconds (start, read, restore)", f"{start:.1f}", ""),
        ("  the same by the clock", f"{restored['wall_seconds'] + restored['start_processor_seconds']:.1f}", "60"),
        ("  read from the topic, MB", _mb(saved["topic_bytes"]), ""),
        ("resident memory after it, MB", _mb(restored["resident_bytes"]), "1500"),
        ("  largest while restoring, MB", _mb(restored["peak_bytes"]), "1500"),
        ("  blocks and hours, MB", _mb(restored["history_bytes"]), ""),
    ]
    width = max(len(line[0]) for line in lines)
    return "\n".join(f"{name:<{width}}  {figure:>14}  {goal:>6}".rstrip() for name, figure, goal in lines)


def _mb(size: float) -> str:
    return f"{size / 1e6:.2f}" if size < 1e8 else f"{size / 1e6:.0f}"


def _per_minute(saved: dict[str, Any]) -> str:
    return f"{saved['hour']['processor_seconds'] / MINUTES:.2f}"


def _held(held: dict[str, float]) -> str:
    return f"{held['p99']:.1f} / {held['max']:.1f}"

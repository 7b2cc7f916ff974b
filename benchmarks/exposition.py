"""Exposition of many series: ours against `prometheus_client.generate_latest`, on the same series, in the same run.

    python benchmarks/exposition.py --series 1000000 --json exposition.json

Series carry the labels of a DCGM metric, 30 metrics, interleaved by GPU as exporters send them; values are doubles that
need 17 digits. Memory is the growth of the resident set from before the first series to after the last, by series.
"""

import argparse
import gc
import json
import time
from functools import partial
from pathlib import Path

import numpy as np
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kernelcast.bridge.expose.compress import PageCompressor
from kernelcast.bridge.expose.formats import encode, text
from kernelcast.bridge.expose.negotiate import Coding, Format
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.columns import MessageColumns
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.bridge.warm_up import warm_up, warm_up_the_rest
from kernelcast.columnar import Decoded, Decoder, NumberColumns, PointType, SeriesIdentity, Temporality

METRICS = 30
RESOURCE = (("service.instance.id", "bench"), ("service.name", "bench"))
BATCH = 20_000
"""Points of one call of the store, as of a full batch from Kafka."""
PAGE_BYTES = 4096


def labels(number: int) -> dict[str, str]:
    """The labels of a series."""
    gpu = number // METRICS
    return {
        "Hostname": f"node{gpu // 8:05d}",
        "UUID": f"GPU-{gpu:08x}-aaaa-bbbb-cccc-dddddddddddd",
        "device": f"nvidia{gpu % 8}",
        "gpu": str(gpu % 8),
        "modelName": "NVIDIA H200",
    }


def identity(number: int) -> SeriesIdentity:
    """A series as the decoder names it."""
    return SeriesIdentity(
        resource=RESOURCE,
        scope_name="",
        scope_version="",
        name=f"BENCH_METRIC_{number % METRICS}",
        unit="",
        type=PointType.GAUGE,
        temporality=Temporality.UNSPECIFIED,
        monotonic=False,
        attributes=tuple(labels(number).items()),
        description="A metric.",
    )


class Known:
    """The identities of the series, in place of a decoder."""

    @staticmethod
    def identity(number: int) -> SeriesIdentity:
        """A series as the decoder names it."""
        return identity(number)

    @staticmethod
    def forget(numbers: object) -> None:
        """Keep them."""


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def filled_store(values: np.ndarray) -> SeriesStore:
    """A store with one series for each value."""
    store = SeriesStore(SeriesLimits(series=len(values), series_per_metric=len(values)))
    store.expose(0, exposed=True)
    none, source = Decoder().decode([]).histograms, Known()
    origin = MessageColumns(np.zeros(1, np.int32), *(np.ones(1, np.int64) for _ in range(3)))
    for begin in range(0, len(values), BATCH):
        part = values[begin : begin + BATCH]
        n = len(part)
        numbers = NumberColumns(
            np.arange(begin, begin + n, dtype=np.int32),
            np.zeros(n, np.int32),
            np.zeros(n, np.uint64),
            np.ones(n, np.uint64),
            part,
            np.zeros(n, np.int64),
            np.zeros(n, np.uint8),
        )
        store.apply(Decoded(numbers, none, ()), origin, source)
    return store


def best(runs: int, action: object) -> tuple[float, float]:
    """The least wall and CPU seconds of several runs."""
    wall, cpu = [], []
    for _ in range(runs):
        gc.collect()
        began, began_cpu = time.perf_counter(), time.process_time()
        action()  # type: ignore[operator]
        wall.append(time.perf_counter() - began)
        cpu.append(time.process_time() - began_cpu)
    return min(wall), min(cpu)


def peer(values: np.ndarray) -> tuple[float, bytes]:
    """Seconds of CPU that prometheus_client takes for the same series, and its page."""
    registry = CollectorRegistry()
    names = [*labels(0), "job", "instance"]
    gauges = [Gauge(f"BENCH_METRIC_{i}", "A metric.", names, registry=registry) for i in range(METRICS)]
    for number, value in enumerate(values.tolist()):
        gauges[number % METRICS].labels(*labels(number).values(), "bench", "bench").set(value)
    began = time.process_time()
    body = generate_latest(registry)
    return time.process_time() - began, body


def same(ours: bytes, theirs: bytes) -> bool:
    """Whether two pages have the same samples, in any order."""

    def read(body: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        families = text_string_to_metric_families(body.decode())
        return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}

    return read(ours) == read(theirs)


def main() -> None:
    """Measure, print, and write the requested output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--no-peer", action="store_true", help="leave prometheus_client out")
    options = parser.parse_args()
    warm_up()
    warm_up_the_rest()
    values = np.random.default_rng(1).random(options.series) * 100
    before = resident_bytes()
    began = time.perf_counter()
    store = filled_store(values)
    admission_seconds = time.perf_counter() - began
    bytes_per_series = (resident_bytes() - before) / options.series
    body = b"".join(text(store.snapshot()))
    wall, cpu = best(options.runs, lambda: sum(len(chunk) for chunk in text(store.snapshot())))
    snapshot_seconds, _ = best(options.runs, store.snapshot)

    def page(format_: Format, coding: Coding = Coding.IDENTITY) -> int:
        return sum(len(piece) for piece in PageCompressor(coding).pieces(encode(store.snapshot(), format_)))

    others = {
        name: best(options.runs, partial(page, format_, coding))
        for name, format_, coding in (
            ("openmetrics", Format.OPENMETRICS, Coding.IDENTITY),
            ("protobuf", Format.PROTOBUF, Coding.IDENTITY),
            ("text_gzip", Format.TEXT, Coding.GZIP),
            ("text_zstd", Format.TEXT, Coding.ZSTD),
            ("protobuf_zstd", Format.PROTOBUF, Coding.ZSTD),
        )
    }
    figures: dict[str, float] = {
        "series": options.series,
        "body_bytes": len(body),
        "exposition_seconds": wall,
        "exposition_cpu_seconds": cpu,
        "exposition_seconds_per_million": wall * 1e6 / options.series,
        "locked_seconds": snapshot_seconds,
        "gzip_bytes": page(Format.TEXT, Coding.GZIP),
        "zstd_bytes": page(Format.TEXT, Coding.ZSTD),
        "protobuf_bytes": page(Format.PROTOBUF),
        "admission_seconds": admission_seconds,
        "store_bytes_per_series": bytes_per_series,
    }
    for name, (wall_seconds, cpu_seconds) in others.items():
        figures |= {f"{name}_seconds": wall_seconds, f"{name}_cpu_seconds": cpu_seconds}
    if not options.no_peer:
        seconds, theirs = peer(values)
        figures |= {"prometheus_client_cpu_seconds": seconds, "times_faster": seconds / cpu}
        if options.series <= 100_000:
            figures["same_content"] = same(body, theirs)
    for name, value in figures.items():
        print(f"{name:34} {value:,.4g}")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()

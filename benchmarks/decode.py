"""OTLP decoding: kernelcast's columnar decoder against walking protobuf's objects in Python, in one run on one core.

    python benchmarks/decode.py [--json FILE]

Messages as a node sends them: 240 points (30 metrics of 8 GPUs) with 5 attributes each, 100 nodes, several ticks; the
series are known already, as they are in a consumer that has run for a minute. Warm-up and compilation are not in the
points per second; the time to compile is measured in a fresh interpreter, with an empty cache and with a full one.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from kernelcast.columnar import Decoder

NODES = 100
METRICS = 30
GPUS = 8
POINTS = NODES * METRICS * GPUS
REPEATS = 9
"""Runs of each case; the best one counts."""

COMPILE = "import time; from kernelcast.columnar import Decoder; t = time.perf_counter(); Decoder.warm_up(); "
"""Program of a fresh interpreter that prints the seconds of its warm-up."""
COMPILE += "print(time.perf_counter() - t)"


def key_value(key: str, value: str) -> KeyValue:
    """A text attribute."""
    return KeyValue(key=key, value=AnyValue(string_value=value))


def message(node: int, tick: int, rng: random.Random, extra: int = 0) -> bytes:
    """One node's export at one tick: METRICS x GPUS points of 5 + extra attributes."""
    request = ExportMetricsServiceRequest()
    resource = request.resource_metrics.add()
    resource.resource.attributes.extend(
        [key_value("host.name", f"node{node:04d}"), key_value("service.name", "kernelcast-exporter")]
    )
    scope = resource.scope_metrics.add()
    scope.scope.name = "kernelcast.nvml"
    for number in range(METRICS):
        metric = scope.metrics.add(name=f"DCGM_FI_DEV_METRIC_{number}")
        for gpu in range(GPUS):
            point = metric.gauge.data_points.add(
                time_unix_nano=1_700_000_000_000_000_000 + tick * 10**9, as_double=rng.random() * 100
            )
            point.attributes.extend(
                [
                    key_value("gpu", str(gpu)),
                    key_value("UUID", f"GPU-node{node:04d}-{gpu:08x}-aaaa-bbbb"),
                    key_value("device", f"nvidia{gpu}"),
                    key_value("modelName", "NVIDIA H200"),
                    key_value("pci_bus_id", f"00000000:{gpu:02x}:00.0"),
                    *(key_value(f"label_{i}", f"value-{i}") for i in range(extra)),
                ]
            )
    return request.SerializeToString()


def walk_objects(messages: list[bytes]) -> int:
    """The peer: protobuf's objects, each point to a series key, time and value."""
    state = {}
    for body in messages:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            who = tuple((item.key, item.value.string_value) for item in resource.resource.attributes)
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.gauge.data_points:
                        labels = tuple((item.key, item.value.string_value) for item in point.attributes)
                        state[who, metric.name, labels] = (point.time_unix_nano, point.as_double)
    return len(state)


def parse_only(messages: list[bytes]) -> int:
    """Cost of protobuf's C parser alone, without reading a point."""
    return sum(len(ExportMetricsServiceRequest.FromString(body).resource_metrics) for body in messages)


def points_per_second(run: Callable[[int], object], repeats: int) -> float:
    """The best of several runs, each over the next tick's messages, so that no run sees the bytes of the one before."""
    best = float("inf")
    for tick in range(repeats):
        started = time.perf_counter()
        run(tick)
        best = min(best, time.perf_counter() - started)
    return POINTS / best


def compile_seconds() -> tuple[float, float]:
    """Seconds to warm up in a fresh interpreter: with an empty cache, and with the one that left."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        cold, cached = (
            float(
                subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, check=True).stdout
            )
            for _ in range(2)
        )
    return cold, cached


def resident_kilobytes() -> int:
    """The resident set of this process, as the kernel has it."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS:")))


def identity_bytes_per_series(nodes: int = 2000) -> float:
    """Memory of the decoder per known series, by the growth of the resident set."""
    rng = random.Random(1)
    bodies = [message(node, 0, rng) for node in range(nodes)]
    decoder = Decoder()
    before = resident_kilobytes()
    for body in bodies:
        decoder.decode([body])
    return (resident_kilobytes() - before) * 1024 / (nodes * METRICS * GPUS)


def measure() -> dict[str, float]:
    """Every figure, by name with its unit."""
    Decoder.warm_up()
    identity_bytes = identity_bytes_per_series()
    rng = random.Random(0)
    ticks = [[message(node, tick, rng) for node in range(NODES)] for tick in range(REPEATS)]
    decoder = Decoder()
    started = time.perf_counter()
    first = decoder.decode(ticks[0])
    new_series = POINTS / (time.perf_counter() - started)
    assert len(first.numbers.series) == POINTS
    assert first.failures == ()
    batch = points_per_second(lambda tick: decoder.decode(ticks[tick]), REPEATS)
    single = points_per_second(lambda tick: [decoder.decode([body]) for body in ticks[tick]], REPEATS)
    shuffled = [rng.sample(bodies, len(bodies)) for bodies in ticks]
    mixed = points_per_second(lambda tick: decoder.decode(shuffled[tick]), REPEATS)
    wide = [[message(node, tick, rng, extra=3) for node in range(NODES)] for tick in range(2)]
    decoder.decode(wide[0])
    eight = points_per_second(lambda tick: decoder.decode(wide[tick % 2]), REPEATS)
    objects = points_per_second(lambda tick: walk_objects(ticks[tick]), 3)
    parsed = points_per_second(lambda tick: parse_only(ticks[tick]), REPEATS)
    cold, cached = compile_seconds()
    return {
        "columnar_points_per_second": batch,
        "columnar_8_attributes_points_per_second": eight,
        "columnar_shuffled_messages_points_per_second": mixed,
        "columnar_one_message_a_call_points_per_second": single,
        "columnar_new_series_points_per_second": new_series,
        "protobuf_parse_only_points_per_second": parsed,
        "protobuf_walk_points_per_second": objects,
        "ratio": batch / objects,
        "message_bytes": float(len(ticks[0][0])),
        "columnar_megabytes_per_second": batch / POINTS * sum(map(len, ticks[0])) / 1e6,
        "identity_bytes_per_series": identity_bytes,
        "compile_cold_seconds": cold,
        "compile_cached_seconds": cached,
    }


def main() -> None:
    """Measure, print a table, write JSON if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    figures = measure()
    print(f"Python {platform.python_version()}, {platform.machine()}, {POINTS} points in {NODES} messages")
    for name, value in figures.items():
        print(f"{name.replace('_', ' '):46} {value:14,.2f}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()

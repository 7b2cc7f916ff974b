"""Resident memory of a million series in decoder and store, and the time until they are read.

    python benchmarks/memory.py --series 1000000 --json memory.json

Each series has 8 labels, those of a DCGM metric in a Kubernetes cluster, the same for all metrics of a GPU; 240 come in
one message, through the decoder into the store as in the bridge. Memory is the growth of the resident set from before
the first message is decoded to after the last, by series. `labels_bytes` is the length of a series' labels on
`/metrics`.
"""

import argparse
import gc
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.tables.columns import MessageColumns
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.bridge.warm_up import warm_up, warm_up_the_rest
from kernelcast.columnar import Decoder, Resource, Sample, encode
from kernelcast.wire.catalogue import Kind, Metric

METRICS, GPUS = 30, 8
MESSAGES_AT_ONCE = 200
PAGE_BYTES = 4096
BENCH_METRICS = [Metric(f"BENCH_{number}", Kind.GAUGE, "A metric.", f"BENCH_{number}") for number in range(METRICS)]


def node_message(node: int, time_ns: int) -> bytes:
    """The message of one node: 240 points of 8 labels."""
    host = f"node{node:05d}"
    labels = [
        (
            ("Hostname", host),
            ("UUID", f"GPU-{node * GPUS + gpu:08x}-aaaa-bbbb-cccc-dddddddddddd"),
            ("device", f"nvidia{gpu}"),
            ("gpu", str(gpu)),
            ("modelName", "NVIDIA H200"),
            ("namespace", "training"),
            ("pci_bus_id", f"00000000:{gpu:02X}:00.0"),
            ("pod", f"train-{node:05d}-{gpu}"),
        )
        for gpu in range(GPUS)
    ]
    samples = [
        Sample(metric, labels[gpu], time_ns, gpu / 7 + number / 13)
        for number, metric in enumerate(BENCH_METRICS)
        for gpu in range(GPUS)
    ]
    resource = Resource((("service.instance.id", host), ("service.name", "bench")))
    [export] = encode(resource, samples, scope="bench")
    return export.body


def resident_bytes() -> int:
    """Resident memory of this process."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def store_messages(decoder: Decoder, store: SeriesStore, bodies: Sequence[bytes], offset: int) -> float:
    """Decode and store messages with one offset; returns processor seconds."""
    began = time.process_time()
    for first in range(0, len(bodies), MESSAGES_AT_ONCE):
        batch = bodies[first : first + MESSAGES_AT_ONCE]
        origins = MessageColumns(
            partition=np.zeros(len(batch), np.int32),
            offset=np.full(len(batch), offset),
            append_ms=np.full(len(batch), 1_000 + offset),
            key_hash=np.ones(len(batch), np.int64),
        )
        store.apply(decoder.decode(batch), origins, decoder)
    return time.process_time() - began


def main() -> None:
    """Measure, print, and write the requested output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warm_up()
    warm_up_the_rest()
    nodes = -(-options.series // (METRICS * GPUS))
    decoder, store = Decoder(), SeriesStore(SeriesLimits(10_000_000, 10_000_000, 10_000_000))
    store.expose(0, exposed=True)
    bodies = [node_message(node, 10**9) for node in range(nodes)]
    resident_before = resident_bytes()
    arrival_seconds = store_messages(decoder, store, bodies, 0)
    series_bytes = resident_bytes() - resident_before
    known_seconds = store_messages(decoder, store, bodies, 1)
    lengths = store.snapshot().layout.label_length
    series = len(lengths)
    figures: dict[str, float] = {
        "series": series,
        "labels_bytes": float(lengths.mean()),
        "bytes_per_series": series_bytes / series,
        "arrival_microseconds_per_series": arrival_seconds / series * 1e6,
        "known_microseconds_per_point": known_seconds / series * 1e6,
    }
    for name, value in figures.items():
        print(f"{name:34} {value:,.4g}")
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()

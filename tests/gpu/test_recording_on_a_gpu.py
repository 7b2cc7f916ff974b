"""A recording of the real NVML is played as NVML answered."""

import time
from pathlib import Path
from typing import Any

from kernelcast.exporter.nvml.recorded import open_recording
from kernelcast.exporter.nvml.recordings.record import record
from kernelcast.exporter.nvml.recordings.recording import write
from kernelcast.exporter.nvml.sampling.fields import ROWS
from kernelcast.exporter.nvml.sampling.sampler import Sampler, SamplerOptions

SECOND_NS = 1_000_000_000
EVERYTHING = SamplerOptions(rows=tuple(ROWS))


def rows(sampler: Sampler) -> dict[tuple[str, str], tuple[set[str], dict[str, str]]]:
    """The rows with a value by GPU and instance, and the reasons for the absent ones."""
    for second in (1, 2):
        made = sampler.sample(second * SECOND_NS)
        # GPM compares two looks, which must not be too near to each other.
        time.sleep(0.5)
    sampler.close()
    assert made.errors == ()
    return {(gpu.uuid, gpu.gi_id): (set(gpu.values), dict(gpu.absent)) for gpu in made.gpus}


def test_the_recording_has_the_same_gpus_and_rows(nvml: Any, tmp_path: Path) -> None:
    path = tmp_path / "node.jsonl.gz"
    assert write(path, record(nvml, seconds=2, interval_seconds=0.5, options=EVERYTHING)) == 4
    assert rows(Sampler(open_recording(str(path)), EVERYTHING).start()) == rows(Sampler(nvml, EVERYTHING).start())

"""Every alert over every recorded GPU and class of GPUs, in promtool: which fire for one that reports all the time.

The captures and the H100's recording are in `../shared/data`; those that are absent are left out, the classes never.
"""

import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.service.require import binary
from tests.support.exporter.gpu_classes import FAILING, GPU_CLASSES
from tests.unit.grafana.queries import REPOSITORY, run

from kernelcast.exporter.exposition import render
from kernelcast.exporter.nvml.devices import KnownGpus
from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.recordings.any_format import read_any
from kernelcast.exporter.nvml.recordings.recording import Recording
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.grafana import rules

pytestmark = pytest.mark.service

SHARED = Path(os.environ.get("KERNELCAST_SHARED_DATA", REPOSITORY.parent / "shared" / "data"))
SECOND_NS = 1_000_000_000
STARTS_NS = 1_760_000_000 * SECOND_NS
EVERY_SECONDS = 60
MINUTES = 45
"""Longer than any alert waits about a GPU that reports, but for the power cap's and the idle owner's hours."""


def recorded(directory: Path) -> Iterator[tuple[str, Recording]]:
    """Every GPU: its name, and what NVML said of it."""
    for name, text in {**GPU_CLASSES, "failing": FAILING}.items():
        path = directory / "smi.txt"
        path.write_text(text)
        yield name, read_any(path)
    for path in sorted((SHARED / "nvidia-smi").glob("*.txt")):
        yield path.stem, read_any(path)
    h100 = SHARED / "gpu/h100-2026-11-27"
    if h100.exists():
        yield "h100", read_any(h100 / "h100.jsonl.gz")
        with tarfile.open(h100 / "captures.tar.gz") as archive:
            archive.extractall(directory, filter="data")
    for path in sorted(directory.glob("captures/*.txt")):
        yield f"h100 {path.stem}", read_any(path)


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def series_of(name: str, recording: Recording) -> dict[str, list[str]]:
    """What the exporter shows of a GPU, once a minute; its recording is played round and round."""
    clock, values = Clock(), dict[str, list[str]]()
    source = NvmlSource(Sampler(RecordedNvml(recording, clock=clock)), hostname=name, boot_ns=STARTS_NS)
    known = KnownGpus(source.start(), lambda: True)
    for minute in range(MINUTES + 1):
        clock.now_ns = minute * EVERY_SECONDS * SECOND_NS
        shown = {}
        for line in render(known.poll(STARTS_NS + clock.now_ns).samples).decode().splitlines():
            if not line.startswith("#"):
                series, _, value = line.rpartition(" ")
                shown[series[:-1] + ',job="kernelcast-exporter",instance="x:9400"}'] = value
        for series in values.keys() | shown.keys():
            before = values.setdefault(series, ["_"] * minute)
            before.append(shown.get(series, "stale" if before and before[-1] not in ("_", "stale") else "_"))
    known.close()
    return values


@pytest.fixture(scope="module")
def fired(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, set[str]]:
    """The alerts about each GPU that fire at the end, by its name."""
    directory = tmp_path_factory.mktemp("gpus")
    series: dict[str, str] = {}
    names = []
    for name, recording in recorded(directory):
        names.append(name)
        series |= {one: " ".join(values) for one, values in series_of(name, recording).items()}
    # promtool prints what it found where nothing was expected; a GPU's alert always names its node.
    case = {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "promql_expr_test": [
            {"expr": f'count(ALERTS{{alertstate="firing", Hostname="{name}", alertname="{alert.name}"}})',
             "eval_time": f"{MINUTES}m", "exp_samples": []}
            for name in names for alert in rules.alerts(rules.PRODUCTION)
        ],
    }  # fmt: skip
    files = (rules.ALERTS_FILE, rules.CLASSIC_FILE)
    for file in files:
        (directory / file).write_text(json.dumps(yaml.load(rules.render(rules.PRODUCTION)[file], yaml.CSafeLoader)))
    document: dict[str, Any] = {"rule_files": list(files), "evaluation_interval": "1m", "tests": [case]}
    (directory / "test.yaml").write_text(json.dumps(document))
    output = failures(directory / "test.yaml")
    return {
        name: {
            alert.name
            for alert in rules.alerts(rules.PRODUCTION)
            if f'Hostname="{name}", alertname="{alert.name}"' in output
        }
        for name in names
    }


def failures(file: Path) -> str:
    """What promtool says of the expectations that do not hold; empty if all do."""
    try:
        run(binary("promtool", "prometheus"), "test", "rules", file)
    except AssertionError as error:
        return str(error).replace('\\"', '"')
    return ""


def test_no_rule_fires_for_a_gpu_only_because_it_lacks_rows(fired: Mapping[str, set[str]]) -> None:
    assert fired.keys() >= GPU_CLASSES.keys()
    assert {name: alerts for name, alerts in fired.items() if alerts} == {"failing": {"KernelcastGpuRowsUnreadable"}}

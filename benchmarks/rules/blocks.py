"""The blocks of a simulated fleet, which promtool makes of text, a few nodes at a time."""

import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.rules.fleet import EVERY_SECONDS, GPUS_OF_A_NODE, Template, on_node, templates, write, write_yesterday
from tests.service.require import binary
from tests.service.servers import PrometheusServer, stopping, wait_for
from tests.support.exporter.simulated_series import name_of

from kernelcast.grafana.rules.recording import KERNEL_MEAN

_BLOCK_SECONDS: Final = 2 * 3600
"""Prometheus's blocks begin at multiples of this."""
_NODES_AT_ONCE: Final = 25
"""promtool holds the series of all nodes that it is given in memory: 12 KiB each."""
_MERGED_SECONDS: Final = 1800
_META: Final = "fleet.json"


@dataclass(frozen=True, slots=True)
class Blocks:
    """A fleet in blocks.

    Attributes:
        directory: Folder of the blocks.
        end: The newest sample, Unix seconds.
        series: Series of the last minutes.
        series_of_a_gpu: Series that an exporter writes for each GPU; those that nothing asks for are not in blocks.
        of: What the blocks were made for.
    """

    directory: Path
    end: int
    series: int
    series_of_a_gpu: float
    of: dict[str, Any]


def promtool(*arguments: str) -> None:
    """Run a command of `promtool tsdb`."""
    subprocess.run([binary("promtool", "prometheus"), "tsdb", *arguments], check=True, capture_output=True)


def built(directory: Path, names: Collection[str], of: dict[str, Any]) -> Blocks:
    """The blocks of a fleet: those in the directory where there are any, else new ones.

    Args:
        directory: Folder of the blocks.
        names: Metrics that are written; further series are only counted.
        of: Size of the fleet, and what is written.

    Raises:
        SystemExit: The directory has the blocks of another fleet.
    """
    meta = directory / _META
    if not meta.exists():
        return _build(directory, names, of)
    known = json.loads(meta.read_text())
    if known["of"] != of:
        raise SystemExit(f"{directory} has the blocks of another fleet, {known['of']}; choose another --tsdb")
    return Blocks(directory / "tsdb", **known)


def _build(directory: Path, names: Collection[str], of: dict[str, Any]) -> Blocks:
    every = templates(of["kernels"], of["detailed"])
    made = [one for one in every if name_of(one.series) in names]
    # Ten minutes within one block of Prometheus.
    end = int(time.time()) // _BLOCK_SECONDS * _BLOCK_SECONDS - EVERY_SECONDS
    tsdb, text = directory / "tsdb", directory / "series.om"
    tsdb.mkdir(parents=True)
    nodes = range(of["gpus"] // GPUS_OF_A_NODE)
    series = 0
    for first in nodes[::_NODES_AT_ONCE]:
        series += write(text, made, nodes[first : first + _NODES_AT_ONCE], end)
        _into_blocks(text, tsdb)
        sys.stderr.write(f"{series} series\n")
    write_yesterday(text, _means(made, nodes, of["share"]), end)
    _into_blocks(text, tsdb)
    _merge(directory)
    made_now = Blocks(tsdb, end, series, len(every) / GPUS_OF_A_NODE, of)
    kept = {name: value for name, value in asdict(made_now).items() if name != "directory"}
    (directory / _META).write_text(json.dumps(kept))
    return made_now


def _into_blocks(text: Path, tsdb: Path) -> None:
    promtool("create-blocks-from", "openmetrics", str(text), str(tsdb))
    text.unlink()


def _merge(directory: Path) -> None:
    """Let Prometheus make one block of those of the same time, as each query would otherwise merge them."""
    configuration = directory / "prometheus.yaml"
    configuration.write_text("scrape_configs: []\n")
    server = PrometheusServer(directory, configuration, options=("--storage.tsdb.retention.time=100y",))
    with stopping(server):
        server.run()
        wait_for("merged blocks", lambda: max(Counter(_starts(directory)).values()) == 1, _MERGED_SECONDS)
    for other in (directory / "tsdb").iterdir():
        if not (other / "meta.json").exists():
            shutil.rmtree(other) if other.is_dir() else other.unlink()


def _starts(directory: Path) -> Iterator[int]:
    """Start of the range of each block, milliseconds."""
    for file in (directory / "tsdb").glob("*/meta.json"):
        first: int = json.loads(file.read_text())["minTime"]
        yield first // (_BLOCK_SECONDS * 1000)


def _means(made: Sequence[Template], nodes: range, least: float) -> Iterator[tuple[str, float]]:
    """The recorded mean of each kernel with at least a share of its program's time."""
    counts = {_labels(one): one.rate for one in made if name_of(one.series) == "cuda_kernel_duration_seconds_count"}
    sums = {_labels(one): one.rate for one in made if name_of(one.series) == "cuda_kernel_duration_seconds_sum"}
    every: dict[str, float] = {}
    for labels, rate in sums.items():
        every[_program(labels)] = every.get(_program(labels), 0.0) + rate
    for node in nodes:
        for labels, rate in sums.items():
            if rate > 0 and rate >= least * every[_program(labels)]:
                yield f"{KERNEL_MEAN}{{{on_node(labels, node, made)}", rate / counts[labels]


def _labels(template: Template) -> str:
    return template.series.partition("{")[2]


def _program(labels: str) -> str:
    return re.sub(r',kernel="[^"]*"|,kernel_class="[^"]*"', "", labels)

"""Writes the blocks of a simulated fleet: promtool converts OpenMetrics text to blocks, a few nodes at a time."""

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

from benchmarks.rules.fleet import (
    EVERY_SECONDS,
    GPUS_OF_A_NODE,
    YESTERDAY,
    YESTERDAYS_SERIES,
    Template,
    hour_before,
    on_node,
    present,
    scraped,
    templates,
    write,
    write_constant,
)
from tests.service.require import binary
from tests.service.servers import PrometheusServer, stopping, wait_for
from tests.support.exporter.simulated_series import name_of

from kernelcast.grafana.rules.recording import KERNEL_MEAN

_BLOCK_SECONDS: Final = 2 * 3600
"""Prometheus's blocks begin at multiples of this."""
_NODES_AT_ONCE: Final = 25
"""promtool has the series of all these nodes in memory: 12 KiB each."""
_MERGE_TIMEOUT_SECONDS: Final = 1800
_META: Final = "fleet.json"


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of a fleet.

    Attributes:
        directory: Folder of the blocks.
        end: Time of the newest sample, Unix seconds.
        series: Number of series in the last minutes.
        series_of_a_gpu: Series that an exporter writes for each GPU; those that no query names are not in the blocks.
        options: Options that the blocks were written with.
    """

    directory: Path
    end: int
    series: int
    series_of_a_gpu: float
    options: dict[str, Any]


def promtool(*arguments: str) -> None:
    """Run a command of `promtool tsdb`."""
    subprocess.run([binary("promtool", "prometheus"), "tsdb", *arguments], check=True, capture_output=True)


def built(directory: Path, metrics: Collection[str], options: dict[str, Any]) -> Blocks:
    """Return the blocks of a fleet: those in the directory if it has any, else new ones.

    Args:
        directory: Folder of the blocks.
        metrics: Names of the metrics that are written; further series are only counted.
        options: `gpus`, `kernels`, `detailed` and `share` of the command, and further ones that decide what is written.

    Raises:
        SystemExit: The directory has the blocks of another fleet.
    """
    meta = directory / _META
    if not meta.exists():
        return _build(directory, metrics, options)
    stored = json.loads(meta.read_text())
    if stored.get("options") != options:
        raise SystemExit(f"{directory} has the blocks of another fleet, {stored}; choose another --tsdb")
    return Blocks(directory / "tsdb", **stored)


def _build(directory: Path, metrics: Collection[str], options: dict[str, Any]) -> Blocks:
    exported = templates(options["kernels"], options["detailed"])
    written = [template for template in exported if name_of(template.series) in metrics]
    # The last ten minutes are within one block of Prometheus.
    end = int(time.time()) // _BLOCK_SECONDS * _BLOCK_SECONDS - EVERY_SECONDS
    tsdb, text = directory / "tsdb", directory / "series.om"
    tsdb.mkdir(parents=True)
    nodes = range(options["gpus"] // GPUS_OF_A_NODE)
    series = 0
    for first in nodes[::_NODES_AT_ONCE]:
        some = nodes[first : first + _NODES_AT_ONCE]
        series += write(text, written, some, end)
        _into_blocks(text, tsdb)
        write_constant(text, _same_work(written, some), present(end - YESTERDAY))
        _into_blocks(text, tsdb)
        sys.stderr.write(f"{series} series\n")
    write_constant(text, _kernel_means(written, nodes, options["share"]), hour_before(end))
    _into_blocks(text, tsdb)
    _merge(directory)
    blocks = Blocks(tsdb, end, series, len(exported) / GPUS_OF_A_NODE, options)
    stored = {name: value for name, value in asdict(blocks).items() if name != "directory"}
    (directory / _META).write_text(json.dumps(stored))
    return blocks


def _into_blocks(text: Path, tsdb: Path) -> None:
    promtool("create-blocks-from", "openmetrics", str(text), str(tsdb))
    text.unlink()


def _merge(directory: Path) -> None:
    """Let Prometheus compact the blocks of the same time into one, because each query would otherwise merge them."""
    configuration = directory / "prometheus.yaml"
    configuration.write_text("scrape_configs: []\n")
    server = PrometheusServer(directory, configuration, options=("--storage.tsdb.retention.time=100y",))
    with stopping(server):
        server.run()
        wait_for("merged blocks", lambda: max(Counter(_starts(directory)).values()) == 1, _MERGE_TIMEOUT_SECONDS)
    for path in (directory / "tsdb").iterdir():
        if not (path / "meta.json").exists():  # it is no block, but the server's log or lock
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _starts(directory: Path) -> Iterator[int]:
    """Yield the number of the range of each block: its start, in lengths of a block."""
    for file in (directory / "tsdb").glob("*/meta.json"):
        start_ms: int = json.loads(file.read_text())["minTime"]
        yield start_ms // (_BLOCK_SECONDS * 1000)


def _kernel_means(node_templates: Sequence[Template], nodes: range, least_share: float) -> Iterator[tuple[str, float]]:
    """Yield the recorded mean duration of each kernel with at least a share of its program's time, by series."""
    counts = _rates(node_templates, "cuda_kernel_duration_seconds_count")
    sums = _rates(node_templates, "cuda_kernel_duration_seconds_sum")
    totals: dict[str, float] = {}
    for labels, rate in sums.items():
        totals[_program_labels(labels)] = totals.get(_program_labels(labels), 0.0) + rate
    for node in nodes:
        for labels, rate in sums.items():
            if rate > 0 and rate >= least_share * totals[_program_labels(labels)]:
                yield f"{KERNEL_MEAN}{{{on_node(labels, node, node_templates)}", rate / counts[labels]


def _same_work(node_templates: Sequence[Template], nodes: Sequence[int]) -> Iterator[tuple[str, float]]:
    """Yield what the programs of some nodes run on and how they launch their kernels, by series."""
    for node in nodes:
        for template in node_templates:
            if name_of(template.series) in YESTERDAYS_SERIES:
                yield scraped(template, node, node_templates), template.value


def _rates(node_templates: Sequence[Template], metric: str) -> dict[str, float]:
    """Return the rates of a metric's series by their labels."""
    return {
        template.series.partition("{")[2]: template.rate
        for template in node_templates
        if name_of(template.series) == metric
    }


def _program_labels(labels: str) -> str:
    """Return a kernel's labels without those of the kernel itself."""
    return re.sub(r',kernel="[^"]*"|,kernel_class="[^"]*"', "", labels)

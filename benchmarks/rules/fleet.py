"""Writes the series of a large fleet as OpenMetrics text: the exporter's page of one simulated node, for many nodes."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.exporter.simulated_series import SECOND_NS, Unpublished, host_of

from kernelcast.exporter.exposition import render
from kernelcast.exporter.pipeline import Pipeline
from kernelcast.exporter.simulate import SimulatedFleet, SimulationSettings
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.grafana.rules.recording import EXPORTER_JOB
from kernelcast.wire.catalogue import bridge, kernel

GPUS_OF_A_NODE: Final = 8
EVERY_SECONDS: Final = 30
MINUTES: Final = 10
"""Length of the present that every series has."""
YESTERDAY: Final = 86_400
YESTERDAY_MINUTES: Final = 60
YESTERDAYS_SERIES: Final = (kernel.KERNEL_INFO.prometheus_name, kernel.PROGRAM_INFO.prometheus_name)
"""Metrics of which rules ask whether they were the same a day before: a baseline is of the same work."""
_BRIDGES: Final = 2


@dataclass(frozen=True, slots=True)
class Template:
    """A series of the first node: its value, and by how much the value rises in a second."""

    series: str
    value: float
    rate: float


def present(end: int) -> range:
    """Return the times of the last minutes before a time, Unix seconds."""
    return range(end - MINUTES * 60, end + 1, EVERY_SECONDS)


def hour_before(end: int) -> range:
    """Return the times of an hour of the day before, and of the minutes that rules with an offset of a day read."""
    return range(end - YESTERDAY - YESTERDAY_MINUTES * 60, end - YESTERDAY + MINUTES * 60, EVERY_SECONDS)


def templates(kernels: int, detailed: int) -> list[Template]:
    """Return the series of one node's exporter.

    Args:
        kernels: Kernels of each program; each has series of its own.
        detailed: Number of kernels with histogram buckets.
    """
    settings = SimulationSettings(nodes=1, gpus=GPUS_OF_A_NODE, kernels=kernels, rate=2000.0, step_seconds=5.0)
    start_ns = 1_760_000_000 * SECOND_NS
    pipeline = Pipeline(
        [SimulatedFleet(settings, start_ns=start_ns)],
        Aggregator(max_kernels=kernels, detailed_kernels=detailed),
        Unpublished(),  # type: ignore[arg-type]
    )
    seconds = 60
    pages = []
    for moment in (1, 2):
        tick = pipeline.tick(start_ns + moment * seconds * SECOND_NS)
        samples = [*tick.devices, *(sample for group in tick.programs for sample in group.samples)]
        pages.append(dict(_lines(render(samples).decode())))
    before, now = pages
    return [
        Template(series, value, max(0.0, value - before.get(series, value)) / seconds) for series, value in now.items()
    ]


def _lines(page: str) -> Iterator[tuple[str, float]]:
    for text in page.splitlines():
        if not text.startswith("#"):
            series, _, value = text.rpartition(" ")
            yield series, float(value)


def write(path: Path, node_templates: Sequence[Template], nodes: Sequence[int], end: int) -> int:
    """Write the last minutes of some nodes; returns the number of series.

    Args:
        path: File to write.
        node_templates: Series of a node.
        nodes: Numbers of the nodes.
        end: End of the minutes, Unix seconds.
    """
    times = present(end)
    count = 0
    with path.open("w") as file:
        for node in nodes:
            for template in node_templates:
                series = scraped(template, node, node_templates)
                values = ((template.value + template.rate * (time - times.start), time) for time in times)
                file.writelines(f"{series} {value:.9g} {time}\n" for value, time in values)
                count += 1
            up = f'{bridge.PRODUCER_UP.prometheus_name}{{job="{EXPORTER_JOB}",instance="{host(node)}"}}'
            file.writelines(f"{up} 1 {time}\n" for time in times)
            count += 1
        if 0 in nodes:
            for number in range(_BRIDGES):
                up = f'up{{job="kernelcast-bridge",instance="bridge-{number}:19401"}}'
                file.writelines(f"{up} 1 {time}\n" for time in times)
                count += 1
        file.write("# EOF\n")
    return count


def scraped(template: Template, node: int, node_templates: Sequence[Template]) -> str:
    """Return a series of a node as Prometheus stores it."""
    return f'{on_node(template.series, node, node_templates)[:-1]},instance="{host(node)}"}}'


def on_node(series: str, node: int, node_templates: Sequence[Template]) -> str:
    """Return a series of the first node with the names of another node, and with the label `job` of exporters."""
    # UUIDs of simulated GPUs begin with the number of their node; names of programs end with it.
    renamed = series.replace(host_of(node_templates[0].series), host(node)).replace("GPU-", f"GPU-{node:04d}-")
    return f'{renamed.replace("sim-train-0", program_of(node))[:-1]},job="{EXPORTER_JOB}"}}'


def program_of(node: int) -> str:
    """Return the name of the program on a node."""
    return f"train-{node:04d}"


def write_constant(path: Path, values: Iterable[tuple[str, float]], times: Sequence[int]) -> None:
    """Write series that have one value at all times."""
    with path.open("w") as file:
        for series, value in values:
            file.writelines(f"{series} {value:.9g} {time}\n" for time in times)
        file.write("# EOF\n")


def host(node: int) -> str:
    """Return the name of a node."""
    return f"node-{node:04d}"

"""The series of a large fleet as OpenMetrics text: what simulated GPUs of one node wrote, for many nodes."""

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
from kernelcast.wire.catalogue import bridge

GPUS_OF_A_NODE: Final = 8
EVERY_SECONDS: Final = 30
MINUTES: Final = 10
"""Length of the present that every series has."""
YESTERDAY: Final = 86_400
YESTERDAY_MINUTES: Final = 60
_BRIDGES: Final = 2


@dataclass(frozen=True, slots=True)
class Template:
    """One series of the first node: its value, and by how much that rises a second."""

    series: str
    value: float
    rate: float


def present(end: int) -> range:
    """Times of the last minutes before a moment."""
    return range(end - MINUTES * 60, end + 1, EVERY_SECONDS)


def yesterday(end: int) -> range:
    """Times of the day before, as the rules look back at them for some minutes after the moment."""
    return range(end - YESTERDAY - YESTERDAY_MINUTES * 60, end - YESTERDAY + MINUTES * 60, EVERY_SECONDS)


def templates(kernels: int, detailed: int) -> list[Template]:
    """Every series of one node.

    Args:
        kernels: Kernels of each program, which all have series of their own.
        detailed: How many of them have histogram buckets.
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
        samples = [*tick.devices, *(one for group in tick.programs for one in group.samples)]
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


def write(path: Path, made: Sequence[Template], nodes: Sequence[int], end: int) -> int:
    """Write the last minutes before a moment for some nodes; returns the number of series.

    Args:
        path: File to write.
        made: Series of a node.
        nodes: Their numbers.
        end: The moment, Unix seconds.
    """
    times = present(end)
    count = 0
    with path.open("w") as file:
        for node in nodes:
            for one in made:
                series = f'{on_node(one.series, node, made)[:-1]},instance="{host(node)}"}}'
                values = ((one.value + one.rate * (time - times.start), time) for time in times)
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


def on_node(series: str, node: int, made: Sequence[Template]) -> str:
    """A series of the first node as another node has it, of the exporters' job."""
    # UUIDs of simulated GPUs begin with the number of their node, and so do names of programs end.
    named = series.replace(host_of(made[0].series), host(node)).replace("GPU-", f"GPU-{node:04d}-")
    return f'{named.replace("sim-train-0", program_of(node))[:-1]},job="{EXPORTER_JOB}"}}'


def program_of(node: int) -> str:
    """Name of the program on a node."""
    return f"train-{node:04d}"


def write_yesterday(path: Path, recorded: Iterable[tuple[str, float]], end: int) -> int:
    """Write an hour of the day before for recorded series; returns the number of samples."""
    times = yesterday(end)
    count = 0
    with path.open("w") as file:
        for series, value in recorded:
            file.writelines(f"{series} {value:.9g} {time}\n" for time in times)
            count += len(times)
        file.write("# EOF\n")
    return count


def host(node: int) -> str:
    """Name of a node."""
    return f"node-{node:04d}"

"""kernelcast's bridge beside its peers, on the same Kafka, with the same points, in the same run: `make bench-peers`.

    python -m benchmarks.peers --series 10000,100000 --peers kernelcast,collector --json peers.json

One process runs at a time. A program that cannot be built here is named and skipped.
"""

import argparse
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.peers.builds import COLLECTOR, TELEGRAF, BuildError
from benchmarks.peers.contestants import CONTESTANTS
from benchmarks.peers.machine import machine
from benchmarks.peers.measure import Figures, Run, Size
from benchmarks.peers.report import table
from rich.console import Console
from rich.markup import escape
from rich.status import Status
from tests.service.servers import KafkaServer

from kernelcast.bridge.warm_up import warm_up, warm_up_the_rest

Save = Callable[[Sequence[Figures]], None]


def compile_ours() -> None:
    """Leave the machine code on disk, as the other peers' builds leave their programs."""
    warm_up()
    warm_up_the_rest()


BUILDS: dict[str, Callable[[], object]] = {
    "kernelcast": compile_ours,
    "collector": COLLECTOR.build,
    "telegraf": TELEGRAF.build,
}
"""What must be there before the clock starts; kernelcast compiles its loops once, into a cache."""


def built(names: Sequence[str], console: Console) -> list[str]:
    """Those that can be run here; the others are named with the reason."""
    kept = []
    for name in names:
        try:
            with console.status(f"looking for {name}; building it takes minutes"):
                BUILDS[name]()
        except BuildError as error:
            console.print(f"[yellow]left out:[/] {CONTESTANTS[name].name}: {error}")
        else:
            kept.append(name)
    return kept


def measure(names: Sequence[str], sizes: Sequence[Size], console: Console, save: Save) -> list[Figures]:
    """Each at each size, on one Kafka; one that fails is named with the reason, and what there is so far is saved."""
    results: list[Figures] = []
    with tempfile.TemporaryDirectory(prefix="kernelcast-peers-") as directory:
        kafka = KafkaServer(Path(directory))
        try:
            kafka.run()
            for size, name in itertools.product(sizes, names):
                title = f"{CONTESTANTS[name].name}, {size.series:,} series"
                try:
                    with console.status(title) as status:
                        say = partial(_say, status, title)
                        figures = Run(CONTESTANTS[name], size, kafka.bootstrap_servers, say).measure()
                except AssertionError as error:
                    console.print(f"[red]failed:[/] {title}: {escape(str(error))}")
                    continue
                results.append(figures)
                save(results)
                console.print(f"{title}: {figures.rate:,.0f} points/s")
        finally:
            kafka.kill()
    return results


def _say(status: Status, title: str, text: str) -> None:
    status.update(f"{title}: {text}")


def write(path: Path | None, before: Mapping[str, Any], results: Sequence[Figures]) -> None:
    """Write every figure to a file, if one was asked for."""
    if path is not None:
        content = {"machine": before, "results": [figures.as_dict() for figures in results]}
        path.write_text(json.dumps(content, indent=2) + "\n")


def main() -> None:
    """Build, measure, print, and write the requested output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", default="10000,100000,1000000", help="sizes; by default %(default)s")
    parser.add_argument("--points", type=int, default=6_000_000, help="points of each backlog; by default %(default)s")
    parser.add_argument("--peers", default=",".join(CONTESTANTS), help="whom; by default %(default)s")
    parser.add_argument("--json", type=Path, help="write every figure to this file")
    options = parser.parse_args()
    console = Console()
    names = options.peers.split(",")
    if unknown := set(names) - set(CONTESTANTS):
        parser.error(f"no such peer: {', '.join(sorted(unknown))}; there are {', '.join(CONTESTANTS)}")
    sizes = [Size(int(text), options.points) for text in options.series.split(",")]
    save = partial(write, options.json, machine())
    results = measure(built(names, console), sizes, console, save)
    console.print(table(results))
    sys.exit(0 if results else 1)


if __name__ == "__main__":
    main()

"""Compiles before the first message: 45 s of a core the first time, then machine code comes from disk.

What not every site needs (delta points, protobuf) is compiled beside the first messages; who needs it earlier waits.

    python -m kernelcast.bridge.warm_up             what readiness needs
    python -m kernelcast.bridge.warm_up --all       everything, as an image does when it is built
    python -m kernelcast.bridge.warm_up --check     nothing: fails if anything had to be compiled
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from kernelcast.bridge.delta.warm_up import warm_up as warm_up_deltas
from kernelcast.bridge.example_points import ExampleSource, example_points
from kernelcast.bridge.expose.formats import encode as encode_page
from kernelcast.bridge.expose.negotiate import Format
from kernelcast.bridge.push.warm_up import warm_up as warm_up_push
from kernelcast.bridge.series.columns import MessageColumns
from kernelcast.bridge.series.labels import LabelIndex
from kernelcast.bridge.series.producers import ProducerRules
from kernelcast.bridge.series.slots import SeriesLimits
from kernelcast.bridge.series.store import SeriesStore
from kernelcast.bridge.series.wires import Source
from kernelcast.columnar import Decoded, Decoder, Resource, Sample, Temporality, encode
from kernelcast.columnar.compiled import code_cache
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.histogram import DurationTotals

READY: Final = "ready"
"""The first word of the line that says that a part is compiled or loaded; the part's name and the seconds follow."""


@dataclass(frozen=True, slots=True)
class Part:
    """Functions that are compiled together, without any other part.

    Attributes:
        modules: Beginnings of the names of the modules that hold them.
        compile: Calls each once, with the types that the bridge calls it with; what is on disk is only loaded.
    """

    modules: tuple[str, ...]
    compile: Callable[[], None]


def warm_up() -> None:
    """Compile the parts that the bridge needs before it is ready."""
    for name in NEEDED_TO_BE_READY:
        PARTS[name].compile()


def warm_up_the_rest() -> None:
    """Compile the parts that only some sites need."""
    for name in NEEDED_LATER:
        PARTS[name].compile()


def _series_and_text() -> None:
    _take_examples_through((Format.TEXT, Format.OPENMETRICS))
    LabelIndex.warm_up()


def _protobuf() -> None:
    _take_examples_through((Format.PROTOBUF,))


def _take_examples_through(formats: Iterable[Format]) -> None:
    decoded, messages = example_points()
    _take_through(decoded, messages, ExampleSource(Temporality.CUMULATIVE), formats)


def _take_messages_through() -> None:
    """Messages as Kafka brings them, through every part of the bridge."""
    totals = DurationTotals()
    totals.observe(1_000)
    samples = [
        Sample(kernel.LAUNCHES, (("kernel", "k"),), 1, 1, 1),
        Sample(kernel.PROBE_COVERAGE, (), 1, 0.5),
        Sample(kernel.DURATION, (("kernel", "k"),), 1, totals, 1, detailed=True),
        Sample(kernel.DURATION, (("kernel", "l"),), 1, totals, 1),
    ]
    resource = Resource((("service.instance.id", ""), ("service.name", "")))
    bodies = [export.body for export in encode(resource, samples, scope="")]
    decoder = Decoder()
    messages = MessageColumns(np.zeros(len(bodies), np.int32), *(np.ones(len(bodies), np.int64) for _ in range(3)))
    _take_through(decoder.decode(bodies), messages, decoder, Format)


def _take_through(decoded: Decoded, messages: MessageColumns, source: Source, formats: Iterable[Format]) -> None:
    store = SeriesStore(SeriesLimits(), producers=ProducerRules())
    store.expose(0, exposed=True)
    store.apply(decoded, messages, source)
    store.states()
    store.look_after_producers({})
    snapshot = store.snapshot()
    for format_ in formats:
        for _ in encode_page(snapshot, format_, created=True):
            pass
    store.expire({})
    store.drop_partition(0)


PARTS: Final[Mapping[str, Part]] = MappingProxyType(
    {
        "decoder": Part(("kernelcast.columnar.",), Decoder.warm_up),
        "series": Part(("kernelcast.bridge.series.", "kernelcast.bridge.expose.render"), _series_and_text),
        "protobuf": Part(("kernelcast.bridge.expose.protobuf",), _protobuf),
        "deltas": Part(("kernelcast.bridge.delta.",), warm_up_deltas),
        "push": Part(("kernelcast.bridge.push.",), warm_up_push),
    }
)
"""By name, in the order in which they are compiled; the first two take half of the time to readiness each."""
NEEDED_TO_BE_READY: Final = ("decoder", "series")
NEEDED_LATER: Final = ("protobuf", "deltas")


def main(arguments: Sequence[str]) -> int:
    """Compile parts one after the other, and print a line for each.

    Returns:
        The exit code: 1 where `--check` finds that something was compiled here.
    """
    parser = argparse.ArgumentParser(prog="python -m kernelcast.bridge.warm_up", description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: those for readiness")
    parser.add_argument("--all", action="store_true", help="every part")
    parser.add_argument("--check", action="store_true", help="load every part, and fail if one had to be compiled")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"{unknown[0]} is not a part; parts are {', '.join(PARTS)}")
    everything = options.all or options.check
    for name in PARTS if everything else options.parts or NEEDED_TO_BE_READY:
        started = time.perf_counter()
        PARTS[name].compile()
        sys.stdout.write(f"{READY} {name} {time.perf_counter() - started:.1f}\n")
        sys.stdout.flush()
    return _checked() if options.check else 0


def _checked() -> int:
    _take_messages_through()
    compiled = code_cache.compiled_here()
    if compiled:
        sys.stderr.write(
            f"{len(compiled)} functions had no machine code on disk and were compiled: {', '.join(compiled)}; it is of "
            "other sources, another processor or another version of numba, or lies elsewhere: compare NUMBA_CACHE_DIR, "
            "NUMBA_CPU_NAME and NUMBA_CPU_FEATURES with those of the process that wrote it\n"
        )
    return 1 if compiled else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

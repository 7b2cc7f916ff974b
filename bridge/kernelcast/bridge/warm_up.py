"""Compiles functions before the first message: 45 s of a core the first time, later machine code is read from disk.

Parts that not every site needs (protobuf) are compiled while the first messages are read; a caller that
needs them earlier waits.

    python -m kernelcast.bridge.warm_up             what readiness needs
    python -m kernelcast.bridge.warm_up series      one part; `kernelcast compile` starts one process for each
    python -m kernelcast.bridge.warm_up --all       everything, in one process
    python -m kernelcast.bridge.warm_up --check     nothing: fails if anything had to be compiled
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Final

from kernelcast.columnar import Decoder
from kernelcast.columnar.compiled import code_cache

READY: Final = "ready"
"""First word of the line that reports a compiled or loaded part; the part's name and the seconds follow."""


@dataclass(frozen=True, slots=True)
class CompilationUnit:
    """Functions that are compiled together, without any other part.

    Attributes:
        modules: Prefixes of the names of their modules.
        compile: Calls each function once, with the types that the daemons use; functions on disk are only loaded.
        imported: Module whose import makes all of them known to `code_cache`; empty if this module imports them.
    """

    modules: tuple[str, ...]
    compile: Callable[[], None]
    imported: str = ""


def warm_up() -> None:
    """Compile the parts that the bridge needs before it is ready."""
    for name in NEEDED_TO_BE_READY:
        PARTS[name].compile()


def warm_up_the_rest() -> None:
    """Compile the parts that only some sites need."""
    for name in NEEDED_LATER:
        PARTS[name].compile()


def _unit(modules: tuple[str, ...], function: str, imported: str = "kernelcast.bridge.example_run") -> CompilationUnit:
    """A part whose module is imported when it is compiled: a predictor needs no module of the bridge."""

    def run() -> None:
        getattr(import_module(imported), function)()

    return CompilationUnit(modules, run, imported)


PARTS: Final[Mapping[str, CompilationUnit]] = MappingProxyType(
    {
        "decoder": CompilationUnit(("kernelcast.columnar.",), Decoder.warm_up),
        "series": _unit(
            (
                "kernelcast.bridge.series.",
                "kernelcast.bridge.tables.",
                "kernelcast.bridge.layouts.",
                "kernelcast.bridge.expose.render",
            ),
            "series_and_text",
        ),
        "protobuf": _unit(("kernelcast.bridge.expose.protobuf",), "protobuf"),
        "forecasts": _unit(
            ("kernelcast.predictor.forecasting.",), "warm_up", "kernelcast.predictor.forecasting.machine_code"
        ),
    }
)
"""Parts by name, in the order of compilation; the first two each take half of the time to readiness."""
NEEDED_TO_BE_READY: Final = ("decoder", "series")
NEEDED_LATER: Final = ("protobuf",)
"""Compiled after readiness. `forecasts` is in neither list: predictors compile it."""


def main(arguments: Sequence[str]) -> int:
    """Compile parts one after the other, and print a line for each.

    Returns:
        The exit code: 1 if `--check` finds that something had to be compiled.
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
    import_module("kernelcast.bridge.example_run").run_messages_through()
    compiled = code_cache.compiled_here()
    if compiled:
        sys.stderr.write(
            f"{len(compiled)} functions had no machine code on disk and were compiled: {', '.join(compiled)}; it is of "
            "other sources, another processor or another version of numba, or lies elsewhere: compare NUMBA_CACHE_DIR "
            "with that of the process that wrote it, and `kernelcast compile --portable` for another processor\n"
        )
    return 1 if compiled else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`kernelcast compile`: machine code for the bridge and the predictor, on disk before they start."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import import_module
from typing import Annotated, Final

import typer

from kernelcast.bridge.warm_up import PARTS, CompilationUnit
from kernelcast.columnar.compiled import code_cache
from kernelcast.wire.errors import ConfigurationError, KernelcastError

COMMAND: Final = (sys.executable, "-m", "kernelcast.cli", "compile")
WORKER: Final = (sys.executable, "-m", "kernelcast.bridge.warm_up")
REMEDY: Final = "set NUMBA_CACHE_DIR to a directory that this user can write, and give the daemons the same value"


def compile_(
    parts: Annotated[
        list[str] | None, typer.Argument(metavar="[PART]...", help=f"Of {', '.join(PARTS)}; all of them by default.")
    ] = None,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Compile nothing; fail if a daemon of this user would have to compile.")
    ] = False,
    portable: Annotated[
        bool, typer.Option("--portable", help="Compile for all newer processors, as a wheel or an image needs.")
    ] = False,
    cores: Annotated[int, typer.Option(help="Processes that compile at a time; 0: one per core.", min=0)] = 0,
) -> None:
    """Compile the loops of bridge and predictor, and keep their machine code on disk.

    It takes a minute or two of a core, once per version, processor type and user. A daemon that finds no machine code
    compiles by itself when it starts. Machine code is stored in NUMBA_CACHE_DIR, or beside the installed files, or in
    the cache directory of the user. It is made for this processor, with --portable for every x86-64 with AVX2, or every
    ARM of 64 bits.
    """
    if portable:
        # numba asks for the processor when it is imported, which has happened here.
        command = [*COMMAND, *(parts or ()), "--cores", str(cores), *(("--check",) if check else ())]
        raise typer.Exit(subprocess.call(command, env={**os.environ, **code_cache.portable_environment()}))
    chosen = _chosen(parts or ())
    if check:
        raise typer.Exit(subprocess.call([*WORKER, "--check"]))
    missing = [name for name, part in chosen.items() if code_cache.not_on_disk(part.modules)]
    for name in chosen.keys() - set(missing):
        typer.echo(f"{name}: on disk already")
    if missing:
        _compile(missing, cores or len(os.sched_getaffinity(0)))
    typer.echo("everything is on disk" if len(chosen) == len(PARTS) else f"on disk: {', '.join(chosen)}")


def _chosen(names: Sequence[str]) -> Mapping[str, CompilationUnit]:
    unknown = [name for name in names if name not in PARTS]
    if unknown:
        raise ConfigurationError(f"{unknown[0]} is no part that can be compiled; parts are {', '.join(PARTS)}")
    chosen = {name: part for name, part in PARTS.items() if name in names or not names}
    for module in {part.imported for part in chosen.values()} - {""}:
        import_module(module)
    return chosen


def _compile(names: Sequence[str], cores: int) -> None:
    """Compile each part in a separate process, because numba compiles in one thread of a process at a time.

    Raises:
        ConfigurationError: No cache directory can be written.
        KernelcastError: A part could not be compiled or written.
    """
    if not code_cache.is_writable():
        raise ConfigurationError(f"machine code cannot be written to disk; {REMEDY}")
    began = time.perf_counter()
    typer.echo(f"compiling {', '.join(names)} on {min(cores, len(names))} cores")
    with ThreadPoolExecutor(cores) as pool:
        running = {pool.submit(_run, name): name for name in names}
        for done, future in enumerate(as_completed(running), 1):
            name, (code, output) = running[future], future.result()
            if code != 0:
                raise KernelcastError(f"compiling {name} failed with exit code {code}: {output.strip()[-2000:]}")
            typer.echo(f"{name}: compiled, {done} of {len(names)}, after {time.perf_counter() - began:.0f} s")
    left = code_cache.not_on_disk([module for name in names for module in PARTS[name].modules])
    if left:
        raise KernelcastError(
            f"{len(left)} functions were compiled and could not be written to disk, {left[0]} among them; is the disk "
            f"full? If not: {REMEDY}"
        )


def _run(name: str) -> tuple[int, str]:
    done = subprocess.run([*WORKER, name], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout

"""Compiles machine code before the bridge becomes ready, on two cores if there are two; `Bridge` drives it.

numba compiles in one thread of a process at a time, so a second process uses the second core: it compiles other parts
and writes them to disk, from where this process loads them.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import IO, Final, Protocol

import structlog

from kernelcast.bridge.warm_up import NEEDED_LATER, NEEDED_TO_BE_READY, PARTS, READY, CompilationUnit
from kernelcast.columnar.compiled import code_cache

STOP_SECONDS: Final = 2.0
"""Time that the second process gets to end after SIGTERM, before SIGKILL."""
LONGEST_SECONDS: Final = 600.0
"""A second process that hangs is ended after this time; it needs about a minute of a core."""
_COMMAND: Final = (sys.executable, "-m", "kernelcast.bridge.warm_up")


class SecondProcess(Protocol):
    """A process that compiles parts one after the other, and prints a line after each."""

    def lines(self) -> Iterator[str]:
        """Yield the lines that it prints, until it ends."""

    def stop(self) -> None:
        """Stop it at once; a second call has no effect."""


class CompilerProcess:
    """`SecondProcess` as a child of this process."""

    def __init__(self, parts: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [*_COMMAND, *parts],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._limit = threading.Timer(LONGEST_SECONDS, self.stop)
        self._limit.daemon = True
        self._limit.start()

    def lines(self) -> Iterator[str]:
        """See `SecondProcess`."""
        output: IO[str] | None = self._process.stdout
        if output is not None:
            with closing(output):
                yield from output
        self._process.wait()
        self._limit.cancel()

    def stop(self) -> None:
        """See `SecondProcess`."""
        self._limit.cancel()
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()


@dataclass(frozen=True, slots=True)
class CompilingMachine:
    """Properties of the machine that compiling depends on.

    Attributes:
        cores: Number of cores that this process may use.
        not_on_disk: Functions in modules, by the beginnings of their names, that have no machine code on disk.
        is_writable: Whether machine code can be written to disk.
        start_second: Starts a process that compiles parts; raises OSError if it cannot be started.
    """

    cores: int
    not_on_disk: Callable[[Sequence[str]], list[str]]
    is_writable: Callable[[], bool]
    start_second: Callable[[Sequence[str]], SecondProcess]

    @classmethod
    def this(cls) -> "CompilingMachine":
        """Return the machine that this process runs on."""
        cores = len(os.sched_getaffinity(0))
        return cls(cores, code_cache.not_on_disk, code_cache.is_writable, CompilerProcess)


class Compilation:
    """Compiles or loads the machine code of all parts: loads those on disk, compiles the others.

    The consuming thread calls `finish_what_readiness_needs`, then another thread `finish_the_rest`, never both at once;
    any thread calls `stop`, at any time. The lock protects `_second` and `_stopped`, which `stop` uses.
    """

    def __init__(self, machine: CompilingMachine | None = None, parts: Mapping[str, CompilationUnit] = PARTS) -> None:
        self._machine = machine or CompilingMachine.this()
        self._parts = parts
        self._log = structlog.stdlib.get_logger("bridge")
        self._second: SecondProcess | None = None
        self._lines: Iterator[str] = iter(())
        self._parts_of_second: set[str] = set()  # those that it has not finished yet
        self._missing: list[str] = []  # parts without machine code on disk
        self._done = 0
        self._lock = threading.Lock()
        self._stopped = False

    def finish_what_readiness_needs(self) -> None:
        """Return when everything that readiness needs is compiled, or the bridge stops."""
        names = (*NEEDED_TO_BE_READY, *NEEDED_LATER)
        self._missing = [name for name in names if self._machine.not_on_disk(self._parts[name].modules)]
        needed = [name for name in self._missing if name in NEEDED_TO_BE_READY]
        if self._missing:
            self._start_second_process(
                [name for name in self._missing if name != needed[0]] if needed else self._missing
            )
        for name in NEEDED_TO_BE_READY:
            self._finish_part(name)

    def finish_the_rest(self) -> None:
        """Return when everything else is compiled as well, or the bridge stops."""
        for name in NEEDED_LATER:
            self._finish_part(name)
        for _ in self._lines:
            pass  # read to the end, so that the second process can exit
        not_kept = code_cache.not_kept()
        if not_kept:
            self._log.warning(
                "machine code cannot be written to disk, so that each start compiles it; "
                "have NUMBA_CACHE_DIR name a folder that can be written, or fill it when the image is built",
                functions=len(not_kept),
            )

    def stop(self) -> None:
        """Stop the second process, start none later, and compile no further part here."""
        with self._lock:
            self._stopped = True
            if self._second is not None:
                self._second.stop()

    def _start_second_process(self, others: Sequence[str]) -> None:
        """Log what takes long, and let a second process compile some parts."""
        for_second = others if self._machine.cores > 1 and self._machine.is_writable() else ()
        self._log.info(
            "compiling, as these parts have no machine code on disk; it takes up to a minute of a core",
            parts=self._missing,
            in_a_second_process=list(for_second),
        )
        if not for_second:
            return
        with self._lock:
            if self._stopped:
                return
            try:
                self._second = self._machine.start_second(for_second)
            except OSError as error:
                self._log.warning("a second process to compile with did not start", reason=str(error))
                return
            self._lines, self._parts_of_second = self._second.lines(), set(for_second)

    def _finish_part(self, name: str) -> None:
        """Compile or load a part, or wait for the second process that compiles it."""
        started = time.perf_counter()
        if name in self._parts_of_second:
            self._wait_for_second_process(name)
        if self._stopped:
            return
        self._parts[name].compile()
        if name in self._missing:
            self._done += 1
            self._log.info(
                "compiled",
                part=name,
                done=f"{self._done}/{len(self._missing)}",
                seconds=round(time.perf_counter() - started, 1),
            )

    def _wait_for_second_process(self, name: str) -> None:
        """Wait until the second process has compiled a part, or has ended."""
        last = ""
        for line in self._lines:
            words = line.split()
            if words[:1] == [READY] and len(words) > 1:
                self._parts_of_second.discard(words[1])
                if words[1] == name:
                    return
            elif words:
                last = line.strip()
        if not self._stopped:
            self._log.warning(
                "the second process to compile with ended early; this one compiles",
                left=sorted(self._parts_of_second),
                said=last,
            )
        self._parts_of_second = set()

"""Jobs of real processes: ranks over sockets or gloo, one of which is killed at a random moment."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final

from tests.support.service.packages import FRAMEWORKS, python_with

PROGRAM: Final = Path(__file__).with_name("program.py")
ROOT: Final = PROGRAM.parents[3]
LIMIT_SECONDS: Final = 200.0
"""A job ends in seconds. A machine that stood still for two minutes shall not fail it."""
POLL_SECONDS: Final = 0.01
GROUPS: Final = 2
"""Groups of sockets in a job: the tunables' own, and the one in which every step communicates."""


class JobFailedError(Exception):
    """A rank has ended with an error, or a job does not end; the message says which."""


class Job:
    """The processes of one job. Used by one thread.

    Attributes:
        files: The values and outcomes that each rank has written.
        processes: The ranks.
    """

    def __init__(self, name: str, folder: Path, kind: str, ranks: int, environ: Mapping[str, str]) -> None:
        self.files = [folder / f"{name.replace('/', '-')}-{rank}.txt" for rank in range(ranks)]
        self._victim: int | None = None
        python = python_with(FRAMEWORKS) if kind == "gloo" else sys.executable
        with ExitStack() as stack:
            listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(GROUPS)]
            self.processes = []
            for rank, file in enumerate(self.files):
                # Rank 0 inherits sockets that listen already, so no other process can take their ports.
                inherited = [one.fileno() for one in listeners] if rank == 0 else []
                places = inherited or [one.getsockname()[1] for one in listeners]
                place = str(self.files[0].with_suffix(".store")) if kind == "gloo" else ",".join(map(str, places))
                command = [python, str(PROGRAM), str(rank), str(ranks), place, kind, name, str(file)]
                with file.with_suffix(".log").open("wb") as log:
                    self.processes.append(subprocess.Popen(command, env=environ, stderr=log, pass_fds=inherited))

    def intact(self) -> bool:
        """Return True while no rank has failed.

        Raises:
            JobFailedError: A rank that was not killed has ended with an error.
        """
        failed = [
            f"rank {rank} ended with exit code {process.returncode}: {self._error(rank)}"
            for rank, process in enumerate(self.processes)
            if rank != self._victim and process.poll()
        ]
        if failed:
            raise JobFailedError("; ".join(failed))
        return True

    def kill(self, rank: int, lines: int) -> None:
        """Kill a rank as soon as it has written a number of lines, or has ended."""
        process, file = self.processes[rank], self.files[rank]

        def ready() -> bool:
            return process.poll() is not None or (file.exists() and file.read_bytes().count(b"\n") >= lines)

        self._wait(f"rank {rank} has not written {lines} lines", ready)
        self._victim = rank
        process.send_signal(signal.SIGKILL)

    def wait(self) -> None:
        """Wait until every rank has ended."""
        self._wait("ranks still run", lambda: all(process.poll() is not None for process in self.processes))

    def close(self) -> None:
        """Kill what still runs."""
        for process in self.processes:
            process.kill()
            process.wait()

    def _wait(self, otherwise: str, condition: Callable[[], bool]) -> None:
        ends = time.monotonic() + LIMIT_SECONDS
        while self.intact() and not condition():
            if time.monotonic() > ends:
                raise JobFailedError(f"{otherwise} after {LIMIT_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)

    def _error(self, rank: int) -> str:
        lines = self.files[rank].with_suffix(".log").read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it wrote no error"


def findings(  # noqa: PLR0913  the parts of a job, each with a default
    seed: str,
    folder: Path,
    *,
    kind: str = "socket",
    ranks: int = 4,
    kill: bool | None = None,
    environ: Mapping[str, str] = MappingProxyType({}),
    meanwhile: Callable[[Job], None] | None = None,
) -> list[str]:
    """Run a job; return the sentences about broken invariants.

    Args:
        seed: Determines the faults.
        folder: Takes the ranks' files.
        kind: `socket` or `gloo`.
        ranks: Number of ranks.
        kill: Whether a rank is killed; None draws it.
        environ: More variables of the ranks' environment.
        meanwhile: Is called with the job while it runs.
    """
    random = Random(f"real {seed}")
    kills = random.random() < 0.5 if kill is None else kill
    victim = random.randrange(ranks) if kills else None
    steps = 0 if "RANKS_UNTIL_DECIDED" in environ else int(environ.get("RANKS_STEPS", "500"))
    own = {"PYTHONPATH": f"{ROOT / 'core'}:{ROOT / 'exporter'}", "KERNELCAST_TUNING_DIRECTORY": "off"}
    job = Job(seed, folder, kind, ranks, {**os.environ, **own, **environ})
    try:
        if meanwhile is not None:
            meanwhile(job)
        if victim is not None:
            job.kill(victim, random.randrange(1, 300))
        job.wait()
    except JobFailedError as error:
        return [str(error)]
    finally:
        job.close()
    return _judged(job.files, victim, steps)


def _judged(files: list[Path], victim: int | None, steps: int) -> list[str]:
    found, sequences, ends = [], [], []
    for rank, file in enumerate(files):
        if rank == victim:
            continue
        lines = file.read_text().splitlines()
        values = [line for line in lines if line.isdigit()]
        if not lines or not lines[-1].startswith("{"):
            found.append(f"rank {rank} ended with {lines[-1:]}")
            continue
        end = json.loads(lines[-1])
        for kind in ("outcomes", "searches"):
            states = [state for state, _ in end[kind]]
            if states.count("applied") != sum(state in ("kept", "rolled_back") for state in states):
                found.append(f"rank {rank} has the {kind} {end[kind]}")
        sequences.append(values)
        ends.append((tuple(end["value"]), tuple(map(tuple, [*end["outcomes"][1:], *end["searches"]]))))
    shortest = min(map(len, sequences), default=0)
    if len({tuple(values[:shortest]) for values in sequences}) > 1:
        found.append("ranks had different values at one step")
    if victim is None and (len(set(ends)) > 1 or shortest < steps):
        found.append(f"ranks ended differently, after {shortest} steps: {ends}")
    return found

"""Jobs of real processes: ranks over sockets or gloo, one of which is killed at a random moment."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Final

PROGRAM: Final = Path(__file__).with_name("program.py")
ROOT: Final = PROGRAM.parents[3]
LIMIT_SECONDS: Final = 120.0
ENDING_SECONDS: Final = 30.0
"""After a kill: gloo reports it at once, sockets too."""
TORCH_PYTHON: Final = "/usr/bin/python3"


def findings(  # noqa: PLR0913  the parts of a job, each with a default
    seed: str,
    folder: Path,
    *,
    kind: str = "socket",
    ranks: int = 4,
    kill: bool | None = None,
    environ: Mapping[str, str] = MappingProxyType({}),
    meanwhile: Callable[[list[Path]], None] | None = None,
) -> list[str]:
    """Run a job; return the sentences about broken invariants.

    Args:
        seed: Determines the faults.
        folder: Takes the ranks' files.
        kind: `socket` or `gloo`.
        ranks: Number of ranks.
        kill: Whether a rank is killed; None draws it.
        environ: More variables of the ranks' environment.
        meanwhile: Is called with the ranks' files while they run.
    """
    random = Random(f"real {seed}")
    kills = random.random() < 0.5 if kill is None else kill
    victim = random.randrange(ranks) if kills else None
    python = TORCH_PYTHON if kind == "gloo" else sys.executable
    port = _free_ports()
    files = [folder / f"{seed.replace('/', '-')}-{rank}.txt" for rank in range(ranks)]
    steps = 0 if "RANKS_UNTIL_DECIDED" in environ else int(environ.get("RANKS_STEPS", "500"))
    own = {"PYTHONPATH": f"{ROOT / 'core'}:{ROOT / 'exporter'}", "KERNELCAST_TUNING_DIRECTORY": "off"}
    variables = {**os.environ, **own, **environ}
    processes = [
        subprocess.Popen([python, str(PROGRAM), str(rank), str(ranks), str(port), kind, seed, str(file)], env=variables)
        for rank, file in enumerate(files)
    ]
    try:
        if meanwhile is not None:
            meanwhile(files)
        if victim is not None:
            _wait_for_lines(files[victim], random.randrange(1, 300), processes[victim])
            processes[victim].send_signal(signal.SIGKILL)
        limit = ENDING_SECONDS if victim is not None else LIMIT_SECONDS
        ends = time.monotonic() + limit
        late = []
        for rank, process in enumerate(processes):
            try:
                process.wait(max(0.1, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                late.append(f"rank {rank} still runs after {limit:.0f} s")
        return late or _judged(files, victim, steps)
    finally:
        for process in processes:
            process.kill()
            process.wait()


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


def _wait_for_lines(file: Path, lines: int, process: "subprocess.Popen[bytes]") -> None:
    ends = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < ends and process.poll() is None:
        if file.exists() and file.read_bytes().count(b"\n") >= lines:
            return
        time.sleep(0.01)


def _free_ports() -> int:
    """Return a free port whose successor is free, too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port: int = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port

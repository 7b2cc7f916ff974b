"""Work that one process of a test run, or of the machine, does while the others wait for it."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def run_directory(factory: pytest.TempPathFactory) -> Path:
    """The directory that all workers of a run share; without workers the run's own."""
    own = factory.getbasetemp()
    return own.parent if own.name.startswith("popen-") else own


def once(factory: pytest.TempPathFactory, name: str, work: Callable[[], None]) -> None:
    """Do work unless a worker of this run has done it; workers that come meanwhile wait until it is done.

    Args:
        factory: pytest's, which knows the run's directory.
        name: The work's name, which is a file's.
        work: The work. If it raises, the next worker tries again.
    """
    directory = run_directory(factory)
    done = directory / f"{name}.done"
    with locked(directory / name):
        if not done.exists():
            work()
            done.touch()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process of the machine makes what the path names; the others wait."""
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

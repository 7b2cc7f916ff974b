"""Apache Kafka on this machine: its jars, and what a broker needs to start in half the time."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.service import require
from tests.support.once import locked

KAFKA_VERSION: Final = "4.1.1"
KAFKA_PROJECT: Final = Path(__file__).parent / "kafka"


def kafka_libraries() -> Path:
    """Kafka's jars, fetched through Maven into a cache folder by one process of the machine, once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "kernelcast" / f"kafka-{KAFKA_VERSION}"
    if not (cache / "complete").exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        with locked(cache):
            if not (cache / "complete").exists():
                _fetch(cache)
    return cache


def _fetch(cache: Path) -> None:
    """Fetch into another folder first: Maven overwrites no jar that an interrupted fetch has left half-written."""
    maven = require.binary("mvn", "maven")
    command = [maven, "-B", "-q", "-f", str(KAFKA_PROJECT / "pom.xml"), "dependency:copy-dependencies"]
    with tempfile.TemporaryDirectory(dir=cache.parent) as directory:
        fetched = Path(directory) / cache.name
        done = subprocess.run([*command, f"-DoutputDirectory={fetched}"], capture_output=True, text=True, check=False)
        if done.returncode:
            require.missing("Apache Kafka", f"Maven could not fetch it: {done.stdout[-800:]}{done.stderr[-400:]}")
        (fetched / "complete").touch()
        shutil.rmtree(cache, ignore_errors=True)
        fetched.rename(cache)


def class_archive(java: str, make: Callable[[Path], None]) -> Path | None:
    """The archive of Kafka's classes for this Java, made once; None where Java cannot make it.

    It has the classes parsed and verified (class-data sharing). Java compares it with itself and with the jars, and
    does without one that differs.

    Args:
        java: The program.
        make: Runs Kafka, which writes the archive to the path at its end.
    """
    version = Path(java).resolve().stat()
    archive = _kept(f"classes-{version.st_size}-{version.st_mtime_ns}.jsa", make)
    return archive if archive.stat().st_size else None


def bootstrap_checkpoint(make: Callable[[Path], None]) -> Path:
    """The records with which the metadata of a new cluster begin: versions of features, and nothing of a cluster.

    Args:
        make: Has Kafka's tool format a folder, and copies its checkpoint to the path.
    """
    return _kept("bootstrap.checkpoint", make)


def _kept(name: str, make: Callable[[Path], None]) -> Path:
    """A file beside Kafka's jars; one process of the machine makes it, once."""
    cache = kafka_libraries()
    path = cache.with_name(f"{cache.name}-{name}")
    with locked(path):
        if not path.exists():
            with tempfile.TemporaryDirectory(dir=cache.parent) as directory:
                made = Path(directory) / path.name
                make(made)
                made.touch()  # an empty one: it cannot be made
                made.rename(path)
    return path

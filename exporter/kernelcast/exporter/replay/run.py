"""Publishes a source until it ends, and accounts for every message: what `replay` and `simulate` have in common."""

import json
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import typer

from kernelcast.exporter.delivery.publish import SamplePublisher, Tally
from kernelcast.exporter.pipeline import Pipeline
from kernelcast.exporter.replay.settings import RunSettings
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.exporter.totals.report import Source
from kernelcast.runtime.exits import EXIT_RUN_TIME
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.wire.errors import ConfigurationError, SourceError
from kernelcast.wire.topics import DEVICE, KERNELS

MAX_BACKLOG_MESSAGES: Final = 2_000
"""Number of unacknowledged messages from which on the next export waits. A finite source can wait, so nothing is
dropped."""
_ANSWER_SECONDS: Final = 0.1
"""Longest wait of one poll for acknowledgements."""
_STOP_SECONDS: Final = 1.0
"""How long to wait for acknowledgements once a signal has asked to stop: whoever presses Ctrl-C waits for the end."""


class FiniteSource(Source, Protocol):
    """A source that knows how far it is."""

    @property
    def position_seconds(self) -> float:
        """Position, in its own time."""
        ...

    @property
    def length_seconds(self) -> float:
        """Length, in its own time; infinite where it goes on until it is stopped."""
        ...


class Progress(Protocol):
    """Shows people how far it is."""

    def show(self, source: FiniteSource, tally: Tally) -> None:
        """Another export was sent."""
        ...


class Outbox(Protocol):
    """The part of a producer that is needed here."""

    acknowledged: int
    failed: int
    dropped: int

    def send(self, topic: str, *, key: bytes | None, value: bytes | None) -> None:
        """Queue a message."""
        ...

    def poll(self, timeout_seconds: float = 0.0) -> None:
        """Serve acknowledgements."""
        ...

    def close(self, timeout_seconds: float) -> int:
        """Flush; returns how many messages Kafka has not answered for."""
        ...

    def __len__(self) -> int:
        """Messages that Kafka has not answered for."""
        ...


@dataclass(frozen=True, slots=True)
class Account:
    """Account of the sent messages and their delivery.

    Attributes:
        kernels: Kernel launches.
        copies: Copies.
        messages: Messages handed to the producer.
        points: Data points in them.
        size_bytes: Their values' length.
        acknowledged: Messages that Kafka has.
        outstanding: Messages that Kafka has not answered for.
        failed: Messages that Kafka refused, those given up at the end among them.
        dropped: Messages that found no room on the way to Kafka.
        position_seconds: How far the source came, in its own time.
        finished: Whether the source came to its end; False when it was stopped.
    """

    kernels: int
    copies: int
    messages: int
    points: int
    size_bytes: int
    acknowledged: int
    outstanding: int
    failed: int
    dropped: int
    position_seconds: float
    finished: bool

    @property
    def lost(self) -> int:
        """Messages that Kafka did not acknowledge."""
        return self.messages - self.acknowledged

    def summary_line(self, name: str, servers: str) -> str:
        """Return a summary in one line."""
        sent = (
            f"{name}: sent {self.kernels} kernel launches and {self.copies} copies "
            f"in {self.points} points, {self.messages} messages"
        )
        stopped = "" if self.finished else "; stopped before its end"
        if self.lost:
            return f"{sent}; {self.lost} of them NOT acknowledged by Kafka at {servers}{stopped}"
        return f"{sent}, all acknowledged by Kafka at {servers}{stopped}" if self.messages else f"{sent}{stopped}"


def make_producer(settings: RunSettings, *, client_id: str) -> Producer:
    """The producer for one run; connects in the background."""
    return Producer(settings.kafka, client_id=client_id, topics=(DEVICE.name, KERNELS.name))


def paced(shutdown: Shutdown, interval_seconds: float) -> Iterator[int]:
    """The wall clock, now and after each interval, until asked to stop; Unix nanoseconds."""
    for _ in shutdown.every(interval_seconds):
        yield time.time_ns()


def publish(
    source: FiniteSource,
    settings: RunSettings,
    *,
    outbox: Outbox,
    ticks: Iterable[int],
    progress: Progress,
    shutdown: Shutdown,
) -> Account:
    """Export at every tick until the source is done or the ticks end, then wait for Kafka.

    Args:
        source: What to publish; closed at the end.
        settings: How.
        outbox: Towards Kafka; closed at the end.
        ticks: When to export, Unix nanoseconds; whoever makes them waits in between, and ends them to stop.
        progress: Called after each export.
        shutdown: Once it is requested, no wait for Kafka takes longer than a second.
    """
    pipeline = Pipeline([source], Aggregator(max_kernels=settings.kernels), SamplePublisher(outbox))
    finished = False
    try:
        for now_ns in ticks:
            finished = pipeline.tick(now_ns).done
            progress.show(source, pipeline.tally())
            if finished or not _drain(outbox, shutdown, settings.flush_timeout_seconds):
                break
    finally:
        pipeline.close()
        outstanding = _flush(outbox, shutdown, settings.flush_timeout_seconds)
    tally = pipeline.tally()
    return Account(
        kernels=tally.kernels,
        copies=tally.copies,
        messages=tally.messages,
        points=tally.points,
        size_bytes=tally.size_bytes,
        acknowledged=outbox.acknowledged,
        outstanding=outstanding,
        failed=outbox.failed,
        dropped=outbox.dropped,
        position_seconds=source.position_seconds,
        finished=finished,
    )


def check_writable(*paths: Path | None, inputs: Iterable[Path | None] = ()) -> None:
    """Check that files can be written, before hours of work.

    Raises:
        ConfigurationError: One cannot, is an input, or is given twice.
    """
    taken = {one.resolve() for one in inputs if one is not None}
    for path in paths:
        if path is None:
            continue
        try:
            if path.is_file() or not path.exists():  # a device such as /dev/stdout takes several documents
                if path.resolve() in taken:
                    raise ConfigurationError(f"{path} is read or written already; choose another file")
                taken.add(path.resolve())
            there = path.exists()
            path.open("a").close()
            if not there:
                path.resolve().unlink()  # of a link, the file that it names
        except OSError as error:
            raise ConfigurationError(
                f"{path} cannot be written: {error.strerror or error}; choose another file"
            ) from error


def write_json(path: Path, document: Any) -> None:
    """Write a document for other programs.

    Raises:
        SourceError: The file cannot be written.
    """
    try:
        path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise SourceError(f"{path} cannot be written: {error.strerror or error}; choose another file") from error


def finish(account: Account) -> None:
    """Exit with the code of a run-time error if Kafka did not acknowledge everything.

    Raises:
        typer.Exit: It did not.
    """
    if account.lost:
        raise typer.Exit(EXIT_RUN_TIME)


def summary(account: Account, about: Mapping[str, Any]) -> dict[str, Any]:
    """Content of the `--summary` file: the published totals, and the account."""
    return {**about, **asdict(account), "lost": account.lost}


def say(line: str) -> None:
    """Print a line; ignores that the reader of a pipe has ended."""
    with suppress(BrokenPipeError):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _drain(outbox: Outbox, shutdown: Shutdown, timeout_seconds: float) -> bool:
    """Serve acknowledgements; waits while too many are missing, and returns False where none come."""
    outbox.poll(0.0)
    patience = time.monotonic() + timeout_seconds
    while len(outbox) > MAX_BACKLOG_MESSAGES:
        before = len(outbox)
        outbox.poll(_ANSWER_SECONDS)
        if len(outbox) < before:
            patience = time.monotonic() + timeout_seconds
        elif shutdown.requested or time.monotonic() > patience:
            return False
    return True


def _flush(outbox: Outbox, shutdown: Shutdown, timeout_seconds: float) -> int:
    """Wait for Kafka's acknowledgements until the time-out, or until a signal; returns how many are missing."""
    deadline = time.monotonic() + timeout_seconds
    while len(outbox) and not shutdown.requested and time.monotonic() < deadline:
        outbox.poll(_ANSWER_SECONDS)
    return outbox.close(_STOP_SECONDS if shutdown.requested else 0.0)

"""The command `kernelcast demo`: its options, the broker, and the screen around one `run.Demo`."""

import math
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.live import Live

from kernelcast.cli.demo import summary as report
from kernelcast.cli.demo.progress import StartProgress
from kernelcast.cli.demo.run import Demo, DemoOptions
from kernelcast.cli.demo.sources import DemoSource, choose
from kernelcast.cli.demo.state import DemoState
from kernelcast.cli.demo.view import plain, render
from kernelcast.cli.demo.workspace import reserved_addresses
from kernelcast.cli.top.command import keyboard
from kernelcast.runtime import logging
from kernelcast.runtime.command import command
from kernelcast.runtime.kafka.admin import TopicResult, apply_topics
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.settings.service import KafkaSettings, LogSettings
from kernelcast.wire.errors import ConfigurationError, KernelcastError

PLAIN_EVERY_SECONDS = 2.0


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"it is {text!r}; give seconds, such as 120, or leave it out") from None


@command
def demo(  # noqa: PLR0913  a command line's options
    *,
    source: Annotated[
        str, typer.Option(help="auto, nvml, simulate, kineto:PATH or nsys:PATH; auto takes a real GPU if there is one.")
    ] = "auto",
    duration: Annotated[
        float | None,
        typer.Option(
            help="Stop this many seconds after everything is ready, with a summary.",
            show_default="until Ctrl-C",
            parser=_seconds,
            metavar="SECONDS",
        ),
    ] = None,
    summary: Annotated[Path | None, typer.Option(help="Write the summary as JSON to this file.")] = None,
    broker: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Use this Kafka.", show_default="one inside this process"),
    ] = None,
    kernels: Annotated[str, typer.Option(metavar="N|all", help="Kernel names per program and GPU.")] = "100",
    speed: Annotated[str, typer.Option(metavar="N|max", help="How fast a recording is replayed.")] = "1",
    example: Annotated[
        bool | None,
        typer.Option(
            "--example/--no-example",
            help="Run the example program, whose badly tuned kernel gets a hint.",
            show_default="yes, but not beside a recording, so that its kernels stand alone",
        ),
    ] = None,
    program: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Run this program of yours in place of the example; it finds the demo in KERNELCAST_SOCKET.",
            show_default="the example",
        ),
    ] = None,
    servers: Annotated[
        bool, typer.Option("--servers/--no-servers", help="Start Prometheus and Alertmanager where they are on PATH.")
    ] = True,
    directory: Annotated[
        Path | None, typer.Option(help="Keep logs and configurations here.", show_default="a temporary folder")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the simulation.")] = 1,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND[:…]",
            help="A fault of the simulation, may be repeated: kernelcast simulate --help lists them.",
            show_default="cooling that fails slowly",
        ),
    ] = None,
) -> None:
    """Run the whole loop on this machine and watch it: GPU, Kafka, Prometheus, forecasts, hints, alerts."""
    logging.configure(LogSettings(level="error"))
    _check_numbers(duration=duration, kernels=kernels, speed=speed)
    chosen = choose(source)
    if fault and chosen.kind != "simulate":
        raise ConfigurationError(f"--fault is {fault[0]}; only a simulation has faults; add --source simulate")
    if summary is not None:
        _check_writable(summary, chosen.path)
    options = DemoOptions(
        source=chosen,
        kernels=kernels,
        speed=speed,
        duration_seconds=duration,
        program=() if program is None else _command_line(program),
        example=(chosen.path is None or program is not None) if example is None else example,
        servers=servers,
        seed=seed,
        faults=tuple(fault or ()),
    )
    with _folder(directory) as folder, reserved_addresses(5) as addresses, _broker(broker) as (address, kind):
        run = Demo(options, folder, addresses, address, kind)
        _announce(run, chosen)
        shutdown = Shutdown(exit_now=lambda code: _end_now(run, code))
        progress = StartProgress(sys.stderr, width=shutil.get_terminal_size().columns)
        with shutdown.signals(), _screen(shutdown) as show:
            result = run.run(shutdown, show, progress)
    if summary is not None:
        report.write(result, summary)
    typer.echo("\n".join(report.sentences(result)))


def _command_line(program: str) -> tuple[str, ...]:
    """The words of a command.

    Raises:
        ConfigurationError: There are none, or nothing executable is named.
    """
    try:
        words = tuple(shlex.split(program))
    except ValueError as error:
        raise ConfigurationError(f"--program is {program!r}: {error}; close its quotes") from error
    if not words or shutil.which(words[0]) is None:
        name = words[0] if words else ""
        raise ConfigurationError(
            f"--program is {program!r}, and {name!r} cannot be run; give a command and its arguments"
        )
    return words


def _check_numbers(*, duration: float | None, kernels: str, speed: str) -> None:
    """Check options here that a service would refuse later, under the name of its setting."""
    if duration is not None and not 0 < duration < math.inf:
        raise ConfigurationError(f"--duration is {duration}; it must be above 0; leave it out to run until Ctrl-C")
    if kernels != "all" and not (kernels.isascii() and kernels.isdigit() and int(kernels) > 0):
        raise ConfigurationError(f"--kernels is {kernels!r}; it must be a whole number above 0, or all")
    if speed == "max":
        return
    try:
        factor = float(speed)
    except ValueError:
        factor = math.nan
    if not 0 < factor < math.inf:
        raise ConfigurationError(f"--speed is {speed!r}; it must be a number above 0, or max")


def _check_writable(summary: Path, recording: Path | None) -> None:
    """Check before the run that the summary can be written; an existing file is not changed, and none is left."""
    try:
        there = summary.exists()
        if recording is not None and there and summary.samefile(recording):
            raise ConfigurationError(f"--summary {summary} is the recording; give another file")
        summary.open("a").close()
        if not there:
            summary.resolve().unlink()  # of a link, the file that it names
    except OSError as error:
        raise ConfigurationError(
            f"--summary {summary} cannot be written: {error.strerror}; give another file"
        ) from None


def _end_now(run: Demo, code: int) -> NoReturn:
    """A second signal: leave no process running, and wait for nothing but the clean-up of terminal and folder."""
    run.kill()
    sys.exit(code)  # raised by the signal handler, in whatever the main thread does


def _announce(run: Demo, source: DemoSource) -> None:
    typer.echo(f"In a browser, as soon as the services run: {run.workspace.endpoints.page}")
    typer.echo(source.banner)
    for line in (*run.missing(), *run.workspace.how_to_import()):
        typer.echo(line)
    for name, url in run.workspace.endpoints.urls().items():
        typer.echo(f"  {name:<13} {url}")
    typer.echo(f"  {'logs':<13} {run.workspace.directory}")


@contextmanager
def _folder(directory: Path | None) -> Iterator[Path]:
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="kernelcast-demo-") as temporary:
            yield Path(temporary)
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise ConfigurationError(
            f"--directory {directory} cannot be written: {error.strerror}; give another, or leave it out"
        ) from None
    yield directory.resolve()


@contextmanager
def _broker(address: str | None) -> Iterator[tuple[str, str]]:
    """The user's Kafka with our topics on it, or one inside this process."""
    if address is None:
        with EmbeddedBroker() as embedded:
            yield embedded.bootstrap_servers, "embedded"
        return
    failed = [one for one in apply_topics(KafkaSettings(bootstrap_servers=address)) if one.result is TopicResult.FAILED]
    if failed:
        reasons = "\n".join(f"{one.topic} could not be made or set: {one.remark}" for one in failed)
        raise KernelcastError(f"{reasons}\nhave the topics made with `kernelcast topics apply`, or leave --broker out")
    yield address, "kafka"


@contextmanager
def _screen(shutdown: Shutdown) -> Iterator[Callable[[DemoState], None]]:
    """A live screen on a terminal, progress lines elsewhere.

    The live screen hides the lines printed before it, so it opens with the first state. Until then, for minutes on a
    first start, those lines stay visible.
    """
    console = Console()
    if console.is_terminal and sys.stdin.isatty():
        live = Live(console=console, screen=True, auto_refresh=False)

        def refresh(state: DemoState) -> None:
            live.start()  # does nothing once it runs
            try:
                pressed = keys(0.0)
            except EOFError:  # the terminal was closed
                shutdown.request()
                return
            if state.controls.press(pressed):
                shutdown.request()
            if pressed or not state.controls.paused:
                live.update(render(state, console.height), refresh=True)

        try:
            with keyboard() as keys:
                yield refresh
        finally:
            live.stop()
        return
    last = -PLAIN_EVERY_SECONDS

    def show(state: DemoState) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PLAIN_EVERY_SECONDS:
            last = now
            typer.echo(plain(state))

    yield show

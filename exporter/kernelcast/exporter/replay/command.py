"""`kernelcast replay kineto|nsys FILE`: a recording on Kafka, as if it ran now."""

import math
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kernelcast.exporter.nvml.recordings.command import convert_capture, record_node
from kernelcast.exporter.replay.formats import content, kineto, nsys
from kernelcast.exporter.replay.progress import progress
from kernelcast.exporter.replay.run import (
    check_writable,
    finish,
    make_producer,
    paced,
    publish,
    say,
    summary,
    write_json,
)
from kernelcast.exporter.replay.settings import (
    Hostname,
    ReplayOptions,
    RunSettings,
    checked_program,
)
from kernelcast.exporter.replay.source import TraceSource
from kernelcast.exporter.replay.trace import Trace, TraceDevice
from kernelcast.runtime import logging
from kernelcast.runtime.command import command
from kernelcast.runtime.exits import EXIT_INCOMPLETE
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.settings.service import load

SHOWN_CATEGORIES: Final = 8

replay = typer.Typer(
    help='Publish a recording as if it ran now; its series carry source="replayed".',
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _there(path: Path) -> Path:
    if not path.is_file() or not os.access(path, os.R_OK):
        raise typer.BadParameter(
            f"file '{path}' does not exist or cannot be read; give one that torch.profiler's export_chrome_trace, or "
            "`nsys export --type sqlite`, has written"
        )
    return path


TraceFile = Annotated[Path, typer.Argument(metavar="FILE", help="The recording.", callback=_there)]
Program = Annotated[str | None, typer.Option("--program", help="Name of the program; default the file's name.")]
MaxBytes = Annotated[
    int,
    typer.Option("--max-bytes", metavar="BYTES", min=1, help="The most that the trace may be, once decompressed."),
]
Rank = Annotated[str | None, typer.Option("--rank", help="Its rank; default the recording's own.")]


@dataclass(frozen=True, slots=True)
class RecordingOptions:
    """A recording, and what replaces its own names.

    Attributes:
        file: Where it is.
        program: Name of the program; None for the file's name.
        rank: The program's rank; None for the recording's own.
        hostname: The host's name; None for this machine's.
    """

    file: TraceFile
    program: Program = None
    rank: Rank = None
    hostname: Hostname = None


replay.command("record")(command(record_node))
replay.command("capture")(command(convert_capture))


@replay.command("kineto")
@command
def kineto_command(
    recording: RecordingOptions, run: ReplayOptions, *, max_bytes: MaxBytes = content.MAX_TRACE_BYTES
) -> None:
    """Publish a trace of PyTorch's profiler (Kineto, Chrome trace JSON, gzip or plain), NVIDIA's or AMD's."""
    _replay("kineto", partial(kineto.read, max_bytes=max_bytes), recording, run)


@replay.command("nsys")
@command
def nsys_command(recording: RecordingOptions, run: ReplayOptions) -> None:
    """Publish an export of Nsight Systems (nsys export --type sqlite)."""
    _replay("nsys", nsys.read, recording, run)


def _replay(kind: str, read: Callable[[Path], Trace], recording: RecordingOptions, run: ReplayOptions) -> None:
    path = recording.file
    settings = load("replay", RunSettings, path=run.config, flags=run.flags(), environ=os.environ)
    logging.configure(settings.log)
    program = checked_program(recording.program or path.name.split(".")[0] or path.name)
    check_writable(run.summary_file, inputs=(path, run.config))
    trace = read(path)
    _introduce(path, trace)
    with Shutdown().signals() as shutdown, progress(path.name) as shown:
        source = TraceSource(
            trace,
            program=program,
            rank=trace.rank if recording.rank is None else recording.rank,
            hostname=recording.hostname or platform.node(),
            speed=settings.speed,
            start_ns=time.time_ns(),
        )
        outbox = make_producer(settings, client_id=f"kernelcast-replay-{source.process.nonce}")
        ticks = paced(shutdown, settings.interval_seconds)
        account = publish(source, settings, outbox=outbox, ticks=ticks, progress=shown, shutdown=shutdown)
    say(account.summary_line(path.name, settings.kafka.bootstrap_servers))
    if run.summary_file is not None:
        write_json(run.summary_file, summary(account, _about(kind, path, source)))
    finish(account)
    if not trace.complete:
        raise typer.Exit(EXIT_INCOMPLETE)


def _introduce(path: Path, trace: Trace) -> None:
    """Print the content of the recording; one without kernels is no error, but is reported."""
    if not trace.has_gpu_activity:
        say(f"{path.name}: there is no GPU activity in this recording: no kernels, no copies; {_content(trace)}")
        _say_notes(path, trace)
        return
    devices = ", ".join(map(_described, trace.devices))
    length_seconds = (trace.end_ns - trace.start_ns) / 1e9
    say(f"{path.name}: {len(trace.launches.spans)} kernel launches in {length_seconds:.3f} s on {devices}")
    if trace.unusable:
        say(f"{path.name}: {trace.unusable} events of the GPU have no usable time and are left out")
    _say_notes(path, trace)


def _described(device: TraceDevice) -> str:
    process = f" of process {device.process}" if device.process else ""
    return f"GPU {device.index} {device.model_name}".rstrip() + process


def _say_notes(path: Path, trace: Trace) -> None:
    for note in trace.notes:
        say(f"{path.name}: {note}")


def _content(trace: Trace) -> str:
    """Names of the events in a recording without GPU activity: events of other accelerators are not read."""
    shown = ", ".join(f"{category} ({events})" for category, events in trace.categories[:SHOWN_CATEGORIES])
    more = len(trace.categories) - SHOWN_CATEGORIES
    if not shown:
        return "it has no events"
    return f"it has events of {shown}" + (f" and {more} more categories" if more > 0 else "")


def _about(kind: str, path: Path, source: TraceSource) -> dict[str, Any]:
    trace = source.trace
    return {
        "source": kind,
        "file": str(path),
        "title": trace.title,
        "program": source.process.program,
        "rank": source.process.rank,
        "world_size": trace.world_size,
        "devices": [{"gpu": one.gpu, "UUID": one.uuid, "modelName": one.model_name} for one in source.devices],
        "gpu_activity": trace.has_gpu_activity,
        "memsets": len(trace.memsets),
        "syncs": len(trace.syncs.spans),
        "unusable_events": trace.unusable,
        "read_ratio": trace.read_ratio if math.isfinite(trace.read_ratio) else None,
        "notes": list(trace.notes),
        "length_seconds": source.length_seconds,
    }

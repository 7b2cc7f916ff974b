"""`kernelcast replay record` and `kernelcast replay capture`: recordings of NVML, for `exporter.nvml_recording`."""

from pathlib import Path
from typing import Annotated

import typer

from kernelcast.exporter.nvml.recordings import recording
from kernelcast.exporter.nvml.recordings.any_format import read_capture
from kernelcast.exporter.nvml.recordings.record import record
from kernelcast.exporter.nvml.sampling.fields import ROWS
from kernelcast.exporter.nvml.sampling.labels import LABEL_FIELDS
from kernelcast.exporter.nvml.sampling.nvlink import ALL
from kernelcast.exporter.nvml.sampling.sampler import SamplerOptions
from kernelcast.wire.errors import ConfigurationError

Output = Annotated[
    Path, typer.Option("--output", metavar="FILE", help="Where to write it; .gz compresses.", dir_okay=False)
]
Seconds = Annotated[float, typer.Option("--seconds", help="How long.", min=1, max=86_400)]
Interval = Annotated[float, typer.Option("--interval", metavar="SECONDS", help="Between two moments.", min=0.1)]
Capture = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="What `nvidia-smi -q` printed, or (.json) rocm-smi or amd-smi.",
        exists=True,
        dir_okay=False,
    ),
]


def record_node(*, output: Output, seconds: Seconds = 60.0, interval: Interval = 1.0) -> None:
    """Record all that NVML says of this node's GPUs; processes are recorded with their pids, not their names."""
    import pynvml  # noqa: PLC0415  only this command needs it

    everything = SamplerOptions(rows=tuple(ROWS), nvlink=ALL, labels=tuple(LABEL_FIELDS))
    moments = record(pynvml, seconds=seconds, interval_seconds=interval, options=everything)
    written = recording.write(output, moments)
    typer.echo(f"{output}: {written} moments")


def convert_capture(capture: Capture, *, output: Output) -> None:
    """Make a recording of what nvidia-smi, rocm-smi or amd-smi printed, once or several times.

    Of `nvidia-smi -q`, `rocm-smi --showallinfo --json` or `amd-smi metric --json`.
    """
    if output.exists() and output.samefile(capture):
        raise ConfigurationError(f"--output {output} is the capture; it would be replaced; choose another file")
    found = read_capture(capture)
    written = recording.write(output, found.moments)
    typer.echo(f"{output}: {written} moments" + (f"; {found.note}" if found.note else ""))

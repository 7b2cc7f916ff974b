"""`kernelcast exporter`: the daemon on each node, and the commands to a running one."""

import os
from functools import partial
from typing import Annotated, Final

import typer

from kernelcast.exporter import kernel_log
from kernelcast.exporter.assembly import run
from kernelcast.exporter.nvml.devices import check_files
from kernelcast.exporter.nvml.release_command import release, resume
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.command import DaemonOptions, daemon
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.service_manager import ServiceManager

Interval = Annotated[float | None, typer.Option("--interval", metavar="SECONDS", help="Between two samples.")]
SocketPath = Annotated[
    str | None, typer.Option("--probe.socket", metavar="PATH", help="Where programs hand over their kernels.")
]
StateDirectory = Annotated[
    str | None, typer.Option("--state.directory", metavar="DIR", help="Where totals survive a crash.")
]
Kernels = Annotated[
    str | None, typer.Option("--kernels", metavar="N|all", help="Series of their own per program and GPU.")
]
Nvml = Annotated[str | None, typer.Option("--nvml", metavar="auto|on|off", help="Whether to read the GPUs.")]
ToKafka = Annotated[
    str | None, typer.Option("--kafka", metavar="on|off", help="Whether to write to Kafka; off leaves /metrics.")
]
SECTION: Final = "exporter"


exporter = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
exporter.command()(release)
exporter.command()(resume)


@exporter.callback(invoke_without_command=True)
@daemon
def run_exporter(  # noqa: PLR0913  one per option
    options: DaemonOptions,
    *,
    context: typer.Context,
    interval: Interval = None,
    socket_path: SocketPath = None,
    state_directory: StateDirectory = None,
    kernels: Kernels = None,
    nvml: Nvml = None,
    to_kafka: ToKafka = None,
) -> None:
    """Collect this node's GPU and kernel metrics: to Kafka, and on /metrics; bring hints to its programs."""
    if context.invoked_subcommand is not None:
        return
    flags = {
        "interval_seconds": interval,
        "socket_path": socket_path,
        "state_directory": state_directory,
        "kernels": kernels,
        "nvml": nvml,
        "to_kafka": to_kafka,
    }
    check = partial(check_files, warn=_print_warning if options.check_config else _ignore_warning)
    read = partial(options.settings, SECTION, ExporterSettings, flags=flags, checks=(check, kernel_log.check))
    settings = read()
    with Shutdown().signals() as shutdown:
        run(settings, shutdown, reload=read, manager=ServiceManager.from_environ(os.environ))


def _print_warning(warning: str) -> None:
    typer.echo(f"warning: {warning}", err=True)


def _ignore_warning(_warning: str) -> None:
    """Print nothing: the daemon logs the same warning when it starts."""

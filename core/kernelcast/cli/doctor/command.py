"""`kernelcast doctor`: runs all checks of this machine, and prints each result with a remedy.

Each `check_…` function of this package yields `CheckResult`s. They run one after the other on the main thread, and each
result is printed when it is made. Before them the exporter checks its own settings, so that both refuse the same. Those
of the driver run on a thread with a time limit (`limit.within`); NVIDIA's libcupti is opened in a child process.
"""

import io
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.markup import escape

from kernelcast.cli.app import run
from kernelcast.cli.doctor import broker, gpu, node, rows, software, surroundings
from kernelcast.cli.doctor.limit import within
from kernelcast.cli.doctor.result import CheckLevel, CheckResult, ok
from kernelcast.cli.doctor.settings import DoctorSettings, NodeSettings
from kernelcast.runtime.command import command
from kernelcast.runtime.exits import EXIT_CONFIGURATION, EXIT_RUN_TIME
from kernelcast.runtime.settings.service import KafkaSettings, load

STATE_BYTES: Final = 64 * 2**20
"""Room that the exporter's totals need on disk."""
_STYLES: Final = {CheckLevel.OK: "green", CheckLevel.WARN: "yellow", CheckLevel.FAIL: "bold red"}


@command
def doctor(  # noqa: PLR0913  its options
    *,
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings file (YAML).")] = None,
    bootstrap_servers: Annotated[
        str | None, typer.Option("--kafka.bootstrap-servers", metavar="HOST:PORT[,…]", help="Kafka brokers.")
    ] = None,
    to_kafka: Annotated[
        str | None,
        typer.Option("--kafka", metavar="on|off", help="Whether the exporter writes to Kafka, as its own option."),
    ] = None,
    listen_address: Annotated[
        str | None,
        typer.Option("--web.listen-address", metavar="HOST:PORT", help="Where the exporter serves its page."),
    ] = None,
    web_config_file: Annotated[
        str | None, typer.Option("--web.config.file", metavar="FILE", help="Web configuration file to check.")
    ] = None,
    socket: Annotated[
        str | None,
        typer.Option("--probe.socket", metavar="PATH", envvar="KERNELCAST_SOCKET", help="The exporter's socket."),
    ] = None,
    state_directory: Annotated[
        str | None, typer.Option("--state.directory", metavar="DIR", help="The exporter's directory of totals.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    probe_clock: Annotated[
        bool, typer.Option("--clock/--no-clock", help="Write one empty message to Kafka to compare clocks.")
    ] = True,
) -> None:
    """Check this machine and say what to do; exits with 1 if something will not work, with 2 if Kafka refuses us."""
    is_installed = all(map(find_spec, software.EXTRAS["exporter"]))
    if is_installed:
        _check_as_exporter(config, to_kafka)
    flags = {
        "web.listen_address": listen_address,
        "web.config_file": web_config_file,
        "socket_path": socket,
        "state_directory": state_directory,
        "to_kafka": to_kafka,
    }
    exporter = load("exporter", NodeSettings, path=config, flags=flags, environ=os.environ)
    brokers = {"kafka.bootstrap_servers": bootstrap_servers}
    kafka = load("doctor", DoctorSettings, path=config, flags=brokers, environ=os.environ).kafka
    checks = _checks(exporter, kafka, is_installed=is_installed, probe_clock=probe_clock)
    findings = list(checks) if as_json else _shown(checks)
    if as_json:
        typer.echo(json.dumps([_as_json(finding) for finding in findings], indent=2))
    failed = [finding for finding in findings if finding.level is CheckLevel.FAIL]
    if failed:
        raise typer.Exit(EXIT_CONFIGURATION if any(finding.wrong_settings for finding in failed) else EXIT_RUN_TIME)


def _check_as_exporter(config: Path | None, to_kafka: str | None) -> None:
    """Let the exporter check its settings; it prints what it refuses.

    Raises:
        typer.Exit: It refuses them.
    """
    options = {"--config": config, "--kafka": to_kafka}
    arguments = [text for option, value in options.items() if value is not None for text in (option, str(value))]
    with redirect_stdout(io.StringIO()):
        code = run(["exporter", "--check-config", *arguments])
    if code:
        raise typer.Exit(code)


def _checks(
    exporter: NodeSettings, kafka: KafkaSettings, *, is_installed: bool, probe_clock: bool
) -> Iterator[CheckResult]:
    yield from software.check_python()
    yield from software.check_extras()
    yield from within(gpu.check_gpu, name="nvml")
    yield from within(rows.check_rows, name="nvml rows")
    yield from gpu.check_cupti()
    if exporter.to_kafka:
        yield from broker.check_broker(kafka, probe_clock=probe_clock)
    else:
        yield ok("kafka", "is not used: the exporter's to_kafka is off")
    yield from _check_node(exporter, is_installed=is_installed)
    yield from node.check_web_config(exporter.web.config_file)
    yield from software.check_tools()


def _check_node(node_settings: NodeSettings, *, is_installed: bool) -> Iterator[CheckResult]:
    """The exporter's surroundings, as its settings name them.

    Where it is installed and none listens, this user is to start it: what would end it then is a failure. The files of
    one that runs are its own user's.
    """
    starts = is_installed and not node.is_listening(node_settings.socket_path)
    yield from node.check_socket(node_settings.socket_path, starts=starts)
    if is_installed:
        yield from node.check_listen_address(node_settings.web.listen_address, starts=starts)
    yield from surroundings.check_dcgm_exporter(node_settings.dcgm_exporter_url)
    yield from surroundings.check_kubelet(node_settings.pod_resources_socket)
    yield from surroundings.check_jobs(node_settings.job_mapping_directory)
    if node_settings.tpu != "off":
        yield from surroundings.check_tpu(node_settings.tpu_ports)
    state, spool = node_settings.state_directory, node_settings.spool_directory
    yield from surroundings.check_directory(
        "state directory",
        state,
        needed_bytes=STATE_BYTES,
        without="a crash resets every counter; set exporter.state_directory",
        setting="exporter.state_directory" if starts else "",
        remedy="name one that can be written with --state.directory",
    )
    if not node_settings.to_kafka:
        return
    is_below = spool is not None and state in spool.parents  # then the result of the state's directory says it
    yield from surroundings.check_directory(
        "spool",
        spool,
        needed_bytes=node_settings.spool.max_bytes,
        without="what does not fit into memory while Kafka is away is lost; set exporter.spool.directory",
        setting="exporter.spool.directory" if starts and not is_below else "",
        remedy="name one that can be written, or null to keep nothing on disk",
    )


def _as_json(finding: CheckResult) -> dict[str, str]:
    return {
        "check": finding.check,
        "level": finding.level.value,
        "found": finding.found,
        "remedy": finding.remedy,
    }


def _shown(findings: Iterable[CheckResult]) -> list[CheckResult]:
    """Print each finding when it is made, and return all: a library that ends this process does not take them along."""
    console = Console(file=sys.stdout, highlight=False, soft_wrap=True)
    shown = []
    for finding in findings:
        style = _STYLES[finding.level]
        console.print(f"[{style}]{finding.level.value:<5}[/]{escape(finding.check)}: {escape(finding.found)}")
        if finding.remedy:
            console.print(f"       → {escape(finding.remedy)}")
        shown.append(finding)
    return shown

"""Options, exit codes and messages of all daemons' commands."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import pytest
import structlog
import typer
from tests.support.runtime import daemon_commands
from tests.support.runtime.daemon_commands import logs_left_alone
from typer.testing import CliRunner

from kernelcast.runtime.command import DaemonOptions, command, daemon
from kernelcast.runtime.settings.service import ServiceSettings, WebSettings
from kernelcast.wire.errors import BrokerError


class ExampleSettings(ServiceSettings):
    web: WebSettings = WebSettings(listen_address=":19401")
    shards: int = 1


@daemon
def example(options: DaemonOptions, *, shards: Annotated[int | None, typer.Option("--shards")] = None) -> None:
    """Show the settings."""
    settings = options.settings("bridge", ExampleSettings, flags={"shards": shards})
    typer.echo(repr(settings))
    if settings.shards == 13:
        raise BrokerError("no broker answers")


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    with logs_left_alone():
        yield


run = partial(daemon_commands.run, example)


def test_log_lines_of_a_command_without_settings_do_not_mix_with_its_output() -> None:
    structlog.reset_defaults()

    @command
    def show() -> None:
        structlog.stdlib.get_logger("kafka.consumer").warning("read error")
        typer.echo("{}")

    app = typer.Typer(add_completion=False)
    app.command()(show)
    shown = CliRunner().invoke(app, [])

    assert shown.stdout == "{}\n"
    assert "read error" in shown.stderr


def test_the_shared_options_have_prometheus_names() -> None:
    text = run("--help").output

    for option in ("--config", "--kafka.bootstrap-se", "--web.listen-address", "--web.config.file", "--log.level"):
        assert option in text
    assert "--log.format" in text
    assert "--check-config" in text


def test_shared_and_own_options_reach_the_settings(tmp_path: Path) -> None:
    file = tmp_path / "kernelcast.yaml"
    file.write_text("log: {level: debug}\nbridge: {shards: 2}\n")

    shown = run(
        "--config", str(file), "--web.listen-address", ":1", "--kafka.bootstrap-servers", "a:1", "--shards", "3"
    )

    assert shown.exit_code == 0
    assert "level='debug'" in shown.output
    assert "listen_address=':1'" in shown.output
    assert "bootstrap_servers='a:1'" in shown.output
    assert "shards=3" in shown.output


def test_a_configuration_error_exits_with_2_and_one_line_for_each_problem() -> None:
    refused = run("--web.listen-address", "nowhere", "--log.level", "loud")

    assert refused.exit_code == 2
    assert [line.partition(";")[0] for line in refused.stderr.splitlines()] == [
        "kernelcast: --log.level is loud",
        "kernelcast: --web.listen-address is nowhere",
    ]


def test_a_failure_at_run_time_exits_with_1() -> None:
    failed = run("--shards", "13")

    assert (failed.exit_code, failed.stderr) == (1, "kernelcast: no broker answers\n")


def test_checking_the_configuration_starts_nothing() -> None:
    checked = run("--check-config")

    assert (checked.exit_code, checked.output) == (0, "configuration is valid\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kafka: {properties: {no.such: 1}}", 'No such configuration property: "no.such"'),
        ("bridge: {web: {config_file: /nowhere/web.yml}}", "/nowhere/web.yml cannot be read"),
    ],
)
def test_checking_finds_what_only_starting_would(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "kernelcast.yaml"
    file.write_text(text)

    checked = run("--check-config", "--config", str(file))

    assert checked.exit_code == 2
    assert words in checked.stderr


def test_the_version_is_printed_even_with_wrong_settings() -> None:
    shown = run("--log.level", "loud", "--version")

    assert shown.exit_code == 0
    assert shown.output.startswith("kernelcast ")

"""The `kernelcast` command: finding commands, help, exit codes."""

import sys
from importlib.metadata import EntryPoint

import pytest
import typer

from kernelcast.cli import app
from kernelcast.wire.errors import BrokerError, ConfigurationError

sub = typer.Typer(add_completion=False)


def single(*, fail: str = "") -> None:
    """One command."""
    if fail == "configuration":
        raise ConfigurationError("a is 1; the minimum is 2; raise it")
    if fail == "broker":
        raise BrokerError("no broker answers")
    if fail == "module":
        raise ModuleNotFoundError("No module named 'pynvml'", name="pynvml")
    if fail == "pipe":
        raise BrokenPipeError
    typer.echo("ran")


@sub.command()
def kineto() -> None:
    """Sub-command."""
    typer.echo("kineto ran")


@sub.command()
def nsys() -> None:
    """Sub-command."""


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    module = type(sys)("kernelcast_test_commands")
    module.__dict__.update(single=single, sub=sub)
    monkeypatch.setitem(sys.modules, "kernelcast_test_commands", module)


def run(*arguments: str) -> int:
    found = [
        EntryPoint("exporter", "kernelcast_test_commands:single", app.GROUP),
        EntryPoint("replay", "kernelcast_test_commands:sub", app.GROUP),
        EntryPoint("bridge", "no_such_dependency.command:bridge", app.GROUP),
        EntryPoint("predictor", "kernelcast.no_such_module:predictor", app.GROUP),
        EntryPoint("extension", "kernelcast_test_commands:single", app.GROUP),
    ]
    return app.run(arguments, found=found)


def test_a_function_and_a_typer_application_are_both_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("exporter") == 0
    assert run("replay", "kineto") == 0
    assert capsys.readouterr().out == "ran\nkineto ran\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("exporter", "--fail", "configuration"), 2, "kernelcast: a is 1; the minimum is 2; raise it\n"),
        (("exporter", "--fail", "broker"), 1, "kernelcast: no broker answers\n"),
        (("exporter", "--fail", "module"), 2, "kernelcast exporter needs pynvml: pip install 'kernelcast[exporter]'"),
        (("bridge",), 2, "kernelcast bridge needs no_such_dependency: pip install 'kernelcast[bridge]'"),
        (("predictor",), 2, "not part of this installation: kernelcast.no_such_module is missing"),
        (("grafana",), 2, "kernelcast grafana is not part of this installation"),
        (("exportr",), 2, "exportr is not a command; did you mean exporter?"),
        (("xyz",), 2, "commands are demo, probe, exporter"),
        (("exporter", "--nonsense"), 2, "No such option"),
    ],
)
def test_exit_codes_and_messages(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, words: str
) -> None:
    assert run(*arguments) == code
    assert words in capsys.readouterr().err


def test_help_of_a_command_without_its_extra_says_what_it_does_and_how_to_get_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("bridge", "--help") == 0
    printed = capsys.readouterr().out
    assert app.LISTINGS["bridge"].help in printed
    assert "  kernelcast bridge --kafka.bootstrap-servers kafka-1:9092" in printed
    assert "kernelcast bridge needs no_such_dependency: pip install 'kernelcast[bridge]'" in printed


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",), ("help",)])
def test_help_lists_every_command_even_if_its_extra_is_missing(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    assert run(*arguments) == 0
    lines = capsys.readouterr().out.splitlines()

    first, more = lines.index("Commands:"), lines.index("More:")
    assert [line.split()[0] for line in lines[first + 1 : more - 1]] == list(app.LISTINGS)[: len(app.FIRST)]
    assert {line.split()[0] for line in lines[first + 1 : more - 1]} == app.FIRST
    listed = {line.split()[0]: line for line in lines if line.startswith("  ")}
    assert set(listed) == {*app.LISTINGS, "extension"}
    assert all(len(line.split()) > 2 for line in listed.values())


def test_a_bare_install_says_how_to_get_the_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "find_spec", lambda _name: None)

    assert run("--help") == 2
    assert "pip install 'kernelcast[all]'" in capsys.readouterr().err

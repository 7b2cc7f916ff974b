"""Every command's help has an example, and its parser takes that."""

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer

from kernelcast.cli import app
from kernelcast.cli.examples import EXAMPLES, add_examples

PARSED_BY_THEMSELVES = {name for name, listing in app.LISTINGS.items() if listing.plain}


def parser(name: str) -> Any:
    (target,) = [app.LISTINGS[name].target] if app.LISTINGS[name].target else targets(name)
    module, _, attribute = target.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, typer.Typer):
        function, found = found, typer.Typer()
        found.command()(function)
    return typer.main.get_command(found)


def targets(name: str) -> list[str]:
    return [point.value for point in entry_points(group=app.GROUP, name=name)]


def below(name: str, command: Any) -> Iterator[str]:
    """The names of a command and of those below it; a group that does nothing by itself is none."""
    if not hasattr(command, "commands") or command.invoke_without_command:
        yield name
    for each, child in getattr(command, "commands", {}).items():
        yield from below(f"{name} {each}", child)


def test_every_command_has_an_example() -> None:
    names = {each for name in app.LISTINGS.keys() - PARSED_BY_THEMSELVES for each in below(name, parser(name))}
    assert names == set(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_parser_takes_the_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = re.split(r" (?:&&|>|<) ", EXAMPLES[name])[0]
    words = shlex.split(line)
    for word in words:
        if re.search(r"\.(csv|json|sqlite|txt|yaml|gz)$", word) and "/" not in word:
            Path(word).touch()  # some commands ask already at parsing whether a file exists
    command: Any = parser(words[0])
    arguments = words[1:]
    while arguments and arguments[0] in getattr(command, "commands", {}):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    command.make_context(name, arguments).close()
    assert words[: len(name.split())] == name.split()


@pytest.mark.parametrize("name", ["topics", "topics apply", "top", "simulate"])
def test_the_help_of_a_command_shows_its_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run([*name.split(), "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for key, text in EXAMPLES.items():
        assert (f"kernelcast {text}" in shown) == (key == name or key.startswith(f"{name} ")), key


@pytest.mark.parametrize("name", sorted(PARSED_BY_THEMSELVES))
def test_a_command_that_parses_its_arguments_itself_shows_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quietly(name) == 0
    assert re.search(rf"examples?:\s+kernelcast {name} ", capsys.readouterr().out)


def quietly(name: str) -> int:
    try:
        return app.run([name, "--help"])
    except SystemExit as end:
        return int(end.code or 0)


def test_an_example_stays_beside_the_epilog_that_a_command_has() -> None:
    command = SimpleNamespace(epilog="More words.")
    add_examples(command, "top")
    assert command.epilog == f"Example:\n\nkernelcast {EXAMPLES['top']}\n\nMore words."

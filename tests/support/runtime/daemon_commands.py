"""Runs the command of a daemon in the test's process."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import structlog
import typer
from typer.testing import CliRunner, Result

from kernelcast.runtime import logging


@contextmanager
def logs_left_alone() -> Iterator[None]:
    """A daemon configures the logs of its process, which a test's is not."""
    with patch.object(logging, "configure", lambda _settings: None):
        yield
    structlog.reset_defaults()


def run(command: Callable[..., Any], *arguments: str) -> Result:
    """Run a command with these arguments."""
    app = typer.Typer(add_completion=False)
    app.command()(command)
    return CliRunner().invoke(app, arguments)

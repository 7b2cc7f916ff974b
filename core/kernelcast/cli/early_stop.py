"""Handles SIGTERM from the first moments of the commands that run until they are stopped, before their own handlers."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

UNTIL_STOPPED: Final = frozenset({"exporter", "bridge", "predictor", "replay", "simulate"})
"""Commands that a signal ends, and whose end by SIGTERM is no failure."""


def exit_on_sigterm() -> None:
    """Exit with 0 on SIGTERM from now on, also on one that arrived while a parent's signal mask blocked it."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM,))


@contextmanager
def exiting_on_sigterm() -> Iterator[None]:
    """Exit with 0 on a SIGTERM that arrives in the block, unless its code sets another handler."""
    previous = signal.getsignal(signal.SIGTERM)
    try:
        exit_on_sigterm()
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)

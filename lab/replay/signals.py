"""Signals that end the commands `lab.tune_replay` and `lab.tune_oracle`, as an exception in their main thread."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stopped(BaseException):
    """A signal asked this process to end.

    Attributes:
        number: The signal's number.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def stopping() -> Iterator[None]:
    """Raise `Stopped` on the first SIGTERM or SIGINT; later ones are ignored, so that the clean-up can finish."""
    numbers = (signal.SIGTERM, signal.SIGINT)

    def stop(number: int, _frame: FrameType | None) -> None:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)
        raise Stopped(number)

    previous = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

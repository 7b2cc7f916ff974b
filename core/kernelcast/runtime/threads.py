"""Threads of a daemon: each ends with the process, and none ends by an error unnoticed."""

import threading
from collections.abc import Callable
from typing import Any, Final

_failed: Final[dict[str, str]] = {}  # of this process: error of each thread that one has ended, by the thread's name


class Worker(threading.Thread):
    """A thread that ends with the process, or soon after `stop`.

    An error that ends it is logged by `threading.excepthook` (see `logging`), and `failure` names it from then on: the
    web server answers `/-/healthy` with it, so that whoever supervises the process starts it again.

    >>> def work() -> None:
    ...     while not worker.stopping.wait(60.0):
    ...         print("a minute has passed")
    >>> worker = Worker("example", work)
    >>> worker.start()
    >>> worker.stop(5.0)
    True

    Attributes:
        stopping: Set once it is to end.
    """

    def __init__(self, name: str, run: Callable[..., object], *arguments: Any) -> None:
        """Prepare; `start` starts it.

        Args:
            name: Name of the thread in logs and debuggers.
            run: Its work.
            arguments: Arguments of its work.
        """
        super().__init__(target=run, args=arguments, name=name, daemon=True)
        self.stopping = threading.Event()

    def run(self) -> None:
        """Work; called by `start` on the new thread."""
        try:
            super().run()
        except Exception as error:
            _failed[self.name] = f"{type(error).__name__}: {error}"
            raise

    def stop(self, timeout_seconds: float) -> bool:
        """Ask it to end and wait; returns whether it has ended. It need not have been started."""
        self.stopping.set()
        if self.is_alive():
            self.join(timeout_seconds)
        return not self.is_alive()


def failure() -> str:
    """The first thread that an error has ended, and the error; empty where none has."""
    return next((f"the thread {name} ended by an error: {error}" for name, error in _failed.items()), "")

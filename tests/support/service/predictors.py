"""A predictor in a thread of the test's own process."""

import threading
import time
from collections.abc import Callable
from typing import Self

import httpx

from kernelcast.predictor.service import Predictor
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.lifecycle import Shutdown


class RunningPredictor:
    """A predictor that runs until the end of the block."""

    def __init__(self, settings: PredictorSettings) -> None:
        self.shutdown = Shutdown()
        self.predictor = Predictor(settings)
        self.thread = threading.Thread(target=self.predictor.run, args=(self.shutdown,))

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown.request()
        self.thread.join(30)
        assert not self.thread.is_alive()

    def value(self, name: str, **wanted: str) -> float:
        """A metric of its own; 0 where it has none."""
        return self.predictor.registry.get_sample_value(name, wanted) or 0.0

    def ready(self) -> bool:
        """Whether it answers that it is."""
        try:
            return httpx.get(f"{self.predictor.web.url}/-/ready", timeout=2).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False


def eventually(condition: Callable[[], bool], *, within_seconds: float = 30.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + within_seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)

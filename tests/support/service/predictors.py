"""A predictor in a thread of the test's own process."""

import threading
from typing import Self

import httpx
from tests.support.waiting import LONGEST_SECONDS

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
        self.thread.join(LONGEST_SECONDS)
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

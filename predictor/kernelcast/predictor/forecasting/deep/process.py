"""The predictor's end of one worker process: starts it, sends it a window, waits for the models, stops it.

Each thread of `FitPool` owns one.
"""

import os
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe
from typing import Final, Protocol

from kernelcast.predictor.forecasting.deep.messages import FitAnswer, FitRequest

WORKER: Final = "kernelcast.predictor.forecasting.deep.worker"
STOP_SECONDS: Final = 2.0
"""Time that a process has for ending by itself before it is killed; a fit takes a tenth of a second."""
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""The matrices of a fit are small; threads of the linear algebra would only take more cores."""


class ProcessEndedError(Exception):
    """The process has ended, or its answer is none."""


class Fitter(Protocol):
    """A process that fits; one thread at a time."""

    def fit(self, request: FitRequest, timeout_seconds: float) -> FitAnswer | None:
        """Fit a window; None where the answer has not come in time.

        Raises:
            ProcessEndedError: The process has ended.
        """

    def stop(self) -> None:
        """Stop the process at once; a second call has no effect."""


class FitProcess:
    """`Fitter` as a child of this process: a new interpreter, which inherits one connection and nothing else."""

    def __init__(self, module: str = WORKER) -> None:
        """Start the process.

        Args:
            module: Module that the process runs.

        Raises:
            OSError: It cannot be started.
        """
        self._connection, theirs = Pipe()
        # The package may lie where only our own search path finds it.
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=environment,
                pass_fds=[theirs.fileno()],
            )
        self.pid = self._process.pid

    def fit(self, request: FitRequest, timeout_seconds: float) -> FitAnswer | None:
        """See `Fitter`."""
        try:
            self._connection.send_bytes(request.encode())
            if not self._connection.poll(timeout_seconds):
                return None
            return FitAnswer.decode(self._connection.recv_bytes())
        except (EOFError, OSError, ValueError) as error:
            raise ProcessEndedError(repr(error)) from error

    def stop(self) -> None:
        """See `Fitter`."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
        self._connection.close()

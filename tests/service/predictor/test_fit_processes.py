"""Real processes that fit: killed, hung, idle and orphaned."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest

from kernelcast.predictor.forecasting.deep.messages import MODELS, FitOutcome, FitRequest
from kernelcast.predictor.forecasting.deep.pool import Answered, FitPool, Shed
from kernelcast.predictor.forecasting.deep.process import FitProcess

pytestmark = pytest.mark.service

HANGING = "tests.support.fits_that_hang"
LIMIT_SECONDS = 120.0


def window(first: float) -> FitRequest:
    return FitRequest(np.full(3, first), 2, 0)


class Processes:
    """Starts processes and keeps them."""

    def __init__(self, module: str) -> None:
        self.all: list[FitProcess] = []
        self._module = module

    def __call__(self) -> FitProcess:
        self.all.append(FitProcess(self._module))
        return self.all[-1]


@pytest.fixture
def hanging() -> Iterator[tuple[FitPool, Processes]]:
    processes = Processes(HANGING)
    pool = FitPool(1, processes, answer_seconds=5.0, pause_seconds=0.01)
    yield pool, processes
    pool.close(10.0)
    assert all(ended(each.pid) for each in processes.all)


def ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def answers(pool: FitPool, count: int) -> list[Answered]:
    found: list[Answered] = []
    while len(found) < count and (more := pool.answers(LIMIT_SECONDS)):
        found += more
    return found


def test_a_new_interpreter_fits_and_ends_with_its_connection() -> None:
    values = 70 + np.cumsum(np.random.default_rng(2).normal(0, 0.3, 144))
    process = FitProcess()
    try:
        answer = process.fit(FitRequest(values, 143, 0), LIMIT_SECONDS)
        assert answer is not None
        assert answer.outcomes == dict.fromkeys(MODELS, FitOutcome.FITTED)
        own = os.getpriority(os.PRIO_PROCESS, 0)
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == min(19, own + 19)
    finally:
        process.stop()
    assert ended(process.pid)


def test_a_process_that_is_killed_in_a_fit_is_replaced(hanging: tuple[FitPool, Processes]) -> None:
    pool, processes = hanging
    for ticket, first in enumerate((1.0, 0.0, 2.0)):
        assert pool.submit(ticket, window(first))
    assert [each.answer.seconds for each in answers(pool, 1)] == [1.0]
    os.kill(processes.all[0].pid, signal.SIGKILL)
    found = answers(pool, 2)
    assert [(each.ticket, each.reason, each.answer.seconds) for each in found] == [
        (1, Shed.ENDED, 0.0),
        (2, None, 2.0),
    ]


def test_a_process_that_hangs_and_ignores_sigterm_is_replaced(hanging: tuple[FitPool, Processes]) -> None:
    pool, processes = hanging
    for ticket, first in enumerate((0.0, 3.0)):
        assert pool.submit(ticket, window(first))
    found = answers(pool, 2)
    assert [(each.ticket, each.reason) for each in found] == [(0, Shed.HUNG), (1, None)]
    assert ended(processes.all[0].pid)
    assert pool.starts == 2


def test_a_worker_ends_when_its_predictor_is_killed() -> None:
    program = (
        "import os, signal, numpy as np\n"
        "from kernelcast.predictor.forecasting.deep.messages import FitRequest\n"
        "from kernelcast.predictor.forecasting.deep.process import FitProcess\n"
        f"process = FitProcess({HANGING!r})\n"
        "process.fit(FitRequest(np.ones(3), 2, 0), 60.0)\n"
        "print(process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
        env=environment,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    with suppress(ProcessLookupError):  # it has ended already
        worker = os.pidfd_open(int(done.stdout))
        assert select.select([worker], [], [], LIMIT_SECONDS)[0]
        os.close(worker)


def test_the_main_process_imports_no_statsmodels() -> None:
    program = (
        "import sys\n"
        "import kernelcast.predictor.service, kernelcast.predictor.backtest.command\n"
        "print(sorted({'statsmodels', 'pandas'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""Cost of one sample of all GPUs in the process that calls NVML: the sample, its JSON and its transfer.

`python benchmarks/nvml_sample.py [--gpus N] [--samples N] [--rounds N]`

Two figures, in processor milliseconds: with a recording in place of pynvml, whose lookups cost time as well, and with
the same calls answered from a dictionary, which leaves the cost of the sampler itself. Of several rounds the fastest
one counts, because other programs disturbed it least.
"""

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.exporter.nvml_double import gpu, node

from kernelcast.exporter.nvml.isolation.call_board import CallBoard, NotedNvml
from kernelcast.exporter.nvml.isolation.frames import send
from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.recordings.recording import NODE, Answers, RecordedChanges, Recording
from kernelcast.exporter.nvml.sampling.sampler import Sampler, SamplerOptions

SECOND_NS = 10**9
WARM_UP_SAMPLES = 20
PROCESSES = 4
MOMENTS = 30
"""Seconds of the recording, which is played again from its start."""
IDLE = ("memUtil", "encUtil", "decUtil")
"""Fields of a process' utilisation that are always 0 here."""
STATEFUL = ("nvmlGpm", "nvmlEvent", "nvmlDeviceRegisterEvents")
"""Beginnings of the names of calls whose answers depend on earlier calls, and are not remembered."""


def moments(gpus: int) -> Iterator[RecordedChanges]:
    """Values that move from second to second, as real ones do."""
    rng = random.Random(1)
    for second in range(MOMENTS):
        answers: Answers = node(*(gpu(f"GPU-{index:08x}-0000-0000-0000-000000000000", index) for index in range(gpus)))
        for index in range(gpus):
            answers[str(index)] |= varied(rng, index, second)
        if second == 0:
            answers[NODE] = {
                "nvmlDeviceGetCount": gpus,
                "nvmlSystemGetDriverVersion": "590.48.01",
            }
        yield RecordedChanges(second * 10**9, answers)


def varied(rng: random.Random, index: int, second: int) -> dict[str, Any]:
    """NVML's answers for a busy GPU in one second."""
    pids = [10_000 + index * PROCESSES + one for one in range(PROCESSES)]
    running = [{"pid": pid, "usedGpuMemory": rng.randrange(2**34)} for pid in pids]
    used = [
        {"pid": pid, "timeStamp": second * 10**6, "smUtil": rng.randrange(100), **dict.fromkeys(IDLE, 0)}
        for pid in pids
    ]
    return {
        "nvmlDeviceGetPowerUsage": rng.randrange(70_000, 700_000),
        "nvmlDeviceGetTotalEnergyConsumption": second * 500_000 + index,
        "nvmlDeviceGetUtilizationRates": {"gpu": rng.randrange(100), "memory": rng.randrange(100)},
        "nvmlDeviceGetComputeRunningProcesses": running,
        "nvmlDeviceGetProcessUtilization": used,
        **{f"nvmlGpmMetricsGet:{one}": rng.uniform(0, 100) for one in (1, 2, 3, 5, 10)},
    }


class Remembered:
    """A module that answers plain calls from the memory of their first result."""

    def __init__(self, nvml: RecordedNvml) -> None:
        self._nvml = nvml

    def __getattr__(self, name: str) -> Any:
        theirs = getattr(self._nvml, name)
        if name.startswith("nvmlDevice") and not name.startswith(STATEFUL) and not isinstance(theirs, type):
            theirs = self._remembered(theirs)
        self.__dict__[name] = theirs
        return theirs

    def _remembered(self, call: Callable[..., Any]) -> Callable[..., Any]:
        results: dict[tuple[Any, int], Any] = {}

        def answer(*arguments: Any, **named: Any) -> Any:
            owner = getattr(arguments[0], "owner", arguments[0]) if arguments else ""
            kind = arguments[1] if len(arguments) == 2 and isinstance(arguments[1], int) else 0
            if (owner, kind) not in results:
                try:
                    results[owner, kind] = call(*arguments, **named)
                except self._nvml.NVMLError as error:
                    results[owner, kind] = error
            found = results[owner, kind]
            if isinstance(found, Exception):
                raise found.with_traceback(None)
            return found

        return answer


def milliseconds(nvml: Any, set_time: Callable[[int], None], samples: int, rounds: int) -> float:
    """Return processor time of a sample, the smallest of the rounds; `set_time` sets the recording's time."""
    sampler = Sampler(NotedNvml(nvml, CallBoard()), SamplerOptions(names=False)).start()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    second, best = 0, float("inf")
    for count in (WARM_UP_SAMPLES, *[samples] * rounds):
        began = time.process_time()
        for _ in range(count):
            second += 1
            set_time(second * SECOND_NS)
            send(nowhere, {"reading": sampler.sample(second * SECOND_NS).to_json()})
        if count == samples:
            best = min(best, (time.process_time() - began) / count * 1000)
    sampler.close()
    os.close(nowhere)
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    now_ns = [0]
    recording = Recording(tuple(moments(options.gpus)))

    def set_time(time_ns: int) -> None:
        now_ns[0] = time_ns

    result = {
        name: round(milliseconds(nvml, set_time, options.samples, options.rounds), 3)
        for name, nvml in (
            ("played recording, ms", RecordedNvml(recording, clock=lambda: now_ns[0])),
            ("remembered answers, ms", Remembered(RecordedNvml(recording, clock=lambda: now_ns[0]))),
        )
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()

"""GPUs that were slow from their first minute, found by the other nodes: recall and false alarms over simulated fleets.

Everything is simulated: nodes of healthy GPUs that differ from each other and over time, kernels with variants, and a
slow first quarter of an hour of each process. In half of the fleets one GPU is slow.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from benchmarks.predictor.options import Options
from numpy.typing import NDArray

from kernelcast.predictor.engine import Engine
from kernelcast.predictor.series.subjects import VARIANT, Form, Subject
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.findings import Finding

Floats = NDArray[np.float64]

START_NS: Final = 1_800_000_000 * 1_000_000_000
INTERVAL_SECONDS: Final = 60.0
INTERVALS_PER_BLOCK: Final = 5
OPENING_BLOCKS: Final = 3
FLEETS: Final = 20
BLOCKS: Final = 24
"""Two hours."""
FACTORS: Final = (1.0, 1.1, 1.15, 1.3)
CLOCK_MHZ: Final = 1980.0


@dataclass(frozen=True)
class Gpu:
    """One GPU of a simulated fleet.

    Attributes:
        node: Name of its node.
        number: Its number on the node.
        program: The program that runs on it.
        factor: Its durations relative to those of a usual GPU.
        rank: Of the program's process; empty for none.
        model: Model of the GPU.
        clock_mhz: Its SM clock.
        kernels: Kernels and their variants, with the usual duration in seconds.
        reasons: Reasons to lower the clock, as NVML's mask.
        born_block: Block in which the program begins.
    """

    node: str
    number: int
    program: str = "train"
    factor: float = 1.0
    rank: str = ""
    model: str = "NVIDIA H100 80GB HBM3"
    clock_mhz: float = CLOCK_MHZ
    kernels: tuple[tuple[str, str, float], ...] = (
        ("gemm#01", "128x1x1|256x1x1", 1e-3),
        ("softmax#02", "64x1x1|128x1x1", 2e-4),
        ("norm#03", "64x1x1|256x1x1", 1e-4),
        ("copy#04", "32x1x1|256x1x1", 5e-5),
    )
    reasons: int = 0
    born_block: int = 0

    @property
    def labels(self) -> dict[str, str]:
        """Labels of the GPU."""
        return {"Hostname": self.node, "UUID": f"{self.node}-GPU-{self.number}", "gpu": str(self.number)}


@dataclass
class Predictor:
    """An engine with the part of the fleet that it reads, in event time; a cycle follows each block.

    Attributes:
        gpus: The GPUs whose series it reads.
        seed: Of the noise.
        silicon: Standard deviation of GPUs of one model.
        engine: The predictor without Kafka.
        found: The findings of each block.
    """

    gpus: Sequence[Gpu]
    seed: int
    silicon: float = 0.015
    engine: Engine = field(init=False)
    found: list[list[Finding]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._block = 0
        settings = PredictorSettings(client_id="simulated", interval_seconds=INTERVAL_SECONDS)
        self.engine = Engine(settings, clock_ns=lambda: self.now_ns)
        self.shared.caught_up = True
        subjects, self._usual, self._born, self._kernel = self._series()
        with self.engine._lock:  # noqa: SLF001  windows have no other writer here
            self._rows = np.array([self.engine.windows.admit(one, owner=0) for one in subjects], np.int64)

    @property
    def now_ns(self) -> int:
        """Time of the machine."""
        return START_NS + round(self._block * INTERVALS_PER_BLOCK * INTERVAL_SECONDS * 1e9)

    @property
    def shared(self) -> Any:
        """The shared baselines."""
        return self.engine.cycle.fleet.shared

    def run(self, blocks: int) -> list[list[Finding]]:
        """Write blocks, each followed by a cycle; returns the findings of each."""
        before = len(self.found)
        for _ in range(blocks):
            self._write()
            self._block += 1
            self.found.append(self.engine.run_cycle().candidates)
        return self.found[before:]

    def _write(self) -> None:
        own = 1 + 0.01 * self._rng.standard_normal(len(self._rows))
        opening = self._block - self._born
        slow = np.where(self._kernel & (opening < OPENING_BLOCKS), 1.5, 1.0)
        for interval in range(INTERVALS_PER_BLOCK):
            noise = np.where(self._kernel, own * (1 + 0.02 * self._rng.standard_normal(len(own))), 1.0)
            seconds = (self._block * INTERVALS_PER_BLOCK + interval + 0.5) * INTERVAL_SECONDS
            time_ns = START_NS + round(seconds * 1e9)
            live = np.flatnonzero(opening >= 0)
            with self.engine._lock:  # noqa: SLF001
                self.engine.windows.put_levels(
                    self._rows[live],
                    np.full(len(live), time_ns, np.int64),
                    (self._usual * slow * noise)[live],
                    now_seconds=time_ns / 1e9,
                )

    def _series(self) -> tuple[list[Subject], Floats, Floats, NDArray[np.bool_]]:
        subjects, usual, born, kernel = [], [], [], []
        for gpu in self.gpus:
            levels = {
                device.SM_CLOCK: gpu.clock_mhz,
                device.GPU_UTIL: 97.0,
                device.CLOCK_EVENT_REASONS: float(gpu.reasons),
            }
            for metric, value in levels.items():
                subjects.append(_subject(metric.prometheus_name, Form.LEVEL, gpu.labels | {"modelName": gpu.model}))
                usual.append(value)
                born.append(0)
                kernel.append(False)
            silicon = gpu.factor * (1 + self.silicon * self._rng.standard_normal())
            for name, variant, seconds in gpu.kernels:
                words = {"program": gpu.program, "kernel": name, "kernel_class": "compute", "variant": variant}
                subjects.append(_subject(VARIANT, Form.MEAN, gpu.labels | words | {"rank": gpu.rank}))
                usual.append(seconds * silicon * (1 + 0.005 * self._rng.standard_normal()))
                born.append(gpu.born_block)
                kernel.append(True)
        return subjects, np.array(usual), np.array(born), np.array(kernel)


def exchange(predictors: Sequence[Predictor], order: Callable[[list[Any]], list[Any]] = list) -> int:
    """Hand every record that is due to every predictor, as Kafka would; returns their number."""
    records = [(key, one) for each in predictors for key, one in each.shared.take_due(each.now_ns)]
    for each in predictors:
        for key, one in order(records):
            if one is None:
                each.shared.withdrawn(key)
            else:
                each.shared.learn(key, one, now_ns=each.now_ns)
    return len(records)


def fleet(nodes: int, gpus_per_node: int = 1, *, slow: float = 1.0) -> list[Gpu]:
    """Nodes with a program each, such as replicas of a service; the first GPU may be slow."""
    return [
        Gpu(f"n{node}", number, f"serve-{node}", slow if (node, number) == (0, 0) else 1.0)
        for node in range(nodes)
        for number in range(gpus_per_node)
    ]


def slow_gpus(found: Sequence[Finding]) -> set[tuple[str, str]]:
    """Host and GPU of the findings that the other nodes show."""
    peers = [one for one in found if any(fact.peers for fact in one.evidence)]
    return {(dict(one.labels)["Hostname"], dict(one.labels)["UUID"]) for one in peers}


def run(options: Options) -> dict[str, Any]:
    """Score fleets of six nodes with two GPUs each, each with fresh noise."""
    results = [_score(options.seed * 1000 + number, factor) for factor in FACTORS for number in range(FLEETS)]
    return {
        "fleets": [
            {
                "factor": factor,
                "fleets": FLEETS,
                "found": sum(one["found"] for one in results if one["factor"] == factor),
                "named_wrongly": sum(one["wrong"] for one in results if one["factor"] == factor),
                "causes": sorted({cause for one in results if one["factor"] == factor for cause in one["causes"]}),
                "median_minutes": _median([one["minutes"] for one in results if one["factor"] == factor]),
            }
            for factor in FACTORS
        ]
    }


def table(result: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [f"{'slowed by':>9}  {'fleets':>6}  {'found':>5}  {'other GPUs named':>16}  {'minutes':>7}  causes"]
    lines += [
        f"{one['factor']:>9g}  {one['fleets']:>6}  {one['found']:>5}  {one['named_wrongly']:>16}  "
        f"{one['median_minutes'] or '':>7}  {' '.join(one['causes'])}"
        for one in result["fleets"]
    ]
    return "\n".join(lines)


def _score(seed: int, factor: float) -> dict[str, Any]:
    """One fleet: whether its slow GPU is found, after how long, and which others are."""
    predictor = Predictor(fleet(6, 2, slow=factor), seed)
    first, wrong, causes = None, set(), set()
    for block in range(BLOCKS):
        (found,) = predictor.run(1)
        exchange([predictor])
        named = slow_gpus(found)
        wrong |= named - {("n0", "n0-GPU-0")} if factor > 1 else named
        if ("n0", "n0-GPU-0") in named and factor > 1:
            first = block + 1 if first is None else first
            causes |= {str(one.cause) for one in found if dict(one.labels)["UUID"] == "n0-GPU-0"}
    minutes = None if first is None else round(first * INTERVALS_PER_BLOCK * INTERVAL_SECONDS / 60)
    return {"factor": factor, "found": first is not None, "wrong": len(wrong), "causes": causes, "minutes": minutes}


def _median(minutes: Sequence[int | None]) -> int | None:
    known = sorted(one for one in minutes if one is not None)
    return known[len(known) // 2] if known else None


def _subject(metric: str, form: Form, labels: dict[str, str]) -> Subject:
    return Subject(metric, form, tuple(sorted((name, value) for name, value in labels.items() if value)))

"""A simulated node writes every row of the catalogue that a full H100 node writes, and its values agree."""

from collections.abc import Iterable
from typing import Final

import pytest

from kernelcast.columnar import Sample
from kernelcast.exporter.pipeline import Pipeline, Tick
from kernelcast.exporter.simulate import FAULTS, SimulatedFleet, SimulationSettings, parse
from kernelcast.exporter.simulate.nodes.readings import ABSENT
from kernelcast.exporter.simulate.program import make_program
from kernelcast.exporter.totals.aggregate import Aggregator, ProgramSamples
from kernelcast.probe.cupti.occupancy import theoretical
from kernelcast.wire.catalogue import CATALOGUE, Metric, inference, kernel
from kernelcast.wire.catalogue.devices import accelerator, device, gpu, nccl, nvlink, profiling, tpu

SECOND: Final = 1_000_000_000
START: Final = 1_760_000_000 * SECOND

NOT_SIMULATED: Final[dict[str, str]] = {
    gpu.OWNER.prometheus_name: "the labels of simulated GPUs have their owners",
    gpu.GPU_DETACHED.prometheus_name: "no simulated GPU is taken away on purpose",
    **{row.prometheus_name: "a node with GPUs has no TPU" for row in tpu.ROWS},
    **{row.prometheus_name: f"an H100 does not report it: {reason}" for row, reason in ABSENT.items()},
    **{row.prometheus_name: "no inference engine is simulated" for row in inference.ROWS},
    **{row.prometheus_name: "no exporter of another vendor is simulated" for row in accelerator.PAGE_ROWS},
    **{row.prometheus_name: "no files of NCCL Inspector are simulated" for row in nccl.ROWS},
    kernel.FLOPS.prometheus_name: "a program tells it, and simulated programs do not",
    kernel.HINT_OUTCOMES.prometheus_name: "simulated programs take no hints; the demo's example program does",
    kernel.HINT_MEASURED.prometheus_name: "simulated programs take no hints; the demo's example program does",
    kernel.TRIAL_LOST.prometheus_name: "simulated programs take no hints; the demo's example program does",
    **{
        row.prometheus_name: "a framework tells it, and simulated programs have none"
        for row in (
            kernel.ALLOCATOR,
            kernel.ALLOCATOR_RETRIES,
            kernel.OUT_OF_MEMORY,
            kernel.COMPILATIONS,
            kernel.COMPILATION_SECONDS,
            kernel.SKIPPED_STEPS,
            kernel.STEP_DURATION,
            kernel.PHASE,
            kernel.GPU_PHASE_SECONDS,
            kernel.GPU_PHASE_STEPS,
            kernel.PROGRESS,
            kernel.JOB_INFO,
            kernel.STANDING,
            kernel.LOST_PROCESSES,
        )
    },
    kernel.PROBE_COST.prometheus_name: "simulated programs are not measured by turns",
    kernel.TRIAL_ALLOWED.prometheus_name: "simulated programs take no hints; the demo's example program does",
}


class _Outbox:
    """A publisher that keeps nothing."""

    messages = points = size_bytes = 0

    def kernels(self, _group: object) -> None:
        """Nothing is sent."""

    def ended(self, _written: object, _time_ns: int) -> list[ProgramSamples]:
        """Return no program: none is retired here."""
        return []

    def devices(self, _samples: object) -> None:
        """Nothing is sent."""


def ticks(*faults: str, seconds: int = 60, every: int = 10, gpus: int = 2) -> list[Tick]:
    chosen = tuple(parse(text, FAULTS, option="--fault") for text in faults)
    fleet = SimulatedFleet(SimulationSettings(gpus=gpus, kernels=8, rate=400.0, faults=chosen), start_ns=START)
    pipeline = Pipeline([fleet], Aggregator(max_kernels=None), _Outbox())  # type: ignore[arg-type]
    return [pipeline.tick(START + step * every * SECOND) for step in range(1, seconds // every + 1)]


def samples(tick: Tick) -> list[Sample]:
    return [*tick.devices, *(one for group in tick.programs for one in group.samples)]


def values(found: Iterable[Sample], metric: Metric, **labels: str) -> list[float]:
    return [
        float(one.value)  # type: ignore[arg-type]
        for one in found
        if one.metric is metric and one.value is not None and labels.items() <= dict(one.attributes).items()
    ]


def one(found: Iterable[Sample], metric: Metric, **labels: str) -> float:
    (value,) = values(found, metric, **labels)
    return value


def test_a_full_node_writes_every_row_but_those_declared() -> None:
    last = ticks("bad-tuning:gpu=0", "xid:code=31,start=20s", "power-brake:start=30s,length=10s")[-1]
    written = {sample.metric.prometheus_name for sample in samples(last)}
    from_nodes = {row.prometheus_name for row in CATALOGUE if row.otlp_name and row.source != "predictor"}
    assert from_nodes - written == set(NOT_SIMULATED)


def test_every_series_says_that_it_is_simulated() -> None:
    found = samples(ticks("xid:code=31,start=20s")[-1])
    assert {dict(one.attributes).get("source") for one in found} == {"simulated"}


def test_labels_are_those_of_the_catalogue() -> None:
    for sample in samples(ticks("bad-tuning:gpu=0", "xid:code=31,start=20s")[-1]):
        known = {*sample.metric.labels, *device.USER_LABELS, "le"}
        assert {name for name, _ in sample.attributes} <= known, sample.metric.prometheus_name


@pytest.mark.parametrize("number", ["0", "1"])
def test_the_rows_of_a_gpu_agree(number: str) -> None:
    found = samples(ticks()[-1])
    engine = one(found, profiling.GR_ENGINE_ACTIVE, gpu=number)
    multiprocessors = one(found, profiling.SM_ACTIVE, gpu=number)
    assert 0 < one(found, profiling.SM_OCCUPANCY, gpu=number) < multiprocessors <= engine
    assert engine == pytest.approx(one(found, device.GPU_UTIL, gpu=number) / 100, abs=0.006)
    for pipe in (profiling.PIPE_TENSOR_ACTIVE, profiling.PIPE_FP32_ACTIVE, profiling.DRAM_ACTIVE):
        assert 0 < one(found, pipe, gpu=number) <= engine
    used, free = one(found, device.FB_USED, gpu=number), one(found, device.FB_FREE, gpu=number)
    assert one(found, accelerator.MEMORY_TOTAL, index=number) == (used + free) * 2**20
    assert one(found, gpu.PROCESS_MEMORY, gpu=number) == used * 2**20
    assert one(found, gpu.GPU_UP, gpu=number) == 1


def test_pcie_carries_the_copies_and_nvlink_the_collectives() -> None:
    first, last = (samples(tick) for tick in ticks()[-2:])
    copied = one(last, kernel.MEMCPY_BYTES, gpu="0", kind="h2d") - one(first, kernel.MEMCPY_BYTES, gpu="0", kind="h2d")
    assert one(last, profiling.PCIE_RX_BYTES, gpu="0") == pytest.approx(copied / 10, rel=0.1)
    sent = [sum(values(found, nvlink.IO, gpu="0", direction="transmit")) for found in (first, last)]
    assert one(last, profiling.NVLINK_TX_BYTES, gpu="0") == pytest.approx((sent[1] - sent[0]) / 10, rel=0.1)
    total_kib = one(last, device.NVLINK_BANDWIDTH, gpu="0")
    assert total_kib * 1024 == pytest.approx(2 * sent[1], rel=1e-6)


def test_waits_gaps_and_regions_fit_into_the_time() -> None:
    found = samples(ticks()[-1])
    assert sum(values(found, kernel.DEVICE_TIME, gpu="0")) == pytest.approx(60)
    idle = one(found, kernel.DEVICE_TIME, gpu="0", state="idle")
    (gaps,) = [one.value for one in found if one.metric is kernel.LAUNCH_GAP and dict(one.attributes)["gpu"] == "0"]
    assert gaps.sum_seconds == pytest.approx(idle, rel=0.05)  # type: ignore[union-attr]
    busy = sum(values(found, kernel.DEVICE_TIME, gpu="0")) - idle
    assert sum(values(found, kernel.REGION_GPU, gpu="0")) == pytest.approx(busy, rel=0.05)
    assert sum(values(found, kernel.REGION_WALL, gpu="0")) == pytest.approx(60)
    assert 0 < sum(values(found, kernel.SYNC_WAIT, gpu="0")) < busy


def test_steps_and_their_items_follow_the_launches() -> None:
    found = samples(ticks()[-1])
    steps, launches = one(found, kernel.STEPS, gpu="0"), sum(values(found, kernel.LAUNCHES, gpu="0"))
    assert steps == pytest.approx(launches / 250, abs=1)
    assert one(found, kernel.ITEMS, gpu="0") == 32 * steps
    assert one(found, kernel.STEP_SECONDS, gpu="0") == pytest.approx(60)


def test_occupancy_is_that_of_the_launch_configuration() -> None:
    for name in make_program(4, rate=100.0, distributed=False, version=0, bad=1).names:
        threads = int(name.block.partition("x")[0])
        assert name.occupancy == theoretical((9, 0), threads, name.registers, name.shared_memory_bytes)

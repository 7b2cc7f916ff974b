"""Makes the rows that GPUs have in common with TPUs from a reading of the GPUs; `samples.to_samples` calls it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from kernelcast.columnar import Sample
from kernelcast.exporter.attribution.pods import agreed
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading
from kernelcast.wire.catalogue import Metric
from kernelcast.wire.catalogue.devices import accelerator, device, profiling
from kernelcast.wire.identity import LIVE, labels

BYTES_PER_MEBIBYTE: Final = 2**20
PERCENT: Final = 0.01
LABELS: Final = frozenset(accelerator.ACCELERATOR_LABELS)


UsedBy = Callable[[GpuReading], Sequence[Mapping[str, str]]]


def accelerator_samples(node: NodeReading, *, hostname: str, used_by: UsedBy, source: str = LIVE) -> Iterator[Sample]:
    """Utilization and memory of each GPU, or of its MIG instances; each once, however many jobs or pods it has.

    Args:
        node: The GPUs.
        hostname: The node's name.
        used_by: Label sets of a GPU; the labels that all of them share are used.
        source: One of `wire.identity.SOURCES`.
    """
    divided = {gpu.uuid for gpu in node.gpus if gpu.gi_id}
    for gpu in node.gpus:
        if gpu.uuid in divided and not gpu.gi_id:
            continue
        own = _labels(gpu, hostname, agreed(used_by(gpu)), source)
        for row, value in _values(gpu.values):
            yield Sample(row, own, node.time_ns, value)


def _labels(gpu: GpuReading, hostname: str, used_by: Mapping[str, str], source: str) -> tuple[tuple[str, str], ...]:
    return labels(
        accelerator="gpu",
        Hostname=hostname,
        index=gpu.index,
        modelName=gpu.model_name,
        UUID=gpu.uuid,
        GPU_I_ID=gpu.gi_id,
        source=source,
        **{name: value for name, value in used_by.items() if name in LABELS},
    )


def _values(values: Mapping[str, int | float]) -> Iterator[tuple[Metric, float]]:
    busy_percent = values.get(device.GPU_UTIL.otlp_name)
    engine_ratio = values.get(profiling.GR_ENGINE_ACTIVE.otlp_name)
    if busy_percent is not None:
        yield accelerator.UTILIZATION, busy_percent * PERCENT
    elif engine_ratio is not None:
        yield accelerator.UTILIZATION, engine_ratio
    used, free = values.get(device.FB_USED.otlp_name), values.get(device.FB_FREE.otlp_name)
    if used is not None:
        yield accelerator.MEMORY_USED, used * BYTES_PER_MEBIBYTE
    if used is not None and free is not None:
        yield accelerator.MEMORY_TOTAL, (used + free) * BYTES_PER_MEBIBYTE

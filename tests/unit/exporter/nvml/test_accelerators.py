"""The rows that GPUs share with TPUs: sums over a mixed fleet must be right."""

from collections.abc import Mapping

from kernelcast.exporter.nvml.accelerators import accelerator_samples
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading

MEMORY = {"DCGM_FI_DEV_FB_USED": 1024.0, "DCGM_FI_DEV_FB_FREE": 3072.0}
WHOLE = GpuReading("GPU-0", "0", model_name="NVIDIA H100", values={"DCGM_FI_DEV_GPU_UTIL": 87, **MEMORY})
PARENT = GpuReading("GPU-1", "1", values=MEMORY)
INSTANCE = GpuReading("GPU-1", "1", gi_id="3", values={"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.25, **MEMORY})
BARE = GpuReading("GPU-2", "2")


def two_jobs(_gpu: GpuReading) -> tuple[Mapping[str, str], ...]:
    return ({"pod": "a", "hpc_job": "1", "vgpu": "0"}, {"pod": "a", "hpc_job": "2", "vgpu": "1"})


def test_each_gpu_or_instance_is_written_once_in_base_units_with_its_users_common_labels() -> None:
    node = NodeReading(time_ns=7, gpus=(WHOLE, PARENT, INSTANCE, BARE))
    samples = list(accelerator_samples(node, hostname="n", used_by=two_jobs))
    found = [(one.metric.prometheus_name.removeprefix("kernelcast_accelerator_"), one.value) for one in samples]
    memory = [("memory_used_bytes", 2**30), ("memory_total_bytes", 4 * 2**30)]
    assert found == [("utilization_ratio", 0.87), *memory, ("utilization_ratio", 0.25), *memory]
    assert dict(samples[0].attributes) == {
        "accelerator": "gpu",
        "Hostname": "n",
        "index": "0",
        "modelName": "NVIDIA H100",
        "UUID": "GPU-0",
        "pod": "a",
    }
    assert dict(samples[3].attributes)["GPU_I_ID"] == "3"

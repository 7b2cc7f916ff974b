"""Device series carry who uses the GPU, once for each label set."""

from collections.abc import Mapping

from kernelcast.exporter.nvml.samples import CounterStarts, device_of, to_samples
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading

GPUS = (
    GpuReading("GPU-0", "0", values={"DCGM_FI_DEV_GPU_TEMP": 40, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 7}),
    GpuReading("GPU-1", "1", gi_id="3", mig_uuids=("MIG-1", "MIG-2"), values={"DCGM_FI_DEV_GPU_TEMP": 50}),
)


class TwoJobs:
    """The first GPU has two jobs, the second has none."""

    def labels_for(self, gpu: GpuReading) -> tuple[Mapping[str, str], ...]:
        return ({"pod": "a", "hpc_job": "1"}, {"pod": "a", "hpc_job": "2"}) if gpu.index == "0" else ({},)

    def process_labels(self, _gpu: GpuReading, _pid: int) -> Mapping[str, str]:
        return {}


def test_every_series_of_a_gpu_with_two_jobs_is_written_once_for_each() -> None:
    node = NodeReading(time_ns=1_000, gpus=GPUS)
    samples = to_samples(node, hostname="n", start_of=CounterStarts(10), users=TwoJobs())
    found = [(sample.metric.otlp_name, sample.value, dict(sample.attributes).get("hpc_job")) for sample in samples]
    assert found == [
        ("DCGM_FI_DEV_GPU_TEMP", 40, "1"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 7, "1"),
        ("DCGM_FI_DEV_GPU_TEMP", 40, "2"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 7, "2"),
        ("DCGM_FI_DEV_GPU_TEMP", 50, None),
    ]
    assert {sample.start_ns for sample in samples if sample.start_ns} == {10}, "one counter, one start"
    assert all(list(sample.attributes) == sorted(sample.attributes) for sample in samples)


def test_an_instance_keeps_the_uuids_under_which_programs_know_it() -> None:
    assert device_of(GPUS[1], "n").mig_uuids == ("MIG-1", "MIG-2")

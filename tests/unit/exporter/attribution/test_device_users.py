"""Device series carry who uses the GPU, once for each label set."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from tests.support.exporter.gpus import GPU_0

from kernelcast.exporter.attribution.assembly import CurrentUsers
from kernelcast.exporter.nvml.samples import CounterStarts, device_of, to_samples
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading
from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.settings.service import load
from kernelcast.wire.catalogue.devices import gpu

GPUS = (
    GpuReading("GPU-0", "0", values={"DCGM_FI_DEV_GPU_TEMP": 40, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 7}),
    GpuReading("GPU-1", "1", gi_id="3", mig_uuids=("MIG-1", "MIG-2"), values={"DCGM_FI_DEV_GPU_TEMP": 50}),
)


class TwoJobs:
    """The first GPU has two jobs, the second has none."""

    def labels_for(self, gpu: GpuReading) -> tuple[Mapping[str, str], ...]:
        return ({"pod": "a", "hpc_job": "1"}, {"pod": "a", "hpc_job": "2"}) if gpu.index == "0" else ({},)

    def owners_of(self, _gpu: GpuReading) -> tuple[Mapping[str, str], ...]:
        return ()

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


def users(tmp_path: Path, form: str) -> CurrentUsers:
    """Two jobs on the first GPU, one on the second's instance; two processes, one in a Slurm job."""
    (tmp_path / "jobs").mkdir(exist_ok=True)
    (tmp_path / "jobs" / "0").write_text("1\n2\n")
    (tmp_path / "jobs" / "1.3").write_text("3\n")
    flags = {"attribution": form, "job_mapping_directory": tmp_path / "jobs", "kubernetes": "off"}
    made = CurrentUsers(load("exporter", ExporterSettings, path=None, flags=flags, environ={}), CollectorRegistry())
    made.refresh()
    return made


@pytest.mark.parametrize(
    ("form", "on_series", "on_own_series"),
    [
        ("labels", ["1", "1", "2", "2", "3"], []),
        ("info", [None, None, None], [("GPU-0", None, "1"), ("GPU-0", None, "2"), ("GPU-1", "3", "3")]),
        ("off", [None, None, None], []),
    ],
)
def test_owners_stand_on_each_series_or_on_one_of_their_own_or_nowhere(
    form: str, on_series: list[str | None], on_own_series: list[tuple[str, ...]], tmp_path: Path
) -> None:
    node = NodeReading(time_ns=1_000, gpus=GPUS)
    samples = to_samples(node, hostname="n", start_of=CounterStarts(10), users=users(tmp_path, form))
    own = [(sample.metric, dict(sample.attributes)) for sample in samples]
    assert [labels.get("hpc_job") for metric, labels in own if metric is not gpu.OWNER] == on_series
    owners = [labels for metric, labels in own if metric is gpu.OWNER]
    assert [(one["UUID"], one.get("GPU_I_ID"), one["hpc_job"]) for one in owners] == on_own_series
    assert all(sample.value == 1 for sample in samples if sample.metric is gpu.OWNER)


def test_the_form_changes_with_the_settings_and_off_asks_nobody(tmp_path: Path) -> None:
    made = users(tmp_path, "labels")
    assert made.labels_for(GPU_0) == ({"hpc_job": "1"}, {"hpc_job": "2"})
    for form, labels, owners in (("info", ({},), ({"hpc_job": "1"}, {"hpc_job": "2"})), ("off", ({},), ())):
        flags = {"attribution": form, "job_mapping_directory": tmp_path / "jobs", "kubernetes": "off"}
        made.change(load("exporter", ExporterSettings, path=None, flags=flags, environ={}))
        made.refresh()
        assert (made.labels_for(GPU_0), made.owners_of(GPU_0)) == (labels, owners)
        assert bool(made.labels_of_pid(GPU_0, os.getpid())) is (form == "info"), "the user of a process"
    assert [source.source for source in made._now.refreshed] == ["users", "environments"]
    made.__exit__()


def test_an_instance_keeps_the_uuids_under_which_programs_know_it() -> None:
    assert device_of(GPUS[1], "n").mig_uuids == ("MIG-1", "MIG-2")

"""Users of a GPU: memory and shares by process, bounded."""

from pathlib import Path
from typing import Any

import pynvml
import pytest
from tests.support.exporter.nvml_double import MEBIBYTE, divided, gpu, instance, node, playing

from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.samples import CounterStarts, to_samples
from kernelcast.exporter.nvml.sampling.codes import Codes
from kernelcast.exporter.nvml.sampling.inventory import find
from kernelcast.exporter.nvml.sampling.processes import MAX_PROCESSES, Processes
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading, ProcessUse
from kernelcast.exporter.nvml.sampling.sampler import Sampler, SamplerOptions
from kernelcast.exporter.running_time import RunningTime

SECOND_NS = 1_000_000_000


def process(pid: int, mebibytes: int | None = 100) -> dict[str, Any]:
    return {"pid": pid, "usedGpuMemory": None if mebibytes is None else mebibytes * MEBIBYTE}


def share(pid: int, sm: int, at_us: int = 1, **others: int) -> dict[str, Any]:
    unsaid = {"memUtil": 0, "encUtil": 0, "decUtil": 0}
    return {"pid": pid, "timeStamp": at_us, "smUtil": sm, **unsaid, **others}


class Read:
    def __init__(self, nvml: RecordedNvml, proc: Path = Path("/nowhere")) -> None:
        self.nvml = nvml
        self.failed: list[tuple[str, str]] = []
        self.gpus = find(nvml, Codes(nvml), 0)
        self.made = Processes(nvml, Codes(nvml), lambda *failure: self.failed.append(failure), proc=proc)

        self.time = RunningTime()

    def uses(self, second: int = 10, at: int = 0) -> tuple[ProcessUse, ...]:
        return self.made.read(self.gpus[at], self.time.at(second * SECOND_NS), self.time.ahead_ns)


def reading(**answers: Any) -> Read:
    return Read(playing(node(gpu(**answers))))


def test_memory_and_shares_by_process_with_the_programs_name(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/comm").write_text("python3\n")
    answers = gpu(
        nvmlDeviceGetComputeRunningProcesses=[process(7, 300), process(8, None)],
        nvmlDeviceGetProcessUtilization=[share(7, 61, memUtil=20, encUtil=3, decUtil=4)],
    )
    assert Read(playing(node(answers)), tmp_path).uses() == (
        ProcessUse(7, "compute", 300 * MEBIBYTE, 61, 20, 3, 4, "python3"),
        ProcessUse(8, "compute", None, 0, 0, 0, 0),
    )


def test_a_process_in_several_lists_is_written_once_with_its_memory() -> None:
    read = reading(
        nvmlDeviceGetMPSComputeRunningProcesses=[process(7)],
        nvmlDeviceGetComputeRunningProcesses=[process(7), process(8)],
        nvmlDeviceGetGraphicsRunningProcesses=[process(8), process(9)],
    )
    shown = {use.pid: (use.type, use.memory_bytes) for use in read.uses()}
    assert shown == {7: ("mps", 100 * MEBIBYTE), 8: ("compute", 100 * MEBIBYTE), 9: ("graphics", 100 * MEBIBYTE)}


def test_a_gpu_that_does_not_tell_of_shares_gives_none() -> None:
    (use,) = reading(nvmlDeviceGetComputeRunningProcesses=[process(7)]).uses()
    assert (use.sm_percent, use.memory_percent, use.enc_percent, use.dec_percent) == (None, None, None, None)


def test_success_without_a_sample_means_that_every_process_was_idle_and_is_no_error() -> None:
    """pynvml raises NVMLError(0) where NVML succeeds at once with no sample."""
    read = reading(nvmlDeviceGetComputeRunningProcesses=[process(7)])

    def succeed() -> None:
        raise pynvml.NVMLError(pynvml.NVML_SUCCESS)

    read.nvml.inject("nvmlDeviceGetProcessUtilization", succeed)
    assert [use.sm_percent for use in read.uses()] == [0]
    assert not read.failed


def test_the_newest_sample_counts_and_only_samples_since_the_last_look() -> None:
    read = reading(
        nvmlDeviceGetComputeRunningProcesses=[process(7)],
        nvmlDeviceGetProcessUtilization=[share(7, 90, at_us=5), share(7, 40, at_us=3)],
    )
    assert [use.sm_percent for use in read.uses(10)] == [90]
    assert [use.sm_percent for use in read.uses(11)] == [0], "nothing newer: it did nothing"
    read.nvml.answers["0"]["nvmlDeviceGetProcessUtilization"] = [share(7, 30, at_us=9)]
    assert [use.sm_percent for use in read.uses(12)] == [30]


def test_a_clock_that_is_set_back_makes_no_busy_process_idle() -> None:
    read = reading(nvmlDeviceGetComputeRunningProcesses=[process(7)])
    for second in (7_200, 3_600, 3_610, 3_620):
        read.nvml.answers["0"]["nvmlDeviceGetProcessUtilization"] = [share(7, 90, at_us=second * 1_000_000)]
        assert [use.sm_percent for use in read.uses(second)] == [90], second


def test_a_slot_that_the_driver_has_not_filled_hides_no_later_sample() -> None:
    read = reading(
        nvmlDeviceGetComputeRunningProcesses=[process(7)],
        nvmlDeviceGetProcessUtilization=[share(7, 50, at_us=1), share(0, 0, at_us=2**63), share(8, 101, at_us=2**63)],
    )
    assert [use.sm_percent for use in read.uses(10)] == [50]
    read.nvml.answers["0"]["nvmlDeviceGetProcessUtilization"] = [share(7, 60, at_us=11_000_000)]
    assert [use.sm_percent for use in read.uses(12)] == [60]


def test_a_process_whose_shares_are_invalid_is_not_idle_but_unknown() -> None:
    read = reading(
        nvmlDeviceGetComputeRunningProcesses=[process(7), process(8)],
        nvmlDeviceGetProcessUtilization=[share(7, 2**32 - 1, at_us=1), share(9, 50, at_us=1)],
    )
    assert {use.pid: use.sm_percent for use in read.uses(10)} == {7: None, 8: 0}


def test_the_last_answer_is_used_until_the_driver_samples_again() -> None:
    read = reading(nvmlDeviceGetComputeRunningProcesses=[process(7)], nvmlDeviceGetProcessUtilization=[share(7, 90)])
    assert [use.sm_percent for use in read.uses(10)] == [90]
    assert [use.sm_percent for use in read.made.read(read.gpus[0], 10 * SECOND_NS + 1)] == [90]


def test_slots_that_the_driver_has_not_filled_are_dropped() -> None:
    read = reading(
        nvmlDeviceGetComputeRunningProcesses=[process(7)],
        nvmlDeviceGetProcessUtilization=[share(7, 50, at_us=1), share(7, 4_000_000, at_us=2), share(0, 70, at_us=3)],
    )
    assert [use.sm_percent for use in read.uses()] == [50]


def test_what_is_no_pid_is_no_process() -> None:
    running = [process(0, 0), process(2**32 - 1), process(7)]
    assert [use.pid for use in reading(nvmlDeviceGetComputeRunningProcesses=running).uses()] == [7]


def test_beyond_the_limit_the_smallest_are_summed() -> None:
    many = [process(pid, pid) for pid in range(1, MAX_PROCESSES + 4)]
    *named, rest = reading(nvmlDeviceGetComputeRunningProcesses=many).uses()
    assert len(named) == MAX_PROCESSES
    assert (rest.pid, rest.type, rest.memory_bytes) == (0, "other", (1 + 2 + 3) * MEBIBYTE)
    assert rest.sm_percent is None


def test_instances_tell_of_their_own_processes_on_all_their_compute_instances() -> None:
    first = instance("1c.2g.20gb", 3, "MIG-1") | {"nvmlDeviceGetComputeRunningProcesses": [process(7)]}
    second = instance("1c.2g.20gb", 3, "MIG-2") | {"nvmlDeviceGetComputeRunningProcesses": [process(7), process(8)]}
    read = Read(playing(divided(first, second)))
    assert read.uses(at=0) == ()
    assert {use.pid: use.memory_bytes for use in read.uses(at=1)} == {7: 200 * MEBIBYTE, 8: 100 * MEBIBYTE}


def test_names_are_read_once_as_long_as_a_process_stays(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    comm = tmp_path / "7/comm"
    comm.write_text("first\n")
    read = Read(playing(node(gpu(nvmlDeviceGetComputeRunningProcesses=[process(7)]))), tmp_path)
    assert [use.name for use in read.uses(10)] == ["first"]
    comm.write_text("second\n")
    assert [use.name for use in read.uses(11)] == ["first"]
    read.nvml.answers["0"]["nvmlDeviceGetComputeRunningProcesses"] = []
    assert read.uses(12) == ()
    read.nvml.answers["0"]["nvmlDeviceGetComputeRunningProcesses"] = [process(7)]
    assert [use.name for use in read.uses(13)] == ["second"], "another process under the same number"


def test_without_permission_there_are_no_labels_and_it_is_counted() -> None:
    denied = {"error": pynvml.NVML_ERROR_NO_PERMISSION}
    read = reading(nvmlDeviceGetComputeRunningProcesses=denied)
    assert read.uses() == ()
    assert read.failed == [("nvmlDeviceGetComputeRunningProcesses", "NoPermission")]


@pytest.mark.parametrize("wanted", [True, False])
def test_a_setting_switches_processes_off(wanted: bool) -> None:  # noqa: FBT001  a parameter of the test
    nvml = playing(node(gpu(nvmlDeviceGetComputeRunningProcesses=[process(7)])))
    made = Sampler(nvml, SamplerOptions(processes=wanted)).start()
    assert bool(made.sample(SECOND_NS).gpus[0].processes) is wanted
    made.close()


def test_the_series_are_ratios_and_bytes_and_the_rest_is_called_other() -> None:
    uses = (ProcessUse(7, "compute", 5, 61, 20, 3, 4, "python3"), ProcessUse(0, "other", 2, name="other"))
    node_reading = NodeReading(1, gpus=(GpuReading("GPU-1", "0", processes=uses),))
    shown: dict[str, dict[str, float | None]] = {}
    for sample in to_samples(node_reading, hostname="node1", start_of=CounterStarts(1)):
        labels = dict(sample.attributes)
        assert isinstance(sample.value, int | float)
        key = f"{labels['pid']} {labels['process_name']} {labels['type']}"
        shown.setdefault(key, {})[sample.metric.prometheus_name.removeprefix("kernelcast_gpu_process_")] = sample.value
    assert shown == {
        "7 python3 compute": {
            "memory_bytes": 5,
            "sm_utilization_ratio": 0.61,
            "memory_utilization_ratio": 0.2,
            "encoder_utilization_ratio": 0.03,
            "decoder_utilization_ratio": 0.04,
        },
        "other other other": {"memory_bytes": 2},
    }

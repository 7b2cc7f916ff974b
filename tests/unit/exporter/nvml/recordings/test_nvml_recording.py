"""NVML played from a recording: pynvml's own names and errors, the same answers, faults at will."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.exporter.nvml_double import divided, gpm, gpu, instance, node, playing
from typer.testing import CliRunner

from kernelcast.exporter.nvml.recorded import RecordedNvml, open_recording
from kernelcast.exporter.nvml.recordings.any_format import check_any
from kernelcast.exporter.nvml.recordings.record import record
from kernelcast.exporter.nvml.recordings.recording import (
    Answers,
    Event,
    RecordedChanges,
    Recording,
    changes,
    read,
    write,
)
from kernelcast.exporter.nvml.sampling.fields import ROWS
from kernelcast.exporter.nvml.sampling.reading import NodeReading
from kernelcast.exporter.nvml.sampling.sampler import Sampler, SamplerOptions
from kernelcast.exporter.replay.command import replay
from kernelcast.wire.errors import DeviceError, TraceError

SECOND_NS = 1_000_000_000
EVERYTHING = SamplerOptions(rows=tuple(ROWS))
XID = pynvml.nvmlEventTypeXidCriticalError


class Clock:
    def __init__(self) -> None:
        self.now_ns = 1_000 * SECOND_NS

    def __call__(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += round(seconds * SECOND_NS)


def two_moments(*, loop: bool = True) -> tuple[RecordedNvml, Clock]:
    answers = {"": {"nvmlDeviceGetCount": 1}, **node(gpu(nvmlDeviceGetPowerUsage=1000))}
    later = RecordedChanges(SECOND_NS, {"0": {"nvmlDeviceGetPowerUsage": 2000}}, (Event("0", XID, 79),))
    clock = Clock()
    return RecordedNvml(Recording((RecordedChanges(0, answers), later)), clock=clock, loop=loop), clock


def power(nvml: RecordedNvml) -> int:
    return int(nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(0)))


def test_answers_change_with_time_and_begin_again_at_the_end() -> None:
    nvml, clock = two_moments()
    shown = []
    for _ in range(5):
        shown.append(power(nvml))
        clock.sleep(1)
    assert shown == [1000, 2000, 1000, 2000, 1000]


def test_instances_come_and_go_in_every_round_as_they_did() -> None:
    second, third = instance("2g.20gb", 3, "MIG-2"), instance("1g.10gb", 5, "MIG-3")
    nvml, clock = playing(divided(instance("1g.10gb", 9, "MIG-1"), second)), Clock()
    taken = 0

    def sleep(seconds: float) -> None:
        nonlocal taken
        clock.sleep(seconds)
        taken += 1
        if taken == 2:
            del nvml.answers["0/1"]
            nvml.answers["0/2"] = third
        if taken == 3:
            nvml.answers["0/1"] = second

    moments = tuple(
        record(nvml, seconds=300, interval_seconds=100, options=EVERYTHING, sleep=sleep, clock=clock, monotonic=clock)
    )
    sampler, shown = Sampler(RecordedNvml(Recording(moments), clock=clock)).start(), []
    for _ in range(6):
        shown.append({gpu.gi_id for gpu in sampler.sample(clock()).gpus} - {""})
        clock.sleep(100)
    assert shown == 2 * [{"9", "3"}, {"9", "5"}, {"9", "3", "5"}]
    sampler.close()


def test_a_recording_that_is_not_to_be_repeated_ends_as_a_driver_does() -> None:
    nvml, clock = two_moments(loop=False)
    assert power(nvml) == 1000
    clock.sleep(2)
    with pytest.raises(pynvml.NVMLError) as raised:
        power(nvml)
    assert raised.value.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED


def test_events_come_when_they_came() -> None:
    nvml, clock = two_moments()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    events = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(handle, XID, events)
    with pytest.raises(pynvml.NVMLError) as raised:
        nvml.nvmlEventSetWait_v2(events, 0)
    assert raised.value.value == pynvml.NVML_ERROR_TIMEOUT
    clock.sleep(1)
    event = nvml.nvmlEventSetWait_v2(events, 0)
    assert (event.device, event.eventType, event.eventData) == (handle, XID, 79)


def test_errors_are_pynvmls_own_classes() -> None:
    nvml = playing(node(gpu()))
    with pytest.raises(pynvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetInforomImageVersion(nvml.nvmlDeviceGetHandleByIndex(0))
    nvml.lost = {"0"}
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        nvml.nvmlDeviceGetHandleByIndex(0)


def test_what_pynvml_does_not_have_it_does_not_have() -> None:
    with pytest.raises(AttributeError):
        playing(node(gpu())).nvmlDeviceGetColour  # noqa: B018  the look-up is the test


@pytest.mark.parametrize("call", ["nvmlDeviceGetMemoryInfo", "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPciInfo"])
def test_structs_are_pynvmls_own(call: str) -> None:
    nvml = playing(node(gpu()))
    assert type(getattr(nvml, call)(nvml.nvmlDeviceGetHandleByIndex(0))).__module__ == "pynvml"


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 2)], ids=["in order", "later first", "of another GPU"])
def test_gpm_compares_an_earlier_look_with_a_later_one_of_the_same_gpu(order: tuple[int, int]) -> None:
    nvml = playing(node(gpu("GPU-1"), gpu("GPU-2", 1)))
    looks = [nvml.nvmlGpmSampleAlloc() for _ in range(3)]
    for index, look in zip((0, 0, 1), looks, strict=True):
        nvml.nvmlGpmSampleGet(nvml.nvmlDeviceGetHandleByIndex(index), look)
    asked = nvml.c_nvmlGpmMetricsGet_t()
    asked.version, asked.numMetrics = 1, 1
    asked.sample1, asked.sample2 = (looks[at] for at in order)
    asked.metrics[0].metricId = 10
    if order == (0, 1):
        assert nvml.nvmlGpmMetricsGet(asked).metrics[0].value == 50.0
        return
    with pytest.raises(pynvml.NVMLError_InvalidArgument):
        nvml.nvmlGpmMetricsGet(asked)


ANSWERS = st.dictionaries(
    st.sampled_from(["", "0", "0/1"]), st.dictionaries(st.sampled_from("abc"), st.integers() | st.lists(st.text()))
)


@given(ANSWERS, ANSWERS)
def test_earlier_values_and_changes_make_the_present_values(before: Answers, now: Answers) -> None:
    # A call that was answered once is answered ever after: the sampler asks the same again.
    now = {owner: {**before.get(owner, {}), **now.get(owner, {})} for owner in {*before, *now}}
    played = {owner: dict(calls) for owner, calls in before.items()}
    for owner, calls in changes(before, now).items():
        played.setdefault(owner, {}).update(calls)
    assert {owner: calls for owner, calls in played.items() if calls} == {
        owner: calls for owner, calls in now.items() if calls
    }


def test_a_call_can_be_made_to_hang_or_fail() -> None:
    nvml, called = playing(node(gpu())), []
    nvml.inject("nvmlDeviceGetPowerUsage", lambda: called.append(1))
    power(nvml)
    nvml.inject("nvmlDeviceGetPowerUsage", None)
    power(nvml)
    assert called == [1]


def sampled(nvml: RecordedNvml, clock: Clock, count: int = 3) -> list[NodeReading]:
    """Some readings, a second apart, without those before there are two looks at the counters."""
    made = Sampler(nvml, EVERYTHING).start()
    made.sample(clock())
    found = []
    for _ in range(count):
        clock.sleep(1)
        found.append(made.sample(clock()))
    made.close()
    return found


def test_a_recording_is_played_back_value_by_value(tmp_path: Path) -> None:
    answers = divided(instance("1g.10gb", 9, "MIG-1"), instance("2g.20gb", 3, "MIG-2"))
    answers["0/0"]["nvmlDeviceGetComputeRunningProcesses"] = [{"pid": 7, "usedGpuMemory": 5}]
    answers["1"] = gpu("GPU-2", 1, nvmlDeviceGetProcessUtilization=[])
    real, clock, path = playing(answers), Clock(), tmp_path / "node.jsonl.gz"
    seconds = iter(range(100))

    def sleep(wait: float) -> None:
        second = next(seconds)
        real.answers["0"]["nvmlDeviceGetPowerUsage"] = 1000 * second
        real.answers["0/gi9"] |= gpm(float(second))
        clock.sleep(wait)

    moments = record(real, seconds=3, interval_seconds=1, options=EVERYTHING, sleep=sleep, clock=clock, monotonic=clock)
    assert write(path, moments) == 3
    again = Clock()
    played = sampled(RecordedNvml(read(path), clock=again), again, 2)
    expected = iter(range(1, 3))
    for node_reading in played:
        second = next(expected)
        whole, first, _second, other = node_reading.gpus
        assert whole.values["DCGM_FI_DEV_POWER_USAGE"] == second
        assert first.values["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] == second / 100
        assert [use.pid for use in first.processes] == [7]
        assert other.values["DCGM_FI_DEV_POWER_USAGE"] == 77.67
    real.answers["0"]["nvmlDeviceGetPowerUsage"] = 2000
    real.answers["0/gi9"] |= gpm(2.0)
    truth = sampled(real, Clock())[-1]
    assert [(one.uuid, one.gi_id, one.values, one.absent) for one in played[-1].gpus] == [
        (one.uuid, one.gi_id, one.values, one.absent) for one in truth.gpus
    ]


def test_only_what_changes_is_written(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "node.jsonl"
    moments = record(
        playing(node(gpu())),
        seconds=5,
        interval_seconds=1,
        options=EVERYTHING,
        sleep=clock.sleep,
        clock=clock,
        monotonic=clock,
    )
    write(path, moments)
    _head, first, *later = (json.loads(line) for line in path.read_text().splitlines())
    assert first["set"]["0"]["nvmlDeviceGetPowerUsage"] == 77_670
    assert [(one["at_ns"], one["set"]) for one in later] == [(at * SECOND_NS, {}) for at in range(1, 5)]


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_set_changes_neither_pace_nor_times_of_a_recording(hours: int) -> None:
    wall, steady, waits = Clock(), Clock(), []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        steady.sleep(seconds)
        wall.sleep(seconds)
        if len(waits) == 2:
            wall.now_ns += hours * 3600 * SECOND_NS

    made = record(
        playing(node(gpu())),
        seconds=4,
        interval_seconds=1,
        options=EVERYTHING,
        sleep=sleep,
        clock=wall,
        monotonic=steady,
    )
    assert [moment.at_ns for moment in made] == [at * SECOND_NS for at in range(4)]
    assert waits == [1, 1, 1, 1]


def test_an_interval_longer_than_the_recording_gives_one_moment() -> None:
    clock = Clock()
    made = record(
        playing(node(gpu())),
        seconds=1,
        interval_seconds=3,
        options=EVERYTHING,
        sleep=clock.sleep,
        clock=clock,
        monotonic=clock,
    )
    assert [moment.at_ns for moment in made] == [0]


HEAD = b'{"format": "kernelcast-nvml", "version": 1}\n'


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json\n",
        b'{"format": "other", "version": 1}\n',
        b'{"format": "kernelcast-nvml", "version": 9}\n{}\n',
        HEAD + b'{"at_ns": 1e999, "set": {}}\n',
        HEAD + b"[" * 100_000,
        HEAD + b'{"at_ns": 0, "set": {"0": 5}}\n',
    ],
    ids=["empty", "text", "other", "later version", "infinite time", "deep", "no answers"],
)
@pytest.mark.parametrize("use", [open_recording, lambda path: check_any(Path(path))], ids=["read", "check"])
def test_a_file_that_is_no_recording_is_refused_with_a_remedy(
    tmp_path: Path, content: bytes, use: Callable[[str], object]
) -> None:
    path = tmp_path / "node.jsonl"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=r"node\.jsonl.*(kernelcast replay record|record for at least)"):
        use(str(path))


def test_a_recording_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "node.jsonl.gz"
    write(path, (RecordedChanges(0, {"0": gpu()}),))
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(TraceError, match="is not a recording"):
        open_recording(str(path))


def test_a_recording_whose_compressed_bytes_are_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "node.jsonl.gz"
    write(path, (RecordedChanges(0, {"0": gpu()}),))
    whole = path.read_bytes()
    path.write_bytes(whole[:60] + b"\xff" * 40 + whole[100:])
    with pytest.raises(TraceError, match="is not a recording"):
        check_any(path)


def test_the_command_makes_a_recording_of_a_capture(tmp_path: Path) -> None:
    capture, output = tmp_path / "smi.txt", tmp_path / "node.jsonl.gz"
    capture.write_text(
        "==============NVSMI LOG==============\n\n"
        "Driver Version                            : 590.48.01\n"
        "CUDA Version                              : 13.1\n"
        "GPU 00000000:83:00.0\n"
        "    Product Name                          : NVIDIA H200\n"
        "    GPU UUID                              : GPU-1\n"
        "    Temperature\n"
        "        GPU Current Temp                  : 28 C\n"
    )
    done = CliRunner().invoke(replay, ["capture", str(capture), "--output", str(output)])
    assert done.exit_code == 0, done.output
    assert gzip.decompress(output.read_bytes()).count(b"\n") == 2
    (one,) = Sampler(open_recording(str(output))).start().sample(SECOND_NS).gpus
    assert (one.uuid, one.model_name, one.values["DCGM_FI_DEV_GPU_TEMP"]) == ("GPU-1", "NVIDIA H200", 28)


def test_a_capture_is_not_replaced_by_its_recording(tmp_path: Path) -> None:
    capture = tmp_path / "smi.txt"
    capture.write_text("==============NVSMI LOG==============\n\nGPU 00000000:83:00.0\n    GPU UUID : GPU-1\n")
    before = capture.read_text()
    done = CliRunner().invoke(replay, ["capture", str(capture), "--output", str(capture)])
    assert done.exit_code == 2
    assert "choose another file" in done.output
    assert capture.read_text() == before


def test_a_recording_that_cannot_begin_leaves_the_one_that_is_there(tmp_path: Path) -> None:
    path = tmp_path / "node.jsonl"
    write(path, [RecordedChanges(0)])
    before = path.read_text()

    def without_driver() -> RecordedChanges:
        raise DeviceError("there is no driver")

    for one in (path, tmp_path / "new.jsonl"):
        with pytest.raises(DeviceError):
            write(one, (without_driver() for _ in range(1)))
    assert path.read_text() == before
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_a_recording_is_written_to_the_file_that_a_link_names(tmp_path: Path) -> None:
    link, target = tmp_path / "latest.jsonl", tmp_path / "one.jsonl"
    link.symlink_to(target)
    write(link, [RecordedChanges(0)])
    assert link.is_symlink()
    assert read(target).moments == (RecordedChanges(0),)


def test_the_command_refuses_a_file_without_a_capture(tmp_path: Path) -> None:
    capture = tmp_path / "smi.txt"
    capture.write_text("nothing\n")
    done = CliRunner().invoke(replay, ["capture", str(capture), "--output", str(tmp_path / "x.jsonl")])
    assert done.exit_code == 1
    assert "nvidia-smi -q" in done.output


def test_without_a_driver_there_is_nothing_to_record(tmp_path: Path) -> None:
    done = CliRunner().invoke(replay, ["record", "--seconds", "1", "--output", str(tmp_path / "x.jsonl")])
    if done.exit_code == 0:
        pytest.skip("there is a GPU on this machine")
    assert done.exit_code == 1
    assert "NVML cannot be used" in done.output


@pytest.mark.parametrize("times_ns", [(0, 0), (0, 5, 5), (0, 10 * SECOND_NS, 5 * SECOND_NS)])
def test_moments_at_one_time_or_in_disorder_have_a_length(times_ns: tuple[int, ...]) -> None:
    """Two outputs of nvidia-smi within one second, or a clock that was set back while it was recorded."""
    answers = {"": {"nvmlDeviceGetCount": 1}, **node(gpu(nvmlDeviceGetPowerUsage=1000))}
    recording = Recording(tuple(RecordedChanges(at_ns, answers) for at_ns in times_ns))
    assert recording.length_ns > max(times_ns)
    clock = Clock()
    nvml = RecordedNvml(recording, clock=clock)
    for _ in range(30):
        clock.sleep(1)
        assert nvml.nvmlDeviceGetPowerUsage(nvml.nvmlDeviceGetHandleByIndex(0)) == 1000

"""Each NVLink of a GPU: whether it is up, its traffic and its errors, where NVML gives them."""

from collections import Counter
from typing import Any

import pynvml
import pytest
from tests.support.exporter import nvml_double as double
from tests.support.exporter.nvml_double import NOT_SUPPORTED, divided, field, gpu, instance, playing

from kernelcast.columnar import Sample
from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.sampling.nvlink import MAX_LINKS, VALUES_PER_CALL
from kernelcast.exporter.nvml.sampling.reading import GpuReading, LinkReading
from kernelcast.exporter.nvml.sampling.sampler import RELIST_NS, Sampler, SamplerOptions
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.wire.catalogue import Kind
from kernelcast.wire.catalogue.devices import nvlink

SECOND_NS = 1_000_000_000
NOW_NS = 1_000 * SECOND_NS
UP, DOWN, ASLEEP = pynvml.NVML_NVLINK_STATE_ACTIVE, pynvml.NVML_NVLINK_STATE_INACTIVE, pynvml.NVML_NVLINK_STATE_SLEEP
EVERYTHING = SamplerOptions(nvlink="all")
STATE = SamplerOptions(nvlink="state")


def linked(*states: int, uuid: str = "GPU-1", **more: Any) -> dict[str, Any]:
    """A GPU with a link in each of these states; link n has received n KiB and sent 10 n."""
    answers = field(pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, len(states))
    for link, state in enumerate(states):
        answers |= field(pynvml.NVML_FI_DEV_NVLINK_GET_STATE, state, link)
        answers |= field(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, link, link)
        answers |= field(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, 10 * link, link)
        answers |= field(pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY, 100 + link, link)
        answers |= field(pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY, 200 + link, link)
    return gpu(uuid, **(answers | more))


def source(nvml: RecordedNvml, options: SamplerOptions = EVERYTHING) -> NvmlSource:
    return NvmlSource(Sampler(nvml, options), hostname="node1", boot_ns=SECOND_NS).start()


def rows(samples: tuple[Sample, ...], name: str, *own: str) -> dict[tuple[str, ...], Any]:
    found = [one for one in samples if one.metric.prometheus_name == name and one.value is not None]
    return {tuple(dict(one.attributes).get(key, "") for key in ("link", *own)): one.value for one in found}


def test_each_link_says_whether_it_is_up_and_one_that_sleeps_is() -> None:
    samples = source(playing(double.node(linked(UP, DOWN, ASLEEP)))).poll(NOW_NS).samples
    assert rows(samples, "kernelcast_gpu_nvlink_up") == {("0",): 1, ("1",): 0, ("2",): 1}


def test_traffic_is_bytes_in_both_directions_and_errors_are_by_kind() -> None:
    samples = source(playing(double.node(linked(UP, UP)))).poll(NOW_NS).samples
    assert rows(samples, "kernelcast_gpu_nvlink_io_bytes_total", "direction") == {
        ("0", "receive"): 0,
        ("0", "transmit"): 0,
        ("1", "receive"): 1024,
        ("1", "transmit"): 10 * 1024,
    }
    assert rows(samples, "kernelcast_gpu_nvlink_errors_total", "error") == {
        ("0", "replay"): 100,
        ("1", "replay"): 101,
        ("0", "recovery"): 200,
        ("1", "recovery"): 201,
    }
    counters = [one for one in samples if one.metric in nvlink.ROWS and one.metric.kind is Kind.COUNTER]
    assert {one.start_ns for one in counters} == {SECOND_NS}


def test_a_counter_that_nvml_does_not_have_is_absent() -> None:
    """NVML_VALUE_NOT_AVAILABLE is -1: all ones in an unsigned number."""
    unavailable = field(pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 2**64 - 1, 0)
    samples = source(playing(double.node(linked(UP, **unavailable)))).poll(NOW_NS).samples
    assert rows(samples, "kernelcast_gpu_nvlink_io_bytes_total", "direction") == {("0", "transmit"): 0}


def test_a_gpu_that_counts_packets_instead_gives_bytes_and_its_own_errors() -> None:
    """Answers as Blackwell does: fields 161 to 163 are missing."""
    answers = field(pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, 1)
    answers |= field(pynvml.NVML_FI_DEV_NVLINK_GET_STATE, UP, 0)
    answers |= field(pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES, 5, 0)
    answers |= field(pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, 6, 0)
    answers |= field(pynvml.NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS, 7, 0)
    samples = source(playing(double.node(gpu(**answers)))).poll(NOW_NS).samples
    assert rows(samples, "kernelcast_gpu_nvlink_io_bytes_total", "direction") == {
        ("0", "receive"): 5,
        ("0", "transmit"): 6,
    }
    assert rows(samples, "kernelcast_gpu_nvlink_errors_total", "error") == {("0", "symbol"): 7}


def test_older_gpus_are_asked_by_the_older_call() -> None:
    states = {f"nvmlDeviceGetNvLinkState:{link}": state for link, state in enumerate((UP, DOWN))}
    one = gpu(**field(pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, 2), **states)
    samples = source(playing(double.node(one))).poll(NOW_NS).samples
    assert rows(samples, "kernelcast_gpu_nvlink_up") == {("0",): 1, ("1",): 0}


def test_state_alone_asks_for_nothing_else() -> None:
    names = {one.metric for one in source(playing(double.node(linked(UP))), STATE).poll(NOW_NS).samples}
    assert names & {*nvlink.ROWS} == {nvlink.UP}


@pytest.mark.parametrize("options", [SamplerOptions(), SamplerOptions(nvlink="off")])
def test_off_asks_for_no_link(options: SamplerOptions) -> None:
    nvml, asked = playing(double.node(linked(UP))), Counter[str]()
    made = source(nvml, options)
    nvml.inject("nvmlDeviceGetFieldValues", lambda: asked.update(["fields"]))
    assert not {one.metric for one in made.poll(NOW_NS).samples} & {*nvlink.ROWS}
    assert asked["fields"] == 1


def test_a_gpu_without_nvlink_has_no_series_and_no_error() -> None:
    errors: list[str] = []
    sampler = Sampler(playing(double.node(gpu())), EVERYTHING)
    made = NvmlSource(sampler, hostname="n", boot_ns=0, on_error=lambda call, _error: errors.append(call)).start()
    assert not {one.metric for one in made.poll(NOW_NS).samples} & {*nvlink.ROWS}
    assert not errors


def test_unsupported_calls_are_made_once_and_again_when_gpus_are_listed() -> None:
    nvml = playing(double.node(linked(UP, UP)))
    made = source(nvml)
    asked: list[int] = []
    original = nvml.nvmlDeviceGetFieldValues

    def counting(handle: Any, ids: Any) -> Any:
        asked.append(len(ids))
        return original(handle, ids)

    nvml.nvmlDeviceGetFieldValues = counting  # type: ignore[assignment,method-assign]
    made.poll(NOW_NS)
    first = sum(asked)
    asked.clear()
    made.poll(NOW_NS + SECOND_NS)
    # Each of two links gives five values of nineteen.
    assert first - sum(asked) >= 2 * (19 - 5)
    later = sum(asked)
    asked.clear()
    made.poll(NOW_NS + RELIST_NS + SECOND_NS)
    assert sum(asked) >= later + 2 * (19 - 5)


@pytest.mark.parametrize("whole", [True, False], ids=["the call", "the field"])
def test_an_error_at_the_question_for_the_number_of_links_is_no_answer(whole: bool) -> None:  # noqa: FBT001
    nvml = playing(double.node(linked(UP, UP)))
    made, original = source(nvml), nvml.nvmlDeviceGetFieldValues
    count = f"nvmlDeviceGetFieldValues:{pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT}:0"
    right, timeout = nvml.answers["0"][count], {"error": pynvml.NVML_ERROR_TIMEOUT}

    def late(_handle: Any, _ids: Any) -> Any:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)

    if whole:
        nvml.nvmlDeviceGetFieldValues = late  # type: ignore[assignment,method-assign]
    else:
        nvml.answers["0"][count] = timeout
    assert rows(made.poll(NOW_NS).samples, "kernelcast_gpu_nvlink_up") == {}
    nvml.answers["0"][count] = right
    nvml.nvmlDeviceGetFieldValues = original  # type: ignore[method-assign]
    assert rows(made.poll(NOW_NS + SECOND_NS).samples, "kernelcast_gpu_nvlink_up") == {("0",): 1, ("1",): 1}


def test_a_gpu_without_the_call_for_links_is_asked_once_until_gpus_are_listed_again() -> None:
    nvml = playing(double.node(gpu()))
    made, asked = source(nvml, STATE), []

    def unsupported(_handle: Any, ids: Any) -> Any:
        asked.append(ids)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    made.poll(NOW_NS)
    nvml.nvmlDeviceGetFieldValues = unsupported  # type: ignore[assignment,method-assign]
    made.poll(NOW_NS + RELIST_NS)
    before = len([ids for ids in asked if ids == [(pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, 0)]])
    made.poll(NOW_NS + RELIST_NS + SECOND_NS)
    assert before == len([ids for ids in asked if ids == [(pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT, 0)]]) == 1


def test_the_number_of_links_and_of_values_in_a_call_is_bounded() -> None:
    nvml = playing(double.node(linked(*[UP] * 60)))
    made, sizes = source(nvml), []
    original = nvml.nvmlDeviceGetFieldValues

    def counting(handle: Any, ids: Any) -> Any:
        sizes.append(len(ids))
        return original(handle, ids)

    nvml.nvmlDeviceGetFieldValues = counting  # type: ignore[assignment,method-assign]
    samples = made.poll(NOW_NS).samples
    assert len(rows(samples, "kernelcast_gpu_nvlink_up")) == MAX_LINKS
    assert max(sizes) <= VALUES_PER_CALL


def test_links_belong_to_the_gpu_and_not_to_its_mig_instances() -> None:
    answers = divided(instance("1g.18gb", 3, "MIG-1"))
    answers["0"] |= linked(UP)
    answers["0"] |= {"nvmlDeviceGetMigMode": [1, 1], "nvmlDeviceGetMaxMigDeviceCount": 7}
    samples = [one for one in source(playing(answers)).poll(NOW_NS).samples if one.metric is nvlink.UP]
    assert [dict(one.attributes).get("GPU_I_ID") for one in samples] == [None]


def test_a_link_whose_state_cannot_be_read_is_absent() -> None:
    one = linked(UP, UP) | {f"nvmlDeviceGetFieldValues:{pynvml.NVML_FI_DEV_NVLINK_GET_STATE}:1": NOT_SUPPORTED}
    samples = source(playing(double.node(one))).poll(NOW_NS).samples
    assert rows(samples, "kernelcast_gpu_nvlink_up") == {("0",): 1}


def test_a_reading_with_links_survives_json() -> None:
    made = GpuReading("GPU-1", "0", links=(LinkReading(3, up=True, traffic_bytes={"receive": 1}, errors={"crc": 2}),))
    assert GpuReading.from_json(made.to_json()) == made

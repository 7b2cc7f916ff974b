"""XIDs as events: counted, with the time of the last one, and never lost with their GPU."""

import threading
from typing import Any

import pynvml
import pytest
from tests.support.exporter.nvml_double import NOT_SUPPORTED, gpu, node, playing

from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.recordings.recording import Event
from kernelcast.exporter.nvml.samples import CounterStarts, to_samples
from kernelcast.exporter.nvml.sampling import xid
from kernelcast.exporter.nvml.sampling.codes import Codes
from kernelcast.exporter.nvml.sampling.inventory import find
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading, XidTotal
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.xid_names import NO_ERROR, UNKNOWN, xid_name
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.catalogue.devices import gpu as rows
from kernelcast.wire.catalogue.xids import XIDS

XID = pynvml.nvmlEventTypeXidCriticalError


class Watched:
    """XID events without their thread: a test waits itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, nvml: RecordedNvml, now_ns: int = 5) -> None:
        monkeypatch.setattr(xid.XidEvents, "_run", lambda _self, _stopping: None)
        monkeypatch.setattr(xid, "WAIT_MILLISECONDS", 0)
        self.nvml = nvml
        self.now_ns = now_ns
        self.failed: list[tuple[str, str]] = []
        codes = Codes(nvml)
        self.events = xid.XidEvents(
            nvml, codes, lambda call, error: self.failed.append((call, error)), clock=lambda: self.now_ns
        )
        self.gpus = [found for index in range(nvml.nvmlDeviceGetCount()) for found in find(nvml, codes, index)]
        self.events.watch(self.gpus)

    def tell(self, number: int, owner: str = "0") -> None:
        self.nvml.emit(Event(owner, XID, number))
        assert self.events.wait()


def test_xids_are_counted_by_gpu_and_number_with_their_last_time(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, playing(node(gpu("GPU-1"), gpu("GPU-2", 1))))
    assert (watched.events.last("GPU-1"), watched.events.totals("GPU-1")) == (0, ())
    for now_ns, (number, owner) in enumerate([(31, "0"), (79, "0"), (31, "0"), (13, "1")]):
        watched.now_ns = now_ns
        watched.tell(number, owner)
    assert watched.events.totals("GPU-1") == (XidTotal(31, 2, 2), XidTotal(79, 1, 1))
    assert (watched.events.last("GPU-1"), watched.events.last("GPU-2")) == (31, 13)


def test_other_events_are_no_xids(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, playing(node(gpu())))
    watched.nvml.emit(Event("0", pynvml.nvmlEventTypePState, 3))
    assert watched.events.wait()
    assert watched.events.totals("GPU-1") == ()


def test_silence_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, playing(node(gpu())))
    assert watched.events.wait()
    assert watched.failed == []


@pytest.mark.parametrize("types", [NOT_SUPPORTED, pynvml.nvmlEventTypePState], ids=["no events", "no xids"])
def test_a_gpu_without_xid_events_has_no_last_xid(monkeypatch: pytest.MonkeyPatch, types: Any) -> None:
    watched = Watched(monkeypatch, playing(node(gpu(nvmlDeviceGetSupportedEventTypes=types))))
    assert watched.events.last("GPU-1") is None
    assert watched.failed == []


def test_a_failed_wait_is_counted_and_waiting_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, playing(node(gpu())))

    def break_down() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)

    watched.nvml.inject("nvmlEventSetWait_v2", break_down)
    assert not watched.events.wait()
    assert watched.failed == [("nvmlEventSetWait_v2", "Unknown")]
    watched.nvml.inject("nvmlEventSetWait_v2", None)
    watched.tell(31)
    assert watched.events.last("GPU-1") == 31


def test_no_stream_of_strange_numbers_fills_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(monkeypatch, playing(node(gpu())))
    for number in range(xid.MAX_XIDS + 10):
        watched.tell(number)
    assert len(watched.events.totals("GPU-1")) == xid.MAX_XIDS
    assert watched.events.last("GPU-1") == xid.MAX_XIDS + 9


def test_memory_of_a_hanging_call_is_not_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xid, "STOP_SECONDS", 0.01)
    nvml, answers, freed = playing(node(gpu())), threading.Event(), list[int]()

    def hang() -> None:
        answers.wait(10)

    nvml.inject("nvmlEventSetWait_v2", hang)
    events = xid.XidEvents(nvml, Codes(nvml), lambda *_told: None)
    events.watch(find(nvml, Codes(nvml), 0))
    monkeypatch.setattr(nvml, "nvmlEventSetFree", lambda _events: freed.append(1))
    events.stop()
    assert freed == []
    answers.set()
    events.watch(find(nvml, Codes(nvml), 0))
    nvml.inject("nvmlEventSetWait_v2", None)
    monkeypatch.setattr(xid, "STOP_SECONDS", 10)
    events.stop()
    assert freed == [1]


def test_the_thread_counts_and_a_lost_gpu_keeps_its_counts() -> None:
    nvml = playing(node(gpu()))
    made = Sampler(nvml).start()
    counted = threading.Event()
    nvml.inject("nvmlEventSetWait_v2", lambda: counted.set() if made.sample(1).gpus[0].xids else None)
    nvml.emit(Event("0", XID, 79))
    assert counted.wait(10)
    nvml.inject("nvmlEventSetWait_v2", None)
    nvml.lost = {"0"}
    lost = made.sample(2)
    assert lost.missing == ("GPU-1",)
    assert [(total.xid, total.count) for total in lost.gpus[0].xids] == [(79, 1)]
    assert lost.gpus[0].values == {}
    made.close()


def test_the_series_name_the_xid_in_words() -> None:
    one = GpuReading(
        "GPU-1",
        "0",
        values={device.XID_ERRORS.otlp_name: 79},
        xids=(XidTotal(79, 2, 1_500_000_000), XidTotal(999, 1, 0)),
    )
    node_reading = NodeReading(3_000_000_000, gpus=(one,))
    samples = to_samples(node_reading, hostname="node1", start_of=CounterStarts(1))
    last, *events = ((one.metric, dict(one.attributes), one.value) for one in samples)
    assert last == (
        device.XID_ERRORS,
        {"Hostname": "node1", "UUID": "GPU-1", "gpu": "0"}
        | {"err_code": "79", "err_msg": "GPU has fallen off the bus"},
        79,
    )
    shown = [(metric, labels["xid"], labels["err_msg"], value) for metric, labels, value in events]
    assert shown == [
        (rows.XID_ERRORS, "79", "GPU has fallen off the bus", 2),
        (rows.XID_LAST, "79", "GPU has fallen off the bus", 1.5),
        (rows.XID_ERRORS, "999", UNKNOWN, 1),
        (rows.XID_LAST, "999", UNKNOWN, 0.0),
    ]


def test_every_xid_with_a_known_action_has_a_name() -> None:
    """The page of a GPU that has to be reset read "XID 136 (Unknown Error)"."""
    assert not [number for number in XIDS if xid_name(number) == UNKNOWN]
    assert xid_name(136) == "Link training failed"
    assert xid_name(999) == UNKNOWN


def test_before_the_first_xid_the_row_says_that_there_is_none() -> None:
    one = GpuReading("GPU-1", "0", values={device.XID_ERRORS.otlp_name: 0})
    (sample,) = to_samples(NodeReading(3, gpus=(one,)), hostname="node1", start_of=CounterStarts(1))
    labels = dict(sample.attributes)
    assert (labels["err_code"], labels["err_msg"], sample.value) == ("0", NO_ERROR, 0)

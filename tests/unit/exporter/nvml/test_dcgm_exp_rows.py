"""The rows that dcgm-exporter computes itself: events within a window, and the status of NVLink between two GPUs."""

from pathlib import Path
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.exporter import nvml_double as double
from tests.support.exporter.nvml_double import gpu, playing

from kernelcast.columnar import Sample
from kernelcast.exporter.nvml.counters_file import CountersFile, CounterTable, read_table
from kernelcast.exporter.nvml.recorded import RecordedNvml
from kernelcast.exporter.nvml.recordings.record import record
from kernelcast.exporter.nvml.recordings.recording import Recording
from kernelcast.exporter.nvml.samples import CounterStarts, to_samples
from kernelcast.exporter.nvml.sampling.reading import GpuReading, NodeReading, XidTotal
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.exporter.nvml.windows import MAX_BUCKETS, EventCounts, EventWindow
from kernelcast.wire.catalogue.devices import dcgm_exporter, device

SECOND_NS = 1_000_000_000
NOW_NS = 10_000 * SECOND_NS
CLOCKS = "DCGM_EXP_CLOCK_EVENTS_COUNT"
XIDS = "DCGM_EXP_XID_ERRORS_COUNT"
PEERS = "DCGM_EXP_P2P_STATUS"
TABLE = f"""\
{CLOCKS}, gauge, Clock events
{XIDS}, gauge, XID errors
{PEERS}, gauge, Peers
"""
POWER_CAP, THERMAL = 0x4, 0x20


def counters(tmp_path: Path, text: str = TABLE) -> CountersFile:
    path = tmp_path / "counters.csv"
    path.write_text(text)
    return CountersFile(path)


def source(nvml: RecordedNvml, table: CountersFile, *, window_seconds: float = 300) -> NvmlSource:
    sampler = Sampler(nvml, table.options)
    made = NvmlSource(sampler, hostname="node1", boot_ns=SECOND_NS, counters=table).start()
    made.events = EventCounts(xid_window_seconds=window_seconds, clock_window_seconds=window_seconds)
    return made


def rows(samples: tuple[Sample, ...], name: str) -> dict[tuple[str, ...], Any]:
    """A row's values by GPU and the labels of its own."""
    own = ("UUID", "xid", "clock_event", "peer_gpu", "link_status")
    found = [one for one in samples if one.metric.prometheus_name == name and one.value is not None]
    return {tuple(dict(one.attributes)[key] for key in own if key in dict(one.attributes)): one.value for one in found}


def test_clock_events_are_counted_by_the_samples_of_the_window_in_dcgms_words(tmp_path: Path) -> None:
    nvml = playing(double.node(gpu(nvmlDeviceGetCurrentClocksEventReasons=POWER_CAP)))
    made = source(nvml, counters(tmp_path))
    made.poll(NOW_NS)
    nvml.answers["0"]["nvmlDeviceGetCurrentClocksEventReasons"] = POWER_CAP | THERMAL
    samples = made.poll(NOW_NS + 10 * SECOND_NS).samples
    assert rows(samples, CLOCKS) == {("GPU-1", "power_cap"): 2, ("GPU-1", "sw_thermal"): 1}
    assert {dict(one.attributes)["window_size_in_ms"] for one in samples if one.metric.prometheus_name == CLOCKS} == {
        "300000"
    }


def test_events_before_the_window_are_no_longer_counted(tmp_path: Path) -> None:
    nvml = playing(double.node(gpu(nvmlDeviceGetCurrentClocksEventReasons=POWER_CAP)))
    made = source(nvml, counters(tmp_path), window_seconds=60)
    for step in range(30):
        samples = made.poll(NOW_NS + step * 10 * SECOND_NS).samples
    assert rows(samples, CLOCKS) == {("GPU-1", "power_cap"): 6}


def test_a_gpu_without_a_clock_event_has_no_series_as_with_dcgm_exporter(tmp_path: Path) -> None:
    made = source(playing(double.node(gpu(nvmlDeviceGetCurrentClocksEventReasons=0))), counters(tmp_path))
    assert rows(made.poll(NOW_NS).samples, CLOCKS) == {}


def test_a_row_that_only_feeds_another_is_not_written(tmp_path: Path) -> None:
    made = source(playing(double.node(gpu())), counters(tmp_path))
    names = {one.metric.prometheus_name for one in made.poll(NOW_NS).samples}
    assert not names & {device.CLOCK_EVENT_REASONS.prometheus_name, device.XID_ERRORS.prometheus_name}
    assert "kernelcast_gpu_clock_event_active" not in names


def seen(xids: tuple[XidTotal, ...], events: EventCounts, time_ns: int) -> dict[tuple[str, ...], Any]:
    reading = GpuReading("GPU-1", "0", values={device.XID_ERRORS.otlp_name: 0}, xids=xids)
    node = events.complete(NodeReading(time_ns, "590", (reading,)))
    table = {XIDS: dcgm_exporter.XID_ERRORS_COUNT}
    samples = to_samples(node, hostname="node1", start_of=CounterStarts(0), table=CounterTable(table))
    return rows(tuple(samples), XIDS)


def test_xids_are_counted_within_the_window_by_number_and_0_without_one() -> None:
    events = EventCounts(xid_window_seconds=300, clock_window_seconds=300)
    at = NOW_NS
    assert seen((), events, at) == {("GPU-1",): 0}
    # A new number comes once with 0 before it is counted: see isolation.xid_memory.
    seen((XidTotal(31, 0, at),), events, at + 10 * SECOND_NS)
    both = (XidTotal(31, 2, at), XidTotal(79, 1, at + 200 * SECOND_NS))
    assert seen(both, events, at + 210 * SECOND_NS) == {("GPU-1", "31"): 2, ("GPU-1", "79"): 1}
    assert seen(both, events, at + 400 * SECOND_NS) == {("GPU-1", "79"): 1}
    assert seen(both, events, at + 600 * SECOND_NS) == {("GPU-1",): 0}
    again = (XidTotal(31, 3, at + 605 * SECOND_NS), both[1])
    assert seen(again, events, at + 610 * SECOND_NS) == {("GPU-1", "31"): 1}


def test_memory_of_a_window_is_bounded_however_long_it_is_and_however_often_it_is_asked() -> None:
    window = EventWindow(86_400)
    for step in range(20_000):
        window.add("a", NOW_NS + step * 10 * SECOND_NS)
    assert len(window) <= MAX_BUCKETS + 1
    # A day holds 8,640 of these; a bucket is 1/600 of it.
    assert window.counts(NOW_NS + 20_000 * 10 * SECOND_NS)["a"] == pytest.approx(8_640, rel=0.003)


@pytest.mark.parametrize(("row", "call"), [(CLOCKS, "nvmlDeviceGetCurrentClocksEventReasons")])
def test_a_gpu_that_lacks_the_source_says_so_of_the_row(tmp_path: Path, row: str, call: str) -> None:
    lacking = {name: answer for name, answer in gpu().items() if name != call}
    samples = source(playing(double.node(lacking)), counters(tmp_path)).poll(NOW_NS).samples
    absent = {
        dict(one.attributes)["field"]: dict(one.attributes)["reason"]
        for one in samples
        if one.metric.prometheus_name == "kernelcast_gpu_field_absent"
    }
    assert absent[row] == "not_supported"
    assert device.CLOCK_EVENT_REASONS.prometheus_name not in absent


def connected(status: int) -> RecordedNvml:
    peer = f"nvmlDeviceGetP2PStatus:{{}}:{pynvml.NVML_P2P_CAPS_INDEX_NVLINK}"
    return playing(
        double.node(gpu("GPU-1", 0, **{peer.format(1): status}), gpu("GPU-2", 1, **{peer.format(0): status}))
    )


def test_p2p_status_has_dcgm_exporters_value_and_words_for_each_pair(tmp_path: Path) -> None:
    up = source(connected(pynvml.NVML_P2P_STATUS_OK), counters(tmp_path)).poll(NOW_NS).samples
    assert rows(up, PEERS) == {("GPU-1", "1", "OK"): 0, ("GPU-2", "0", "OK"): 0}
    off = source(connected(pynvml.NVML_P2P_STATUS_NOT_SUPPORTED), counters(tmp_path)).poll(NOW_NS).samples
    assert rows(off, PEERS) == {("GPU-1", "1", "NotSupported"): 5, ("GPU-2", "0", "NotSupported"): 5}
    odd = source(connected(77), counters(tmp_path)).poll(NOW_NS).samples
    assert set(rows(odd, PEERS)) == {("GPU-1", "1", "Unknown"), ("GPU-2", "0", "Unknown")}


def test_p2p_status_is_not_asked_for_unless_the_table_names_it(tmp_path: Path) -> None:
    nvml, asked = connected(0), []
    nvml.inject("nvmlDeviceGetP2PStatus", lambda: asked.append(1))
    source(nvml, counters(tmp_path, "DCGM_FI_DEV_SM_CLOCK, gauge, x\n")).poll(NOW_NS)
    assert not asked


def test_a_pair_that_cannot_be_asked_is_absent_and_the_other_rows_go_on(tmp_path: Path) -> None:
    nvml = playing(double.node(gpu("GPU-1", 0), gpu("GPU-2", 1)))
    samples = source(nvml, counters(tmp_path)).poll(NOW_NS).samples
    assert rows(samples, PEERS) == {}
    assert rows(samples, XIDS) == {("GPU-1",): 0, ("GPU-2",): 0}


def test_the_rows_are_gauges_under_dcgm_exporters_names_and_off_by_default() -> None:
    assert {row.prometheus_name for row in dcgm_exporter.ROWS} == {CLOCKS, XIDS, PEERS}
    assert {row.kind.value for row in dcgm_exporter.ROWS} == {"gauge"}
    assert not {CLOCKS, XIDS, PEERS} & set(CountersFile().options.rows)


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("DCGM_EXP_GPU_HEALTH_STATUS", "kernelcast's alerts"),
        ("DCGM_EXP_XID_ERRORS_TOTAL", "kernelcast_gpu_xid_errors_total"),
    ],
)
def test_what_cannot_mean_the_same_is_refused_with_what_there_is_instead(
    tmp_path: Path, name: str, instead: str
) -> None:
    path = tmp_path / "counters.csv"
    path.write_text(f"{name}, gauge, x\n")
    (warning,) = read_table(path).warnings
    assert instead in warning


def test_a_recording_of_a_pair_plays_its_status_again(tmp_path: Path) -> None:
    table = counters(tmp_path)
    moments = record(connected(0), seconds=2, interval_seconds=1, options=table.options, sleep=lambda _: None)
    played = RecordedNvml(Recording(tuple(moments)), clock=lambda: 0)
    assert rows(source(played, table).poll(NOW_NS).samples, PEERS) == {("GPU-1", "1", "OK"): 0, ("GPU-2", "0", "OK"): 0}


def test_after_the_clock_was_set_back_a_window_holds_no_more_than_its_length(tmp_path: Path) -> None:
    made = source(playing(double.node(gpu(nvmlDeviceGetCurrentClocksEventReasons=POWER_CAP))), counters(tmp_path))
    made.poll(NOW_NS)
    back_ns = NOW_NS - 3600 * SECOND_NS
    for second in range(0, 900, 10):
        batch = made.poll(back_ns + second * SECOND_NS)
    assert rows(batch.samples, CLOCKS) == {("GPU-1", "power_cap"): 30}


@given(st.lists(st.tuples(st.integers(0, 400), st.sampled_from("ab"), st.integers(0, 3)), max_size=60))
def test_a_window_holds_the_events_of_its_seconds(added: list[tuple[int, str, int]]) -> None:
    window, second, held = EventWindow(MAX_BUCKETS), 0, list[tuple[int, str, int]]()  # a bucket is a second
    for later, event, count in added:
        second += later
        window.add(event, second * SECOND_NS, count)
        held = [one for one in [*held, (second, event, count)] if one[0] > second - MAX_BUCKETS]
        expected = {name: sum(n for _, one, n in held if one == name) for name in "ab"}
        assert window.counts(second * SECOND_NS) == {name: n for name, n in expected.items() if n}

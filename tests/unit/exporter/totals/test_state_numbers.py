"""Numbers that JSON's fast writer cannot take are in the state file all the same."""

from pathlib import Path

import pytest

from kernelcast.exporter.state import StateFile
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.exporter.totals.report import ProcessReport
from kernelcast.wire.frames import Counters, KernelName, KernelRow, VariantRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device, Process

SECOND_NS = 1_000_000_000


def report(totals: DurationTotals, counters: Counters | None = None) -> ProcessReport:
    rows = (KernelRow(7, totals.count, totals),)
    variants = {(7, "v"): VariantRow.of(7, "v", totals)}
    process, device = Process("train", "a", SECOND_NS), Device("node1", "GPU-1")
    return ProcessReport(process, device, (KernelName(7, "gemm"),), rows, counters, variants)


def restarted(aggregator: Aggregator, directory: Path) -> Aggregator:
    list(aggregator.samples(9 * SECOND_NS))
    StateFile(directory).save(aggregator)
    again = Aggregator()
    assert StateFile(directory).load(again)
    return again


@pytest.mark.parametrize("times", [1, 17, 18, 19, 10_000])
def test_squares_beyond_64_bits_go_on_after_a_restart(tmp_path: Path, times: int) -> None:
    """A second squared is 1e18 ns², and 64 bits end at 18.4e18."""
    totals = DurationTotals()
    totals.observe(SECOND_NS, times)
    first = Aggregator()
    first.report(report(totals, Counters(0, launch_gaps=totals)))
    again = restarted(first, tmp_path)
    (member,) = again.members.values()
    process, kernel = member.live["a"], member.series.kernels["gemm"]
    assert kernel.totals.durations == process.rows[7].durations == member.series.durations["launch_gaps"] == totals
    assert process.variants[7, "v"] == VariantRow.of(7, "v", totals)
    assert kernel.variants["v"].sum_squares_ns2 == times * SECOND_NS**2
    totals.observe(SECOND_NS)
    again.report(report(totals, Counters(0, launch_gaps=totals)))
    assert again.counts.fallen == 0
    assert kernel.totals.durations == totals


def test_totals_that_a_program_makes_up_beyond_64_bits_go_on_after_a_restart(tmp_path: Path) -> None:
    first = Aggregator()
    most = 2**64 - 1
    counters = Counters(0, sync=(("stream", most, most), ("stream", most, most)))
    first.report(report(DurationTotals(1, 2**70, 2**140, 1), counters))
    again = restarted(first, tmp_path)
    (member,) = again.members.values()
    assert member.live["a"].counters["sync_calls", "stream"] == 2 * most
    assert member.series.kernels["gemm"].gpu_time_ns == 2**70

"""The increase by a report: 0 without a change, the whole change otherwise, never negative."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kernelcast.exporter.totals.increments import LaunchTotals, ReportIncrement, difference, variant_growth
from kernelcast.exporter.totals.process import ProcessTotals
from kernelcast.exporter.totals.report import ProcessReport
from kernelcast.exporter.totals.series import TOTAL_LIMIT, ProgramSeries, SeriesKey
from kernelcast.wire.frames import KernelRow, VariantRow
from kernelcast.wire.histogram import DurationTotals
from kernelcast.wire.identity import Device, Process

durations = st.lists(st.integers(0, 10**12), max_size=20)


def totals(durations_ns: list[int]) -> DurationTotals:
    found = DurationTotals()
    for duration_ns in durations_ns:
        found.observe(duration_ns)
    return found


def row(durations_ns: list[int]) -> KernelRow:
    count = len(durations_ns)
    return KernelRow(7, count, totals(durations_ns), count, sum(durations_ns), count // 2)


@given(durations, durations)
def test_the_growth_of_a_row_is_the_launches_since(before: list[int], later: list[int]) -> None:
    first, both = LaunchTotals.of(row(before)), row(before + later)
    grown = LaunchTotals.of(both).since(first)
    assert grown is not None
    assert grown.durations == totals(later)
    assert first.equals_row(both) == (not later)
    first.add(grown)
    assert first.equals_row(both)


@given(durations.filter(bool), st.integers(0, 19))
def test_a_row_without_earlier_launches_is_no_growth(earlier: list[int], position: int) -> None:
    less = earlier[:position] + earlier[position + 1 :]
    if len(less) < len(earlier):
        assert LaunchTotals.of(row(less)).since(LaunchTotals.of(row(earlier))) is None
        assert difference(totals(less), totals(earlier)) is None


def test_a_row_of_the_same_sums_in_other_buckets_differs() -> None:
    earlier = LaunchTotals.of(row([100, 200]))
    moved = KernelRow(7, 2, replace(totals([100, 200]), buckets={-187: 2}), 2, 300, 1)
    assert not earlier.equals_row(moved)
    assert LaunchTotals.of(moved).since(earlier) is None


def test_empty_buckets_of_a_row_are_not_counted_as_grown() -> None:
    spoilt = replace(totals([100]), buckets={**totals([100]).buckets, 5: 0})
    assert difference(spoilt, DurationTotals()) == totals([100])


@given(durations, durations)
def test_a_variant_grows_by_the_launches_since(before: list[int], later: list[int]) -> None:
    first, both = (VariantRow.of(7, "v", totals(earlier)) for earlier in (before, before + later))
    added = totals(later)
    assert variant_growth("gemm", both, first) == ("gemm", "v", added.count, added.sum_ns, added.sum_squares_ns2)
    assert variant_growth("gemm", first, None) == ("gemm", "v", *first[2:])


def test_a_variant_that_fell_is_no_growth() -> None:
    known = VariantRow(7, "v", 2, 300, 50_000)
    for fallen in ((1, 300, 50_000), (2, 299, 50_000), (3, 400, 49_999)):
        assert variant_growth("gemm", VariantRow(7, "v", *fallen), known) is None


def test_repeated_or_fallen_totals_of_a_process_are_no_growth() -> None:
    process = ProcessTotals()
    reports = [VariantRow(7, "v", *earlier) for earlier in ((2, 300, 50_000), (3, 200, 50_000), (3, 301, 50_001))]
    found = []
    for earlier in (reports[0], reports[0], reports[1], reports[2]):
        report = ProcessReport(
            Process("train", "a", 1), Device("n", "GPU-1"), rows=(row([5]),), variants={(7, "v"): earlier}
        )
        growth = process.advance(report)
        found.append((growth.variants, growth.fallen, bool(growth.kernels)))
    assert found == [
        ([("", "v", 2, 300, 50_000)], 0, True),
        ([], 0, False),
        ([], 1, False),
        ([("", "v", 1, 1, 1)], 0, False),
    ]


def test_gaps_and_variants_beyond_a_total_are_counted_as_refused() -> None:
    series = ProgramSeries(SeriesKey("node", "GPU-1", "", "train", "", ""), Device("node", "GPU-1"), 0)
    assert series.grow(ReportIncrement(durations={"launch_gaps": DurationTotals(TOTAL_LIMIT - 1, 0)})) == 0
    assert series.grow(ReportIncrement(durations={"launch_gaps": DurationTotals(1, 0)})) == 1
    assert series.grow(ReportIncrement(variants=[("gemm", "64|64", 1, 5, 25)])) == 1

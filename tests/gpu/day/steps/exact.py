"""Counts, copies, waits and times of programs whose work is known; the product's whole path."""

import csv
import io
import sys

from tests.gpu.day import names
from tests.gpu.day.node import PROGRAMS, exporter, launches, plain, program, run, states, total
from tests.gpu.day.report import StepReport

NCU = (
    "sm__maximum_warps_per_active_cycle_pct,launch__registers_per_thread,"
    "sm__warps_active.avg.pct_of_peak_sustained_active"
)
THEORETICAL = "sm__maximum_warps_per_active_cycle_pct"
REGISTERS = "launch__registers_per_thread"


def streams(report: StepReport) -> None:
    """Two streams at the same time are busy once, not twice; copies beside kernels are `overlap`."""
    found = program("streams", seconds=40)
    report.figures(**found)
    one = found["one_stream_ns"]
    both, copied = found["device_time_ns"]["kernels"], found["device_time_ns"]["copies"]
    compute = both.get("compute", 0)
    overlap = copied.get("overlap", 0)
    doubled = found["kernel_ns"]["kernels"]
    report.check("kernels of both streams last twice that time in all", 1.9 * one < doubled < 2.2 * one)
    report.check("the device is busy once", 0.95 * one < compute < 1.15 * one)
    report.check("copies beside kernels are overlap", overlap > 0.05 * one)
    if 0.95 * one < compute < 1.15 * one and 1.9 * one < doubled < 2.2 * one:
        text = f"{doubled / 1e9:.2f} s of kernels in {compute / 1e9:.2f} s of the device's time (truth {one / 1e9:.2f})"
        report.measured("Two streams at the same time: the device's busy time", text)


def occupancy(report: StepReport) -> None:
    """Theoretical occupancy by the probe beside Nsight Compute's."""
    command = ["ncu", "--clock-control", "none", "--csv", "--kernel-name", "regex:occ_", "--metrics", NCU]
    done = run([*command, sys.executable, "-m", f"{PROGRAMS}.occupancy", "plain"], 70)
    (report.folder / "ncu.csv").write_text(done.stdout)
    theirs = ncu_values(done.stdout)
    ours = program("occupancy", "records", seconds=40)["kernels"]
    report.check("ncu measured the kernels", bool(theirs), exit_code=done.returncode, ncu=theirs, ours=ours)
    differ = {
        name: [ours.get(name, {}).get("occupancy"), values.get(THEORETICAL)]
        for name, values in theirs.items()
        if name not in ours or abs(ours[name]["occupancy"] - values[THEORETICAL] / 100) > 0.005
    }
    report.check("the probe's theoretical occupancy is ncu's", not differ, differ=differ)
    registers = {name: values.get(REGISTERS) for name, values in theirs.items()}
    same = all(ours.get(name, {}).get("registers") == count for name, count in registers.items())
    report.check("registers are ncu's", same)
    if theirs and not differ and same:
        text = f"equal to ncu's for {len(theirs)} kernels with different limits, registers too"
        report.measured("Theoretical occupancy", text)


def ncu_values(output: str) -> dict[str, dict[str, float]]:
    """Return the metrics of ncu's CSV by kernel."""
    start = output.find('"ID"')
    values: dict[str, dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO(output[start:])) if start >= 0 else ():
        kernel = values.setdefault(plain(row["Kernel Name"]), {})
        kernel[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    return values


def cupti(report: StepReport) -> None:
    """CUPTI's counts, durations, copies and waits are those of the program."""
    found = program("known_work", "records", "graph", seconds=50)
    got = {name: found["got"].get(name) for name in found["truth"]}
    copies = {name: [operations, size] for name, (operations, size) in found["got_copies"].items()}
    waits = {name: found["got_waits"].get(name) for name in found["waits"]}
    is_exact = got == found["truth"] and found["lost"] == 0
    report.check("launches", is_exact, truth=found["truth"], got=got, lost=found["lost"])
    report.check("copies", copies == found["copies"], copies_truth=found["copies"], copies=copies)
    report.check("waits", waits == found["waits"], waits_truth=found["waits"], waits=found["got_waits"])
    if is_exact:
        text = f"{sum(got.values()):,} of {sum(got.values()):,} launches, none lost, those of a graph one by one"
        report.measured("Kernel records by CUPTI: launches", text)
    if copies == found["copies"] and waits == found["waits"]:
        counts = sum(operations for operations, _ in copies.values()), sum(waits.values())
        report.measured("Copies, fills and waits by CUPTI", f"{counts[0]} to the byte, {counts[1]} waits, exact")
    plain_work = program("known_work", "records", seconds=40)
    ours, theirs = plain_work["got_ns"]["spin"], plain_work["spin_ns"]
    # Events time the gaps between the kernels, too.
    lasts = 0.8 * theirs < ours <= 1.01 * theirs
    report.check("durations", lasts, cupti_ns=round(ours), events_ns=round(theirs))
    if lasts:
        text = f"{ours / 1e3:.1f} µs by CUPTI, {theirs / 1e3:.1f} µs by an event pair around all, gaps included"
        report.measured("Durations by CUPTI", text)


def product(report: StepReport) -> None:
    """Launches come from the program through probe, socket and exporter to its page."""
    if report.rehearsal:
        _product(report, "manual", "observed")
    else:
        _product(report, "cupti", "plain", "graph")
        _product(report, "event", "plain")


def _product(report: StepReport, method: str, *arguments: str) -> None:
    with exporter(nvml="off" if report.rehearsal else "auto") as node:
        found = program("known_work", *arguments, seconds=60, probe=node.probe("day", "--method", method))
        truth: dict[str, int] = found["truth"]
        samples = node.settled(lambda page: sum(launches(page, "day", names.LAUNCHES).values()) >= sum(truth.values()))
    got = {name: launches(samples, "day", names.LAUNCHES).get(name, 0) for name in truth}
    # The first launch of each kernel comes before the measured part; the probe may have begun before it.
    exact = all(truth[name] <= got[name] <= truth[name] + 1 for name in truth)
    backed_off = [state for state in states(samples, names.STATE) if state.startswith(names.BACKED_OFF)]
    holds = exact or (bool(backed_off) and all(0 < got[name] <= truth[name] + 1 for name in truth))
    figures = {
        "truth": truth,
        "got": got,
        "states": states(samples, names.STATE),
        "lost": total(samples, names.LOST),
        "overhead_seconds": total(samples, names.OVERHEAD),
        "copies": total(samples, names.COPIES),
        "waits": total(samples, names.WAITS),
    }
    report.check(f"launches by {method}", holds, **{method: figures})
    if exact and not report.rehearsal:
        text = f"{sum(got.values()):,} launches on the page; {sum(truth.values()):,} and the first of each kernel"
        report.measured(f"From a program to the exporter's page, method `{method}`", text)

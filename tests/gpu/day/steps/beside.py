"""PyTorch's profiler beside the probe; kinds of records switched while graphs run; windows."""

from typing import Any

from tests.gpu.day import names
from tests.gpu.day.node import ProgramError, exporter, has, program, states, total
from tests.gpu.day.report import Skipped, StepReport

AFTER_SECONDS = 40.0
SWITCHES = 500
WINDOW_SECONDS = 20.0


def profiler(report: StepReport) -> None:
    """The probe measures before PyTorch's profiler, leaves CUPTI to it, and measures again after it."""
    with exporter() as node:
        found = program("profiled", node.url, AFTER_SECONDS, seconds=110, probe=node.probe("day"), environ=names.CUPTI)
    before, after, truth = found["seen_before"], found["seen_after"], found["truth_after"]
    report.figures(**found)
    early = before.get("node_early", 0)
    report.check("seen before the profiler", before.get("plain_before", 0) > 0 and early > 0)
    report.check("never more than were launched", all(after.get(name, 0) <= truth[name] for name in truth))
    report.check("the profiler's trace is complete", found["trace"] == found["truth_trace"])
    returned = {
        "kernels": after.get("plain_after", 0) > 0,
        "kernels of a graph captured before": after.get("node_early", 0) > early,
        "kernels of a graph captured after": after.get("node_late", 0) > 0,
    }
    for name, holds in returned.items():
        report.check(f"seen after the profiler: {name}", holds)
    if found["trace"] == found["truth_trace"]:
        report.measured("PyTorch's profiler beside the probe: its trace", "complete: every kernel, also of graphs")
    if all(returned.values()):
        text = f"kernels and kernels of graphs within {found['seconds_after']:.0f} s"
        report.measured("Records again after PyTorch's profiler has ended", text)


def late_start(report: StepReport) -> None:
    """CUPTI comes into a process whose graphs exist: the probe must not end the program, nor change its results."""
    for who in ("probe", "raw"):
        try:
            found = program("graphs", "late", who, seconds=40)
        except ProgramError as error:
            report.check(f"{who}: the program goes on", holds=False, error=str(error))
            continue
        report.figures(**{who: found})
        report.check(f"{who}: the program goes on, its results right", found["result_is_right"])
        if who == "probe" and found["result_is_right"]:
            text = f"{found['records']:,} of {found['kernels']:,} kernels recorded; results right"
            report.measured("Measuring begins after a CUDA graph was captured", text)


def whole_graphs(report: StepReport) -> None:
    """CUPTI's one record for a whole graph: the probe never asks for it, and this is why."""
    found: dict[str, Any] = {}
    for who in ("early", "late"):
        try:
            found[who] = program("graphs", "whole", who, seconds=40)
        except ProgramError as error:
            found[who] = {"error": str(error)}
    report.figures(**found)
    said = {
        who: "ended the program" if "error" in each else f"{each['records']} of {each['launches']} launches recorded"
        for who, each in found.items()
    }
    report.measured(
        "CUPTI's record of a whole graph (kind 51, not used by the probe)",
        f"enabled after a graph was launched: {said['early']}; before the first: {said['late']}",
    )


def switches(report: StepReport) -> None:
    """Kinds are switched 500 times while a graph is replayed; no kernel is lost or run twice, records come back."""
    found = program("graphs", "switches", SWITCHES, seconds=50)
    report.figures(**found)
    report.check("every kernel ran exactly once", found["result_is_right"])
    report.check("CUPTI accepted every switch", found["answers"] == [0])
    report.check("records after the switches", found["records_after"] == found["kernels_after"])
    if found["result_is_right"] and found["records_after"] == found["kernels_after"]:
        longest = max(found["longest_ms"].values())
        text = f"{SWITCHES} switches, the longest {longest:.1f} ms; every kernel ran once and has its record after them"
        report.measured("Kinds of records switched while a graph is replayed", text)


def windows(report: StepReport) -> None:
    """The probe measures a decode loop in windows; its cost and CUPTI's device memory stay below their bounds."""
    alone = program("decode", "plain", 4, seconds=60)
    with exporter() as node:
        own = program("decode", "plain", WINDOW_SECONDS, seconds=80, probe=node.probe("day"), environ=names.CUPTI)
        samples = node.settled(lambda page: has(page, names.LAUNCHES))
    rates = sorted(own["kernels_per_second"])
    base = sorted(alone["kernels_per_second"])[len(alone["kernels_per_second"]) // 2]
    mean = sum(rates) / len(rates)
    report.figures(
        kernels_per_second_alone=alone["kernels_per_second"],
        kernels_per_second=own["kernels_per_second"],
        cost_ratio_of_the_loop=round(base / mean, 4),
        states=states(samples, names.STATE),
        launches=total(samples, names.LAUNCHES, program="day"),
        truth=own["launches"],
    )
    taken, bound = own["used_bytes"] - alone["used_bytes"], names.DEVICE_MEMORY_BOUND_BYTES
    report.check("device memory below its bound", taken <= bound, device_bytes=taken, bound_bytes=bound)
    report.measured("Device memory that CUPTI takes in a decode loop", f"{taken / 2**20:.0f} MiB")
    if not has(samples, names.MEASURED_SECONDS):
        raise Skipped(f"the page has no {names.MEASURED_SECONDS}: this version has no windows")
    measured = total(samples, names.MEASURED_SECONDS)
    report.figures(measured_seconds=measured)
    report.check("measured for a part of the time", 0 < measured <= 0.5 * WINDOW_SECONDS)
    report.check("the cost of a program without steps is unknown", not has(samples, names.COST_RATIO))
    report.measured(
        "Windows in a decode loop of graphs",
        f"{measured:.1f} s of {WINDOW_SECONDS:.0f} s measured; {base / mean:.3f} of the time of the loop alone",
    )

"""The GPU's time in the phases of a training step, by the probe's CUDA events."""

from tests.gpu.day import names
from tests.gpu.day.node import exporter, program, total
from tests.gpu.day.report import StepReport

WITHIN_RATIO = 0.03
WITHIN_NS = 20_000
"""A phase's time may differ from that between own events by the greater of the two."""
STEP_COST_US = 10.0
"""The aim for the cost of all marks in the mean of steps; one step a second is timed."""


def phases(report: StepReport) -> None:
    """Times beside own events, the cost of a step that is timed, a captured graph, and the exporter's page."""
    found = program("phases", "times", seconds=60)
    steps = found["own_steps"]
    report.check("every chosen step was timed", found["steps"] == steps > 0, times=found)
    differences = {
        name: (found["phases"].get(name, 0) - own_ns) / steps for name, own_ns in found["own"].items() if steps
    }
    limits = {name: max(WITHIN_RATIO * own_ns / steps, WITHIN_NS) for name, own_ns in found["own"].items() if steps}
    agree = bool(differences) and all(abs(difference) <= limits[name] for name, difference in differences.items())
    report.check("the phases are those of own events", agree, differences_ns=differences)

    graph = program("phases", "graph", seconds=60)
    close = graph["eager"] > 0 and abs(graph["replayed"] / graph["eager"] - 1) < WITHIN_RATIO
    report.check("captures are unharmed", close, graph=graph)
    report.check("timing goes on after captures", graph["timed_afterwards"] > 0)

    cost = program("phases", "cost", seconds=90)
    report.figures(cost=cost)
    timed_us = cost["thread_us"]["timed"] - cost["thread_us"]["off"]
    step_us = timed_us * cost["steps"] / max(cost["timed_steps"], 1)
    per_second_us = step_us / max(1e6 / max(cost["wall_us"]["off"], 1.0), 1.0)
    report.check("steps were timed", cost["timed_steps"] > 0)
    report.check("with one timed step a second the mean stays below the aim", per_second_us < STEP_COST_US, us=step_us)

    with exporter() as node:
        plain = program("phases", "plain", probe=node.probe("phases"), seconds=60)
        page = node.settled(lambda samples: total(samples, names.GPU_PHASE_STEPS, program="phases") > 0)
    timed = total(page, names.GPU_PHASE_STEPS, program="phases")
    on_page = total(page, names.GPU_PHASE_SECONDS, program="phases") / max(timed, 1)
    report.check("the page has timed steps", timed >= 3, timed=timed, plain=plain)
    lasts = plain["step_seconds"]
    report.check("a step on the page lasts as long as in the loop", abs(on_page / lasts - 1) < 0.2, on_page=on_page)
    if agree:
        worst = max(differences, key=lambda name: abs(differences[name]))
        report.measured(
            "GPU time of a PyTorch step's phases, beside own events",
            f"{steps} steps, within {abs(differences[worst]) / 1e3:.1f} µs a step ({worst}); a timed step costs its "
            f"thread {step_us:.0f} µs; {graph['captures']} captures of a whole step meanwhile",
        )

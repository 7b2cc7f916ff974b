"""Cost of records for a training step and a decode loop."""

from tests.gpu.day.node import program
from tests.gpu.day.report import StepReport

TRAINING_SECONDS = 20.0
DECODE_SECONDS = 25.0


def training(report: StepReport) -> None:
    """Steps of a small GPT with and without records, by turns in one process."""
    found = program("training", "turns", TRAINING_SECONDS, seconds=90)
    report.figures(**found)
    report.check("kernels were recorded", found["launches"] > 0)
    report.check("no record was lost", found["lost"] == 0)
    ratio, rounds = found["cost_ratio"]["every"], found["rounds"]
    off, every = (1e3 * found["median"][way] for way in ("off", "every"))
    report.measured(
        "Cost of a record for every kernel: a training step of a small GPT",
        f"{ratio:.2f} of its time, the median of {rounds} pairs ({off:.1f} and {every:.1f} ms)",
    )


def decode(report: StepReport) -> None:
    """A decode loop without records and with one for each kernel, by turns."""
    found = program("decode", "turns", DECODE_SECONDS, seconds=90)
    report.figures(**found)
    ratios, rates = found["cost_ratio"], found["median"]
    report.check("kernels were recorded", found["launches"] > 0)
    report.check("no record was lost", found["lost"] == 0)
    off, every = (1 / rates[way] for way in ("off", "every"))
    report.measured(
        "Cost of a record for every kernel: a decode loop of graphs of 300 kernels",
        f"{off:,.0f} → {every:,.0f} kernels/s, {ratios['every']:.2f} of its time",
    )

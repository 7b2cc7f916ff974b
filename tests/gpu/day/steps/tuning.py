"""Kernels that are tuned while they run; the configuration that a search keeps beside each of them measured alone."""

from tests.gpu.day.node import program
from tests.gpu.day.report import StepReport

NO_MEMORY = {"KERNELCAST_TUNING_DIRECTORY": "off"}
"""No result of an earlier search is used."""
LEAST_GAIN_TAKEN = 0.8


def cupy_adapter(report: StepReport) -> None:
    """`cupy_kernel`: results stay right while configurations are tried."""
    _adapter(report, "cupy", "`cupy_kernel` on a `RawKernel`")


def triton_adapter(report: StepReport) -> None:
    """`triton_autotune`: results stay right while configurations are tried."""
    _adapter(report, "triton", "`triton_autotune`")


def _adapter(report: StepReport, name: str, feature: str) -> None:
    found = program("tuned", name, 8, seconds=60, environ=NO_MEMORY)
    report.figures(**found)
    report.check("results are right", found["wrong"] == 0)
    report.check("other configurations were tried", len(found["ran"]) > 1)
    if found["wrong"] == 0 and len(found["ran"]) > 1:
        text = f"{found['calls']:,} calls, {len(found['ran'])} configurations ran, every checked result right"
        report.measured(feature, text)


def search(report: StepReport) -> None:
    """A search of block sizes of a transposition takes most of the gain that the best configuration has."""
    # Half of a short run is for trials; a kernel is compiled for each configuration.
    environ = {**NO_MEMORY, "KERNELCAST_TRIAL_SHARE": "0.5"}
    found = program("tuned", "search", 22, seconds=75, environ=environ)
    report.figures(**found)
    gain = found["gain_taken"]
    report.check("the result is right", found["result_is_right"])
    report.check("most of the gain was taken", gain is None or gain >= LEAST_GAIN_TAKEN)
    report.measured(
        "A search while a `RawKernel` runs, beside all its configurations",
        f"place {found['place']} of {found['configurations']}: {found['start_us']:.0f} → {found['kept_us']:.0f} µs, "
        f"the best {found['best_us']:.0f} µs",
    )

"""The first screens of fleet, GPUs and kernels for a bridge without a Prometheus.

Each target has a declared query. The page's model has the query's PromQL as `expr`, so that the same screen could ask a
Prometheus.
"""

from collections.abc import Sequence
from typing import Any, Final

from kernelcast.bridge.browser.queries import Age, Aggregate, DeclaredQuery, Join, Last, Rate, SeenRate, Top
from kernelcast.bridge.browser.screen_model import Screen, ScreenPanel, Target
from kernelcast.wire.catalogue import bridge, forecast, kernel
from kernelcast.wire.catalogue.devices import device, gpu

_GPU: Final = ("Hostname", "gpu")
_KERNEL: Final = ("program", "kernel")
_LIVE: Final = (("source", ""),)
_LATE_SECONDS, _OLD_SECONDS = 60, 300
_GRAPH_SERIES: Final = 16
"""A graph shows this many series: those with the largest values at each time. Its description says so."""


def _name(metric: Any, suffix: str = "") -> str:
    return f"{metric.prometheus_name}{suffix}"


def _gpu_value(metric: Any) -> Last:
    """Return one value for each GPU: several producers, or its MIG instances, may report it."""
    return Last(_name(metric), "max", _GPU)


_UP: Final = _name(bridge.PRODUCER_UP)
_PROBABILITY: Final = _name(forecast.DEGRADATION_PROBABILITY)
_CROSSED: Final = _name(forecast.DEGRADATION_CROSSED)
_TIME_LEFT: Final = _name(forecast.DEGRADATION_TIME)
_SUM: Final = Rate(Last(_name(kernel.DURATION, "_sum"), "sum", _KERNEL))
_COUNT: Final = Rate(Last(_name(kernel.DURATION, "_count"), "sum", _KERNEL))
_LAUNCHES: Final = SeenRate(Last(_name(kernel.LAUNCHES), "sum", _KERNEL))
_MEAN: Final = Join(_SUM, "/", _COUNT)
_GPU_SECONDS: Final = Join(_MEAN, "*", _LAUNCHES)
_HEADROOM: Final = Join(_gpu_value(device.SLOWDOWN_TEMP), "-", _gpu_value(device.GPU_TEMP))
_BREACH_BY: Final = ("Hostname", "gpu", "program", "kernel", "metric", "cause")

STRIP: Final = (
    ScreenPanel(
        "stat",
        "Age of the data",
        "Time since the newest sample of the producer that reported last.",
        (Target(Last(_name(bridge.PRODUCER_AGE), "min")),),
        "s",
        thresholds=((None, "green"), (_LATE_SECONDS, "orange"), (_OLD_SECONDS, "red")),
    ),
    ScreenPanel(
        "stat",
        "Producers",
        "Producers that this bridge reads, and those of them that missed several intervals.",
        (
            Target(Last(_UP, "count"), "seen"),
            Target(Join(Last(_UP, "count"), "-", Last(_UP, "sum")), "silent"),
        ),
    ),
    ScreenPanel(
        "stat",
        "GPUs by source",
        "GPUs with live data, and those whose series come from a recording or from the simulation (label source).",
        (
            Target(Aggregate("count", Last(_name(device.FB_USED), "max", _GPU, equal=_LIVE)), "live"),
            Target(
                Aggregate("count", Last(_name(device.FB_USED), "max", (*_GPU, "source"), unequal=_LIVE), ("source",)),
                "{{source}}",
            ),
        ),
    ),
    ScreenPanel(
        "stat",
        "Launches seen",
        "Share of launches whose duration is measured, of the program where it is lowest.",
        (Target(Last(_name(kernel.PROBE_COVERAGE), "min")),),
        "percentunit",
    ),
)

_GPU_TABLE: Final = ScreenPanel(
    "table",
    "GPUs, the least headroom first",
    "Temperature against the limit at which the GPU lowers its clocks, load, power, and the highest probability of a "
    "predicted breach. A GPU that does not report a value has none here.",
    (
        Target(_gpu_value(device.GPU_TEMP)),
        Target(_HEADROOM),
        Target(_gpu_value(device.GPU_UTIL)),
        Target(_gpu_value(device.POWER_USAGE)),
        Target(Last(_name(gpu.XID_ERRORS), "sum", _GPU)),
        Target(Last(_PROBABILITY, "max", _GPU)),
    ),
    size=(24, 9),
    columns=(
        ("Hostname", "Node", ""),
        ("gpu", "GPU", ""),
        ("Value #A", "Temperature", "celsius"),
        ("Value #B", "Below the limit", "celsius"),
        ("Value #C", "Load", "percent"),
        ("Value #D", "Power", "watt"),
        ("Value #E", "XID errors", "none"),
        ("Value #F", "Breach predicted", "percentunit"),
    ),
    sort="Below the limit",
    sort_ascending=True,
)
_BREACHES: Final = ScreenPanel(
    "table",
    "Predicted breaches",
    "Series that are expected to cross their threshold, the cause, and the time after which half of the simulated "
    "paths have crossed it; once it is crossed, the time since then, until the alert ends. No data: nothing is "
    "predicted, or no predictor reports.",
    (
        Target(Last(_PROBABILITY, "max", _BREACH_BY)),
        Target(Last(_TIME_LEFT, "min", _BREACH_BY, equal=(("quantile", "0.5"),))),
        Target(Age(Last(_CROSSED, "min", _BREACH_BY))),
    ),
    size=(24, 6),
    columns=(
        ("metric", "Series", ""),
        ("Hostname", "Node", ""),
        ("gpu", "GPU", ""),
        ("program", "Program", ""),
        ("kernel", "Kernel", ""),
        ("cause", "Cause", ""),
        ("Value #A", "Probability", "percentunit"),
        ("Value #B", "Time left", "s"),
        ("Value #C", "Crossed ago", "s"),
    ),
    sort="Probability",
    value_texts=(("Time left", "0", "crossed"),),
)


def _graph(title: str, description: str, query: DeclaredQuery, legend: str, unit: str) -> ScreenPanel:
    return ScreenPanel("timeseries", title, description, (Target(Top(_GRAPH_SERIES, query), legend),), unit, (12, 8))


def _gpu_graph(title: str, metric: Any, unit: str) -> ScreenPanel:
    description = f"The {_GRAPH_SERIES} GPUs with the largest values."
    return _graph(title, description, _gpu_value(metric), "{{Hostname}} GPU {{gpu}}", unit)


FLEET: Final = Screen(
    "kernelcast-overview",
    "Fleet",
    "Which GPU needs attention, and which breaches are predicted.",
    (
        _GPU_TABLE,
        _BREACHES,
        _graph(
            "Mean load by node",
            f"Mean utilisation of a node's GPUs. The {_GRAPH_SERIES} nodes with the largest values.",
            Aggregate("avg", _gpu_value(device.GPU_UTIL), ("Hostname",)),
            "{{Hostname}}",
            "percent",
        ),
        _graph(
            "Power by node",
            f"Power of a node's GPUs together. The {_GRAPH_SERIES} nodes with the largest values.",
            Aggregate("sum", _gpu_value(device.POWER_USAGE), ("Hostname",)),
            "{{Hostname}}",
            "watt",
        ),
    ),
    STRIP,
)
GPUS: Final = Screen(
    "kernelcast-gpus",
    "GPUs",
    "Temperature, power, load, memory and clocks of each GPU.",
    (
        _gpu_graph("GPU temperature", device.GPU_TEMP, "celsius"),
        _gpu_graph("Power draw", device.POWER_USAGE, "watt"),
        _gpu_graph("GPU load", device.GPU_UTIL, "percent"),
        _gpu_graph("GPU memory used", device.FB_USED, "mbytes"),
        _gpu_graph("Clock of the multiprocessors", device.SM_CLOCK, "rotmhz"),
        _gpu_graph("Memory temperature", device.MEMORY_TEMP, "celsius"),
    ),
    STRIP,
)
KERNELS: Final = Screen(
    "kernelcast-kernels",
    "GPU kernels",
    "Which kernels take the GPUs' time.",
    (
        ScreenPanel(
            "table",
            "Kernels, the most GPU time first",
            "GPU time of each kernel in a second, over the last minute. Collectives wait for other GPUs: their time is "
            "mostly not work.",
            (
                Target(_GPU_SECONDS),
                Target(_LAUNCHES),
                Target(_MEAN),
            ),
            size=(24, 10),
            columns=(
                ("program", "Program", ""),
                ("kernel", "Kernel", ""),
                ("Value #A", "GPU time/s", "s"),
                ("Value #B", "Launches/s", "cps"),
                ("Value #C", "Mean", "s"),
            ),
            sort="GPU time/s",
        ),
        _graph(
            "GPU time",
            f"GPU time in a second: 1 s is a whole GPU. The {_GRAPH_SERIES} kernels with the most.",
            _GPU_SECONDS,
            "{{program}} {{kernel}}",
            "s",
        ),
        _graph(
            "Mean duration",
            f"Of the launches of the last minute. The {_GRAPH_SERIES} kernels with the longest.",
            _MEAN,
            "{{program}} {{kernel}}",
            "s",
        ),
    ),
    STRIP,
)
SCREENS: Final = (FLEET, GPUS, KERNELS)


def sample_names(screens: Sequence[Screen] = SCREENS) -> frozenset[str]:
    """Sample names that the screens read."""
    panels = [panel for screen in screens for panel in screen.all_panels]
    return frozenset().union(*(target.query.names for panel in panels for target in panel.targets))


def families(screens: Sequence[Screen] = SCREENS) -> frozenset[str]:
    """Families that the screens read: the sum and the count of a histogram are samples of one family."""
    names, histogram = sample_names(screens), _name(kernel.DURATION)
    samples = {f"{histogram}_sum", f"{histogram}_count"}
    return names - samples | ({histogram} if names & samples else frozenset())

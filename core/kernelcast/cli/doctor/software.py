"""Checks of Python, the installed extras, and Prometheus' tools."""

import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

from kernelcast.cli.doctor.result import CheckResult, fail, ok, warn

OLDEST_PYTHON: Final = (3, 11)

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "exporter": ("confluent_kafka", "pynvml"),
        "replay": ("confluent_kafka", "numpy", "pynvml"),
        "bridge": ("confluent_kafka", "cramjam", "numba", "opentelemetry"),
        "predictor": ("confluent_kafka", "numba", "opentelemetry", "pandas", "statsmodels"),
        "grafana": ("grafanalib", "yaml"),
    }
)
"""Modules whose presence shows that an extra is installed."""

TOOLS: Final = (
    ("promtool", "checks rules and metrics; it comes with Prometheus"),
    ("amtool", "checks Alertmanager's configuration; it comes with Alertmanager"),
)


def check_python(running: tuple[int, ...] = tuple(sys.version_info[:3])) -> Iterator[CheckResult]:
    """Whether this Python is young enough."""
    found = ".".join(map(str, running))
    if running < OLDEST_PYTHON:
        needed = ".".join(map(str, OLDEST_PYTHON))
        yield fail("python", found, f"kernelcast needs {needed} or later")
    else:
        yield ok("python", f"{found} ({sys.executable})")


def check_extras(
    present: Callable[[str], bool] = lambda module: find_spec(module) is not None,
) -> Iterator[CheckResult]:
    """Yield, for each extra, whether it is installed."""
    for extra, modules in EXTRAS.items():
        missing = [module for module in modules if not present(module)]
        if missing:
            yield warn(
                f"extra {extra}",
                f"{', '.join(missing)} not installed",
                f"pip install 'kernelcast[{extra}]', if this machine is to run it",
            )
        else:
            yield ok(f"extra {extra}", "installed")


def check_tools(which: Callable[[str], str | None] = shutil.which) -> Iterator[CheckResult]:
    """Whether Prometheus's own tools are installed."""
    for tool, use in TOOLS:
        path = which(tool)
        if path is None:
            yield warn(tool, "not found", f"{tool} {use}; install it to check what kernelcast generates")
        else:
            yield ok(tool, path)

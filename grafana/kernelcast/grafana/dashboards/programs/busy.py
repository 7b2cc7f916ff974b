"""PromQL for the GPU time of kernels, also where only some launches were timed; other panels rank kernels by it."""

from collections.abc import Collection
from typing import Final

from kernelcast.grafana import promql
from kernelcast.wire.catalogue import kernel

WHOLE_RANGE: Final = "[$__range] @ end()"
"""The whole time range as one window, the same at every step: what it ranks first stays so over the graph."""


def busy_seconds(*, extra: Collection[str] = (), free: Collection[str] = (), over: str = promql.NOW) -> str:
    """GPU seconds a second, per kernel series: mean duration of timed launches, times the rate of all launches.

    Where every launch is timed this is the rate of the sum; where some are, the rest count as long as those. A kernel
    that was not timed within the window has no mean, and drops out.
    """

    def selected(suffix: str) -> str:
        return f"rate({promql.series(kernel.DURATION, suffix, extra=extra, free=free)}{over})"

    launches = promql.seen_rate(kernel.LAUNCHES, extra=extra, free=free, over=over)
    return f"{selected('_sum')} / ({selected('_count')} > 0) * ({launches})"

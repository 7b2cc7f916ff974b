"""Rates of kernels from pages over time: launches and GPU time a second, and the mean duration against before.

`view.TopView` keeps a `History` of the newest pages.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from kernelcast.cli.top.page import KernelStats, ScrapedPage

NOW_SECONDS: Final = 30.0
"""Time over which a rate is measured: sources report every 1 to 10 s, so it spans several reports."""


@dataclass(frozen=True, slots=True)
class KernelNow:
    """One kernel in the time between two pages.

    Attributes:
        name: The label `kernel`.
        programs: Programs that launch it.
        collective: Whether it waits for other GPUs.
        launches: Launches since the beginning.
        launches_per_second: Launches a second; None before there are two pages.
        busy_ratio: GPU seconds a second: 1 is a whole GPU.
        mean_seconds: Mean duration of the launches in this time; None where none was timed.
        before_seconds: Mean duration of all launches before this time.
        p50_seconds: Median since the beginning.
        p99_seconds: 99th percentile since the beginning.
    """

    name: str
    programs: tuple[str, ...]
    collective: bool
    launches: float
    launches_per_second: float | None
    busy_ratio: float | None
    mean_seconds: float | None
    before_seconds: float | None
    p50_seconds: float | None
    p99_seconds: float | None

    @property
    def change_ratio(self) -> float | None:
        """Mean duration now, relative to before."""
        if self.mean_seconds is None or not self.before_seconds:
            return None
        return self.mean_seconds / self.before_seconds


@dataclass(slots=True)
class History:
    """Pages of the last `NOW_SECONDS`, oldest first; at least the two newest. For one thread.

    Attributes:
        changed_seconds: Time of the last rise of the exporter's or predictor's count of intervals; None if unknown.
    """

    changed_seconds: float | None = None
    _pages: deque[tuple[float, ScrapedPage]] = field(default_factory=deque)

    def add(self, now_seconds: float, page: ScrapedPage) -> None:
        """Add a page; those before the measured time are forgotten."""
        if self._pages and page.ticks is not None and page.ticks != self._pages[-1][1].ticks:
            self.changed_seconds = now_seconds
        self._pages.append((now_seconds, page))
        while len(self._pages) > 2 and self._pages[1][0] <= now_seconds - NOW_SECONDS:
            self._pages.popleft()

    @property
    def page(self) -> ScrapedPage | None:
        """The newest page."""
        return self._pages[-1][1] if self._pages else None

    @property
    def page_seconds(self) -> float:
        """Time of the newest page."""
        return self._pages[-1][0]

    @property
    def span_seconds(self) -> float:
        """Time between the oldest and the newest page."""
        return self._pages[-1][0] - self._pages[0][0] if self._pages else 0.0

    def age_seconds(self, now_seconds: float) -> float | None:
        """Age of the newest figures: as the bridge says it, or since an exporter's last interval; None if unknown."""
        page = self.page
        if page is None:
            return None
        passed = now_seconds - self.page_seconds
        if page.age_seconds is not None:
            return page.age_seconds + passed
        return now_seconds - self.changed_seconds if self.changed_seconds is not None else None

    def kernels(self) -> list[KernelNow]:
        """Every kernel of the newest page."""
        if not self._pages:
            return []
        (_, old), (_, new) = self._pages[0], self._pages[-1]
        return [
            _kernel_rates(name, stats, old.kernels.get(name), self.span_seconds) for name, stats in new.kernels.items()
        ]

    def programs(self) -> dict[str, float | None]:
        """Launches a second of each program; None before there are two pages."""
        if not self._pages:
            return {}
        (_, old), (_, new), span = self._pages[0], self._pages[-1], self.span_seconds
        return {
            name: max(0.0, total - old.programs.get(name, 0.0)) / span if span else None
            for name, total in sorted(new.programs.items())
        }


def _kernel_rates(name: str, new: KernelStats, old: KernelStats | None, span_seconds: float) -> KernelNow:
    """Return a kernel's rates. A new kernel began at 0; one whose totals fell was started again and began at 0."""
    if old is None or new.launches < old.launches or new.count < old.count:
        old = KernelStats()
    count, seconds, launches = new.count - old.count, new.seconds - old.seconds, new.launches - old.launches
    mean = seconds / count if count else None
    rate = launches / span_seconds if span_seconds else None
    # Launches a second times mean duration: all launches count, although only some were timed.
    busy = rate * mean if rate is not None and mean is not None else 0.0 if rate == 0 else None
    return KernelNow(
        name,
        tuple(sorted(new.programs)),
        new.collective,
        new.launches,
        rate,
        busy,
        mean if span_seconds else None,
        old.seconds / old.count if old.count else None,
        new.quantile_seconds(0.5),
        new.quantile_seconds(0.99),
    )

"""The figures as a table for people: ours first, the others with their ratio to ours."""

from collections.abc import Callable, Sequence

from benchmarks.peers.measure import Figures
from benchmarks.peers.scrape import REQUESTS
from rich.table import Table

MIB = 2**20


def _scraped(name: str, key: str) -> Callable[[Figures], float]:
    return lambda figures: float(figures.scrapes[name][key])


ROWS: Sequence[tuple[str, Callable[[Figures], float], str, bool]] = (
    ("points/s, series known", lambda f: f.rate, "{:,.0f}", True),
    ("points/s, every series new", lambda f: f.admission_rate, "{:,.0f}", True),
    ("CPU µs per new series", lambda f: f.admission_cpu_us, "{:.2f}", False),
    ("CPU s per million points", lambda f: f.cpu_per_million, "{:.2f}", False),
    *((f"scrape s: {name}", _scraped(name, "seconds"), "{:.3f}", False) for name in REQUESTS),
    *((f"scrape CPU s: {name}", _scraped(name, "cpu_seconds"), "{:.2f}", False) for name in REQUESTS),
    ("resident bytes per series", lambda f: f.bytes_per_series, "{:,.0f}", False),
    ("resident MiB", lambda f: f.resident_bytes / MIB, "{:,.0f}", False),
    ("peak MiB", lambda f: f.peak_bytes / MIB, "{:,.0f}", False),
    ("Kafka to a page, s", lambda f: f.visible_seconds, "{:.3f}", False),
)
"""Title, value, format, and whether more is better."""


def table(results: Sequence[Figures]) -> Table:
    """One column for each contestant at each size; a ratio says how many times better ours is."""
    drawn = Table(title="From Kafka to /metrics; 2.0x: twice as much work for the same, or half as much done")
    drawn.add_column("")
    for figures in results:
        drawn.add_column(f"{figures.contestant}\n{figures.series:,} series", justify="right")
    ours = {figures.series: figures for figures in results if figures.contestant == "kernelcast"}
    for title, value, form, more_is_better in ROWS:
        cells = []
        for figures in results:
            own = ours.get(figures.series)
            cell = form.format(value(figures))
            if own is not None and own is not figures and value(figures) and value(own):
                ratio = value(own) / value(figures)
                cell += f"  {ratio if more_is_better else 1 / ratio:.1f}x"
            cells.append(cell)
        drawn.add_row(title, *cells)
    return drawn

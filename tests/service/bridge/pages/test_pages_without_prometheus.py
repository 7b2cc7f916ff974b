"""The declared queries of the pages equal their PromQL, asked of a real Prometheus that holds the same samples."""

import json
import math
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from tests.service.require import binary
from tests.service.servers import PrometheusServer, stopping
from tests.support.bridge.pages_ring import FakeStore, Key

from kernelcast.bridge.browser.queries import DeclaredQuery, Join, Last, Rate, Top
from kernelcast.bridge.browser.ring import SampleRing
from kernelcast.bridge.browser.screens import SCREENS, families
from kernelcast.wire.catalogue import kernel

BEGIN = 1_790_000_000.0
"""Seconds; readings come every 5 s with some delay, as a busy machine's do."""
READINGS = 60
TOLERANCE = 1e-7
"""Prometheus has whole milliseconds; our seconds since 1970 are doubles, exact to 0.2 µs."""
COUNTERS = ("_total", "_sum", "_count")
DURATION = kernel.DURATION.prometheus_name


@dataclass
class History:
    """Readings of series: counters with resets, gauges, and a series that begins late."""

    times: list[float] = field(default_factory=list)
    samples: dict[Key, list[float | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, names: frozenset[str], seed: int) -> "History":
        rng, made = random.Random(seed), cls()
        made.times = [round(BEGIN + 5 * step + rng.uniform(0, 0.4), 3) for step in range(READINGS)]
        for name in sorted(names):
            for number in range(20):
                made.samples[name, labels(name, number)] = values(name, number, rng)
        return made

    def ring(self) -> SampleRing:
        ring, store = SampleRing(families(), 5.0, 5000), FakeStore()
        for place, moment in enumerate(self.times):
            store.values = self._page(place)
            ring.read(store, moment)
        return ring

    def _page(self, place: int) -> dict[Key, float | tuple[float, int]]:
        page: dict[Key, float | tuple[float, int]] = {}
        for (name, pairs), given in self.samples.items():
            value = given[place]
            if value is None or name == f"{DURATION}_count":
                continue
            if name == f"{DURATION}_sum":
                count = self.samples[f"{DURATION}_count", pairs][place]
                page[DURATION, pairs] = (value, int(count or 0))
            else:
                page[name, pairs] = value
        return page

    def openmetrics(self) -> str:
        lines = []
        for (name, pairs), given in self.samples.items():
            text = ",".join(f'{label}="{value}"' for label, value in pairs)
            lines += [
                f"{name}{{{text}}} {value!r} {moment:.3f}"
                for moment, value in zip(self.times, given, strict=True)
                if value is not None
            ]
        return "\n".join([*lines, "# EOF\n"])


def labels(name: str, number: int) -> tuple[tuple[str, str], ...]:
    """Labels as the catalogue's metrics have them; two series of each group of `by`."""
    gpu = (("Hostname", f"n{number % 4}"), ("UUID", f"U{number}"), ("gpu", str(number % 10 // 4)))
    if name.startswith("kernelcast_producer"):
        return (("instance", str(number)), ("job", "j"))
    if name.startswith("kernelcast_probe_") and "seconds" in name:
        return (*gpu, ("program", "p" if number % 2 else "another"))
    if name.startswith("cuda_"):
        return (*gpu, ("kernel", f"k{number % 10}"), ("program", "p"))
    if "degradation" in name:
        return (*gpu, ("cause", "thermal"), ("metric", "m"), *([("quantile", "0.5")] if "time_to" in name else []))
    return (*gpu, *([("source", "simulated")] if number % 3 else []))


def values(name: str, number: int, rng: random.Random) -> list[float | None]:
    absent = READINGS - 7 if number == 5 else 0
    if not name.endswith(COUNTERS) or "producer" in name:
        return [None] * absent + [round(rng.uniform(0, 100), 3) for _ in range(READINGS - absent)]
    total, made = rng.uniform(0, 50), []
    for step in range(READINGS):
        total = rng.uniform(0, 5) if number == 7 and step in (52, 57) else total + rng.uniform(0, 20)
        made.append(float(int(total)) if name.endswith("_count") else round(total, 3))
    return [None] * absent + made[absent:]


HISTORY = History.of(frozenset().union(*(t.query.names for s in SCREENS for p in s.all_panels for t in p.targets)), 12)
RING = HISTORY.ring()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    directory = tmp_path_factory.mktemp("prometheus")
    history = directory / "history.txt"
    history.write_text(HISTORY.openmetrics())
    promtool = binary("promtool", "prometheus")
    subprocess.run(
        [promtool, "tsdb", "create-blocks-from", "openmetrics", "-q", str(history), str(directory / "tsdb")],
        check=True,
        capture_output=True,
    )
    configuration = directory / "prometheus.yml"
    configuration.write_text("global: {scrape_interval: 1h}\n")
    server = PrometheusServer(directory, configuration, options=["--storage.tsdb.retention.time=50y"])
    with stopping(server):
        yield server.run()


def cases() -> list[DeclaredQuery]:
    named = {target.query.promql: target.query for one in SCREENS for p in one.all_panels for target in p.targets}
    temperature = "DCGM_FI_DEV_GPU_TEMP"
    more: tuple[DeclaredQuery, ...] = (
        Last(temperature),
        Rate(Last(f"{DURATION}_sum")),
        Top(3, Last(temperature, "sum", ("Hostname",))),
    )
    more += (Join(Last(temperature, "max", ("gpu",)), "+", Last(temperature, "min", ("gpu",))),)
    return [*named.values(), *more]


@pytest.mark.parametrize("query", cases(), ids=lambda query: query.promql[:60])
@pytest.mark.parametrize("place", [READINGS - 1, 14])
def test_a_declared_query_equals_its_promql(query: DeclaredQuery, place: int, prometheus: PrometheusServer) -> None:
    answers = prometheus.query(query.promql, HISTORY.times[place])
    expected = {tuple(sorted(found.items())): value for found, value in answers}
    vector = query.evaluate(RING)
    answered = {
        tuple(sorted(pairs)): float(series[place])
        for pairs, series in vector.series.items()
        if not math.isnan(series[place])
    }
    assert answered.keys() == expected.keys()
    assert expected, "a comparison of nothing shows nothing"
    for pairs, value in answered.items():
        assert math.isclose(value, expected[pairs], rel_tol=TOLERANCE, abs_tol=1e-9), (pairs, json.dumps(value))

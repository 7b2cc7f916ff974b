"""Parts of the bridge's tests: series, points as columns, one bridge whose Kafka is lists."""

import asyncio
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import httpx
import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import BaseRoute
from tests.support.bridge.list_kafka import ListKafka, ManualClock, Shelf

from kernelcast.bridge.expose.formats import text
from kernelcast.bridge.inputs import Selection, TopicFormat
from kernelcast.bridge.instruments import Instruments
from kernelcast.bridge.intake.consume import Intake
from kernelcast.bridge.intake.parts import IntakeParts, IntakePolicy
from kernelcast.bridge.series.store import DEFAULT_RULES, SeriesStore
from kernelcast.bridge.tables.columns import MessageColumns, PointRules
from kernelcast.bridge.tables.placement import Placement
from kernelcast.bridge.tables.slots import SeriesLimits
from kernelcast.columnar import (
    IS_INTEGER,
    NO_RECORDED_VALUE,
    Attributes,
    Decoded,
    Decoder,
    HistogramColumns,
    NumberColumns,
    PointType,
    Resource,
    Sample,
    SeriesIdentity,
    Temporality,
    encode,
)
from kernelcast.wire.catalogue import kernel

RESOURCE = (("service.instance.id", "host-1"), ("service.name", "kernelcast-exporter"))
TARGET = {"job": "kernelcast-exporter", "instance": "host-1"}
LAUNCHES = "cuda_kernel_launches_total"


def launches(number: int, *, time_ns: int, name: str = "gemm", start_ns: int = 1) -> Sample:
    return Sample(kernel.LAUNCHES, (("kernel", name),), time_ns, number, start_ns)


def gauge(
    name: str = "some.gauge",
    *,
    resource: Attributes = RESOURCE,
    attributes: Iterable[tuple[str, str]] = (),
    **changes: Any,
) -> SeriesIdentity:
    values = {"type": PointType.GAUGE, "temporality": Temporality.UNSPECIFIED, "monotonic": False, **changes}
    return SeriesIdentity(
        resource=resource,
        scope_name="",
        scope_version="",
        name=name,
        unit=values.pop("unit", ""),
        attributes=tuple(sorted(attributes)),
        **values,
    )


def counter(name: str = "some.count", **changes: Any) -> SeriesIdentity:
    values = {"type": PointType.SUM, "temporality": Temporality.CUMULATIVE, "monotonic": True, **changes}
    return gauge(name, **values)


@dataclass(eq=False)
class Known:
    """An input whose series are known from the start; it records the series that it may forget."""

    identity: Callable[[int], SeriesIdentity | Placement]
    forgotten: list[int] = field(default_factory=list)

    def forget(self, numbers: np.ndarray) -> None:
        self.forgotten += numbers.tolist()


@dataclass(frozen=True)
class Point:
    series: int
    value: float | int | None
    time_ns: int = 0
    start_ns: int = 0


def no_histograms() -> HistogramColumns:
    return Decoder().decode([]).histograms


def decoded(points: Sequence[Point], message: int = 0) -> Decoded:
    def column(values: Iterable[object], kind: type) -> np.ndarray:
        return np.array(list(values), kind)

    whole = [isinstance(point.value, int) for point in points]
    flags = [
        NO_RECORDED_VALUE if point.value is None else IS_INTEGER if is_whole else 0
        for point, is_whole in zip(points, whole, strict=True)
    ]
    numbers = NumberColumns(
        series=column((point.series for point in points), np.int32),
        message=np.full(len(points), message, np.int32),
        start_ns=column((point.start_ns for point in points), np.uint64),
        time_ns=column((point.time_ns for point in points), np.uint64),
        value=column((0.0 if point.value is None else float(point.value) for point in points), np.float64),
        integer=column((point.value if w else 0 for point, w in zip(points, whole, strict=True)), np.int64),
        flags=column(flags, np.uint8),
    )
    return Decoded(numbers, no_histograms(), ())


def come_from(partition: int = 0, offset: int = 0, append_ms: int = 1_000, key_hash: int = 1) -> MessageColumns:
    others = (np.array([value], np.int64) for value in (offset, append_ms, key_hash))
    return MessageColumns(np.array([partition], np.int32), *others)


def exposed_store(limits: SeriesLimits | None = None, **options: Any) -> SeriesStore:
    store = SeriesStore(limits or SeriesLimits(), **options)
    store.expose(0, exposed=True)
    return store


def page(store: SeriesStore) -> str:
    return b"".join(text(store.snapshot())).decode()


SeriesKey = tuple[str, frozenset[tuple[str, str]]]
"""Name and labels of a series on a page."""


def parsed(body: str) -> dict[SeriesKey, float]:
    """The samples of a page, read by Prometheus' own parser."""
    found = {}
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, f"{key} stands twice on the page"
            found[key] = sample.value
    return found


@lru_cache(maxsize=256)
def _line_of_each_series(numbered: str) -> dict[SeriesKey, int]:
    return {key: int(line) for key, line in parsed(numbered).items()}


def samples(body: str) -> dict[SeriesKey, float]:
    """The samples of a page, as `parsed`; pages that differ only in their values are parsed once.

    The parser gets a page with the number of each line in place of its value, such as `up{job="a"} 3`.
    """
    lines = [(line, "", "") if line.startswith("#") else line.rpartition(" ") for line in body.split("\n")]
    numbered = "\n".join(f"{series} {at}" if value else series for at, (series, _, value) in enumerate(lines))
    return {key: float(lines[at][2]) for key, at in _line_of_each_series(numbered).items()}


def values(store: SeriesStore, name: str) -> list[float]:
    return [value for (sample, _), value in samples(page(store)).items() if sample == name]


@dataclass
class Site:
    """A bridge without its web server."""

    kafka: ListKafka = field(default_factory=ListKafka)
    clock: ManualClock = field(default_factory=ManualClock)
    shelf: Shelf = field(default_factory=Shelf)
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    decoder: Decoder = field(default_factory=Decoder)
    formats: dict[str, TopicFormat] = field(default_factory=lambda: {"kernels": TopicFormat(format="otlp_proto")})
    ttl_seconds: float = 300.0
    policy: IntakePolicy | None = None
    rules: PointRules = DEFAULT_RULES
    _exposed: tuple[int, dict[SeriesKey, float]] = field(init=False, default_factory=lambda: (-1, {}))

    def __post_init__(self) -> None:
        self.selection = Selection(self.decoder, self.formats)
        policy = self.policy or IntakePolicy(self.ttl_seconds)
        self.store = SeriesStore(SeriesLimits(), rules=self.rules)
        self.instruments = Instruments(self.registry)
        parts = IntakeParts(self.kafka, self.selection, self.store, self.shelf, self.instruments, self.clock)
        self.intake = Intake(parts, policy)

    def export(
        self,
        partition: int,
        *written: Sample,
        append_ms: int | None = None,
        instance: str = "host-1",
        keyed: bytes | None = b"key",
        **further: Any,
    ) -> None:
        resource = Resource((("service.instance.id", instance), ("service.name", "kernelcast-exporter")))
        for export in encode(resource, written, scope="test"):
            now_ms = self.clock.now_ns() // 1_000_000
            at_ms = now_ms if append_ms is None else append_ms
            self.kafka.write("kernels", partition, export.body, at_ms, keyed=keyed, **further)

    def run(self, seconds: float) -> None:
        for _ in range(math.ceil(seconds)):
            self.clock.seconds += min(seconds, 1.0)
            seconds -= 1.0
            self.intake.step()

    def read_all(self) -> None:
        while self.intake.step():
            pass

    def exposed(self) -> dict[SeriesKey, float]:
        """The samples of its page, which is encoded again once the store's version has risen, as `Exposition` does."""
        if self._exposed[0] != self.store.version:
            self._exposed = self.store.version, samples(page(self.store))
        return self._exposed[1]

    def own(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


class Browser:
    """An HTTP client of routes, without a network."""

    def __init__(self, *routes: BaseRoute) -> None:
        self._app = Starlette(routes=list(routes))

    def ask(self, method: str, path: str, *, raw: bool = False, **options: Any) -> httpx.Response:
        return asyncio.run(self._ask(method, path, raw=raw, options=options))

    async def _ask(self, method: str, path: str, *, raw: bool, options: dict[str, Any]) -> httpx.Response:
        transport = httpx.ASGITransport(app=self._app)
        async with httpx.AsyncClient(transport=transport, base_url="http://bridge") as client:
            if not raw:
                return await client.request(method, path, **options)
            async with client.stream(method, path, **options) as answer:
                packed = b"".join([part async for part in answer.aiter_raw()])
                return httpx.Response(answer.status_code, headers={"x-length": str(len(packed))}, content=packed)

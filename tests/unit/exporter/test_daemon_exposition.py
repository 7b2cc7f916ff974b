import asyncio

import httpx
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.routing import Route

from kernelcast.columnar import Sample
from kernelcast.exporter.exposition import IntervalExposition, render
from kernelcast.exporter.pipeline import Tick
from kernelcast.exporter.totals.aggregate import ProgramSamples
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.devices import device
from kernelcast.wire.histogram import CLASSIC_BOUNDS_SECONDS, DurationTotals
from kernelcast.wire.identity import Device, labels

DEVICE = Device("node1", "GPU-1")


def parsed(body: bytes) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def durations(*durations_ns: int) -> DurationTotals:
    totals = DurationTotals()
    for duration_ns in durations_ns:
        totals.observe(duration_ns)
    return totals


def scrape(app: Starlette) -> httpx.Response:
    async def get() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://exporter") as client:
            return await client.get("/metrics")

    return asyncio.run(get())


def test_gauges_and_counters_keep_their_exact_names() -> None:
    own = labels(Hostname="node1")
    body = render(
        [
            Sample(device.GPU_TEMP, own, 5, 41),
            Sample(device.TOTAL_ENERGY, own, 5, 2**53 + 1, 1),
            Sample(kernel.LAUNCHES, own, 5, 7, 1),
            Sample(kernel.SYNC_WAIT, own, 5, 0.25, 1),
        ]
    )
    assert b"# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n" in body
    assert b'DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{Hostname="node1"} 9007199254740993\n' in body
    key = frozenset({("Hostname", "node1")})
    values = parsed(body)
    assert values["DCGM_FI_DEV_GPU_TEMP", key] == 41
    assert values["cuda_kernel_launches_total", key] == 7
    assert values["cuda_sync_wait_seconds_total", key] == 0.25


def test_a_detailed_kernel_has_the_classic_buckets() -> None:
    totals = durations(0, 1_000_000, 1_000_000, 200_000_000_000)
    body = render([Sample(kernel.DURATION, labels(kernel="gemm"), 5, totals, 1, detailed=True)])
    values = parsed(body)
    counts = {dict(key[1])["le"]: value for key, value in values.items() if key[0].endswith("_bucket")}
    assert len(counts) == len(CLASSIC_BOUNDS_SECONDS) + 1
    assert (counts["0.0009765625"], counts["0.001953125"], counts["64"], counts["+Inf"]) == (1, 3, 3, 4)
    key = frozenset({("kernel", "gemm")})
    assert values["cuda_kernel_duration_seconds_count", key] == 4
    assert values["cuda_kernel_duration_seconds_sum", key] == 200.002


def test_other_kernels_have_count_and_sum_only() -> None:
    body = render([Sample(kernel.DURATION, labels(kernel="copy"), 5, durations(1_000), 1)])
    assert {dict(key[1]).get("le") for key in parsed(body)} == {"+Inf", None}


def test_label_values_are_escaped() -> None:
    name = 'a "quoted"\\ name\nwith lines'
    (key,) = parsed(render([Sample(kernel.LAUNCHES, labels(kernel=name), 5, 1, 1)]))
    assert dict(key[1])["kernel"] == name


def test_what_only_travels_is_left_out() -> None:
    assert render([Sample(kernel.VARIANT_LAUNCHES, labels(kernel="gemm"), 5, 1, 1)]) == b""


def test_a_scrape_has_the_last_interval_and_the_daemons_own_metrics() -> None:
    registry = CollectorRegistry()
    Gauge("own", "The daemon's.", registry=registry).set(3)
    exposition = IntervalExposition(registry, hostname_label="hostname")
    app = Starlette(routes=[Route("/metrics", exposition.answer)])
    assert parsed(scrape(app).content) == {("own", frozenset()): 3}
    for value in (1, 2):
        group = ProgramSamples("node1", "train", (Sample(kernel.LAUNCHES, labels(Hostname="node1"), 5, value, 1),))
        exposition.show(Tick(5, (group,), (Sample(device.GPU_TEMP, DEVICE.device_labels(), 5, 41),), 2, done=False))
    for _ in range(2):
        response = scrape(app)
        values = parsed(response.content)
        assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert values["cuda_kernel_launches_total", frozenset({("hostname", "node1"), ("Hostname", "node1")})] == 2
        assert values["own", frozenset()] == 3
        assert len(values) == 3

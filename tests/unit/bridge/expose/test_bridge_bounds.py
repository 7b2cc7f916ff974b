"""Bounds of buckets in each format: as exporters in Go write them, so that no series has two spellings."""

import re

import pytest
from tests.support.bridge.openmetrics_pages import openmetrics_of, stored

from kernelcast.bridge.expose.formats import text
from kernelcast.columnar import Sample
from kernelcast.exporter.exposition import render
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.histogram import DurationTotals


def bounds(page: bytes) -> list[str]:
    return re.findall(r'[{,]le="([^"]*)"', page.decode())


@pytest.mark.parametrize(
    ("given", "in_text", "in_openmetrics"),
    [
        ("5", "5", "5.0"),
        ("5.0", "5", "5.0"),
        ("0.1", "0.1", "0.1"),
        ("10", "10", "10.0"),
        ("0", "0", "0.0"),
        ("-1", "-1", "-1.0"),
        ("100000", "100000", "100000.0"),
        ("1e6", "1e+06", "1e+06"),
        ("1e-05", "1e-05", "1e-05"),
    ],
)
def test_a_whole_bound_has_a_point_in_openmetrics_only(given: str, in_text: str, in_openmetrics: str) -> None:
    page = f'# TYPE h histogram\nh_bucket{{le="{given}"}} 1\nh_bucket{{le="+Inf"}} 2\nh_sum 3\nh_count 2\n'
    store = stored(page.encode())
    assert bounds(b"".join(text(store.snapshot()))) == [in_text, "+Inf"]
    assert bounds(openmetrics_of(store)) == [in_openmetrics, "+Inf"]


def test_the_exporter_writes_bounds_as_the_bridge_does() -> None:
    totals = DurationTotals()
    totals.observe(1_000)
    found = bounds(render([Sample(kernel.DURATION, (("kernel", "k"),), 1, totals, 1, detailed=True)]))
    assert {"1", "64", "0.5", "+Inf"} <= set(found)
    assert not [bound for bound in found if bound.endswith(".0")]

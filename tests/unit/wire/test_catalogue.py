from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kernelcast.wire.catalogue import (
    BY_OTLP_NAME,
    BY_PROMETHEUS_NAME,
    CATALOGUE,
    OWN_NAMES,
    Kind,
    Metric,
    own_name,
    translate,
    unit_words,
)
from kernelcast.wire.catalogue.devices.dcgm_names import CANONICAL_NAMES


def test_every_name_is_in_the_catalogue_once() -> None:
    assert len(BY_PROMETHEUS_NAME) == len(CATALOGUE)
    assert len(BY_OTLP_NAME) == sum(bool(row.otlp_name) for row in CATALOGUE)


@pytest.mark.parametrize("row", [row for row in CATALOGUE if row.otlp_name], ids=lambda row: row.otlp_name)
def test_a_prometheus_name_follows_from_its_otlp_name_unless_it_is_dcgms(row: Metric) -> None:
    assert row in CATALOGUE
    if row.prometheus_name.startswith("DCGM_FI_"):
        assert row.prometheus_name == row.otlp_name
        assert not row.unit
    else:
        assert row.prometheus_name == translate(row.otlp_name, row.unit, row.kind)


def test_labels_are_unique_and_help_is_one_line() -> None:
    for row in CATALOGUE:
        assert len(set(row.labels)) == len(row.labels), row.prometheus_name
        assert row.help, row.prometheus_name
        assert "\n" not in row.help, row.prometheus_name


def test_names_are_what_prometheus_accepts() -> None:
    lines = "".join(f"{row.prometheus_name} 1\n" for row in CATALOGUE)
    names = {sample.name for family in text_string_to_metric_families(lines) for sample in family.samples}
    assert names == set(BY_PROMETHEUS_NAME)


@pytest.mark.parametrize(
    ("name", "unit", "kind", "expected"),
    [
        ("http.server.duration", "s", Kind.HISTOGRAM, "http_server_duration_seconds"),
        ("system.memory.usage", "By", Kind.GAUGE, "system_memory_usage_bytes"),
        ("requests", "{request}", Kind.COUNTER, "requests_total"),
        ("requests_total", "1", Kind.COUNTER, "requests_total"),
        ("cpu.utilization", "1", Kind.GAUGE, "cpu_utilization_ratio"),
        ("speed", "m/s", Kind.GAUGE, "speed_meters_per_second"),
        ("io.bytes", "By", Kind.COUNTER, "io_bytes_total"),
        ("2xx", "", Kind.GAUGE, "_2xx"),
        ("a--b", "", Kind.GAUGE, "a_b"),
    ],
)
def test_otlp_names_become_prometheus_names_by_the_specification(
    name: str, unit: str, kind: Kind, expected: str
) -> None:
    assert translate(name, unit, kind) == expected


def test_an_annotation_is_no_unit() -> None:
    assert unit_words("{launch}", Kind.COUNTER) == ""
    assert unit_words("{packet}/s", Kind.GAUGE) == "per_second"


def test_no_module_of_the_contract_imports_a_third_party() -> None:
    root = Path(__file__).parents[3] / "core" / "kernelcast" / "wire"
    imported = {
        line.split()[1].split(".")[0]
        for path in root.rglob("*.py")
        for line in path.read_text().splitlines()
        if line.startswith(("import ", "from "))
    }
    allowed = {"kernelcast", "bisect", "collections", "dataclasses", "typing", "os", "re", "hashlib", "functools"}
    allowed |= {"json", "struct", "uuid", "datetime", "enum", "types", "sys", "textwrap", "pathlib", "argparse"}
    assert imported <= allowed | {"shutil", "math", "difflib"}


def test_a_row_has_one_name_of_ours_whichever_name_dcgm_has_for_it() -> None:
    assert own_name("DCGM_FI_DEV_BOARD_POWER_WATTS") == "DCGM_FI_DEV_POWER_USAGE"
    assert own_name("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS") == "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
    assert own_name("cuda_kernel_launches_total") == "cuda_kernel_launches_total"
    assert not OWN_NAMES.keys() & BY_PROMETHEUS_NAME.keys()
    assert sum(other in CANONICAL_NAMES.values() for other in OWN_NAMES) == 41, "rows that DCGM 4.6 has renamed"

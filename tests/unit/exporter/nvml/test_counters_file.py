"""The table of device rows that users edit, in dcgm-exporter's format.

Canonical names: NVIDIA/DCGM 4.6.0 (72fa3fea), testing/python3/dcgm_fields.py.
"""

import os
import re
from pathlib import Path

import pynvml
import pytest
from tests.support.exporter.nvml_double import DRIVER, gpu, node, playing

from kernelcast.exporter.exposition import render
from kernelcast.exporter.nvml.counters_file import CountersFile, document, read_table
from kernelcast.exporter.nvml.sampling.fields import DEFAULT_ROWS, ROWS
from kernelcast.exporter.nvml.sampling.sampler import Sampler
from kernelcast.exporter.nvml.source import NvmlSource
from kernelcast.wire.catalogue.devices.dcgm_names import CANONICAL_NAMES
from kernelcast.wire.catalogue.devices.device import OPT_IN_LABELS
from kernelcast.wire.errors import ConfigurationError

DEPLOYED = Path(__file__).parents[4] / "deploy/counters.csv"
DCGM = """\
# Format,,
# DCGM FIELD, Prometheus metric type, help message

DCGM_FI_DEV_SM_CLOCK,  gauge, SM clock frequency (in MHz).
DCGM_FI_DEV_DEC_UTIL ,     gauge, Our decoders.
# DCGM_FI_DEV_POWER_VIOLATION,       counter, Throttling duration due to power constraints (in us).
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, counter, "Two bits, at once."

DCGM_FI_DRIVER_VERSION,        label, Driver Version
"""


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "counters.csv"
    path.write_text(text)
    return path


def test_dcgm_exporters_format_is_read_with_its_help(tmp_path: Path) -> None:
    made = read_table(table(tmp_path, DCGM))
    assert {name: row.help for name, row in made.rows.items()} == {
        "DCGM_FI_DEV_SM_CLOCK": "SM clock frequency (in MHz).",
        "DCGM_FI_DEV_DEC_UTIL": "Our decoders.",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "Two bits, at once.",
    }
    assert made.warnings == ()


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    path = table(tmp_path, "\ufeffDCGM_FI_DEV_SM_CLOCK, gauge, SM clock.\n")
    assert [row.prometheus_name for row in read_table(path).rows.values()] == ["DCGM_FI_DEV_SM_CLOCK"]


def test_our_own_table_is_a_file_that_reads_as_itself(tmp_path: Path) -> None:
    made = read_table(table(tmp_path, document()))
    assert set(made.rows) == set(DEFAULT_ROWS)
    assert {name: row.help for name, row in made.rows.items()} == {name: ROWS[name].help for name in DEFAULT_ROWS}
    everything = document().replace("# DCGM_", "DCGM_")
    assert set(read_table(table(tmp_path, everything)).rows) == set(ROWS)
    assert tuple(read_table(table(tmp_path, everything)).labels) == tuple(OPT_IN_LABELS)


def test_the_deployed_table_is_our_own() -> None:
    assert DEPLOYED.read_text() == document(), "python -m kernelcast.exporter.nvml.counters_file > deploy/counters.csv"


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        ("DCGM_FI_DEV_BAR1_USED, gauge, Fans.", "DCGM_FI_DEV_BAR1_USED is not given through NVML; it is left out"),
        ("DCGM_FI_DEV_GPU_UTL, gauge, Busy.", r"left out; did you mean DCGM_FI_DEV_GPU_UTIL\?"),
        ("DCGM_FI_DEV_UUID, label, Number", "DCGM_FI_DEV_UUID is not given as a label; DCGM_FI_DRIVER_VERSION, "),
        ("DCGM_EXP_XID_ERRORS_TOTAL, counter, XIDs", "there is kernelcast_gpu_xid_errors_total instead"),
        ("DCGM_FI_DEV_GPU_TEMP, counter, Heat", "DCGM_FI_DEV_GPU_TEMP is a gauge, not a counter; it stays one"),
    ],
)
def test_what_cannot_be_given_is_named_with_its_line_and_the_rest_is_used(
    tmp_path: Path, line: str, warning: str
) -> None:
    made = read_table(table(tmp_path, f"# ours\n{line}\nDCGM_FI_DEV_SM_CLOCK, gauge, Clock\n"))
    (only,) = made.warnings
    assert only.startswith(f"{tmp_path}/counters.csv:2: ")
    assert re.search(warning, only)
    assert "DCGM_FI_DEV_SM_CLOCK" in made.rows


def test_a_field_on_two_lines_counts_once_by_its_later_line(tmp_path: Path) -> None:
    made = read_table(table(tmp_path, "DCGM_FI_DEV_SM_CLOCK, gauge, A\nDCGM_FI_DEV_SM_CLOCK, gauge, B\n"))
    assert made.rows["DCGM_FI_DEV_SM_CLOCK"].help == "B"
    assert "stands twice" in made.warnings[0]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("GPU_UTIL, gauge, Busy", r":2: 'GPU_UTIL' is no field of DCGM's; its fields begin with DCGM_FI_"),
        ("dcgm_fi_dev_gpu_util, gauge, Busy", r":2: 'dcgm_fi_dev_gpu_util' is no field of DCGM's"),
        ("DCGM_FI_DEV_GPU_UTIL, guage, Busy", r":2: the type of DCGM_FI_DEV_GPU_UTIL is 'guage'; write one of gauge,"),
        ("DCGM_FI_DEV_GPU_UTIL, gauge", r":2: 2 columns; write FIELD, type, help"),
        ("DCGM_FI_DEV_GPU_UTIL, gauge, Busy, very", r":2: 4 columns"),
        ("x" * 200_000, r":2: field larger than field limit"),
    ],
)
def test_an_unknown_field_is_an_error_with_its_line(tmp_path: Path, line: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read_table(table(tmp_path, f"# ours\n{line}\n"))


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"(?s):1: .*:3: "):
        read_table(table(tmp_path, "ONE, gauge, x\nDCGM_FI_DEV_SM_CLOCK, gauge, x\nTWO, gauge, x\n"))


def test_a_table_that_is_not_there_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"exporter\.counters_file is .*missing\.csv.*null for our own"):
        CountersFile(tmp_path / "missing.csv")


def test_our_own_table_never_changes() -> None:
    ours = CountersFile(None)
    assert not ours.changed()
    assert tuple(ours.table.rows) == DEFAULT_ROWS


def test_a_file_is_read_again_when_it_changes_and_only_then(tmp_path: Path) -> None:
    path = table(tmp_path, "DCGM_FI_DEV_SM_CLOCK, gauge, Clock\n")
    counters = CountersFile(path)
    assert not counters.changed()
    path.write_text("DCGM_FI_DEV_GPU_UTIL, gauge, Busy\n")
    os.utime(path, ns=(1, 1))
    assert counters.changed()
    assert set(counters.table.rows) == {"DCGM_FI_DEV_GPU_UTIL"}
    assert not counters.changed()


def test_a_mounted_config_map_is_read_again_when_its_link_moves(tmp_path: Path) -> None:
    for version, name in (("v1", "SM_CLOCK"), ("v2", "MEM_CLOCK")):
        (tmp_path / version).mkdir()
        table(tmp_path / version, f"DCGM_FI_DEV_{name}, gauge, Clock\n")
    link = tmp_path / "data"
    link.symlink_to(tmp_path / "v1")
    counters = CountersFile(link / "counters.csv")
    (tmp_path / "new").symlink_to(tmp_path / "v2")
    (tmp_path / "new").rename(link)
    assert counters.changed()
    assert set(counters.table.rows) == {"DCGM_FI_DEV_MEM_CLOCK"}


def test_a_file_that_became_wrong_is_logged_once_and_the_old_table_stays(tmp_path: Path) -> None:
    path = table(tmp_path, "DCGM_FI_DEV_SM_CLOCK, gauge, Clock\n")
    counters = CountersFile(path)
    path.write_text("nonsense\n")
    with pytest.raises(ConfigurationError):
        counters.changed()
    assert not counters.changed()
    assert set(counters.table.rows) == {"DCGM_FI_DEV_SM_CLOCK"}


def page(counters: CountersFile) -> list[str]:
    """The GPU's page after two intervals."""
    threshold = f"nvmlDeviceGetTemperatureThreshold:{pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN}"
    answers = {call: answer for call, answer in gpu().items() if call != threshold}
    nvml = playing(node(answers))
    source = NvmlSource(Sampler(nvml, counters.options), hostname="a", boot_ns=1, counters=counters).start()
    source.poll(10**9)
    shown = render(source.poll(2 * 10**9).samples).decode().splitlines()
    source.close()
    return shown


def test_the_page_has_the_names_that_the_table_asks_for_and_the_same_values(tmp_path: Path) -> None:
    canonical = """\
DCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge, Heat.
DCGM_FI_DEV_PCIE_REPLAY_TOTAL, counter, Retries.
DCGM_FI_DEV_XID_ERROR, gauge, XID.
DCGM_FI_PROF_NVDEC_UTIL_0_RATIO, gauge, Decoder.
DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL, counter, Retired.
DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS, gauge, Limit.
DCGM_FI_SYSTEM_DRIVER_VERSION, label, Driver.
DCGM_FI_DEV_GPU_BRAND, label, Brand.
"""
    former = canonical
    for old, new in CANONICAL_NAMES.items():
        former = re.sub(rf"\b{new}\b", old, former)
    shown, before = page(CountersFile(table(tmp_path, canonical))), page(CountersFile(table(tmp_path, former)))
    names = {line.partition("{")[0] for line in shown if line.startswith("DCGM_")}
    asked = {line.partition(",")[0] for line in canonical.splitlines() if ", label," not in line}
    absent = "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS"
    assert names == asked - {absent}
    assert any(f'field="{absent}"' in line for line in shown)
    assert any(f'DCGM_FI_SYSTEM_DRIVER_VERSION="{DRIVER}"' in line for line in shown)
    assert [line.rpartition(" ")[2] for line in shown if "{" in line] == [
        line.rpartition(" ")[2] for line in before if "{" in line
    ]


def test_a_row_under_two_of_dcgms_names_counts_once_by_its_later_line(tmp_path: Path) -> None:
    both = "DCGM_FI_DEV_GPU_TEMP, gauge, A\nDCGM_FI_DEV_GPU_TEMP_CELSIUS, gauge, B\n"
    made = read_table(table(tmp_path, both))
    assert [row.prometheus_name for row in made.rows.values()] == ["DCGM_FI_DEV_GPU_TEMP_CELSIUS"]
    assert "stands twice" in made.warnings[0]

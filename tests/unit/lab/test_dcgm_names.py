"""DCGM's renamed fields: the catalogue's module is made from DCGM's own dictionary."""

from pathlib import Path

import pytest
from lab.dcgm_names import aliases, document

from kernelcast.wire.catalogue.devices import dcgm_names
from kernelcast.wire.catalogue.devices.dcgm_names import CANONICAL_NAMES

DCGM = """
DCGM_FI_DEV_GPU_TEMP_CELSIUS = 150
_DEPRECATED_ALIASES = {
    "DCGM_FI_DEV_GPU_TEMP": "DCGM_FI_DEV_GPU_TEMP_CELSIUS",  # 150
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_L3": "DCGM_FI_DEV_NVLINK_THROUGHPUT_L3",
}
"""


def test_a_pair_is_a_line_and_single_lanes_are_left_out() -> None:
    lines = document(aliases(DCGM)).splitlines()
    assert "DEV_GPU_TEMP DEV_GPU_TEMP_CELSIUS" in lines
    assert not any("NVLINK" in line for line in lines)


def test_the_module_holds_the_pairs_of_dcgm_4_6() -> None:
    assert len(CANONICAL_NAMES) == 199, "325 pairs of DCGM 4.6.0, without those of lanes"
    assert document(CANONICAL_NAMES) == Path(dcgm_names.__file__).read_text()


def test_a_file_without_the_dictionary_is_named() -> None:
    with pytest.raises(LookupError, match="_DEPRECATED_ALIASES"):
        aliases("DCGM_FI_DEV_GPU_TEMP = 150")

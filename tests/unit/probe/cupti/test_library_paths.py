"""The libcupti that a process has mapped."""

from pathlib import Path

from kernelcast.probe.cupti.library import candidates

MAPS = """\
7f10a000-7f10b000 r-xp 00000000 103:02 1315     /usr/lib/libc.so.6
7f20a000-7f20b000 r--p 00000000 103:02 1316     /home/ann/my project/nvidia/cuda_cupti/lib/libcupti.so.12
7f20b000-7f20c000 r-xp 00001000 103:02 1316     /home/ann/my project/nvidia/cuda_cupti/lib/libcupti.so.12
"""


def test_a_mapped_library_below_a_folder_with_a_space_in_its_name_is_found(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(MAPS)
    found = candidates({}, maps, path=[])
    assert found == [Path("/home/ann/my project/nvidia/cuda_cupti/lib/libcupti.so.12")]

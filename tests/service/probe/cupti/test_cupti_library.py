"""NVIDIA's library found and its version judged; occupancy and compute capability."""

import ctypes
from pathlib import Path
from typing import Any

import pytest
from tests.service.probe.cupti.double import ENABLE, Double

from kernelcast.probe.cupti import library
from kernelcast.probe.cupti.capability import capabilities
from kernelcast.probe.cupti.library import Cupti, CuptiError, candidates
from kernelcast.probe.cupti.occupancy import theoretical


@pytest.mark.parametrize("version", [17, 29, 129_999, 130_600])
def test_an_unknown_version_is_refused_not_guessed(double: Double, version: int) -> None:
    double.library.double_version(ctypes.c_uint32(version))
    with pytest.raises(CuptiError, match=f"version is {version}; its records are known for"):
        Cupti(double.library)


def test_a_choice_of_kinds_is_enabled_and_disabled_as_often_as_one_likes(double: Double) -> None:
    cupti = Cupti(double.library)
    for _ in range(2):
        cupti.enable(library.WORK_KINDS)
        assert double.enabled() == {1, 2, 10, 22}
    cupti.enable([library.SYNCHRONIZATION])
    for _ in range(2):
        cupti.disable(library.WORK_KINDS)
        assert double.enabled() == {38}
    double.library.cuptiActivityEnable(ctypes.c_int(17))
    cupti.disable()
    assert double.enabled() == {17}, "another client's kind is not ours to disable"


def test_a_kind_that_is_refused_leaves_none_of_ours(double: Double) -> None:
    cupti = Cupti(double.library)
    cupti.enable(library.WORK_KINDS)
    double.library.double_answer(ENABLE, 27)
    with pytest.raises(CuptiError, match="not supported on this GPU"):
        cupti.enable([library.SYNCHRONIZATION])
    assert double.enabled() == set()


def test_the_mapped_library_goes_before_wheels_and_toolkits(tmp_path: Path) -> None:
    maps, site, home = tmp_path / "maps", tmp_path / "site", tmp_path / "cuda"
    for folder in (site / "nvidia/cu13/lib", site / "nvidia/cuda_cupti/lib", home / "lib64"):
        folder.mkdir(parents=True)
    thirteen, twelve = site / "nvidia/cu13/lib/libcupti.so.13", site / "nvidia/cuda_cupti/lib/libcupti.so.12"
    toolkit = home / "lib64/libcupti.so.13"
    for path in (thirteen, twelve, toolkit):
        path.touch()
    environ = {"CUDA_HOME": str(home)}
    maps.write_text("")
    assert candidates(environ, maps, [str(site)])[:3] == [thirteen, twelve, toolkit]
    maps.write_text("7f00 r-xp 00 08:01 1 /usr/lib/libcudart.so.12.9.79\n")
    assert candidates(environ, maps, [str(site)])[0] == twelve
    maps.write_text(
        "7f00 r-xp 00 08:01 1 /opt/torch/lib/libcupti.so.12\n7f10 rw-p 00 08:01 1 /opt/torch/lib/libcupti.so.12\n"
    )
    assert candidates(environ, maps, [str(site)]) == [Path("/opt/torch/lib/libcupti.so.12")]
    assert candidates({"KERNELCAST_CUPTI_LIBRARY": "/x/libcupti.so"}, maps) == [Path("/x/libcupti.so")]


def test_without_the_library_the_reason_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "maps").touch()
    with pytest.raises(CuptiError, match=r"tried /x/libcupti.so: .*; install kernelcast\[cupti\]"):
        library.open_cupti({"KERNELCAST_CUPTI_LIBRARY": "/x/libcupti.so"}, tmp_path / "maps")


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared_bytes", "blocks", "warps"),
    [
        ((8, 0), 256, 32, 0, 8, 64),
        ((8, 0), 256, 255, 49_152, 1, 64),
        ((9, 0), 1_024, 64, 0, 1, 64),
        ((8, 6), 128, 40, 16_384, 5, 48),
        ((7, 5), 33, 16, 1, 16, 32),
        ((8, 9), 64, 0, 0, 24, 48),
        ((7, 0), 768, 31, 0, 2, 64),
    ],
)
def test_occupancy_is_what_nvidias_calculator_says(
    capability: tuple[int, int], threads: int, registers: int, shared_bytes: int, blocks: int, warps: int
) -> None:
    """Active blocks as cuda_occupancy.h of CUDA 12.9 gave them, which agreed in all of 17,820 combinations."""
    resident = blocks * -(-threads // 32)
    assert theoretical(capability, threads, registers, shared_bytes) == resident / warps


def test_occupancy_is_absent_where_it_is_not_known() -> None:
    assert [theoretical((99, 0), 256, 32, 0), theoretical((8, 0), 0, 32, 0), theoretical((8, 0), 64, 8, 2**20)] == [
        0
    ] * 3


class Driver:
    """A CUDA driver with one device of capability 9.0."""

    def cuDeviceGetAttribute(self, value: Any, attribute: Any, device: Any) -> int:  # noqa: N802  the driver's name
        if device.value != 0:
            return 101
        value._obj.value = {75: 9, 76: 0}[attribute.value]
        return 0


def test_the_capability_is_the_drivers() -> None:
    capability = capabilities(Driver)
    assert (capability(0), capability(1)) == ((9, 0), (0, 0))

    def absent() -> Any:
        raise OSError

    assert capabilities(absent)(0) == (0, 0)

"""A broken driver is told from a node that has no NVIDIA GPU."""

from pathlib import Path

import pytest

from kernelcast.exporter.nvml.presence import has_gpu, library_fault


def device(pci: Path, name: str, vendor: str, kind: str) -> None:
    (pci / name).mkdir(parents=True)
    (pci / name / "vendor").write_text(f"{vendor}\n")
    (pci / name / "class").write_text(f"{kind}\n")


@pytest.mark.parametrize(
    ("vendor", "kind", "found"),
    [
        ("0x10de", "0x030200", True),
        ("0x10de", "0x030000", True),
        ("0x10de", "0x040300", False),
        ("0x1002", "0x030000", False),
    ],
    ids=["accelerator", "display", "its sound", "another vendor's"],
)
def test_a_gpu_on_the_bus_is_found_without_a_driver(tmp_path: Path, vendor: str, kind: str, found: bool) -> None:  # noqa: FBT001  a parameter
    device(tmp_path / "pci", "0000:01:00.0", vendor, kind)
    assert has_gpu(tmp_path / "dev", tmp_path / "pci") is found


def test_a_device_file_is_enough_and_control_files_are_not(tmp_path: Path) -> None:
    for name in ("nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert not has_gpu(tmp_path, tmp_path / "no bus")
    (tmp_path / "nvidia0").touch()
    assert has_gpu(tmp_path, tmp_path / "no bus")


def test_a_library_that_is_there_and_cannot_be_loaded_is_named_with_the_remedy(tmp_path: Path) -> None:
    empty = tmp_path / "libnvidia-ml.so.1"
    empty.touch()

    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file: No such file or directory")

    def damaged(_name: str) -> None:
        raise OSError(f"{empty}: file too short")

    assert library_fault(missing) == ""
    assert library_fault(damaged).startswith(f"{empty}: file too short; the file is damaged")
    assert "NVIDIA's runtime" in library_fault(damaged)

"""The parts of a release: wheels for platforms, chosen by KERNELCAST_WHEEL, and the checks on them."""

import base64
import hashlib
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from tests.support.packaging import load_build_hook

from release import wheels

REPOSITORY = Path(__file__).resolve().parents[3]


@pytest.fixture
def hook_module() -> ModuleType:
    return load_build_hook()


@pytest.mark.parametrize(
    ("found", "promised", "fits"),
    [
        ("manylinux_2_17_x86_64", "manylinux_2_17_x86_64", True),
        ("manylinux_2_5_x86_64", "manylinux_2_17_x86_64", True),
        ("manylinux_2_36_x86_64", "manylinux_2_17_x86_64", False),
        ("manylinux_2_17_x86_64", "manylinux_2_17_aarch64", False),
        ("linux_x86_64", "manylinux_2_17_x86_64", False),
    ],
)
def test_a_tag_may_not_promise_an_older_c_library_than_is_needed(found: str, promised: str, fits: bool) -> None:  # noqa: FBT001
    assert wheels.at_most(found, promised) is fits


def test_the_build_hook_and_the_release_name_the_same_platforms(hook_module: ModuleType) -> None:
    assert (hook_module.PLATFORMS, hook_module.PURE, hook_module.VARIABLE) == (
        wheels.PLATFORMS,
        wheels.PURE,
        wheels.VARIABLE,
    )


def test_a_wheel_is_compressed_further_and_has_the_same_files_without_comments(
    hook_module: ModuleType, tmp_path: Path
) -> None:
    path, record = tmp_path / "a.whl", "a-1.dist-info/RECORD"
    content = {f"{number}.py": (f"n{number} = {number % 7}\n" * 500).encode() for number in range(20)}
    described = (
        b'"""A module."""\nSIZE = 3\n"""Of a page;\nin bytes."""\ndef size():\n    """Stays."""\n    return SIZE\n'
        b'def _own():\n    """Goes."""\n    return 1\n'
    )
    content["kernelcast/probe/a.py"] = described
    content["1.py"] = b'"""A module."""\nSIZE = 3\n\n\ndef size():\n    """Stays."""\n    return SIZE\n'
    content["1.py"] += b"def _own():\n\n    return 1\n"
    written = {
        **content,
        "0.py": b"# why\n" + content["0.py"],
        "1.py": described,
        record: b"0.py,sha256=?,1\n1.py,sha256=!,1\n",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as wheel:
        for name, text in written.items():
            wheel.writestr(zipfile.ZipInfo(name, (2020, 2, 2, 0, 0, 0)), text)
    before = path.stat().st_size
    hook_module._shrink(path)
    with zipfile.ZipFile(path) as wheel:
        found = {name: wheel.read(name) for name in wheel.namelist()}
        assert {entry.date_time for entry in wheel.infolist()} == {(2020, 2, 2, 0, 0, 0)}
    listed = [line.rsplit(",", 2) for line in found.pop(record).decode().splitlines()]
    assert found == {**content, "0.py": b"\n" + content["0.py"]}
    for name, digest, size in listed:
        exact = base64.urlsafe_b64encode(hashlib.sha256(found[name]).digest()).decode().rstrip("=")
        assert (digest, int(size)) == (f"sha256={exact}", len(found[name]))
    assert path.stat().st_size < before

"""Files that travel with the code: where they are found, and how they are written."""

from pathlib import Path

import pytest

from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.package_files import FOLDER, copy_files, package_files


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_wheel_has_its_files_in_the_package_and_a_checkout_beside_it(tmp_path: Path) -> None:
    package, checkout = tmp_path / "package", tmp_path / "checkout"
    checkout.mkdir()
    assert package_files(package, checkout) == checkout
    (package / FOLDER).mkdir(parents=True)
    assert package_files(package, checkout) == package / FOLDER


def test_an_installation_without_its_files_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="files is missing from this installation; install kernelcast again"):
        package_files(tmp_path / "package", tmp_path / "checkout")


def test_files_are_copied_with_their_folders_and_replace_older_ones(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write(source / "rules" / "alerts.yaml", "new")
    write(source / "README.md", "page")
    write(target / "rules" / "alerts.yaml", "old")
    written = copy_files(source, target)
    assert written == [target / "README.md", target / "rules" / "alerts.yaml"]
    assert [path.read_text() for path in written] == ["page", "new"]


def test_a_target_that_cannot_be_written_is_a_configuration_error(tmp_path: Path) -> None:
    write(tmp_path / "source" / "README.md")
    blocked = write(tmp_path / "file") / "below"
    with pytest.raises(ConfigurationError, match=r"README.md cannot be written: .*; give another --output"):
        copy_files(tmp_path / "source", blocked)


def test_files_are_not_copied_onto_themselves(tmp_path: Path) -> None:
    page = write(tmp_path / "README.md", "page")
    with pytest.raises(ConfigurationError, match=r"README.md cannot be written: .*same file; give another --output"):
        copy_files(tmp_path, tmp_path)
    assert page.read_text() == "page"

"""Links, URLs and the security contact, all from one address; and the changelog of a release."""

from pathlib import Path

import pytest

from release import addresses, changelog

ADDRESS = "https://forge.example/gpu/kernelcast"


def with_repository(folder: Path, address: str) -> Path:
    (folder / "pyproject.toml").write_text(f'[tool.kernelcast]\nrepository = "{address}"\n')
    return folder


@pytest.mark.parametrize("address", ["", ADDRESS])
def test_the_address_comes_from_the_project_file(address: str, tmp_path: Path) -> None:
    assert addresses.repository(with_repository(tmp_path, address)) == address


@pytest.mark.parametrize("address", ["forge.example/gpu", "http://forge.example/gpu", f"{ADDRESS}/", "https://forge"])
def test_anything_that_links_cannot_be_made_from_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(addresses.AddressError, match="must be empty or like https://HOST/OWNER/NAME"):
        addresses.repository(with_repository(tmp_path, address))


def test_every_url_is_below_the_address() -> None:
    urls = addresses.project_urls(ADDRESS, "0.1.0")
    assert {"Homepage", "Documentation", "Issues", "Changelog", "Security"} <= set(urls)
    assert all(url.startswith(ADDRESS) for url in urls.values())
    assert urls["Changelog"] == f"{ADDRESS}/blob/v0.1.0/CHANGELOG.md"
    for url in urls.values():
        _, _, file = url.partition("/blob/v0.1.0/")
        assert (addresses.REPOSITORY / file).exists(), url


def test_relative_links_become_those_of_the_release_and_others_stay() -> None:
    text = "[a](docs/a.md#part) [b](https://else.example/b) [c](#below) `[d](x)`"
    link = f"{ADDRESS}/blob/v0.1.0"
    expected = f"[a]({link}/docs/a.md#part) [b](https://else.example/b) [c](#below) `[d]({link}/x)`"
    assert addresses.with_absolute_links(text, ADDRESS, "0.1.0") == expected


def test_without_an_address_nothing_is_invented() -> None:
    assert addresses.project_urls("", "0.1.0") == {}
    assert addresses.with_absolute_links("[a](docs/a.md)", "", "0.1.0") == "[a](docs/a.md)"
    assert "://" not in addresses.security_page("")
    assert "@" not in addresses.security_page("")


def test_the_security_page_names_the_contact_and_the_committed_one_is_up_to_date() -> None:
    assert f"<{ADDRESS}/security/advisories/new>" in addresses.security_page(ADDRESS)
    committed = (addresses.REPOSITORY / addresses.SECURITY).read_text()
    assert committed == addresses.security_page(addresses.repository()), "run: python -m release.addresses"


CHANGES = "# Changelog\n\n## [0.2.0] - unreleased\n\n### Added\n- b\n\n## [0.1.0] - 2026-01-02\n\n### Added\n- a\n"


def test_the_notes_of_a_release_are_its_part_of_the_changelog() -> None:
    assert changelog.notes(CHANGES, "0.2.0") == "### Added\n- b\n"
    assert changelog.notes(CHANGES, "0.1.0") == "### Added\n- a\n"
    assert changelog.release_date(CHANGES, "0.1.0") == "2026-01-02"
    with pytest.raises(changelog.ChangelogError, match=r"no heading `## \[0.3.0\] - DATE`; it has 0.2.0, 0.1.0"):
        changelog.notes(CHANGES, "0.3.0")


def test_the_changelog_has_the_present_version() -> None:
    text = (changelog.REPOSITORY / "CHANGELOG.md").read_text()
    assert changelog.notes(text, changelog.version())

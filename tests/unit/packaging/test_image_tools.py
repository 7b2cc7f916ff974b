"""The bill of materials, and digests of base images."""

import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from release import digests, sbom

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
DIGEST = f"sha256:{'a' * 64}"
DPKG = """Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10

Package: removed
Status: deinstall ok config-files
Architecture: amd64
Version: 1
"""


def bill(dpkg: str = "") -> dict[str, Any]:
    return sbom.document(list(distributions(path=[one for one in sys.path if "site-packages" in one])), dpkg)


@pytest.mark.slow
def test_the_bill_names_every_distribution_once_with_its_dependencies() -> None:
    made = bill()
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert made["metadata"]["component"]["name"] == "kernelcast"
    references = [one["bom-ref"] for one in made["components"]]
    assert len(references) == len(set(references)) > 30
    assert all(one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}" for one in made["components"])
    known = {*references, made["metadata"]["component"]["bom-ref"]}
    assert {one["ref"] for one in made["dependencies"]} == known
    edges = {one["ref"].partition("@")[0]: one["dependsOn"] for one in made["dependencies"]}
    assert all(target in known for targets in edges.values() for target in targets)
    assert any(target.startswith("pkg:pypi/confluent-kafka@") for target in edges["pkg:pypi/kernelcast"])


@pytest.mark.slow
def test_the_same_environment_gives_the_same_bill() -> None:
    assert bill() == bill()
    assert bill(DPKG)["serialNumber"] != bill()["serialNumber"]


@pytest.mark.slow
def test_installed_debian_packages_are_named_and_removed_ones_are_not() -> None:
    found = [one for one in bill(DPKG)["components"] if one["purl"].startswith("pkg:deb/")]
    assert [one["purl"] for one in found] == ["pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64"]


@pytest.mark.parametrize("name", ["docker/Dockerfile", "compose/compose.yaml"])
def test_every_image_of_others_gets_its_digest_and_a_second_time_changes_nothing(name: str) -> None:
    asked: list[str] = []

    def digest_of(image: str) -> str:
        asked.append(image)
        return DIGEST

    text = (DEPLOY / name).read_text()
    once = digests.pinned(text, digest_of)
    assert asked
    assert all(f"{image}@{DIGEST}" in once for image in asked)
    assert "kernelcast@" not in once
    assert digests.pinned(once, digest_of) == once
    assert digests.pinned(once, lambda _: f"sha256:{'b' * 64}").count("b" * 64) == len(set(asked))


def test_an_image_without_a_tag_and_an_answer_that_is_no_digest_are_refused() -> None:
    with pytest.raises(digests.DigestError, match="python has no tag"):
        digests.pinned("ARG BASE=python\n", lambda _: DIGEST)
    with pytest.raises(digests.DigestError, match="must be like sha256"):
        digests.pinned("ARG BASE=python:3.12-slim\n", lambda _: "latest")

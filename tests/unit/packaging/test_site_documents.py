"""The documentation site: links that leave `docs/`, and the commands that its pages name."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from tests.unit.packaging.test_deployment import parsed

from kernelcast.cli import app
from kernelcast.grafana import site
from release.site_links import with_outer_links

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGES = ["start/bare-metal.md", "start/compose.md", "start/kubernetes.md", "tutorial.md", "grafana.md"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see [web](web.md#limits)", "see [web](web.md#limits)"),
        ("see [rights](../../deploy/kafka/README.md#topics)", "see [rights](https://h/r/blob/main/deploy/kafka/README.md#topics)"),
        ("[here](#below) [there](https://example.org/../x)", "[here](#below) [there](https://example.org/../x)"),
        ("[up](../tutorial.md)", "[up](../tutorial.md)"),
    ],
)  # fmt: skip
def test_a_link_to_a_file_outside_leads_to_the_repository(text: str, expected: str) -> None:
    assert with_outer_links(text, "start/compose.md", "https://h/r") == expected


def test_without_an_address_such_a_link_is_plain_text() -> None:
    assert with_outer_links("see [rights](../deploy/kafka/README.md)", "tutorial.md", "") == "see rights"


def commands(page: str) -> Iterator[list[str]]:
    """The kernelcast commands in a page's shell blocks and tables, as words; a mention in a sentence may be shorter."""
    text = (DOCS / page).read_text()
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    for line in [*lines, *re.findall(r"`(kernelcast [^`]+)` +\|", text)]:
        found = re.match(r"(?:export )?(?:[A-Z_]+=\S+ )*(?:/opt/kernelcast/bin/)?kernelcast (.+)", line)
        if found:
            yield shlex.split(re.split(r" [|&#]|  #", found[1])[0])


@pytest.mark.parametrize("page", PAGES)
def test_every_command_that_a_page_names_is_one_and_its_options_are_known(page: str) -> None:
    found = list(commands(page))
    for words in found:
        if words[0] in app.LISTINGS and not app.LISTINGS[words[0]].plain:
            parsed(*(word.replace("/etc/kernelcast/kernelcast.yaml", str(DOCS / "faq.md")) for word in words))
        else:
            assert words[0] in app.LISTINGS, words
    assert found or page == "start/compose.md", page


@pytest.mark.parametrize("page", ["grafana.md", "start/bare-metal.md"])
def test_a_sites_file_that_a_page_shows_is_taken(page: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)
    path = tmp_path / "site.yaml"
    path.write_text(next(block for block in blocks if "exporter: {targets" in block))
    assert site.read(path).bridge.targets


def test_the_site_of_the_page_about_grafana_shows_every_key() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / "grafana.md").read_text(), re.DOTALL)
    shown = yaml.safe_load(next(block for block in blocks if "exporter: {targets" in block))
    assert set(shown) == {each.name for each in fields(site.Site)}


def test_the_values_that_the_kubernetes_page_shows_are_keys_of_the_chart() -> None:
    chart = yaml.safe_load((DOCS.parent / "deploy/helm/kernelcast/values.yaml").read_text())
    blocks = re.findall(r"```yaml\n(.*?)```", (DOCS / "start/kubernetes.md").read_text(), re.DOTALL)
    shown = [block for block in blocks if "kafka:" in block]
    assert len(shown) == 4
    for block in shown:
        for key, value in yaml.safe_load(block).items():
            assert key in chart
            if isinstance(chart[key], dict) and key != "monitorLabels":
                assert set(value) <= set(chart[key]), key

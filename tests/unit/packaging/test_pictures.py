"""The script that makes the pictures of the documents."""

import json
import re
from pathlib import Path

from kernelcast.grafana import dashboards
from release.pictures import OUTPUT, PAGES, address, drawing

REPOSITORY = Path(__file__).resolve().parents[3]


def test_every_picture_in_a_document_can_be_made_again() -> None:
    texts = [path.read_text() for path in (REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md"))]
    shown = {name for text in texts for name in re.findall(r"pictures/([\w-]+)\.png", text)}
    assert shown
    assert {path.stem for path in OUTPUT.iterdir()} == shown
    assert shown <= set(PAGES)


def test_every_dashboard_that_a_document_names_exists() -> None:
    titles = {json.loads(text)["title"].removeprefix("kernelcast / ") for text in dashboards.render().values()}
    texts = [path.read_text() for path in (REPOSITORY / "docs").rglob("*.md")]
    named = {name for text in texts for name in re.findall(r"\b(?:page|dashboard)\s\*([^*\n]+)\*[^*]", text)}
    assert named
    assert named <= titles


def test_all_pictures_together_are_small() -> None:
    assert sum(path.stat().st_size for path in OUTPUT.iterdir()) < 1_000_000


def test_every_page_that_can_be_drawn_exists() -> None:
    assert {f"{uid}.json" for uid in PAGES.values()} < set(dashboards.render())


def test_the_demos_output_names_the_bridge() -> None:
    line = "In a browser, as soon as the services run: http://127.0.0.1:4711/\n"
    assert address(line) == "http://127.0.0.1:4711"
    assert address("starting the services") is None


def test_the_browser_draws_one_page_into_one_file_with_a_profile_of_its_own() -> None:
    command = drawing("chromium", "http://b/pages/x", Path("/p/fleet.png"), Path("/t/fleet"))
    assert command[0] == "chromium"
    assert command[-1] == "http://b/pages/x"
    assert {"--headless", "--screenshot=/p/fleet.png", "--user-data-dir=/t/fleet"} <= set(command)

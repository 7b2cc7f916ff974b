"""The served pages: their models, their files, and the rights of a browser on them."""

import gzip
import json
import re
from pathlib import Path

import pytest
from tests.support.bridge.asgi_client import AsgiClient

from kernelcast.bridge.browser import models, site
from kernelcast.bridge.browser.prometheus import PrometheusProxy
from kernelcast.bridge.browser.settings import PagesSettings
from kernelcast.bridge.browser.site import PageSite
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.wire.errors import ConfigurationError

STATIC = site._STATIC


@pytest.fixture
def client() -> AsgiClient:
    settings = PagesSettings(prometheus_url="http://prometheus:9090")
    routes = PageSite(settings, models.load(), prometheus=PrometheusProxy(settings)).routes()
    return AsgiClient(routes)


def test_a_bridge_serves_pages_unless_it_is_told_not_to() -> None:
    assert BridgeSettings().pages.enabled


def test_every_generated_dashboard_is_listed_and_served(client: AsgiClient) -> None:
    listed = client.get("/pages/api/site").json()["dashboards"]
    folder = models._CHECKOUT / "dashboards"
    assert {each["uid"] for each in listed} == {json.loads(path.read_text())["uid"] for path in folder.glob("*.json")}
    for each in listed:
        served = client.get(f"/pages/api/dashboards/{each['uid']}").json()
        assert served["title"] == each["title"]


def test_a_dashboard_that_cannot_be_read_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dashboards").mkdir()
    for name, text in {
        "whole": '{"uid": "u", "title": "t"}',
        "list": "[]",
        "cut": '{"uid": ',
        "nameless": "{}",
    }.items():
        (tmp_path / "dashboards" / f"{name}.json").write_text(text)
    monkeypatch.setattr(models, "package_files", lambda *_: tmp_path)
    assert [model.uid for model in models.load()] == ["u"]
    (tmp_path / "dashboards" / "whole.json").unlink()
    with pytest.raises(ConfigurationError, match="no dashboards that can be read"):
        models.load()


@pytest.mark.slow
def test_the_served_model_has_every_query_and_is_smaller(client: AsgiClient) -> None:
    for path in (models._CHECKOUT / "dashboards").glob("*.json"):
        written = path.read_text()
        model = next(each for each in models.load() if each.uid == json.loads(written)["uid"])
        served = gzip.decompress(model.body).decode()
        assert expressions(json.loads(served)["panels"]) == expressions(json.loads(written)["panels"])
        assert len(served) < len(written) * 0.6
        assert len(model.body) < 40_000


def expressions(panels: list[dict]) -> list[str]:  # type: ignore[type-arg]
    inner = [one for panel in panels for one in expressions(panel.get("panels", []))]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])] + inner


@pytest.mark.parametrize("path", ["/pages", "/pages/kernelcast-gpus", "/pages/static/main.js", "/pages/api/site"])
def test_a_browser_may_run_our_files_and_nothing_else(client: AsgiClient, path: str) -> None:
    policy = client.get(path).headers["content-security-policy"]
    directives = dict(part.strip().partition(" ")[::2] for part in policy.split(";"))
    assert directives["default-src"] == "'none'"
    assert directives["script-src"] == directives["style-src"] == directives["connect-src"] == "'self'"
    assert directives["frame-ancestors"] == directives["base-uri"] == "'none'"
    assert directives["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in policy


def test_the_page_has_no_script_and_no_style_of_its_own(client: AsgiClient) -> None:
    text = client.get("/pages").text
    assert re.findall(r"<script[^>]*>", text) == re.findall(r"<script[^>]* src=[^>]*>", text)
    assert "<style" not in text
    assert not re.search(r"\s(on\w+|style)=", text)


def test_our_scripts_never_turn_text_into_html() -> None:
    """Names of kernels come from other people's programs: they are text nodes."""
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function|srcdoc"
    )
    found = [path.name for path in STATIC.glob("*.js") if forbidden.search(path.read_text())]
    assert found == []


def test_no_file_asks_another_server() -> None:
    for path in STATIC.iterdir():
        if path.name.startswith("uplot"):
            continue
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", path.read_text())) - {"http://www.w3.org/2000/svg"}
        assert not addresses, path


def test_the_licence_of_the_drawing_library_is_in_the_package_and_served(client: AsgiClient) -> None:
    text = client.get("/pages/static/uplot.LICENSE.txt").text
    assert "MIT License" in text
    assert "Leon Sorokin" in text
    assert (STATIC / "uplot.js").read_text().startswith("/*! https://github.com/leeoniya/uPlot (v1.6.32) */")


def test_a_file_that_did_not_change_is_not_sent_again(client: AsgiClient) -> None:
    tag = client.get("/pages/static/main.js").headers["etag"]
    assert client.get("/pages/static/main.js", headers={"if-none-match": tag}).status_code == 304


@pytest.mark.parametrize(("old", "new"), site.MOVED.items())
def test_a_link_to_a_page_that_is_a_part_of_another_one_leads_there_with_its_choices(
    client: AsgiClient, old: str, new: str
) -> None:
    found = client.get(f"/pages/{old}?var-hostname=n&var-gpu=1")
    assert (found.status_code, found.headers["location"]) == (307, f"/pages/{new}?var-hostname=n&var-gpu=1")
    uids = {model.uid for model in models.load()}
    assert new in uids
    assert old not in uids


def test_the_pages_are_listed_from_the_fleet_down_and_kernelcast_itself_last() -> None:
    names = ("overview", "kernels", "gpus", "serving", "pipeline")
    assert [model.uid for model in models.load()] == [f"kernelcast-{name}" for name in names]


@pytest.mark.parametrize(
    "path", ["/pages/static/page.html", "/pages/static/..%2Fsite.py", "/pages/api/dashboards/none"]
)
def test_what_is_not_listed_is_not_served(client: AsgiClient, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
def test_the_pages_only_read(client: AsgiClient, method: str) -> None:
    for path in ("/pages", "/pages/api/site", "/pages/api/v1/query", "/pages/static/main.js"):
        assert client.request(method, path).status_code == 405


def test_a_list_of_queries_is_only_posted(client: AsgiClient) -> None:
    assert client.get("/pages/api/queries").status_code == 405
    assert client.request("POST", "/pages/api/queries").status_code == 415


def test_the_whole_of_a_page_is_small() -> None:
    """First paint over a slow line: everything that a page loads beside its figures."""
    total = sum(len(gzip.compress(path.read_bytes())) for path in STATIC.iterdir() if path.suffix in (".js", ".css"))
    assert total < 60_000

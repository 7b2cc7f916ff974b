"""The served pages in a real browser: each type of panel, hostile names, and a Prometheus that is away."""

import gzip
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import bcrypt
import pytest
import yaml
from prometheus_client import CollectorRegistry
from starlette.requests import Request
from starlette.responses import Response
from tests.service.require import binary
from tests.support.runtime.certificates import self_signed

from kernelcast.bridge.browser import site as page_site
from kernelcast.bridge.browser.batch import QueryBatch
from kernelcast.bridge.browser.connections import ForwardedAnswer
from kernelcast.bridge.browser.models import page_model
from kernelcast.bridge.browser.prometheus import Ask, PrometheusProxy
from kernelcast.bridge.browser.settings import PagesSettings
from kernelcast.bridge.browser.site import PageSite
from kernelcast.runtime.settings.service import WebSettings
from kernelcast.runtime.web.server import WebServer

HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
ESCAPED = HOSTILE.replace("<", "&lt;").replace(">", "&gt;")
BAD_LINKS = ("javascript:alert(1)", "data:text/html,x", "//elsewhere/", "\\\\elsewhere")
CHOICE = '/[{,]kernel="(?<value>ge.*?)"/'
TIED = (("gemm3", "2"), ("gemm10", "0"), ("gemm2", "0"), ("gemm1", "0"))
TYPES = ("stat", "gauge", "bargauge", "timeseries", "table", "state-timeline", "text")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-component-update"),
    *("--disable-background-networking", "--disable-sync", "--window-size=1400,2400"),
)


def panel(number: int, kind: str) -> dict[str, Any]:
    instant = kind not in ("timeseries", "state-timeline")
    target = {"refId": "A", "expr": "hot", "legendFormat": "{{kernel}}", "instant": instant}
    link = {"title": "open", "url": "/d/other?var-kernel=${__data.fields.kernel}"}
    made: dict[str, Any] = {"id": number, "type": kind, "title": kind, "targets": [target]}
    made["gridPos"] = {"x": 0, "y": number * 4, "w": 24, "h": 6}
    made["fieldConfig"] = {"defaults": {"unit": "percentunit", "max": 1, "links": [link]}}
    made["options"] = {"content": HOSTILE, "textMode": "value_and_name"}
    if kind == "table":
        words = {"type": "regex", "options": {"pattern": "(ge)mm", "result": {"text": "$1neral"}}}
        found = {"matcher": {"id": "byName", "options": "kernel"}, "properties": [{"id": "mappings", "value": [words]}]}
        made["fieldConfig"]["overrides"] = [found]
    return made


def dashboard(kinds: tuple[str, ...]) -> dict[str, Any]:
    panels = [panel(number, kind) for number, kind in enumerate(kinds, 1)]
    chosen = {"name": "which", "type": "query", "query": {"query": "query_result(hot)"}, "sort": 0, "regex": CHOICE}
    renamed = panel(90, "stat") | {"title": "about ${which:text}", "gridPos": {"x": 0, "y": 0, "w": 24, "h": 4}}
    renamed["transformations"] = [{"id": "renameByRegex", "options": {"regex": "^ge(.*)$", "renamePattern": "GE$1"}}]
    late = panel(91, "stat") | {"title": "late", "targets": [{"refId": "A", "expr": "late", "instant": True}]}
    late |= {"fieldConfig": {"defaults": {"unit": "s", "decimals": 0}}, "gridPos": renamed["gridPos"]}
    panels += [renamed, late]
    panels[0]["links"] = [{"title": "bad", "url": address} for address in BAD_LINKS]
    return {
        "uid": "trial",
        "title": f"Trial {HOSTILE}",
        "refresh": "30s",
        "panels": panels,
        "templating": {"list": [chosen]},
    }


def prometheus(_path: str, body: bytes, headers: Mapping[str, str]) -> ForwardedAnswer:
    """Answers every query with two kernels, one of them with a hostile name."""
    form = dict(parse_qsl(body.decode()))
    times = [float(form["end"]) - 15 * back for back in range(8)] if "end" in form else [float(form["time"])]
    result = []
    for kernel, value in ((HOSTILE, "0.25"), ("gemm", "0.5")) if form["query"] != "late" else (("gemm", "65"),):
        points = [[seconds, value] for seconds in reversed(times)]
        result.append({"metric": {"kernel": kernel}, **({"values": points} if "end" in form else {"value": points[0]})})
    answer = json.dumps({"status": "success", "data": {"result": result}}).encode()
    if headers["Accept-Encoding"] == "gzip":
        return ForwardedAnswer(200, "application/json", "gzip", gzip.compress(answer))
    return ForwardedAnswer(200, "application/json", "", answer)


def away(_path: str, _body: bytes, _headers: Mapping[str, str]) -> ForwardedAnswer:
    raise ConnectionRefusedError(111, "Connection refused")


@contextmanager
def served(
    ask: Ask, kinds: tuple[str, ...], config: Path | None = None, *, board: Mapping[str, Any] | None = None
) -> Iterator[str]:
    settings = PagesSettings(prometheus_url="http://prometheus:9090")
    proxy = PrometheusProxy(settings, ask=ask)
    site = PageSite(settings, (page_model(board or dashboard(kinds)),), prometheus=proxy)
    web = WebSettings(listen_address="127.0.0.1:0", config_file=config)
    with WebServer(web, title="bridge", metrics=CollectorRegistry(), routes=site.routes()) as server:
        yield server.url


def drawn(url: str, profile: Path, *flags: str, page: str = "trial") -> str:
    """The document as a browser has it after some seconds, or after more while a panel waits for its first answer."""
    browser = (binary("chromium", "chromium"), *FLAGS, *flags, f"--user-data-dir={profile}")
    text = ""
    for budget_ms in (6_000, 20_000, 60_000):
        command = [*browser, f"--virtual-time-budget={budget_ms}", "--dump-dom", f"{url}/pages/{page}"]
        text = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
        if '<p class="quiet">…</p>' not in text:
            break
    return text


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One page with each type of panel, one that is unknown, and links of other kinds."""
    with served(prometheus, (*TYPES, "geomap")) as url:
        return drawn(url, tmp_path_factory.mktemp("browser"))


def test_an_alert_leads_to_its_runbook_and_a_phone_shows_no_column_without_a_value(tmp_path: Path) -> None:
    firing = {"metric": {"alertname": "KernelcastGpuDown", "kernel": "gemm", "rack": ""}, "value": [0, "1"]}

    def ask(_path: str, _body: bytes, _headers: Mapping[str, str]) -> ForwardedAnswer:
        answer = {"status": "success", "data": {"result": [firing]}}
        return ForwardedAnswer(200, "application/json", "", json.dumps(answer).encode())

    board = dashboard(("table",))
    board["panels"][0]["fieldConfig"] = {"defaults": {}}
    with served(ask, (), board=board) as url:
        wide, phone = (drawn(url, tmp_path / width, f"--window-size={width},2400") for width in ("1400", "500"))
    for text in (wide, phone):
        assert re.search(r'<a href="/runbooks/KernelcastGpuDown"[^>]*>KernelcastGpuDown</a>', text)
    headings = [re.findall(r'<th scope="col"[^>]*>(\w+)', text) for text in (wide, phone)]
    assert headings == [["alertname", "kernel", "rack", "Value"], ["alertname", "kernel", "Value"]]


MEASURED = """<script>
for (const figure of document.querySelectorAll(".figure")) {
  const edges = (part) => part.getBoundingClientRect();
  const [name, value] = [".name", ".value"].map((part) => edges(figure.querySelector(part)));
  const panel = edges(figure.closest(".panel"));
  const apart = value.top >= name.bottom || value.left >= name.right;
  figure.title = [apart, value.right <= panel.right && value.bottom <= panel.bottom];
}
</script>"""
"""Gives each figure as title whether its value is apart from its name, and whether it is within its panel."""


@pytest.mark.parametrize("wide", [False, True])
def test_a_phone_shows_a_value_apart_from_its_name_and_within_its_panel(*, wide: bool, tmp_path: Path) -> None:
    """A figure of a narrow panel stood beside its name, cut at the edge of the panel."""
    board = dashboard(("stat",))
    board["panels"] = [board["panels"][0] | {"options": {"textMode": "value_and_name", "wideLayout": wide}}]
    board["panels"][0] |= {"gridPos": {"x": 0, "y": 0, "w": 5, "h": 3}}
    board["panels"][0]["targets"][0] |= {"expr": "late", "legendFormat": "GPU temperature"}
    with served(prometheus, (), board=board) as url:
        text = drawn(url, tmp_path / "page", "--window-size=390,2400")
    style = Path(page_site.__file__).parent / "static" / "style.css"
    text = re.sub(r'<link rel="stylesheet"[^>]*>|<script.*?</script>', "", text)
    copy = tmp_path / "copy.html"
    copy.write_text(f"<!doctype html><style>{style.read_text()}</style>{text}{MEASURED}")
    browser = (binary("chromium", "chromium"), *FLAGS, "--window-size=390,2400", f"--user-data-dir={tmp_path}")
    command = [*browser, "--dump-dom", copy.as_uri()]
    measured = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    assert re.findall(r'<div class="figure" title="([^"]*)"', measured) == ["true,true"]


def test_a_page_opens_on_the_first_node_and_all_of_them_can_be_chosen(tmp_path: Path) -> None:
    board = dashboard(("text",))
    board["templating"]["list"][0]["multi"] = True
    with served(prometheus, (), board=board) as url:
        text = drawn(url, tmp_path)
    assert re.findall(r'<option[^>]*value="([^"]*)"[^>]*>(?:All|gemm)</option>', text) == ["$__all", "gemm"]
    assert "<span>about gemm</span>" in text


@pytest.mark.parametrize(("opened", "minutes"), [("trial", (1, 3)), ("trial?from=now-6h", (356, 360))])
def test_a_page_opens_on_the_time_since_the_first_measurement_unless_another_is_chosen(
    opened: str, minutes: tuple[int, int], tmp_path: Path
) -> None:
    """A demo of a minute had a sliver at the end of an hour."""
    ranges = []

    def ask(path: str, body: bytes, headers: Mapping[str, str]) -> ForwardedAnswer:
        form = dict(parse_qsl(body.decode()))
        if form["query"] == "hot" and "end" in form:
            ranges.append(float(form["end"]) - float(form["start"]))
        return prometheus(path, body, headers)

    with served(ask, ("timeseries",)) as url:
        text = drawn(url, tmp_path, page=opened)
    least, most = minutes
    assert least * 60 <= min(ranges) <= max(ranges) <= most * 60
    assert "from=" not in text.partition("</nav>")[0] or "?" in opened


def test_a_link_lets_the_other_page_open_on_its_own_choice_where_all_are_chosen_here(tmp_path: Path) -> None:
    """The page of a program opened on all of them after a click on its name in the head of another page."""
    board = dashboard(("text",))
    board["templating"]["list"][0] |= {"includeAll": True, "current": {"value": ["$__all"]}}
    with served(prometheus, (), board=board) as url:
        every, chosen = (drawn(url, tmp_path, page=page) for page in ("trial", "trial?var-which=gemm"))
    assert ["which" in text.partition("</nav>")[0] for text in (every, chosen)] == [False, True]


def test_the_head_of_a_page_names_the_events_that_graphs_have_dashed_lines_for(tmp_path: Path) -> None:
    """A red dashed line in each graph had no name anywhere."""
    board = dashboard(("timeseries",))
    listed = ({"name": "Alerts", "iconColor": "red", "expr": "hot"}, {"name": "Deploys", "iconColor": "blue"})
    board["annotations"] = {"list": [{"enable": True, **each} for each in listed]}
    with served(prometheus, (), board=board) as url:
        text = drawn(url, tmp_path)
    status = text[text.index('id="status"') :].partition("</p>")[0]
    assert re.search(r'Dashed lines: <span class="event" style="border-color: [^"]+">Alerts</span>$', status)
    with served(prometheus, ("timeseries",)) as url:
        assert "Dashed lines" not in drawn(url, tmp_path / "without")


def test_choices_and_rows_of_one_value_are_in_the_order_of_their_names(tmp_path: Path) -> None:
    """Prometheus sorts by value and leaves equal ones in any order: healthy nodes and GPUs changed places."""

    def ask(_path: str, _body: bytes, _headers: Mapping[str, str]) -> ForwardedAnswer:
        result = [{"metric": {"kernel": name}, "value": [0, value]} for name, value in TIED]
        return ForwardedAnswer(
            200, "application/json", "", json.dumps({"status": "success", "data": {"result": result}}).encode()
        )

    board = dashboard(("table",))
    board["panels"][0]["options"]["sortBy"] = [{"displayName": "Value", "desc": True}]
    with served(ask, (), board=board) as url:
        text = drawn(url, tmp_path)
    assert re.findall(r'<option[^>]*value="(gemm\d+)"', text) == ["gemm3", "gemm1", "gemm2", "gemm10"]
    assert re.findall(r'<td[^>]*title="(\w+\d+)"', text) == ["general3", "general1", "general2", "general10"]


def test_a_kernel_named_as_a_script_is_text_in_every_panel(document: str) -> None:
    assert re.findall(r"<script[^>]*>", document) == re.findall(r"<script [^>]*src=\"/pages/static/[^>]*>", document)
    assert "<img" not in document
    assert f"<title>Trial {ESCAPED}</title>" in document
    for kind in TYPES:
        shown = document[document.index(f'class="panel {kind} "') :].partition("</article>")[0]
        assert ESCAPED in shown, kind
        if kind != "text":
            assert "gemm" in shown, kind


def test_a_data_link_leads_to_the_same_page_here(document: str) -> None:
    assert 'href="/pages/other?var-kernel=gemm"' in document


def test_a_variable_of_a_query_has_its_text_in_titles_and_names_are_replaced(document: str) -> None:
    assert "<span>about gemm</span>" in document
    last = document[document.index("<span>about gemm</span>") :]
    assert ">GEmm<" in last


def test_a_mapping_by_an_expression_replaces_what_it_matches(document: str) -> None:
    assert ">general</a>" in document
    assert 'href="/pages/other?var-kernel=gemm"' in document


def test_a_panel_that_cannot_be_drawn_says_so(document: str) -> None:
    assert "A panel of type geomap is not drawn here; Grafana draws it." in document


def test_a_figure_of_one_minute_is_no_plural(document: str) -> None:
    """65 s without decimals was "1 mins"."""
    assert ">1 min<" in document


def test_a_link_of_another_kind_leads_nowhere(document: str) -> None:
    assert document.count('<a class="quiet">bad</a>') == len(BAD_LINKS)
    assert "javascript:" not in document


def test_an_unknown_page_leads_to_those_that_there_are(tmp_path: Path) -> None:
    with served(prometheus, TYPES) as url:
        text = drawn(url, tmp_path, page="unknown")
    assert '<a href="/pages/trial">Trial ' in text
    assert '<p class="error">' in text


def test_all_panels_of_a_page_ask_in_one_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists: list[list[str]] = []

    class Counted(QueryBatch):
        async def answer(self, request: Request) -> Response:
            lists.append(await request.json())
            return await super().answer(request)

    monkeypatch.setattr("kernelcast.bridge.browser.site.QueryBatch", Counted)
    with served(prometheus, TYPES) as url:
        drawn(url, tmp_path)
    assert len(lists[0]) == 2, "the values of the variable, and the first measurement, which the panels need"
    assert len(lists[1]) == len(TYPES) + 1, "a panel of text asks nothing, and two panels are added to the types"


def test_queries_that_fill_a_request_leave_in_several(tmp_path: Path) -> None:
    """The rows of the page of programs, opened, with the names of 50 nodes in each query."""
    board = dashboard(())
    long = "hot" + " " * 12_000
    for number in range(40):
        made = panel(number, "stat") | {"gridPos": {"x": 0, "y": 0, "w": 24, "h": 4}}
        made["targets"] = [{"refId": "A", "expr": long, "legendFormat": f"n{number} {{{{kernel}}}}", "instant": True}]
        board["panels"].append(made)
    with served(prometheus, (), board=board) as url:
        text = drawn(url, tmp_path)
    assert "longer than" not in text
    assert {f"n{number} gemm" for number in range(40)} <= set(re.findall(r">(n\d+ gemm)<", text))


def test_where_nothing_is_measured_now_a_choice_is_of_the_time_range(tmp_path: Path) -> None:
    """Without metrics' names Prometheus refuses equal series of two metrics, and the page had no choice at all."""

    def ask(_path: str, body: bytes, _headers: Mapping[str, str]) -> ForwardedAnswer:
        query = dict(parse_qsl(body.decode()))["query"]
        now = [{"metric": {"node": "n7"}, "value": [0, "1"]}] if "last_over_time" in query else []
        answer = {"status": "success", "data": {"result": now}}
        return ForwardedAnswer(200, "application/json", "", json.dumps(answer).encode())

    board = dashboard(("text",))
    where = {"query": 'label_values({__name__=~"a|b"}, node)'}
    board["templating"]["list"] = [{"name": "which", "type": "query", "query": where, "includeAll": True}]
    with served(ask, (), board=board) as url:
        assert '<option value="n7">n7</option>' in drawn(url, tmp_path)


@pytest.mark.parametrize(("owner", "matcher"), [("", 'node=~".+"'), ("?var-user=ann", 'node=~"(n7)"')])
def test_all_nodes_are_a_list_only_where_another_choice_narrows_them(owner: str, matcher: str, tmp_path: Path) -> None:
    """The names of 50 nodes, ten times in a query of a table, were more than the bridge forwards."""
    asked: list[str] = []

    def ask(_path: str, body: bytes, _headers: Mapping[str, str]) -> ForwardedAnswer:
        asked.append(dict(parse_qsl(body.decode()))["query"])
        answer = {
            "status": "success",
            "data": {"result": [{"metric": {"node": "n7", "user": "ann"}, "value": [0, "1"]}]},
        }
        return ForwardedAnswer(200, "application/json", "", json.dumps(answer).encode())

    board = dashboard(("stat",))
    board["panels"][0]["targets"][0]["expr"] = 'hot{node=~"$node"}'
    board["templating"]["list"] = [
        {"name": name, "type": "query", "query": {"query": query}, "includeAll": True} | extra
        for name, query, extra in (
            ("user", "label_values(owned, user)", {"allValue": ".*"}),
            ("node", 'label_values(a{user=~"$user"}, node)', {}),
        )
    ]
    with served(ask, (), board=board) as url:
        drawn(url, tmp_path, page=f"trial{owner}")
    assert f"hot{{{matcher}}}" in asked


def test_without_prometheus_no_panel_shows_a_figure_and_the_page_says_why(tmp_path: Path) -> None:
    with served(away, TYPES[:-1]) as url:
        text = drawn(url, tmp_path)
    assert "Nothing on this page is of now: Prometheus does not answer: Connection refused" in text
    bodies = re.findall(r'<div class="body">(.*?)</article>', text)
    assert len(bodies) == len(TYPES) + 1
    for body in bodies:
        assert "Prometheus does not answer: Connection refused" in body
        assert not re.search(r"\d", body)


def test_the_pages_work_over_tls_and_with_a_user(tmp_path: Path) -> None:
    """The address has the user's name and password, as a person would have typed them into the browser's dialog."""
    self_signed(tmp_path, "server")
    digest = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    config = tmp_path / "web.yml"
    tls = {"cert_file": "server.crt", "key_file": "server.key"}
    config.write_text(yaml.safe_dump({"tls_server_config": tls, "basic_auth_users": {"ann": digest}}))
    with served(prometheus, ("stat", "timeseries"), config) as url:
        assert url.startswith("https://")
        refused = drawn(url, tmp_path / "stranger", "--ignore-certificate-errors")
        shown = drawn(url.replace("://", "://ann:secret@"), tmp_path / "ann", "--ignore-certificate-errors")
    assert "gemm" not in refused
    assert "gemm" in shown
    assert "Figures are from Prometheus, through this bridge" in shown

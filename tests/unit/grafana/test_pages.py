"""Five pages that begin with their questions: the first screen answers, names lead on, every variable has an effect."""

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.unit.grafana.queries import REPOSITORY, boards, panels, parse, recorded

from kernelcast.grafana import dashboards, rules
from kernelcast.grafana.dashboards import liveness
from kernelcast.predictor.passage.run import MIN_BLOCKS
from kernelcast.predictor.settings import BREACH_SECONDS
from kernelcast.wire.catalogue import BY_PROMETHEUS_NAME, kernel
from kernelcast.wire.catalogue.devices import energy

BOARDS = boards()
PAGES = ("overview", "kernels", "gpus", "serving", "pipeline")
MAX_PANELS = 14
MOST_PANELS, MOST_QUERIES = 165, 440
"""Of all pages together: nobody reads more. A new panel answers a question that its page names."""
SCREEN_HEIGHT = 22
EVENTS = {"Alerts", "XIDs", "Restarts", "Deploys", "Hints kept", "Hints rolled back"}
ONE_DEVICE = ("kernelcast-gpus.json",)
METRIC_NAME = re.compile(r"\b(?:DCGM_(?:FI|EXP)_|kernelcast_|cuda_|cupy_|tpu_)\w+")


@pytest.fixture(params=sorted(BOARDS))
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    return BOARDS[request.param]


def first_screen(board: dict[str, Any]) -> list[dict[str, Any]]:
    """The panels that are drawn before anything is opened."""
    rows = board["panels"]
    end = next((place for place, one in enumerate(rows) if one.get("collapsed")), len(rows))
    return [one for one in rows[:end] if one["type"] not in ("row", "text")]


def data_links(panel: dict[str, Any]) -> Iterator[dict[str, str]]:
    yield from panel["fieldConfig"]["defaults"].get("links", ())
    for override in panel["fieldConfig"].get("overrides", ()):
        for one in override["properties"]:
            if one["id"] == "links":
                yield from one["value"]


def test_there_are_five_pages_and_each_begins_with_its_questions() -> None:
    assert set(BOARDS) == {f"kernelcast-{name}.json" for name in PAGES}
    for name, board in BOARDS.items():
        assert board["uid"] == name.removesuffix(".json")
        text, data = board["panels"][:2]
        assert (text["type"], data["title"]) == ("text", "Data")
        assert text["options"]["content"] == board["description"]
        assert 2 <= board["description"].count("?") <= 6, name
        assert len(board["description"]) < 200, "it is read at 3 a.m."
    assert len({board["title"] for board in BOARDS.values()}) == len(PAGES)


def test_the_pages_together_are_few_enough_to_be_read() -> None:
    every = [panel for board in BOARDS.values() for panel in panels(board)]
    assert len(every) <= MOST_PANELS
    assert sum(len(panel["targets"]) for panel in every) <= MOST_QUERIES


def test_the_first_screen_holds_the_answer(board: dict[str, Any]) -> None:
    first = first_screen(board)
    assert 6 <= len(first) <= MAX_PANELS
    assert max(one["gridPos"]["y"] + one["gridPos"]["h"] for one in first) <= SCREEN_HEIGHT


def test_everything_below_the_first_screen_is_collapsed(board: dict[str, Any]) -> None:
    rows = [one for one in board["panels"] if one["type"] == "row"]
    assert all(row["collapsed"] for row in rows)
    last = board["panels"].index(first_screen(board)[-1])
    assert all(one["type"] == "row" for one in board["panels"][last + 1 :])


def test_a_query_can_be_read(board: dict[str, Any]) -> None:
    """The longest: shares of GPU time, of kernels that are ranked by it, each over the measured time."""
    for panel in panels(board):
        for target in panel["targets"]:
            assert len(target["expr"]) <= 3000, panel["title"]


def test_a_runbook_that_a_panel_links_to_exists() -> None:
    headings = {line.removeprefix("## ").lower() for line in rules.runbooks(rules.PRODUCTION).splitlines()}
    for text in dashboards.render(runbooks_url="https://wiki.example/k").values():
        for panel in panels(json.loads(text)):
            for link in panel.get("links", ()):
                assert link["url"].partition("#")[2] in headings, panel["title"]


def test_every_page_filters_by_job_and_user(board: dict[str, Any]) -> None:
    variables = {one["name"]: one for one in board["templating"]["list"]}
    for name in ("hpc_job", "user"):
        assert variables[name]["allValue"] == ".*", "programs without an owner are shown where none is chosen"
        assert "hide" not in variables[name] or variables[name]["hide"] == 0


def test_no_variable_changes_nothing(board: dict[str, Any]) -> None:
    """A variable is used by a panel, or narrows one that is; a pattern for everything is not narrowed."""
    variables = {one["name"]: one for one in board["templating"]["list"] if one["type"] == "query"}
    asked = json.dumps([board["panels"], [one.get("expr", "") for one in board["annotations"]["list"]]])
    effective = {name for name in variables if re.search(rf"\${{?{name}\b(?!:queryparam)", asked)}
    for _ in variables:
        narrowed = [one for name, one in variables.items() if name in effective and "allValue" not in one]
        definitions = " ".join(one["definition"] for one in narrowed)
        effective |= {name for name in variables if re.search(rf"\${name}\b", definitions)}
    assert effective == set(variables)


def test_choosing_a_user_narrows_nodes_gpus_and_programs(board: dict[str, Any]) -> None:
    variables = {one["name"]: one for one in board["templating"]["list"]}
    for name in {"hostname", "gpu", "program"} & variables.keys():
        assert 'user=~"$user"' in variables[name]["definition"] or "$hostname" in variables[name]["definition"]
        assert "allValue" not in variables[name], "a pattern for everything would undo the choice"


WANTED_LINKS = {
    "Node": ("kernelcast-gpus", {"hostname"}),
    "GPU": ("kernelcast-gpus", {"hostname", "gpu"}),
    "Program": ("kernelcast-kernels", {"program"}),
    "Kernel": ("kernelcast-kernels", {"kernel"}),
    "Tunable": ("kernelcast-kernels", {"program"}),
}


def test_every_name_in_a_table_leads_on(board: dict[str, Any]) -> None:
    for panel in panels(board):
        if panel["type"] != "table":
            continue
        columns = set(panel["transformations"][1]["options"]["renameByName"].values())
        links = {one["matcher"]["options"]: one["properties"] for one in panel["fieldConfig"]["overrides"]}
        for heading, (page, variables) in WANTED_LINKS.items():
            needed = {"GPU": {"Node"}, "Tunable": {"Program"}}.get(heading, set())
            if heading in columns and needed <= columns:
                found = [one for one in links.get(heading, ()) if one["id"] == "links"]
                assert found, f"{panel['title']}: {heading}"
                url = found[0]["value"][0]["url"]
                assert url.startswith(f"/d/{page}?"), panel["title"]
                assert variables <= set(re.findall(r"var-(\w+)=", url)), panel["title"]


def test_every_name_in_a_legend_leads_on(board: dict[str, Any]) -> None:
    for panel in panels(board):
        legends = " ".join(target["legendFormat"] for target in panel["targets"])
        pages = {re.match(r"/d/([\w-]+)", one["url"])[1] for one in data_links(panel)}  # type: ignore[index]
        if panel["type"] not in ("timeseries", "stat", "state-timeline"):
            continue
        for label, page in (("Hostname", "gpus"), ("gpu", "gpus"), ("kernel", "kernels")):
            if f"{{{{{label}}}}}" in legends and (label != "gpu" or "{{Hostname}}" in legends):
                assert f"kernelcast-{page}" in pages, panel["title"]


def test_a_link_carries_time_and_variables_to_a_page_that_has_them(board: dict[str, Any]) -> None:
    links = [one for panel in panels(board) for one in data_links(panel)]
    assert links or board["uid"] == "kernelcast-serving", "a model has no page"
    for link in links:
        page = BOARDS[re.match(r"/d/([\w-]+)", link["url"])[1] + ".json"]  # type: ignore[index]
        names = {one["name"] for one in page["templating"]["list"]}
        assert "${__url_time_range}" in link["url"]
        for carried in ("datasource", "job", "hpc_job", "user"):
            assert f"${{{carried}:queryparam}}" in link["url"] or f"var-{carried}=" in link["url"]
        assert set(re.findall(r"var-(\w+)=", link["url"])) <= names, link["url"]


def test_a_chain_of_links_leads_from_the_fleet_to_a_kernel() -> None:
    led = {
        name.removesuffix(".json"): {
            re.match(r"/d/([\w-]+)", one["url"])[1]  # type: ignore[index]
            for panel in panels(board)
            for one in data_links(panel)
        }
        for name, board in BOARDS.items()
    }
    chain = ("overview", "gpus", "kernels")
    for here, there in itertools.pairwise(chain):
        assert f"kernelcast-{there}" in led[f"kernelcast-{here}"], f"{here} to {there}"


def test_panels_link_to_runbooks_once_their_address_is_known() -> None:
    def links(text: str) -> list[dict[str, str]]:
        return [one for panel in panels(json.loads(text)) for one in panel.get("links", ())]

    assert not [one for text in dashboards.render().values() for one in links(text)]
    site = dashboards.render(runbooks_url="https://wiki.example/kernelcast")
    found = {name: links(text) for name, text in site.items()}
    assert all(found.values()), "every page"
    for one in (link for page in found.values() for link in page):
        assert re.fullmatch(r"https://wiki\.example/kernelcast#(kernelcast[a-z]+|watchdog)", one["url"])


def test_units_and_names_are_for_people(board: dict[str, Any]) -> None:
    for panel in panels(board):
        properties = [each for one in panel["fieldConfig"].get("overrides", ()) for each in one["properties"]]
        units = {one["value"] for one in properties if one["id"] == "unit"}
        assert "cps" not in {panel["fieldConfig"]["defaults"]["unit"], *units}, panel["title"]
        headings = [str(one["matcher"]["options"]) for one in panel["fieldConfig"].get("overrides", ())]
        legends = [target["legendFormat"] for target in panel["targets"]]
        for text in (panel["title"], *legends, *headings):
            assert not METRIC_NAME.search(text), panel["title"]


def test_the_name_of_a_metric_is_shown_in_words(board: dict[str, Any]) -> None:
    """`metric` is a label with the bare name; a table maps it, and a legend has it renamed."""
    for panel in panels(board):
        headings = panel["transformations"][1]["options"]["renameByName"] if panel["type"] == "table" else {}
        if headings.get("metric") == "Metric":
            mapped = [
                one["id"] for each in panel["fieldConfig"]["overrides"] for one in each["properties"]
                if each["matcher"]["options"] == "Metric"
            ]  # fmt: skip
            assert "mappings" in mapped, panel["title"]
        elif any("{{metric}}" in target["legendFormat"] for target in panel["targets"]):
            renamed = [one["id"] for one in panel.get("transformations", ())]
            assert "renameByRegex" in renamed, panel["title"]


def test_a_legend_fits_eight_gpus_and_a_fleet_is_drawn_as_quantiles(board: dict[str, Any]) -> None:
    one_device = f"{board['uid']}.json" in ONE_DEVICE
    for panel in (one for one in panels(board) if one["type"] == "timeseries"):
        each_gpu = any("{{gpu}}" in target["legendFormat"] for target in panel["targets"])
        legend = panel["options"]["legend"]
        if one_device and each_gpu and panel["gridPos"]["w"] >= 12:
            assert (legend["placement"], legend["displayMode"]) == ("right", "table"), panel["title"]
            assert panel["gridPos"]["h"] >= 6, panel["title"]
        if not one_device:
            for target in panel["targets"]:
                if re.search(r"{{(gpu|Hostname|instance)}}", target["legendFormat"]):
                    assert re.search(r"(top|bottom)k\(|\$metric|> 0\)*$", target["expr"]), panel["title"]


def test_one_event_is_one_mark(board: dict[str, Any]) -> None:
    """`increase` over a window wider than a step shows one event as a block of bars."""
    for panel in panels(board):
        if panel["type"] == "timeseries" and panel["fieldConfig"]["defaults"]["custom"]["drawStyle"] == "bars":
            for target in panel["targets"]:
                assert "increase(" not in target["expr"], panel["title"]


def test_a_graph_of_events_has_a_line_while_there_is_none(board: dict[str, Any]) -> None:
    """Without it "No data" stands there whether nothing happened or nothing is measured."""
    for panel in panels(board):
        exprs = [target["expr"] for target in panel["targets"]]
        if panel["type"] == "timeseries" and any("last_over_time" in expr for expr in exprs):
            assert not all(expr.rstrip(")").endswith("> 0") for expr in exprs), panel["title"]


def test_a_graph_says_no_forecast_only_while_a_predictor_and_its_series_are_there() -> None:
    """While it is stopped nobody knows whether there would be one."""
    targets = [target for board in BOARDS.values() for panel in panels(board) for target in panel.get("targets", ())]
    exprs = [target["expr"] for target in targets if target.get("legendFormat") == "no forecast"]
    assert exprs
    for expr in exprs:
        assert expr.startswith(f"0 * group({liveness.GPUS})")
        assert expr.endswith(f"and on () group({liveness.PREDICTORS})")


def test_every_address_of_a_page_in_alerts_documents_and_commands_leads_to_one() -> None:
    uids = {board["uid"] for board in BOARDS.values()}
    assert {alert.dashboard for alert in rules.alerts(rules.PRODUCTION)} <= uids
    texts = [
        REPOSITORY / "README.md",
        *(path for folder in ("docs", "grafana", "deploy") for path in (REPOSITORY / folder).rglob("*.md")),
        *(path for folder in ("core", "bridge", "lab") for path in (REPOSITORY / folder).rglob("*.py")),
    ]
    found = {uid for path in texts for uid in re.findall(r"/(?:d|pages)/(kernelcast-\w+)", path.read_text())}
    assert found
    assert found <= uids


def test_events_are_drawn_over_every_page(board: dict[str, Any]) -> None:
    assert {one["name"] for one in board["annotations"]["list"]} >= EVENTS


ONLY_RECORDED = ("owner", "gpu", "program", "kernel", "rank", "server")
"""Recordings of what is too much work for a page: GPU-hours, use of the peak, kernels, jobs, tokens by energy."""


@pytest.mark.slow
def test_a_query_that_asks_a_recording_has_the_measurement_beside_it_or_says_that_it_needs_the_rules() -> None:
    recordings = recorded().keys() - BY_PROMETHEUS_NAME.keys()
    asked = set()
    for board in BOARDS.values():
        for panel in panels(board):
            for target in panel["targets"]:
                names = {name for name, _ in parse(target["expr"]).selectors}
                used = {name for name in names & recordings if ":" in name}
                asked |= used
                if {name.partition(":")[0] for name in used} - {*ONLY_RECORDED}:
                    assert names - recordings, f"{panel['title']} is empty without the rules"
                    assert " or " in target["expr"]
    assert {name.partition(":")[0] for name in asked} == {"accelerator", *ONLY_RECORDED}


@pytest.mark.parametrize("page", ["overview", "gpus"])
def test_gpus_and_tpus_are_side_by_side(page: str) -> None:
    legends = [
        target["legendFormat"]
        for panel in panels(BOARDS[f"kernelcast-{page}.json"])
        for target in panel["targets"]
        if "accelerator:" in target["expr"]
    ]
    assert any("{{accelerator}}" in legend for legend in legends)


FORECASTS = ("gpus", "kernels")


@pytest.mark.parametrize("page", FORECASTS)
def test_the_forecast_shown_first_is_of_the_metric_in_most_trouble(page: str) -> None:
    variables = {one["name"]: one for one in BOARDS[f"kernelcast-{page}.json"]["templating"]["list"]}
    metric = variables["metric"]
    assert metric["definition"].startswith("query_result(sort_desc(")
    assert "kernelcast_degradation_probability_ratio" in metric["definition"]
    assert metric["sort"] == 0, "sorted by value, not by name"
    assert '"words", "no forecast", "metric", "none"' in metric["definition"]


def test_the_page_of_gpus_opens_on_the_node_in_the_worst_state_and_shows_all_of_its_gpus() -> None:
    """The page of GPUs opened on GPU 0 of the first node while another one held its clocks back."""
    variables = {one["name"]: one for one in BOARDS["kernelcast-gpus.json"]["templating"]["list"]}
    asked = variables["hostname"]["definition"]
    assert re.fullmatch(r"query_result\(sort_desc\(.+\)\)", asked), "Grafana recognises no query of several lines"
    assert "DCGM_FI_DEV_CLOCKS_EVENT_REASONS" in asked
    assert "$hostname" not in asked, "a choice must not narrow the choice"
    assert variables["hostname"]["sort"] == 0, "sorted by state, not by name"
    assert variables["hostname"]["multi"], "GPUs of several nodes are compared in one graph"
    assert variables["gpu"]["current"]["value"] == ["$__all"]


@pytest.mark.parametrize("value", ["", "no forecast"])
def test_titles_read_where_nothing_is_forecast(value: str) -> None:
    """Before the first forecast a title was ": measured, and as forecast before", and another one "in"."""
    for page in FORECASTS:
        for panel in (one for one in panels(BOARDS[f"kernelcast-{page}.json"]) if "$" in one["title"]):
            title = panel["title"].replace("${metric:text}", value).replace("$horizon ", "").strip(": ")
            assert re.match(r"[A-Z].*[a-z)]$", title), title
            assert "$" not in title


def test_where_nothing_is_measured_now_the_nodes_of_the_last_hour_are_chosen() -> None:
    """The line about the data narrows to the node: an empty variable left none of it."""
    variables = {one["name"]: one for one in BOARDS["kernelcast-gpus.json"]["templating"]["list"]}
    lately = r"-2 \* group by \(Hostname\) \(\(present_over_time\(DCGM_FI_DEV_FB_USED{"
    assert re.search(lately, variables["hostname"]["definition"])


def test_a_figure_about_breaches_says_that_the_predictor_learns() -> None:
    seen = 0
    for board in BOARDS.values():
        for panel in panels(board):
            exprs = " ".join(target["expr"] for target in panel["targets"])
            if re.search("kernelcast_forecast_judged_series{[^}]*} > 0", exprs) and panel["type"] in ("stat", "table"):
                assert re.search(
                    r"group\(kernelcast_forecast_judged_series{[^}]*} == 0 and on \(\) \(group\(kernelcast_gpu_up",
                    exprs,
                ), panel["title"]
                assert liveness.LEARNING.words in str(panel["fieldConfig"]["defaults"]["mappings"]) + exprs
                seen += 1
    assert seen >= 5
    described = [
        panel["description"]
        for board in BOARDS.values()
        for panel in panels(board)
        if panel["title"] in ("Soonest breach", "Time to threshold, and how far to believe it")
    ]
    assert all(f"learns for {MIN_BLOCKS} blocks of five minutes" in text for text in described)
    assert BREACH_SECONDS == 5 * 60


def test_no_description_of_a_table_quotes_words_that_grafana_does_not_write_there() -> None:
    """An empty table says "No rows" in Grafana and "No data" on the pages that the bridge serves."""
    tables = [panel for board in BOARDS.values() for panel in panels(board) if panel["type"] == "table"]
    assert not [one["title"] for one in tables if re.search("No (data|rows)", one["description"])]


@pytest.mark.parametrize("page", FORECASTS)
def test_the_forecast_band_is_filled_in_the_unit_of_its_metric(page: str) -> None:
    (band,) = (one for one in panels(BOARDS[f"kernelcast-{page}.json"]) if "as forecast" in one["title"])
    properties = [each for one in band["fieldConfig"]["overrides"] for each in one["properties"]]
    assert [one["value"] for one in properties if one["id"] == "custom.fillBelowTo"] == ["lower bound"]
    assert {"celsius", "watt", "s", "mbytes"} <= {one["value"] for one in properties if one["id"] == "unit"}
    exprs = [target["expr"] for target in band["targets"]]
    assert sum("offset ${horizon}1ms" in expr for expr in exprs) == 3, "mean and bounds stand where they are about"
    assert any("kernelcast_degradation_threshold" in expr for expr in exprs)


def test_the_page_of_programs_opens_on_one_and_its_first_screen_reads_no_raw_series_of_kernels() -> None:
    """With all programs chosen, at 1,000 GPUs with 100 kernels each, its first figure took Prometheus 8 s."""
    board = BOARDS["kernelcast-kernels.json"]
    (program,) = (one for one in board["templating"]["list"] if one["name"] == "program")
    asked = program["definition"]
    assert re.fullmatch(r"query_result\(sort_desc\(.+\)\)", asked), "Grafana recognises no query of several lines"
    assert (program["includeAll"], program["multi"], program["sort"]) == (False, True, 0)
    assert "kernelcast_program_standing_still_seconds" in asked
    assert "$program" not in asked, "a choice must not narrow the choice"
    exprs = [target["expr"] for panel in first_screen(board) for target in panel["targets"]]
    exprs.append(asked.removeprefix("query_result(sort_desc(").removesuffix("))"))
    read = {name for expr in exprs for names, _ in parse(expr).selectors for name in names.split("|")}
    assert len(read) > 10
    assert not {re.sub("_(bucket|sum|count)$", "", name) for name in read} & raw_series_of_kernels()


def raw_series_of_kernels() -> set[str]:
    return {row.prometheus_name for row in (*kernel.ROWS, *energy.ROWS) if "kernel" in row.labels}


def test_no_query_of_the_fleet_reads_the_series_of_single_kernels() -> None:
    """A thousand GPUs with a hundred kernels each have a hundred thousand of them."""
    board = BOARDS["kernelcast-overview.json"]
    exprs = [target["expr"] for panel in panels(board) for target in panel["targets"]]
    exprs += [one["expr"] for one in board["annotations"]["list"] if "expr" in one]
    exprs += [
        re.sub(r"^\w+\((.*?)(, \w+)?\)$", r"\1", one.get("definition", "up")) for one in board["templating"]["list"]
    ]
    asked = {name for expr in exprs for names, _ in parse(expr).selectors for name in names.split("|")}
    assert len(asked) > 30
    assert not {re.sub("_(bucket|sum|count)$", "", name) for name in asked} & raw_series_of_kernels()


@pytest.mark.parametrize(
    ("page", "title", "columns"),
    [
        (
            "overview",
            "Worst first",
            {"Node", "GPU", "State", "Temp. of limit", "Clocks", "Error", "Used by", "Breach"},
        ),
        ("overview", "Alerts that fire", {"Alert", "Severity", "Node", "GPU", "Since"}),
        ("kernels", "Hottest kernels", {"Kernel", "Against usual"}),
        ("overview", "Programs", {"Program", "GPUs", "Steps/s", "Of peak", "Waits for data", "Stands still"}),
        ("gpus", "Worst first", {"Node", "GPU", "State", "Breach"}),
        ("serving", "Models", {"Model", "Waiting", "First token", "KV cache", "Tokens/GPU-s"}),
    ],
)
def test_the_first_screen_has_the_table(page: str, title: str, columns: set[str]) -> None:
    first = (one for one in first_screen(BOARDS[f"kernelcast-{page}.json"]) if one["type"] == "table")
    (panel,) = (one for one in first if one["title"].startswith(title))
    assert columns <= set(panel["transformations"][1]["options"]["renameByName"].values())


def test_a_hint_that_was_kept_is_a_state_and_no_event_of_the_time_range() -> None:
    """Ten minutes after it was kept the page said "no hint was kept", beside its measured effect."""
    (kept,) = (panel for panel in panels(BOARDS["kernelcast-kernels.json"]) if panel["title"].startswith("Hints kept"))
    assert not [target["expr"] for target in kept["targets"] if "$__range" in target["expr"]]


def test_words_for_an_empty_answer_name_the_time_range_where_the_answer_is_of_it(board: dict[str, Any]) -> None:
    """ "none" beside a figure of the time range read as if there had never been one."""
    for panel in panels(board):
        exprs = " ".join(target["expr"] for target in panel["targets"])
        if panel["type"] == "table" and "$__range" in exprs and "-1 * group(" in exprs and "calm" in exprs:
            (words,) = re.findall(r'"calm", "([^"]+)", "", ""\)', exprs)
            of_state = panel["title"] == "Worst first"
            assert of_state or "in this time range" in words, panel["title"]
        if panel["type"] == "stat" and "$__range" in exprs:
            mapped = [one["options"] for one in panel["fieldConfig"]["defaults"]["mappings"]]
            assert all("range" in one["-1"]["text"] for one in mapped if "-1" in one), panel["title"]


def test_the_names_of_firing_alerts_lead_to_their_runbooks() -> None:
    def links(url: str) -> list[str]:
        board = json.loads(dashboards.render(runbooks_url=url)["kernelcast-overview.json"])
        (table,) = (one for one in panels(board) if one["title"] == "Alerts that fire")
        (names,) = (one for one in table["fieldConfig"]["overrides"] if one["matcher"]["options"] == "Alert")
        return [link["url"] for one in names["properties"] if one["id"] == "links" for link in one["value"]]

    assert links("http://bridge/runbooks/") == ["http://bridge/runbooks/${__value.raw}"]
    assert links("https://wiki/page") == links("") == [], "an anchor is in lower case, which Grafana cannot write"

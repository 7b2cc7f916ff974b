"""Dashboards are what Grafana 11 to 13 load unchanged, and hold to the rules of Grafana's dashboard linter.

The rules are those of grafana/dashboard-linter v0.2.0 that concern Prometheus; its binary needs Go.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.unit.grafana.queries import GENERATED, boards, panels, parse, recorded, without_variables

from kernelcast.grafana import node_exporter
from kernelcast.grafana.rules.serving import SHARED

BOARDS = boards()
PROMETHEUS = {"type": "prometheus", "uid": "${datasource}"}
WITHOUT_A_JOB = {name for name in recorded() if name.startswith(("owner:", "program:", "server:"))} | {SHARED}
"""Recordings by owner, program or server, over all jobs."""
COUNTERS = ("_total", "_sum", "_count", "_bucket")


@pytest.fixture(params=sorted(BOARDS))
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    return BOARDS[request.param]


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from walk(item, f"{path}/{key}")


def targets(board: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in panels(board):
        for target in panel["targets"]:
            yield panel["title"], target


def test_nothing_is_null_but_the_lower_end_of_the_lowest_threshold(board: dict[str, Any]) -> None:
    nulls = [path for path, value in walk(board) if value is None]
    assert all(re.search(r"/(thresholds|value)/steps/0/value$", path) for path in nulls), nulls


def test_no_remnant_of_older_formats(board: dict[str, Any]) -> None:
    assert board["schemaVersion"] == 39
    assert not {"__inputs", "rows", "style", "hideControls", "sharedCrosshair", "gnetId", "id"} & board.keys()
    for panel in panels(board):
        assert panel["type"] in {"timeseries", "stat", "table", "heatmap", "state-timeline"}
        assert not {"maxDataPoints", "span", "height", "editable", "cacheTimeout", "fieldOptions"} & panel.keys()
    for _, target in targets(board):
        assert not {"intervalFactor", "step", "target", "metric", "query", "hide"} & target.keys()
        assert {"editorMode", "range", "instant"} <= target.keys()
        assert target["range"] != target["instant"]


def test_every_data_source_is_the_variable(board: dict[str, Any]) -> None:
    first = board["templating"]["list"][0]
    assert (first["type"], first["name"], first["query"]) == ("datasource", "datasource", "prometheus")
    sources = [value for path, value in walk(board) if path.endswith("/datasource") and isinstance(value, dict)]
    assert all(source in (PROMETHEUS, {"type": "grafana", "uid": "-- Grafana --"}) for source in sources)
    assert all(panel["datasource"] == PROMETHEUS for panel in panels(board))


def test_every_panel_has_a_description(board: dict[str, Any]) -> None:
    for panel in panels(board):
        assert panel["title"]
        assert len(panel["description"]) > 20, panel["title"]
        assert panel["description"].endswith((".", "?")), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["targets"], panel["title"]
    titles = [panel["title"] for panel in panels(board)]
    assert len(titles) == len(set(titles))


def test_a_share_has_its_natural_range(board: dict[str, Any]) -> None:
    for panel in panels(board):
        defaults = panel["fieldConfig"]["defaults"]
        if defaults["unit"] in ("percentunit", "percent"):
            assert defaults["min"] == 0, panel["title"]


def test_rates_use_the_window_that_grafana_chooses(board: dict[str, Any]) -> None:
    for title, target in targets(board):
        windows = re.findall(r"(?:rate|increase)\([^\[]*\[([\w$]+)\](?! @ end)", target["expr"])
        whole = {"$__range", "2m"} if target["instant"] else set[str]()
        assert set(windows) <= {"$__rate_interval"} | whole, title


def test_counters_are_never_drawn_raw(board: dict[str, Any]) -> None:
    """A counter's height is its age: outside of a difference and where it is newly born it may only be counted."""
    for title, target in targets(board):
        bare = re.sub(
            r"(rate|increase)\([^\]]*\](?: @ end\(\))?[^)]*\)", "vector(1)", without_variables(target["expr"])
        )
        bare = re.sub(r"(?:group|count|timestamp)\(\w*{[^}]*}(?: offset \w+)?\)", "vector(1)", bare)
        bare = re.sub(r"(group|count) by \([^)]*\) \((?:[^()]*)(?: @ end\(\))?\)", "vector(1)", bare)
        bare = re.sub(
            r"\((\w+{[^}]*}) - \(last_over_time\(\1\[\w+\] offset \w+\) or 0 \* \1\)\) > 0", "vector(1)", bare
        )
        bare = re.sub(
            r"\((max by \([^)]*\)) (\(\w+{[^}]*}\)) - \(\1 \(last_over_time\([^)]*\)\) or 0 \* \1 \2\)\) > 0",
            "vector(1)",
            bare,
        )
        bare = re.sub(
            r"\((\w+{[^}]*}) > 0 unless (?:on \([^)]*\) )?present_over_time\(\1\[1h\] offset \w+\)\)",
            "vector(1)",
            bare,
        )
        bare = re.sub(
            r"\((\w+{[^}]*}) - on (\([^)]*\)) group_left \(\) min by \2 \(min_over_time\(\1\[\w+\]\)\)\) > 0",
            "(vector(1))",
            bare,
        )
        bare = re.sub(
            r"\((\w+{[^}]*}) > 0 unless \1 >= on (\([^)]*\)) group_left \(\) "
            r"min by \2 \(last_over_time\(\1\[1h\] offset \w+\)\)\)",
            "(vector(1))",
            bare,
        )
        names = [name for name, _ in parse(bare).selectors] if "{" in bare else []
        assert not [name for name in names if name.endswith(COUNTERS)], title


def test_every_selector_is_narrowed_to_a_job(board: dict[str, Any]) -> None:
    for title, target in targets(board):
        for metric, matched in parse(target["expr"]).selectors:
            of_no_job = metric.startswith("ALERTS") or metric in node_exporter.LABELS or metric in WITHOUT_A_JOB
            assert of_no_job or "job" in matched, f"{title}: {metric}"


def test_choosing_all_matches_everything_that_a_job_and_a_user_leave(board: dict[str, Any]) -> None:
    """A variable whose values a job or a user narrows lists them; a pattern would undo that choice."""
    for variable in board["templating"]["list"]:
        if variable.get("includeAll"):
            narrowed = variable["name"] == "service" or "$user" in variable["definition"]
            owners = variable["name"] in ("hpc_job", "user", "model")
            assert variable.get("allValue") == (None if narrowed else ".*" if owners else ".+"), variable["name"]
            assert variable["refresh"] == 2, "values that appear later are found when the time range changes"


def test_viewers_share_a_crosshair_and_cannot_edit_by_mistake(board: dict[str, Any]) -> None:
    assert board["graphTooltip"] == 1
    assert board["editable"] is False
    assert board["timezone"] == "browser"


def test_dashboards_link_to_each_other_with_time_and_variables(board: dict[str, Any]) -> None:
    assert "kernelcast" in board["tags"]
    (link,) = board["links"]
    assert link["type"] == "dashboards"
    assert link["tags"] == ["kernelcast"]
    assert link["keepTime"]
    assert link["includeVars"]
    assert link["asDropdown"]


def test_panels_are_side_by_side_on_the_grid(board: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + column, place["y"] + line) for column in range(place["w"]) for line in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))


def test_no_line_of_a_row_has_a_hole(board: dict[str, Any]) -> None:
    rows = [board["panels"], *(panel.get("panels", []) for panel in board["panels"])]
    for row in rows:
        lines: dict[int, list[dict[str, int]]] = {}
        for panel in row:
            lines.setdefault(panel["gridPos"]["y"], []).append(panel["gridPos"])
        for places in lines.values():
            assert sum(place["w"] for place in places) == 24, [panel["title"] for panel in row]
            assert len({place["h"] for place in places}) == 1, [panel["title"] for panel in row]


def test_a_heatmap_takes_buckets_as_they_are(board: dict[str, Any]) -> None:
    heatmaps = [panel for panel in panels(board) if panel["type"] == "heatmap"]
    for panel in heatmaps:
        assert panel["options"]["calculate"] is False
        assert all(target["format"] == "heatmap" and "by (le)" in target["expr"] for target in panel["targets"])


def test_the_first_lines_say_how_fast_which_kernel_when_and_what_to_change() -> None:
    board = BOARDS["kernelcast-kernels.json"]["panels"]
    work = [panel["title"] for panel in board if panel["gridPos"]["y"] == 2]
    assert work == ["Steps a second", "Items a second", "Use of the GPUs' peak, at least", "Standing still"]
    first = [panel for panel in board if panel["gridPos"]["y"] == 5]
    assert [panel["title"] for panel in first] == ["Hottest kernel", "Findings", "Soonest breach", "What to change"]
    for panel in first:
        assert panel["options"]["textMode"] == "value_and_name", "a figure without its name answers nothing"
    for panel in first[1:]:
        assert panel["fieldConfig"]["defaults"]["mappings"], "nothing predicted is good news, not missing data"


def test_the_first_line_of_every_page_says_how_old_the_data_is_and_where_it_comes_from(board: dict[str, Any]) -> None:
    data = board["panels"][1]
    assert (data["title"], data["gridPos"]["y"], data["gridPos"]["h"]) == ("Data", 0, 2)
    legends = [target["legendFormat"] for target in data["targets"]]
    assert legends[:2] == ["newest sample", "GPUs {{source}}"]
    assert all("> 0" in target["expr"] or "unless" in target["expr"] for target in data["targets"][2:]), "only if bad"


def test_no_panel_has_a_text_of_its_own_for_an_empty_answer(board: dict[str, Any]) -> None:
    """Grafana shows `noValue` whether there is nothing to report or nothing is measured."""
    for panel in panels(board):
        assert "noValue" not in panel["fieldConfig"]["defaults"], panel["title"]


def test_words_for_an_empty_result_need_a_measurement(board: dict[str, Any]) -> None:
    """Words such as "none" have the value -1, which a query gives only where something is measured."""
    for panel in panels(board):
        has_words = any("-1" in mapping["options"] for mapping in panel["fieldConfig"]["defaults"].get("mappings", ()))
        proofs = [list(proofs_of(target["expr"])) for target in panel["targets"]]
        assert any(proofs) == has_words, panel["title"]
        for proof in itertools.chain(*proofs):
            assert parse(proof).selectors, proof


def proofs_of(expr: str) -> Iterator[str]:
    """Queries that must have a result before the words of an empty result are shown."""
    for found in re.finditer(r"-[12] \* group\(", expr):
        depth = 1
        for end in range(found.end(), len(expr)):
            depth += {"(": 1, ")": -1}.get(expr[end], 0)
            if not depth:
                yield expr[found.end() : end]
                break


def test_that_no_breach_is_predicted_is_said_only_where_a_predictor_can_say_so(board: dict[str, Any]) -> None:
    """A predictor that has just started runs, and has not judged a series yet."""
    for panel in panels(board):
        mapped = [mapping["options"] for mapping in panel["fieldConfig"]["defaults"].get("mappings", ())]
        words = [options["-1"]["text"] for options in mapped if "-1" in options]
        if any("predicted" in each for each in words):
            exprs = " ".join(target["expr"] for target in panel["targets"])
            assert re.search(r"-1 \* group\(\(kernelcast_forecast_judged_series[^>]*> 0", exprs), panel["title"]


def test_the_row_with_words_for_an_empty_table_has_no_figure(board: dict[str, Any]) -> None:
    """Its value is -1; a column with words of its own replaces the table's mapping, which hides that."""
    for panel in panels(board):
        defaults = panel["fieldConfig"]["defaults"]
        if panel["type"] == "table" and defaults.get("mappings"):
            properties = [each for one in panel["fieldConfig"]["overrides"] for each in one["properties"]]
            for each in (one["value"] for one in properties if one["id"] == "mappings"):
                assert each[0]["options"]["-1"]["text"] == "", panel["title"]


def test_a_figure_of_now_is_an_instant_query(board: dict[str, Any]) -> None:
    for panel in panels(board):
        if panel["type"] in ("stat", "table"):
            assert all(target["instant"] for target in panel["targets"]), panel["title"]


def test_the_largest_series_are_first_in_a_legend(board: dict[str, Any]) -> None:
    """A legend shows some three lines of many, so these are the largest."""
    for panel in panels(board):
        if panel["type"] == "timeseries":
            legend = panel["options"]["legend"]
            assert (legend["sortBy"], legend["sortDesc"]) == ("Last *", True), panel["title"]
            below_a_low_graph = legend["placement"] == "bottom" and panel["gridPos"]["h"] <= 5
            assert below_a_low_graph or "lastNotNull" in legend["calcs"], panel["title"]


def test_a_limit_is_drawn_as_such(board: dict[str, Any]) -> None:
    for panel in panels(board):
        limits = [target for target in panel["targets"] if re.search(r"(limit|slowdown)$", target["legendFormat"])]
        dashed = [item for item in panel["fieldConfig"].get("overrides", ()) if item["matcher"]["id"] == "byRegexp"]
        assert len(dashed) >= len(limits), panel["title"]


def test_every_combination_of_reasons_has_its_words() -> None:
    (panel,) = (panel for panel in panels(BOARDS["kernelcast-gpus.json"]) if panel["title"] == "Reduced clocks")
    (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
    assert set(mapping["options"]) == {str(value) for value in range(16)}
    assert mapping["options"]["6"]["text"] == "software thermal + hardware thermal"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("overview", {"Alerts firing", "Worst first", "Programs", "Where the GPUs' time goes", "Owners of GPUs now"}),
        ("overview", {"Jobs standing still", "Utilisation", "Power", "GPUs by state", "Findings"}),
        ("kernels", {"Phases of a step", "Ranks by their own work", "Ranks that stand still now", "Hottest kernel"}),
        ("kernels", {"Share of GPU time", "Durations", "Ranks side by side", "Launch configurations"}),
        ("kernels", {"Device time by activity", "Copy throughput", "Threads waiting for the GPU", "Regions"}),
        (
            "kernels",
            {"Tunables", "Measured effect", "Open hints, and the gain expected", "Bus bandwidth of collectives"},
        ),
        ("gpus", {"GPU utilisation", "GPU memory used", "GPU temperature", "Mean temperature", "Total power"}),
        ("gpus", {"Power draw", "SM clock", "Tensor pipe busy", "Reduced clocks", "XIDs", "Memory errors"}),
        ("gpus", {"NVLink traffic", "PCIe traffic", "Pods and jobs", "Processes", "CPU", "Ports", "HBM used"}),
        ("serving", {"Time to first token", "Requests", "KV cache, and requests put back", "Tokens a joule"}),
        ("pipeline", {"Daemons", "Messages waiting on Kafka", "Messages lost", "Limits in use"}),
        ("pipeline", {"Coverage of past intervals", "Alerts against what came"}),
    ],
)
def test_each_dashboard_answers_its_questions(name: str, wanted: set[str]) -> None:
    assert wanted <= {panel["title"] for panel in panels(BOARDS[f"kernelcast-{name}.json"])}


OPEN_AS_IN_12239 = {
    "GPU temperature",
    "Mean temperature",
    "Power draw",
    "Total power",
    "SM clock",
    "GPU utilisation",
    "Tensor pipe busy",
    "GPU memory used",
}
"""What the panels of NVIDIA's dashboard for dcgm-exporter show, grafana.com 12239."""


def test_what_nvidias_dashboard_shows_is_open_on_the_page_of_gpus() -> None:
    shown = {panel["title"]: panel for panel in BOARDS["kernelcast-gpus.json"]["panels"]}
    assert shown.keys() >= OPEN_AS_IN_12239
    for title in OPEN_AS_IN_12239:
        exprs = [target["expr"] for target in shown[title]["targets"]]
        assert any('Hostname=~"$hostname"' in expr and 'gpu=~"$gpu"' in expr for expr in exprs), "all GPUs chosen"


def test_a_choice_made_on_one_dashboard_holds_on_the_next() -> None:
    """Links carry variables by name, so one name must mean one label everywhere."""
    meanings: dict[str, set[str]] = {}
    for board in BOARDS.values():
        for variable in board["templating"]["list"]:
            label = variable.get("definition", "").rpartition(", ")[2]
            if ranked := re.match(r"/\[{, \](\w+)=", variable.get("regex", "")):
                label = f"{ranked[1]})"
            meanings.setdefault(variable["name"], set()).add(label)
    assert all(len(meaning) == 1 for meaning in meanings.values()), meanings
    assert {"job", "hostname", "gpu", "program", "rank", "kernel"} <= meanings.keys()


def test_whichever_rank_is_chosen_programs_without_ranks_are_shown() -> None:
    for board in BOARDS.values():
        for title, target in targets(board):
            assert 'rank=~"$rank"' not in target["expr"], title


def test_an_exclusion_of_the_linter_names_a_panel_that_exists() -> None:
    """A panel had a new title, and the linter, which only the nightly tests build, refused its query."""
    rules = yaml.safe_load((GENERATED / "dashboards" / ".lint").read_text())["exclusions"]
    excluded = {entry["panel"] for rule in rules.values() for entry in rule.get("entries", ())}
    assert excluded <= {panel["title"] for board in BOARDS.values() for panel in panels(board)}

"""Findings of Grafana's own components on the pages (`tests/nightly/grafana_components.py`), as rules of JSON."""

import re
from typing import Any

import pytest
from tests.unit.grafana.queries import boards

PAGE_PIXELS = 1326
"""The page that the bridge serves, in a window of 1366 pixels with a scroll bar; Grafana's page is 20 pixels wider."""
GAP_PIXELS = 8
FRAME_PIXELS = 38
"""With the scroll bar of a table that has more rows than its panel shows."""
LEAST_COLUMN_PIXELS = 50
"""Grafana draws no column narrower, and takes its share of the free column for what the JSON says."""
FREE_COLUMN_PIXELS = 150
"""Least width that Grafana gives a column without a width and a least width of its own."""
LETTER_PIXELS, CELL_PIXELS, ARROW_PIXELS = 6.5, 12, 10
"""Of a heading, as measured in Chromium; the cell's padding; the arrow of the column that the table is sorted by."""


def panels(kind: str) -> list[Any]:
    return [
        pytest.param(one, id=f"{board['uid']}: {one['title']}")
        for board in boards().values()
        for panel in board["panels"]
        for one in (panel, *panel.get("panels", ()))
        if one["type"] == kind
    ]


def properties(panel: dict[str, Any], heading: str) -> dict[str, Any]:
    overrides = [one for one in panel["fieldConfig"]["overrides"] if one["matcher"]["options"] == heading]
    return {each["id"]: each["value"] for one in overrides for each in one["properties"]}


def least_pixels(panel: dict[str, Any], heading: str) -> int:
    """Width below which Grafana does not draw a column."""
    found = properties(panel, heading)
    return int(found.get("custom.width", found.get("custom.minWidth", FREE_COLUMN_PIXELS)))


def names(panel: dict[str, Any]) -> dict[str, str]:
    (renamed,) = (one["options"]["renameByName"] for one in panel["transformations"] if one["id"] == "organize")
    return dict(renamed)


@pytest.mark.parametrize("panel", panels("stat"))
def test_no_data_has_the_colour_of_no_threshold(panel: dict[str, Any]) -> None:
    """Grafana colours it as the lowest step: green is calm although nothing is known."""
    special = [one["options"] for one in panel["fieldConfig"]["defaults"]["mappings"] if one["type"] == "special"]
    assert [(one["match"], one["result"]["text"], one["result"]["color"]) for one in special] == [
        ("null+nan", "No data", "text")
    ]


@pytest.mark.parametrize("panel", panels("stat"))
def test_figures_stand_side_by_side_where_there_is_room(panel: dict[str, Any]) -> None:
    """Two lines in a panel of height 3 have letters of 6 pixels."""
    assert panel["options"]["orientation"] == "auto"


@pytest.mark.parametrize("panel", panels("stat"))
def test_words_for_an_empty_figure_have_no_name_beside_them(panel: dict[str, Any]) -> None:
    assert "now" not in {target["legendFormat"] for target in panel["targets"]}


@pytest.mark.parametrize("panel", panels("table"))
def test_a_table_is_as_wide_as_its_panel_at_most(panel: dict[str, Any]) -> None:
    """Columns beyond the edge need scrolling, and the last ones are often why the table is there."""
    headings = [name for source, name in names(panel).items() if source != "calm"]
    needed = sum(least_pixels(panel, name) for name in headings)
    assert needed <= panel["gridPos"]["w"] / 24 * (PAGE_PIXELS + GAP_PIXELS) - GAP_PIXELS - FRAME_PIXELS


@pytest.mark.parametrize("panel", panels("table"))
def test_a_heading_is_not_wider_than_its_column(panel: dict[str, Any]) -> None:
    for name in names(panel).values():
        width = least_pixels(panel, name)
        arrow = ARROW_PIXELS * (name == panel["options"]["sortBy"][0]["displayName"])
        assert max(len(name) * LETTER_PIXELS + CELL_PIXELS + arrow, LEAST_COLUMN_PIXELS) <= width, name


@pytest.mark.parametrize("heading", ["State", "Clocks", "Breach"])
def test_the_words_of_the_worst_gpus_fit_their_column(heading: str) -> None:
    """ "hardware slowdown + hardware thermal" was cut behind "hardware slowdo"."""
    (panel,) = (one.values[0] for one in panels("table") if one.id.endswith("overview: Worst first"))
    found = properties(panel, heading)
    words = [one["text"] for mapping in found.get("mappings", ()) for one in mapping["options"].values()]
    longest = max(map(len, words or ["8 minutes ago", "in 12 minutes"]))
    assert longest * LETTER_PIXELS + CELL_PIXELS <= least_pixels(panel, heading) + 1


def test_a_firing_alert_leaves_room_for_the_name_of_its_node() -> None:
    """`sim-node-0` needs 84 pixels; a name is cut at the end, where nodes differ."""
    panel = next(one.values[0] for one in panels("table") if one.values[0]["title"] == "Alerts that fire")
    assert least_pixels(panel, "Node") >= len("sim-node-0") * LETTER_PIXELS + CELL_PIXELS


@pytest.mark.parametrize("panel", panels("table"))
def test_a_unit_stands_beside_the_value_and_not_in_the_heading(panel: dict[str, Any]) -> None:
    """A heading "Local (B)" beside a value of "48 KiB" in another column made two ways of writing bytes."""
    in_brackets = re.compile(r"\(([kKMGT]?i?B|[numµ]?s|k?W|[MG]?Hz|°C|J)(/s)?\)")
    assert not [name for name in names(panel).values() if in_brackets.search(name)]
    for label in ("shared_memory", "local_memory"):
        if label in names(panel):
            assert properties(panel, names(panel)[label])["unit"] == "bytes"


@pytest.mark.parametrize("panel", panels("table"))
def test_an_id_of_a_process_or_a_job_is_not_abbreviated(panel: dict[str, Any]) -> None:
    """With the unit `short`, Grafana writes the process 10000 as "10 K", although it is a label."""
    for source, name in names(panel).items():
        unit = properties(panel, name).get("unit", panel["fieldConfig"]["defaults"]["unit"])
        assert source.startswith("Value") or unit in ("string", "bytes")


@pytest.mark.parametrize("panel", panels("table"))
def test_words_for_an_empty_table_are_neither_cut_nor_a_link(panel: dict[str, Any]) -> None:
    if "calm" in names(panel):
        assert not properties(panel, names(panel)["calm"])
        assert sum("label_replace(-1 * group(" in target["expr"] for target in panel["targets"]) == 1
        assert '"calm", ' in panel["targets"][0]["expr"]


@pytest.mark.parametrize("panel", panels("timeseries"))
def test_a_share_that_is_always_zero_has_no_axis_up_to_10000_percent(panel: dict[str, Any]) -> None:
    defaults = panel["fieldConfig"]["defaults"]
    if defaults["unit"] == "percentunit":
        assert defaults.get("max") is not None or defaults["custom"].get("axisSoftMax") is not None


@pytest.mark.parametrize("panel", panels("timeseries"))
def test_a_legend_below_a_low_graph_is_one_line(panel: dict[str, Any]) -> None:
    """With figures beside the names, the second of three lines was cut."""
    legend = panel["options"]["legend"]
    assert legend["placement"] == "right" or panel["gridPos"]["h"] > 5 or not legend["calcs"]

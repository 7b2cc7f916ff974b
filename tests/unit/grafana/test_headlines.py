"""The first figures: the kernel with the most work, not a wait for other GPUs; a limit that has been crossed."""

from kernelcast.grafana.dashboards import fleet, forecasts, headlines
from kernelcast.grafana.dashboards.hardware import trouble


def test_the_hottest_kernel_is_never_a_collective() -> None:
    (expr,) = {each["expr"] for each in headlines.hottest().panel.targets}
    share, _, whole = expr.partition("/ scalar(")
    assert share.count('kernel_class!="collective"') == 3
    assert "collective" not in whole.partition('"name",')[0]


def test_a_crossed_limit_is_not_a_time_of_0_seconds() -> None:
    """A GPU that had been above its limit for an hour was "0 s" under "Soonest predicted breach"."""
    mappings = headlines.breach().panel.field_config["defaults"]["mappings"]
    assert [one["options"]["0"] for one in mappings if "0" in one["options"]] == [
        {"index": 0, "text": "crossed", "color": "red"}
    ]
    for placed, headings in ((trouble.worst_first(), ["Breach in"]), (forecasts._breaches(), ["Left (50 %)"])):
        columns = {one["matcher"]["options"]: one["properties"] for one in placed.panel.field_config["overrides"]}
        for heading in headings:
            (words,) = [each["value"] for each in columns[heading] if each["id"] == "mappings"]
            assert words[0]["options"]["0"]["text"] == "crossed"


def test_the_time_since_an_alert_fits_its_column() -> None:
    """ "58.8 mins" was cut behind the "mi"."""
    panel = fleet.alerts().panel
    (since,) = [one["properties"] for one in panel.field_config["overrides"] if one["matcher"]["options"] == "Since"]
    assert {"id": "decimals", "value": 0} in since

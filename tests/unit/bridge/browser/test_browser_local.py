"""The pages of a bridge without a Prometheus: their models, and answers in Prometheus' form."""

import json
from gzip import decompress

from tests.support.bridge.asgi_client import AsgiClient
from tests.support.bridge.pages_ring import FakeStore

from kernelcast.bridge.browser.local import LocalPages
from kernelcast.bridge.browser.screens import SCREENS
from kernelcast.bridge.browser.settings import PagesSettings
from kernelcast.bridge.browser.site import PageSite
from kernelcast.wire.catalogue import CATALOGUE

LABELS = (("Hostname", "n0"), ("gpu", "1"))


class Clock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def made(clock: Clock, temperature: float = 71) -> LocalPages:
    store = FakeStore({("DCGM_FI_DEV_GPU_TEMP", LABELS): temperature, ("DCGM_FI_DEV_SLOWDOWN_TEMP", LABELS): 87})
    pages = LocalPages(PagesSettings(), store, clock=clock)
    for _ in range(3):
        clock.seconds += 5
        pages.ring.read(store, clock())
    return pages


def client(pages: LocalPages) -> AsgiClient:
    return AsgiClient(PageSite(PagesSettings(), pages.models(), local=pages).routes())


def target(uid: str, title: str) -> str:
    screen = next(screen for screen in SCREENS if screen.uid == uid)
    panel = next(panel for panel in screen.model()["panels"] if panel["title"].startswith(title))
    return f"uid={uid}&panel={panel['id']}"


def test_a_figure_is_answered_from_the_newest_reading() -> None:
    answer = client(made(Clock())).get(f"/pages/api/local?{target('kernelcast-overview', 'GPUs,')}&ref=B").json()
    assert answer["data"]["result"] == [{"metric": dict(LABELS), "value": [1015.0, "16.0"]}]


def test_the_time_since_a_limit_was_crossed_grows_with_the_readings() -> None:
    clock = Clock()
    subject = (*LABELS, ("cause", "thermal"), ("metric", "DCGM_FI_DEV_GPU_TEMP"))
    store = FakeStore({("kernelcast_degradation_crossed_timestamp_seconds", subject): 520})
    pages = LocalPages(PagesSettings(), store, clock=clock)
    pages.ring.read(store, clock())
    answer = client(pages).get(f"/pages/api/local?{target('kernelcast-overview', 'Predicted')}&ref=C").json()
    assert answer["data"]["result"] == [{"metric": dict(subject), "value": [1000.0, "480.0"]}]


def test_a_graph_is_answered_with_all_readings() -> None:
    path = f"/pages/api/local?{target('kernelcast-gpus', 'GPU temperature')}&ref=A&range=1"
    (series,) = client(made(Clock())).get(path).json()["data"]["result"]
    assert series["values"] == [[1005.0, "71.0"], [1010.0, "71.0"], [1015.0, "71.0"]]


def newest(title: str, metric: str, *labels: tuple[tuple[str, str], ...], ref: str = "A") -> list[str]:
    """The figures of a panel of the first page where series of one metric have the values 100, 200 and so on."""
    clock = Clock()
    store = FakeStore({(metric, tuple(sorted(one))): 100.0 * number for number, one in enumerate(labels, 1)})
    pages = LocalPages(PagesSettings(), store, clock=clock)
    pages.ring.read(store, clock())
    answer = client(pages).get(f"/pages/api/local?{target('kernelcast-overview', title)}&ref={ref}").json()
    return [one["value"][1] for one in answer["data"]["result"]]


def test_a_gpu_counts_once_though_several_producers_or_its_mig_instances_report_it() -> None:
    two = ((*LABELS, ("job", "a")), (*LABELS, ("job", "b")))
    other = (("Hostname", "n0"), ("gpu", "2"))
    assert newest("GPUs by source", "DCGM_FI_DEV_FB_USED", *two, other) == ["2.0"]
    simulated = [(*one, ("source", "simulated")) for one in (*two, other)]
    assert newest("GPUs by source", "DCGM_FI_DEV_FB_USED", *simulated, ref="B") == ["2.0"]
    assert newest("Power by node", "DCGM_FI_DEV_POWER_USAGE", *two, other) == ["500.0"]
    assert newest("Mean load by node", "DCGM_FI_DEV_GPU_UTIL", *two, other) == ["250.0"]


def test_graphs_that_show_the_largest_series_only_say_so() -> None:
    graphs = [panel for screen in SCREENS for panel in screen.panels if panel.kind == "timeseries"]
    cut = [panel for panel in graphs if "topk(16, " in panel.targets[0].query.promql]
    assert {panel.title for panel in cut} >= {"Mean load by node", "Power by node", "GPU time"}
    assert [panel.title for panel in cut if "16" not in panel.description] == []


def test_a_reading_that_is_older_than_five_minutes_is_no_figure_of_now() -> None:
    clock = Clock()
    pages = made(clock)
    clock.seconds += 301
    answer = client(pages).get(f"/pages/api/local?{target('kernelcast-overview', 'GPUs,')}&ref=B").json()
    assert answer["data"]["result"] == []


def test_a_query_that_no_page_declares_is_not_answered() -> None:
    pages = client(made(Clock()))
    for query in ("", "uid=kernelcast-gpus&panel=1&ref=Z", "uid=x&panel=1&ref=A", "uid=kernelcast-gpus&panel=-1&ref=A"):
        assert pages.get(f"/pages/api/local?{query}").status_code == 404


def test_the_head_of_the_page_has_the_size_and_the_bound_of_what_is_kept() -> None:
    about = client(made(Clock())).get("/pages/api/site").json()
    assert about["local"]
    assert about["ring"]["series"] == 2
    assert 0 < about["ring"]["bytes"] < about["ring"]["max_bytes"]
    assert about["ring"]["seconds"] == 900
    assert [each["uid"] for each in about["dashboards"]] == [screen.uid for screen in SCREENS]


def test_no_prometheus_is_asked_where_there_is_none() -> None:
    assert client(made(Clock())).get("/pages/api/v1/query?query=up&time=1").status_code == 404


def test_every_page_begins_with_the_same_strip_and_names_metrics_of_the_catalogue() -> None:
    known = {row.prometheus_name for row in CATALOGUE}
    strips = set()
    for screen in SCREENS:
        panels = screen.model()["panels"]
        strips.add(tuple(panel["title"] for panel in panels[:5]))
        for number, panel in enumerate(panel for panel in panels if panel["type"] != "row"):
            for one in panel["targets"]:
                query = screen.target(number + 1, one["refId"])
                assert query is not None
                assert query.promql == one["expr"]
                assert {name.removesuffix("_sum").removesuffix("_count") for name in query.names} <= known
    assert strips == {("Data", "Age of the data", "Producers", "GPUs by source", "Launches seen")}


def test_the_models_are_served_as_dashboards() -> None:
    for model in made(Clock()).models():
        assert json.loads(decompress(model.body))["uid"] == model.uid

"""The bridge's first page is drawn from its store; the alerts on it are those that Alertmanager has sent."""

from tests.support.bridge.list_kafka import ManualClock
from tests.support.bridge.plain_store import FakeStore, Key

from kernelcast.bridge.firing import FORGET_SECONDS, FiringAlerts
from kernelcast.bridge.first_page import MAX_SERIES, StorePages, parsed_labels
from kernelcast.view.first_page import FirstPage
from kernelcast.wire.events import Alert

GPU = (("Hostname", "n0"), ("gpu", "1"))
KERNEL = (*GPU, ("kernel", "gemm"), ("program", "train"))


def producer(name: str, instance: str) -> Key:
    return (f"kernelcast_producer_{name}", (("instance", instance), ("job", "kernelcast-exporter")))


def store() -> FakeStore:
    return FakeStore(
        {
            producer("up", "a"): 1,
            producer("up", "b"): 0,
            producer("last_sample_age_seconds", "a"): 2.5,
            ("DCGM_FI_DEV_GPU_TEMP", GPU): 93,
            ("DCGM_FI_DEV_SLOWDOWN_TEMP", GPU): 87,
            ("cuda_kernel_launches_total", KERNEL): 100,
            ("cuda_kernel_duration_seconds", KERNEL): (1.0, 100),
        }
    )


def test_gpus_kernels_and_silent_producers_are_on_the_first_page() -> None:
    values, seconds = store(), iter([1000.0, 1010.0])
    page = FirstPage(StorePages(values, lambda: "").read, clock=lambda: next(seconds))
    assert "rates after the second reading" in page.body()
    values.values = {
        **values.values,
        ("cuda_kernel_launches_total", KERNEL): 200,
        ("cuda_kernel_duration_seconds", KERNEL): (4.0, 200),
    }
    text = page.body()
    for words in (
        "n0 GPU 1 is at its limit: 93 of 87 °C",
        "silent: kernelcast-exporter b",
        "gemm",
        "30.00 ms",
        "x3.00",
    ):
        assert words in text


def test_series_that_must_not_be_shown_give_no_figures() -> None:
    values = store()
    text = FirstPage(StorePages(values, lambda: "not known: another bridge may have them").read).body()
    assert "not known: another bridge may have them" in text
    assert not values.views


def test_of_a_family_with_very_many_series_the_first_are_read() -> None:
    values: dict[Key, float] = {
        ("cuda_kernel_launches_total", (("kernel", f"k{n:05}"),)): n + 0.5 for n in range(MAX_SERIES + 10)
    }
    assert len(StorePages(FakeStore(values), lambda: "").read().kernels) == MAX_SERIES


def test_any_value_of_a_label_is_read_as_it_was_written() -> None:
    value = 'a"b\\c\nd{e="f",g} '
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    assert parsed_labels(f'{{kernel="{escaped}"}} '.encode()) == {"kernel": value}


def alert(name: str, status: str = "firing", fingerprint: str = "f") -> Alert:
    return Alert(fingerprint, status, "2026-11-27T00:00:00Z", labels={"alertname": name, "severity": "critical"})


def test_alerts_are_unknown_until_alertmanager_has_sent_some_and_end_when_they_are_resolved() -> None:
    clock = ManualClock()
    firing = FiringAlerts(clock)
    assert firing.now().firing is None
    assert "has sent none since this bridge began" in firing.now().reason
    firing.note([alert("KernelcastGpuDown"), alert("Watchdog", fingerprint="w")])
    assert firing.now().firing == [{"alertname": "KernelcastGpuDown", "severity": "critical"}]
    firing.note([alert("KernelcastGpuDown", "resolved")])
    assert firing.now().firing == []


def test_an_alert_that_alertmanager_repeats_no_more_is_dropped() -> None:
    clock = ManualClock()
    firing = FiringAlerts(clock)
    firing.note([alert("KernelcastGpuDown")])
    clock.seconds += FORGET_SECONDS + 1
    assert firing.now().firing == []

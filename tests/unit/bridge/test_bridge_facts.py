"""The bridge's landing page says how old its data is, and which producers are silent."""

from tests.support.bridge.pages_ring import FakeStore, Key

from kernelcast.bridge.facts import facts
from kernelcast.runtime.web.landing import Fact


def producer(name: str, instance: str) -> Key:
    return (f"kernelcast_producer_{name}", (("instance", instance), ("job", "kernelcast-exporter")))


def by_name(found: list[Fact]) -> dict[str, Fact]:
    return {fact.name: fact for fact in found}


def test_the_newest_sample_and_the_silent_producers_are_named() -> None:
    values: dict[Key, float] = {producer("up", "a"): 1, producer("up", "b"): 0}
    values |= {producer("last_sample_age_seconds", "a"): 2.5, producer("last_sample_age_seconds", "b"): 400}
    found = by_name(facts(FakeStore(values), 1234, hidden=False))
    assert found["Newest sample"] == Fact("Newest sample", "2 s ago")
    assert found["Silent producers"] == Fact("Silent producers", "kernelcast-exporter b", wrong=True)
    assert found["Lines on /metrics"].text == "1,234"


def test_data_that_is_old_is_wrong() -> None:
    values = {producer("up", "a"): 0, producer("last_sample_age_seconds", "a"): 400}
    assert by_name(facts(FakeStore(values), 1, hidden=False))["Newest sample"].wrong


def test_without_producers_no_age_is_claimed_and_nothing_that_is_false_once_all_have_long_been_silent() -> None:
    newest = by_name(facts(FakeStore(), 0, hidden=False))["Newest sample"]
    assert newest.text == "none: no producer has sent yet, or all have long been silent"


def test_series_that_must_not_be_shown_give_no_figures() -> None:
    store = FakeStore({producer("up", "a"): 1})
    (only,) = facts(store, 1, hidden=True)
    assert only.wrong
    assert not store.views

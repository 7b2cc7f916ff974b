"""Records of shared baselines that are written, kept and refused."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.predictor.causes import shared_baselines
from kernelcast.predictor.causes.shared_baselines import (
    CHANGE_NS,
    DAY_NS,
    HOUR_NS,
    MAX_AGE_NS,
    PER_MINUTE,
    RENEW_NS,
    RefusedBaseline,
    SharedBaselines,
)
from kernelcast.wire.baselines import MAX_NODES, KernelBaseline, NodeBaseline

NOW_NS = 1_800_000_000 * 10**9
MINUTE_NS = 60 * 10**9


def part(host: str = "a", median: float = 1.0, time_ns: int = NOW_NS) -> NodeBaseline:
    return NodeBaseline(host, median, 0.01, 100, "v1", time_ns, "train")


def of(*parts: NodeBaseline, kernel: str = "k") -> KernelBaseline:
    return KernelBaseline(kernel, "c", "H100", parts)


def store() -> SharedBaselines:
    made = SharedBaselines()
    made.caught_up = True
    return made


def offer(target: SharedBaselines, *parts: NodeBaseline, kernel: str = "k") -> list[bool]:
    return [target.offer(kernel, "c", "H100", one) for one in parts]


def due(target: SharedBaselines, now_ns: int = NOW_NS) -> list[KernelBaseline | None]:
    return [one for _, one in target.take_due(now_ns)]


def test_a_new_part_is_written_once_together_with_those_of_other_predictors() -> None:
    target = store()
    target.learn("k|c|H100", of(part("b")), now_ns=NOW_NS)
    assert due(target) == []
    assert offer(target, part("a")) == [True]
    assert due(target) == [of(part("a"), part("b"))]
    assert due(target) == []
    target.learn("k|c|H100", of(part("a"), part("b")), now_ns=NOW_NS)
    assert due(target) == []
    assert target.parts_shared == 1


def test_a_record_that_another_predictor_replaced_is_written_again() -> None:
    target = store()
    offer(target, part("a"))
    due(target)
    target.learn("k|c|H100", of(part("b")), now_ns=NOW_NS)
    assert due(target) == [of(part("a"), part("b"))]


def test_noise_is_not_written_a_change_only_after_an_hour_and_everything_is_renewed_daily() -> None:
    target = store()
    noise, changed = part(median=1.01, time_ns=NOW_NS + CHANGE_NS), part(median=1.2, time_ns=NOW_NS + CHANGE_NS - 1)
    later, renewed = part(median=1.2, time_ns=NOW_NS + CHANGE_NS), part(time_ns=NOW_NS + CHANGE_NS + RENEW_NS)
    assert offer(target, part(), noise, changed, later) == [True, False, False, True]
    assert offer(target, part(median=1.2, time_ns=NOW_NS + RENEW_NS), renewed) == [False, True]


def test_writing_is_limited_per_minute_and_nothing_is_lost() -> None:
    target = store()
    for number in range(PER_MINUTE + 30):
        offer(target, part(), kernel=f"k{number}")
    assert [len(due(target, NOW_NS + seconds * 10**9)) for seconds in (0, 0, 10, 60)] == [PER_MINUTE, 0, 20, 10]


def test_nothing_is_written_before_the_topic_has_been_read() -> None:
    target = SharedBaselines()
    offer(target, part())
    assert due(target) == []
    target.caught_up = True
    assert due(target) == [of(part())]


def test_a_baseline_that_no_node_renews_is_withdrawn_and_one_that_another_withdrew_is_written_again() -> None:
    target = store()
    target.learn("k|c|H100", of(part("gone", time_ns=NOW_NS - MAX_AGE_NS - 1)), now_ns=NOW_NS)
    assert target.take_due(NOW_NS) == [("k|c|H100", None)]
    assert len(target) == 0
    offer(target, part("a"))
    due(target)
    target.withdrawn("k|c|H100")
    assert due(target) == [of(part("a"))]


def test_parts_that_are_too_old_are_left_out_of_the_next_record_and_cause_none() -> None:
    target = store()
    old = part("gone", time_ns=NOW_NS - MAX_AGE_NS + HOUR_NS)
    target.learn("k|c|H100", of(part("b"), old), now_ns=NOW_NS)
    assert due(target, NOW_NS + DAY_NS) == []
    offer(target, part("a", time_ns=NOW_NS + DAY_NS))
    assert due(target, NOW_NS + DAY_NS) == [of(part("a", time_ns=NOW_NS + DAY_NS), part("b"))]


def test_a_record_that_kafka_did_not_take_is_written_again() -> None:
    target = store()
    offer(target, part())
    ((key, _),) = target.take_due(NOW_NS)
    target.undelivered(key)
    assert due(target) == [of(part())]


def test_a_record_under_another_key_and_parts_from_the_future_are_refused_and_counted() -> None:
    target = store()
    target.learn("another", of(part()), now_ns=NOW_NS)
    target.learn("k|c|H100", of(part("a"), part("b", time_ns=NOW_NS + 2 * HOUR_NS)), now_ns=NOW_NS)
    assert target.refused[RefusedBaseline.OTHER_KEY] == 1
    assert target.refused[RefusedBaseline.FUTURE] == 1
    assert target.known(["k|c|H100"]) == {"k|c|H100": of(part("a"))}


def test_a_part_of_a_node_whose_clock_is_far_ahead_is_not_written_over_and_over() -> None:
    """Every reader refuses it, the predictor that wrote it as well."""
    target = store()
    offer(target, part("a", time_ns=NOW_NS + 2 * HOUR_NS))
    written = 0
    for _ in range(5):
        for key, record in target.take_due(NOW_NS):
            written += 1
            assert record is not None
            target.learn(key, record, now_ns=NOW_NS)
    assert written == 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_baselines, "MAX_BASELINES", 2)
    target = store()
    assert [offer(target, part(), kernel=name) for name in "abc"] == [[True], [True], [False]]
    target.learn("d|c|H100", of(part(), kernel="d"), now_ns=NOW_NS)
    assert len(target) == 2
    assert target.refused[RefusedBaseline.FULL] == 2


def test_names_that_would_not_fit_into_an_event_are_refused_and_counted() -> None:
    target = store()
    assert offer(target, part("h" * 400)) == [False]
    assert offer(target, part(), kernel="k" * 600) == [False]
    assert target.refused[RefusedBaseline.TOO_LONG] == 2


def test_a_record_with_as_many_nodes_as_it_takes_gets_no_other_before_one_is_not_renewed() -> None:
    target = store()
    hosts = [part(f"n{number}") for number in range(MAX_NODES)]
    target.learn("k|c|H100", of(*hosts), now_ns=NOW_NS)
    assert offer(target, part("x", time_ns=NOW_NS + HOUR_NS), part("x", time_ns=NOW_NS + RENEW_NS)) == [False, True]
    (written,) = due(target, NOW_NS + RENEW_NS)
    assert written is not None
    assert len(written.nodes) == MAX_NODES


RECORDS = st.lists(
    st.lists(
        st.builds(part, st.sampled_from("abcd"), st.sampled_from([1.0, 1.1]), st.integers(NOW_NS - 3, NOW_NS)),
        max_size=4,
        unique_by=lambda one: one.hostname,
    ),
    max_size=5,
)


@given(RECORDS, st.randoms())
def test_the_order_of_arrival_does_not_matter(records: list[list[NodeBaseline]], rng: random.Random) -> None:
    found = []
    for order in (records, rng.sample(records, len(records))):
        target = store()
        for one in order:
            target.learn("k|c|H100", of(*one), now_ns=NOW_NS)
        found.append(target.known(["k|c|H100"]))
    assert found[0] == found[1]

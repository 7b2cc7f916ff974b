"""Events that were written twice are recognised, within a bounded memory."""

from kernelcast.wire.recent_ids import RecentIds, event_key


def test_a_repeated_id_is_recognised_until_newer_ones_have_replaced_it() -> None:
    recent = RecentIds(2)
    assert [recent.add(one) for one in ("a", "b", "a", "c", "a")] == [True, True, False, True, True]
    assert (len(recent), recent.saved()) == (2, ["c", "a"])


def test_saved_ids_are_recognised_after_a_restart() -> None:
    recent = RecentIds(2)
    recent.restore(["a", "b", "c"])
    assert [one in recent for one in ("a", "b", "c")] == [False, True, True]


def test_an_event_is_identified_by_source_and_id() -> None:
    events = [{"source": "/a|b", "id": "c"}, {"source": "/a", "id": "b|c"}, {"source": "/a", "id": "b"}]
    assert len({event_key(event) for event in events}) == 3

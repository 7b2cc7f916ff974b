"""`probe.data`: the items of any loader, and the wait for them as the phase `data`."""

from collections.abc import Iterator

import pytest

from kernelcast import probe
from kernelcast.probe.marks.process import ProcessMarks


def test_the_items_and_the_errors_of_a_loader_reach_the_program() -> None:
    def loader() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("gone")

    batches = probe.data(loader())
    assert [next(batches), next(batches)] == [1, 2]
    with pytest.raises(KeyError, match="gone"):
        next(batches)
    assert list(probe.data([])) == []


def test_the_wait_for_each_item_is_data() -> None:
    marks = ProcessMarks()
    train = marks.iterate(range(3))
    next(train)
    timeline = marks.timeline
    assert timeline is not None
    for _ in train:
        assert timeline.phase() == "forward"
        timeline.backward_begins()
        timeline.backward_ends()
        timeline.step_begins()
        timeline.step_ends(1)
    assert timeline.totals.steps == 2
    assert {"data", "forward", "backward", "optimizer"} <= dict(timeline.totals.phases()).keys()


def test_the_first_step_begins_with_the_request_of_its_batch() -> None:
    """Neither rates nor phases have it."""
    marks = ProcessMarks()
    train = marks.iterate(range(2))
    next(train)
    timeline = marks.timeline
    assert timeline is not None
    totals = timeline.totals
    assert (totals.begun_ns > 0, totals.first_step_ns) == (True, 0)
    timeline.step_begins()
    timeline.step_ends(1)
    assert totals.first_step_ns == totals.first_ns - totals.begun_ns > 0
    begun_ns = totals.begun_ns
    list(train)
    assert totals.begun_ns == begun_ns

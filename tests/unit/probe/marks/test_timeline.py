"""The timeline: which mark ends a step, and to which phase the time between two marks belongs."""

from collections.abc import Callable
from threading import Thread

import pytest

from kernelcast.probe.marks.batches import batch_items
from kernelcast.probe.marks.timeline import CHECKPOINT, Timeline
from kernelcast.probe.recording.step_totals import StepTotals


class Batches:
    """A loader's iterator, with the size of its batches."""

    def __init__(self, batch_size: int) -> None:
        self._auto_collation = True
        self._index_sampler = self
        self.batch_size = batch_size


class Batch:
    """A tensor."""

    def __init__(self, items: int) -> None:
        self.shape = (items, 4)


class Training:
    """A program whose work takes as many nanoseconds as it is told."""

    def __init__(self) -> None:
        self.now_ns = 1_000
        self.timeline = Timeline(StepTotals(), lambda: self.now_ns)

    def work(self, ns: int) -> None:
        self.now_ns += ns

    def fetch(
        self, ns: int, *, items: int = 0, gradients: bool = True, within: Callable[[], object] = lambda: None
    ) -> None:
        def next_batch(_iterator: object) -> Batch:
            self.work(ns)
            within()
            return Batch(items)

        self.timeline.fetching(next_batch, lambda: gradients, batch_items)(Batches(items))

    def backward(self, ns: int, within: Callable[[], object] = lambda: None) -> None:
        counts = self.timeline.backward_begins()
        self.work(ns)
        within()
        if counts:
            self.timeline.backward_ends()

    def step(self, ns: int, optimizer: int = 1, *, before: Callable[[], object] = lambda: None) -> None:
        counts = self.timeline.step_begins()
        before()
        self.work(ns)
        if counts:
            self.timeline.step_ends(optimizer)

    @property
    def phases(self) -> dict[str, int]:
        return dict(self.timeline.totals.phases())

    @property
    def steps(self) -> int:
        return self.timeline.totals.steps


def began() -> Training:
    """A program that has ended its first step."""
    training = Training()
    training.fetch(5)
    training.backward(5)
    training.step(5)
    return training


def test_phases_add_up_to_the_steps_and_the_first_step_is_in_neither() -> None:
    training = began()
    assert (training.steps, training.phases) == (1, {})
    for _ in range(2):
        training.work(1)
        training.fetch(10)
        training.work(100)
        training.backward(1_000)
        training.work(3)
        training.step(10_000)
    assert training.phases == {"data": 20, "forward": 200, "backward": 2_000, "optimizer": 20_000, "other": 8}
    assert sum(training.phases.values()) == training.timeline.totals.step_ns
    assert training.steps == 3


def test_without_a_loader_there_is_no_data_and_the_time_before_backward_is_forward() -> None:
    training = began()
    training.work(7)
    training.backward(20)
    training.step(30)
    assert training.phases == {"forward": 7, "backward": 20, "optimizer": 30}


def test_in_a_closure_the_time_before_backward_is_forward() -> None:
    training = began()
    training.fetch(2)

    def closure() -> None:
        training.work(40)
        training.backward(500)

    training.step(6, before=closure)
    assert training.phases == {"data": 2, "forward": 40, "backward": 500, "optimizer": 6}
    assert training.steps == 2


def test_the_wait_for_a_batch_before_an_interruption_of_it_is_data_as_well() -> None:
    training = began()
    timeline = training.timeline

    def save() -> None:
        assert timeline.interrupt(CHECKPOINT)
        training.work(300)
        timeline.resume()
        training.work(7)

    training.fetch(20, within=save)
    training.work(1_000)
    training.backward(1)
    assert list(training.timeline.totals.phase_ns)[:2] == [27, 1_000]
    assert sum(training.timeline.totals.phase_ns) == 1_328


def test_a_fetch_within_a_fetch_or_within_backward_does_not_count() -> None:
    training = began()
    training.fetch(10, within=lambda: training.fetch(5))
    training.backward(100, within=lambda: training.fetch(40))
    training.step(1)
    assert training.phases == {"data": 15, "backward": 140, "optimizer": 1}


def test_batches_that_are_fetched_ahead_belong_to_one_step() -> None:
    training = began()
    training.fetch(1, items=8)
    training.fetch(1, items=8)
    for _ in range(2):
        training.work(50)
        training.backward(10)
    training.step(3)
    assert (training.steps, training.timeline.totals.items) == (2, 16)
    assert training.phases == {"data": 2, "forward": 100, "backward": 20, "optimizer": 3}


def test_two_optimizers_of_one_batch_make_one_step_and_another_batch_makes_another() -> None:
    training = Training()
    for _ in range(3):
        training.fetch(1)
        training.backward(1)
        training.step(1, optimizer=1)
        training.backward(1)
        training.step(1, optimizer=2)
    assert training.steps == 3
    for _ in range(3):  # of the second alone
        training.fetch(1)
        training.backward(1)
        training.step(1, optimizer=2)
    assert training.steps == 6


def test_a_step_within_a_step_is_the_same_one_and_a_failed_step_is_none() -> None:
    training = began()
    training.step(1, before=lambda: training.step(1))
    assert training.steps == 2
    assert training.timeline.step_begins()
    training.timeline.step_ends(1, failed=True)
    assert training.steps == 2


def test_an_optimizer_that_steps_within_backward_ends_the_step_with_it() -> None:
    training = Training()
    for _ in range(4):
        training.fetch(1)

        def parameters(training: Training = training) -> None:
            for number in range(3):
                training.step(1, optimizer=number)

        training.backward(5, parameters)
    assert training.steps == 4


def test_a_scaler_that_skips_ends_a_step_that_is_counted_as_skipped() -> None:
    training = began()
    for skips in (True, False):
        assert training.timeline.step_begins(scaled=True)
        if not skips:
            training.step(1)
        training.timeline.step_ends(1)
    assert (training.steps, training.timeline.totals.skipped) == (3, 1)


def test_evaluation_is_told_by_the_gradients_not_by_the_order_of_calls() -> None:
    training = began()
    for _ in range(2):
        training.fetch(3, items=8, gradients=False)
        training.work(30)
    with pytest.raises(StopIteration):
        training.fetch(3, gradients=False, within=lambda: next(iter(())))
    training.fetch(1, items=8)
    training.timeline.without_gradients = True  # the work on this batch turns gradients off
    training.work(60)
    training.fetch(1, items=8)
    training.work(9)
    training.backward(1)
    training.step(1)
    assert training.phases == {"data": 2, "forward": 9, "backward": 1, "optimizer": 1, "evaluation": 129}
    assert training.timeline.totals.items == 8


def test_a_checkpoint_and_a_compilation_are_taken_out_of_the_phase_around_them() -> None:
    training = began()
    training.fetch(1)
    training.work(10)
    assert training.timeline.interrupt(CHECKPOINT)
    assert training.timeline.phase() == "checkpoint"
    training.backward(500)  # such as a trace that is compiled: no mark counts
    training.timeline.resume()
    training.work(20)
    training.timeline.compilation_begins()
    training.work(3_000)
    training.timeline.compilation_ends()
    training.backward(2)
    training.step(4)
    expected = {"data": 1, "forward": 30, "backward": 2, "optimizer": 4, "checkpoint": 500, "compilation": 3_000}
    assert training.phases == expected
    assert (training.timeline.totals.compilations, training.timeline.totals.compile_ns) == (1, 3_000)


def test_an_explicit_step_takes_over_and_the_first_is_the_automatic_one_before_it() -> None:
    training = began()
    totals = training.timeline.totals
    totals.advance(training.now_ns, 8)
    assert (totals.steps, totals.items) == (1, 8)
    for _ in range(2):
        training.step(10)
        totals.advance(training.now_ns)
    assert (totals.steps, training.phases) == (3, {"optimizer": 20})


def test_the_number_of_a_first_steps_listener_is_called_once() -> None:
    training = Training()
    called: list[int] = []
    training.timeline.on_first_step = lambda: called.append(training.steps)
    for _ in range(3):
        training.step(1)
    assert called == [1]


def test_the_time_that_the_start_of_a_probe_takes_is_in_no_step() -> None:
    training = Training()
    training.timeline.on_first_step = lambda: training.work(500)
    for _ in range(2):
        training.backward(10)
        training.step(1)
    assert training.phases == {"backward": 10, "optimizer": 1}
    assert training.timeline.totals.step_ns == 11


@pytest.mark.parametrize("phase", ["data", "forward", "backward", "optimizer", "other"])
def test_the_present_phase_is_known_while_it_lasts(phase: str) -> None:
    training = began()
    timeline = training.timeline
    seen = [timeline.phase()]
    training.fetch(1, within=lambda: seen.append(timeline.phase()))
    seen.append(timeline.phase())
    timeline.backward_begins()
    seen.append(timeline.phase())
    timeline.backward_ends()
    timeline.step_begins()
    seen.append(timeline.phase())
    assert phase in seen
    assert seen == ["other", "data", "forward", "backward", "optimizer"]


def test_every_mark_is_progress() -> None:
    training = Training()
    moments = list[int]()

    def note() -> None:
        moments.append(training.timeline.totals.progress_ns)

    training.fetch(5)
    training.step(10, before=note)
    training.work(100)
    training.fetch(100, within=note)
    note()
    for mark in (
        training.timeline.backward_begins,
        training.timeline.backward_ends,
        lambda: training.timeline.interrupt(CHECKPOINT),
        training.timeline.resume,
    ):
        training.work(100)
        mark()
        note()
        assert training.timeline.totals.progress_ns == training.now_ns
    assert moments == sorted(set(moments))


def test_work_between_steps_is_shown_as_what_is_known_of_it() -> None:
    """Time of a program without a loader is that of a step; an evaluation without one is seen by its gradients."""
    training = Training()
    training.backward(5)
    training.step(5)
    assert training.timeline.phase() == "forward"
    training.fetch(5)
    training.backward(5)
    training.step(5)
    assert training.timeline.phase() == "other"
    training.timeline.without_gradients = True
    assert training.timeline.phase() == "evaluation"
    training.fetch(5)
    training.timeline.without_gradients = True  # such as a gradient that is clipped
    training.backward(5)
    training.step(5)
    assert training.timeline.phase() == "other"


def test_a_loop_has_ended_where_its_loader_has_no_further_batch() -> None:
    training = began()
    ended = [training.timeline.loop_ended]

    def exhausted() -> None:
        ended.append(training.timeline.loop_ended)
        raise StopIteration

    for gradients in (True, False):  # the second is that of an evaluation
        with pytest.raises(StopIteration):
            training.fetch(1, gradients=gradients, within=exhausted)
        ended.append(training.timeline.loop_ended)
    assert ended == [False, False, True, False, False]


def whole(training: Training, ns: int, within: Callable[[], object] = lambda: None) -> None:
    """A step that its program marks as a whole."""
    training.timeline.whole_begins()
    within()
    training.work(ns)
    training.timeline.whole_ends()


def test_of_steps_that_are_marked_as_a_whole_only_what_is_known_is_a_phase() -> None:
    training = Training()
    whole(training, 5)
    whole(training, 50)
    assert (training.steps, training.phases) == (2, {})
    training.fetch(7)
    whole(training, 60)
    assert training.phases == {"data": 7, "other": 110}
    assert sum(training.phases.values()) == training.timeline.totals.step_ns


def test_batches_that_no_backward_has_used_are_no_items_and_no_forward() -> None:
    training = Training()
    whole(training, 5)
    for _ in range(2):
        training.fetch(1, items=8)
        training.work(30)
    whole(training, 40)
    assert training.phases == {"data": 2, "other": 100}
    assert training.timeline.totals.items == 0


def test_a_whole_step_within_which_steps_have_ended_is_none_of_its_own() -> None:
    training = Training()
    whole(training, 5)
    whole(training, 5, lambda: whole(training, 5))
    whole(training, 5)
    assert training.steps == 3
    whole(training, 5, lambda: training.step(5))
    assert training.steps == 4


def test_a_compilation_on_another_thread_does_not_end_that_of_the_training() -> None:
    training = began()
    timeline = training.timeline
    timeline.compilation_begins()
    training.work(10)
    other = Thread(target=lambda: timeline.compilation_ends(3))
    other.start()
    other.join()
    training.work(10)
    timeline.compilation_ends(20)
    assert training.phases == {"compilation": 20}
    assert (timeline.totals.compilations, timeline.totals.compile_ns) == (2, 23)

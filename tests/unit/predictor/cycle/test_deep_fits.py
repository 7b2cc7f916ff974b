"""Fits of live series: by event time, within a budget, and the same however fast the workers are."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from kernelcast.predictor.arrays import Floats, Ints
from kernelcast.predictor.cycle.deep_fits import DeepFits
from kernelcast.predictor.cycle.forecasts import Forecasts
from kernelcast.predictor.forecasting.deep.messages import FitAnswer, FitOutcome, FitRequest
from kernelcast.predictor.forecasting.deep.models import LinearModel
from kernelcast.predictor.forecasting.deep.panel import FittedPanel
from kernelcast.predictor.forecasting.deep.pool import Answered, Shed
from kernelcast.predictor.forecasting.deep.schedule import BLOCKS

BLOCK = 12_000
LENGTH = 576
PERIOD = 10


def wave(request: FitRequest) -> LinearModel:
    """A model with the season of ten intervals; its level is that of its window."""
    profile = np.sin(2 * np.pi * np.arange(PERIOD) / PERIOD)
    known = request.values[np.isfinite(request.values)]
    return LinearModel("ets", np.eye(1), np.zeros(1), np.ones(1), np.zeros(1), profile, float(known.mean()), 5.0)


@dataclass
class Workers:
    """A pool whose answers come when the test says so."""

    room: int = 10_000
    waiting: list[tuple[int, FitRequest]] = field(default_factory=list)
    ready: list[Answered] = field(default_factory=list)
    asked: list[FitRequest] = field(default_factory=list)
    starts: int = 1

    def submit(self, ticket: int, request: FitRequest) -> bool:
        if len(self.waiting) >= self.room:
            return False
        self.waiting.append((ticket, request))
        self.asked.append(request)
        return True

    def work(self, reason: Shed | None = None, *, models: bool = True) -> None:
        for ticket, request in self.waiting:
            answer = FitAnswer((wave(request),), {"ets": FitOutcome.FITTED}, 0.25)
            if not models:
                answer = FitAnswer(outcomes={"ets": FitOutcome.NOT_FITTABLE})
            self.ready.append(Answered(ticket, FitAnswer() if reason else answer, reason))
        self.waiting = []

    def answers(self, wait_seconds: float = 0.0) -> list[Answered]:
        assert wait_seconds == 0.0
        found, self.ready = self.ready, []
        return found

    def close(self, timeout_seconds: float) -> None:
        raise NotImplementedError


def waves(rows: int = 1, last: int = BLOCK) -> Floats:
    """The last `LENGTH` blocks up to one, the same whatever the end is."""
    numbers = np.arange(last - LENGTH + 1, last + 1)
    noise = np.stack([np.random.default_rng(row).normal(0, 0.3, 2 * BLOCK) for row in range(rows)])
    return np.asarray(50 + 5 * np.sin(2 * np.pi * numbers / PERIOD) + noise[:, numbers], np.float64)


class Live:
    """Blocks that follow each other, each with the values up to it."""

    def __init__(self, *, rows: int = 1, budget: int = 100, room: int = 10_000) -> None:
        self.rows = np.arange(rows)
        self.generations: Ints = np.ones(rows, np.int64)
        self.workers = Workers(room)
        self.deep = DeepFits(self.workers, budget)
        self.block = BLOCK

    def step(self, blocks: int = 0) -> FittedPanel:
        self.block += blocks
        values = waves(len(self.rows), self.block)
        return self.deep.panel(self.rows, self.generations, values, BLOCKS, (self.block, self.block))


def forecasts(panel: FittedPanel) -> Floats:
    return panel.forecasts(3, slice(0, panel.rows)).get("ets", np.full((panel.rows, LENGTH), np.nan))


def test_models_are_used_from_the_next_block_on_even_if_they_are_there_at_once() -> None:
    live = Live()
    live.step()
    live.workers.work()
    assert np.isnan(forecasts(live.step())).all()
    found = forecasts(live.step(1))
    assert np.isfinite(found[0, -100:]).all()
    assert live.deep.outcomes == {("ets", FitOutcome.FITTED): BLOCKS.kept}
    assert live.deep.seconds == 0.25 * BLOCKS.kept
    assert not live.deep.shed


def test_the_speed_of_the_worker_changes_nothing() -> None:
    found = []
    for late in (False, True):
        live = Live()
        series = []
        for _ in range(60):
            if not late:
                live.workers.work()
            live.step()
            live.workers.work()
            series.append(forecasts(live.step(1)))
        found.append(np.concatenate(series))
    np.testing.assert_array_equal(found[0], found[1])


def test_what_is_late_is_counted_not_used_and_asked_again() -> None:
    live = Live()
    live.step()
    panel = live.step(1)
    assert live.deep.shed == {Shed.LATE: BLOCKS.kept}
    assert len(live.workers.asked) == 2 * BLOCKS.kept
    live.workers.work()
    assert np.isnan(forecasts(panel)).all()
    assert np.isfinite(forecasts(live.step(1))[0, -100:]).all()


def test_the_budget_counts_windows_of_a_block_and_goes_to_the_first_rows() -> None:
    live = Live(rows=3, budget=BLOCKS.kept + 2)
    live.step()
    live.step()
    values = waves(3)
    newest = [each for each in live.workers.asked if each.last == BLOCK - BLOCK % BLOCKS.every]
    near = [np.abs(values[:, LENGTH - 1 - BLOCK % BLOCKS.every] - each.values[-1]) for each in newest]
    windows = [int(np.argmin(each)) for each in near]
    assert len(live.workers.asked) == BLOCKS.kept + 2
    assert windows == [0, 1]
    assert live.deep.shed[Shed.OVER_BUDGET] > 0
    live.workers.work()
    live.step(1)
    assert len(live.workers.asked) == 2 * (BLOCKS.kept + 2)


def test_a_host_whose_clock_is_ahead_does_not_lift_the_budget_of_the_others() -> None:
    live = Live(budget=2)
    for _ in range(8):
        live.step(1)
    asked = len(live.workers.asked)
    live.block -= 60
    live.step()
    assert len(live.workers.asked) == asked + 2


def test_a_host_whose_clock_is_ahead_hides_no_model_of_the_others_and_none_once_it_is_set_back() -> None:
    live = Live(rows=3)
    values = waves(3)

    def counted(*clocks: int) -> tuple[int, int]:
        for block in sorted(set(clocks)):
            rows = np.flatnonzero(np.array(clocks) == block)
            panel = live.deep.panel(rows, live.generations[rows], values[rows], BLOCKS, (block, block))
            panel.used[:] = True
            live.deep.note_use(rows, panel)
        live.workers.work()
        return live.deep.series, live.deep.used_series

    for step in range(3):
        found = counted(BLOCK + step, BLOCK + step, BLOCK + 288 + step)
    assert found == (3, 3)
    assert counted(BLOCK + 3, BLOCK + 3, BLOCK + 3) == (3, 3)
    for step in range(4, 7):
        found = counted(BLOCK + step)
    assert found == (1, 1)


def test_a_full_queue_is_counted_and_tried_again() -> None:
    live = Live(room=2)
    live.step()
    assert live.deep.shed == {Shed.QUEUE_FULL: BLOCKS.kept - 2}
    live.workers.work()
    live.step(1)
    assert len(live.workers.asked) == 4


@pytest.mark.parametrize("reason", [Shed.HUNG, Shed.ENDED])
def test_a_window_that_ended_its_worker_is_not_fitted_again(reason: Shed) -> None:
    live = Live()
    live.step()
    live.workers.work(reason)
    panel = live.step(1)
    live.step(1)
    assert np.isnan(forecasts(panel)).all()
    assert len(live.workers.asked) == BLOCKS.kept
    assert live.deep.shed == {reason: BLOCKS.kept}


def test_a_window_that_cannot_be_fitted_is_not_fitted_again() -> None:
    live = Live()
    live.step()
    live.workers.work(models=False)
    live.step(1)
    live.step(1)
    assert len(live.workers.asked) == BLOCKS.kept
    assert live.deep.outcomes == {("ets", FitOutcome.NOT_FITTABLE): BLOCKS.kept}
    assert live.deep.series == 0


def test_after_a_restart_the_same_windows_give_the_same_forecasts() -> None:
    whole = Live()
    for _ in range(100):
        before = whole.step(1)
        whole.workers.work()
    restarted = Live()
    restarted.block = whole.block - 1
    restarted.step()
    restarted.workers.work()
    after = restarted.step(1)
    known = np.isfinite(forecasts(after))
    assert known[0, -200:].all()
    np.testing.assert_allclose(forecasts(after)[known], forecasts(before)[known])


def test_a_row_that_another_series_has_now_begins_without_fits() -> None:
    live = Live()
    live.step()
    live.generations = live.generations + 1
    live.step()
    live.workers.work()
    found = forecasts(live.step(1))
    assert np.isfinite(found[0, -100:]).all()
    live.generations = live.generations + 1
    assert np.isnan(forecasts(live.step(1))).all()


def test_a_series_without_history_is_not_fitted() -> None:
    live = Live()
    young = np.where(np.arange(LENGTH) < LENGTH - BLOCKS.least + 1, np.nan, waves())
    for values in (young, np.full((1, LENGTH), np.nan)):
        live.deep.panel(live.rows, live.generations, values, BLOCKS, (BLOCK, BLOCK))
    assert live.workers.asked == []


class Recorded:
    """Histories with the same values for each row."""

    hour_blocks = 12

    def blocks(self, rows: Ints, newest: int) -> tuple[Floats, Floats]:
        values = waves(len(rows), newest)
        return values, values

    def hours(self, rows: Ints, newest: int) -> Floats:
        values = waves(len(rows), (newest + 1) // 12 - 1)
        return np.concatenate([np.full((len(rows), 840 - LENGTH), np.nan), values], axis=1)


def test_published_forecasts_use_models_up_to_the_leads_that_blocks_reach() -> None:
    workers = Workers()
    deep = DeepFits(workers, 100)
    recorded, rows, generations = Recorded(), np.arange(2), np.ones(2, np.int64)
    fast = Forecasts(recorded, 300.0)  # type: ignore[arg-type]
    fitted = Forecasts(recorded, 300.0, deep)  # type: ignore[arg-type]
    horizons, block = (300.0, 3600.0, 86_400.0), BLOCK
    for each in (fast, fitted):
        each.make(rows, generations, block, horizons)
    assert deep.used_series == 0
    assert len(workers.asked) == 2 * BLOCKS.kept
    workers.work()
    for each in (fast, fitted):
        each.make(rows, generations, block + 1, horizons)
    before, after = fast.get(0, 1), fitted.get(0, 1)
    assert before is not None
    assert after is not None
    assert (deep.series, deep.used_series) == (2, 2)
    assert after.bounds[86_400.0] == before.bounds[86_400.0]
    lead, width = 12, [each.bounds[3600.0][2] - each.bounds[3600.0][1] for each in (before, after)]
    assert width[1] < width[0]
    assert abs(after.bounds[3600.0][0] - waves(1, block + 1 + lead)[0, -1]) < 5.0


def test_of_more_rows_than_are_kept_the_most_important_ones_have_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelcast.predictor.cycle.deep_fits.MAX_SERIES", 2)
    live = Live(rows=4)
    live.step()
    assert len(live.workers.asked) == 2 * BLOCKS.kept
    live.workers.work()
    panel = live.step(1)
    assert np.isfinite(forecasts(panel)[:, -1]).tolist() == [True, True, False, False]
    panel.used[:2] = True
    live.deep.note_use(live.rows, panel)
    assert (live.deep.series, live.deep.used_series) == (2, 2)

"""Decorated calls: a candidate may fail, and the program does not notice."""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

from kernelcast.probe.trial_budget import TrialBudget
from kernelcast.probe.tuned import TunedCalls, close, device, finite
from kernelcast.probe.tuned.reports import SearchOutcome, SearchReports
from kernelcast.probe.tuned.shapes import MAX_BUCKETS
from kernelcast.probe.tuned.terms import CallAccounts, CallTerms
from kernelcast.tuning.journal import Journal
from kernelcast.wire.tuning.experience import Experience


@dataclass
class Wanted:
    ordinal: int
    launches: int = 1
    may_wait: bool = True


class Pair(NamedTuple):
    one: Any
    two: Any


class OneByOne:
    """A campaign that runs each configuration once and keeps the fastest."""

    def __init__(self, number: int, launches: int = 1) -> None:
        self.kept = 0
        self.asked = [Wanted(ordinal, launches) for ordinal in range(number)]
        self.times: dict[int, list[float]] = {}
        self.failures: dict[int, str] = {}
        self.refusals: dict[int, str] = {}

    def next(self) -> Wanted | None:
        return self.asked[0] if self.asked else None

    def measured(self, times: list[float]) -> None:
        self.times[self.asked.pop(0).ordinal] = times
        self.kept = min(self.times, key=lambda one: self.times[one][0])

    def failed(self, reason: str) -> None:
        self.failures[self.asked.pop(0).ordinal] = reason

    def refused(self, reason: str) -> None:
        self.refusals[self.asked.pop(0).ordinal] = reason


class Blocks:
    """Block sizes; the clock advances by the time of each call."""

    sizes = (48, 64, 128, 1024)
    start = 0

    def __init__(self, launches: int = 1) -> None:
        self.now = 0.0
        self.launches = launches
        self.campaigns: dict[str, OneByOne] = {}

    def configuration(self, ordinal: int) -> int:
        return self.sizes[ordinal]

    def text(self, ordinal: int) -> str:
        return str(self.sizes[ordinal])

    def find(self, text: str) -> int | None:
        return self.sizes.index(int(text)) if int(text) in self.sizes else None

    def campaign(self, name: str) -> OneByOne:
        return self.campaigns.setdefault(name, OneByOne(len(self.sizes), self.launches))

    def run(self, size: int, *_arguments: Any) -> float:
        if size == 1024:
            raise RuntimeError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
        self.now += {48: 1.0, 64: 0.9, 128: 0.7}[size]
        return 2.0


def tuned(blocks: Blocks, journal: Journal | None = None, **terms: Any) -> TunedCalls[int]:
    return TunedCalls(CallTerms("block", share=1.0, **terms), blocks, journal, clock=lambda: blocks.now)


def test_a_candidate_that_raises_does_not_end_the_program_and_the_fastest_is_kept(tmp_path: Path) -> None:
    """Review: candidate 1024 raised in step 22: traceback, exit, no outcome."""
    blocks = Blocks()
    calls = tuned(blocks, Journal(tmp_path, "training"))
    run = calls.decorate(blocks.run)
    assert [run() for _ in range(10)] == [2.0] * 10
    assert calls.kept() == 128
    assert blocks.campaigns["block"].failures == {3: "RuntimeError: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}
    later = Journal(tmp_path, "training", running=lambda _: False)
    assert later.kept("block") == "128"
    assert "OUT_OF_RESOURCES" in later.banned("block", "1024")


def test_a_restarted_program_has_it_at_its_first_call_and_searches_no_more(tmp_path: Path) -> None:
    blocks = Blocks()
    run = tuned(blocks, Journal(tmp_path, "training")).decorate(blocks.run)
    for _ in range(10):
        run()
    again = Blocks()
    calls = tuned(again, Journal(tmp_path, "training"))
    calls.decorate(again.run)()
    assert again.now == 0.7
    assert calls.kept() == 128


def test_a_banned_candidate_is_not_run_again_in_another_process(tmp_path: Path) -> None:
    Journal(tmp_path, "training").begin("block", "1024")
    blocks, sizes = Blocks(), []
    journal = Journal(tmp_path, "training", running=lambda _: False)
    journal._process = type(journal._process)("node", 1, "1")

    def run(size: int) -> None:
        sizes.append(size)
        blocks.run(size)

    decorated = tuned(blocks, journal).decorate(run)
    for _ in range(10):
        decorated()
    assert 1024 not in sizes
    assert "the process ended" in blocks.campaigns["block"].failures[3]


def test_an_error_that_is_the_programs_own_passes_and_bans_nothing() -> None:
    blocks = Blocks()
    blocks.campaign("block").asked = [Wanted(2)]
    calls = tuned(blocks)

    def fail(_size: int) -> None:
        raise ValueError("wrong shape")

    with pytest.raises(ValueError, match="wrong shape"):
        calls.decorate(fail)()
    assert not calls.banned
    assert blocks.campaigns["block"].refusals == {2: "ValueError: wrong shape"}


def test_a_call_that_cannot_be_repeated_raises_and_its_candidate_is_banned() -> None:
    blocks = Blocks()
    blocks.campaign("block").asked = [Wanted(3)]
    calls = tuned(blocks, repeatable=False)
    with pytest.raises(RuntimeError):
        calls.decorate(blocks.run)()
    assert ("block", 3) in calls.banned
    assert calls.decorate(blocks.run)() == 2.0


def test_wrong_numbers_and_long_calls_ban_a_candidate() -> None:
    blocks = Blocks()
    calls = tuned(blocks, check=close(rtol=1e-3), limit_seconds=0.95)

    def run(size: int) -> list[float]:
        blocks.run(size)
        return [1.0, 3.0 if size == 64 else 2.0]

    blocks.campaign("block").asked = [Wanted(0), Wanted(1), Wanted(2)]
    blocks.sizes = (128, 64, 48)  # type: ignore[assignment]
    assert [calls.decorate(run)() for _ in range(8)] == [[1.0, 2.0]] * 8
    assert "numbers differ" in calls.banned["block", 1]
    assert "a call took 1 s; the limit is 0.95 s" in calls.banned["block", 2]


def test_wrong_numbers_of_a_call_that_is_too_long_do_not_reach_the_program() -> None:
    blocks = Blocks()
    calls = tuned(blocks, check=close(rtol=1e-3), limit_seconds=0.5)

    def run(size: int) -> float:
        blocks.run(size)
        return 999.0 if size == 64 else 2.0

    blocks.campaign("block").asked = [Wanted(0), Wanted(1)]
    blocks.sizes = (128, 64, 48)  # type: ignore[assignment]
    assert [calls.decorate(run)() for _ in range(6)] == [2.0] * 6
    assert "numbers differ" in calls.banned["block", 1]


@pytest.mark.parametrize("wrong_from", [2, 17])
def test_numbers_that_become_wrong_later_are_found_at_a_sampled_call(wrong_from: int) -> None:
    """A candidate's first call alone was checked, although a proof runs hundreds of its calls on other input."""
    blocks = Blocks(launches=40)
    calls = tuned(blocks, check=close(rtol=1e-3))
    seen = {64: 0, 48: 0}

    def run(size: int) -> float:
        blocks.run(size)
        seen[size] += 1
        return 3.0 if size == 64 and seen[64] >= wrong_from else 2.0

    blocks.campaign("block").asked = [Wanted(0), Wanted(1, 40)]
    results = [calls.decorate(run)() for _ in range(41)]
    assert "numbers differ" in calls.banned["block", 1]
    assert seen[64] == 17
    assert results.count(3.0) == 17 - wrong_from


class EndsBefore:
    """A lock whose first holder ran, and ended the campaign, before it could be taken here."""

    def __init__(self, run: Any) -> None:
        self._run, self._lock = run, threading.Lock()
        self.release = self._lock.release

    def acquire(self, *, blocking: bool) -> bool:
        if self._run is not None:
            run, self._run = self._run, None
            for _ in range(9):
                run()
        return self._lock.acquire(blocking=blocking)


def test_a_call_that_waited_for_the_end_of_a_search_begins_no_check() -> None:
    """There is none to make: nothing was kept, or the check is due after an hour."""
    blocks = Blocks()
    calls = tuned(blocks)
    run = calls.decorate(blocks.run)
    calls._lock = EndsBefore(run)  # type: ignore[assignment]
    run()
    bucket = calls._bucket("")
    assert (calls.kept(), bucket.campaign) == (128, None)
    assert bucket.check.is_due(lambda: blocks.now + 2 * 3600)


def test_a_check_finds_values_that_are_no_numbers() -> None:
    assert finite()([1.0, 2.0], [1.0, 2.0])
    assert not finite()([1.0, float("nan")], [1.0, 2.0])
    assert finite()(float("inf"), float("inf"))
    assert not close()([1.0], [1.0, 2.0])


class Buffers:
    """A function that writes its results into arrays of its own, as one with `out=` does."""

    def __init__(self, blocks: Blocks, made: Any) -> None:
        self.blocks, self.made = blocks, made
        self.one, self.two = np.zeros(2), np.zeros(2)

    def run(self, size: int) -> Any:
        self.blocks.run(size if size != 1024 else 48)
        self.one[:] = 999.0 if size == 64 else 2.0
        return self.made((self.one, self.two))


class Outputs(dict[str, Any]):
    """Results whose names are attributes, as of a library's models."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]


def by_name(result: Outputs, reference: Outputs) -> bool:
    return close()([result.one, result.two], [reference.one, reference.two])


def test_wrong_numbers_are_found_in_results_with_names() -> None:
    blocks = Blocks()
    calls = tuned(blocks, check=by_name)
    run = calls.decorate(Buffers(blocks, lambda pair: Outputs(one=pair[0], two=pair[1])).run)
    for _ in range(10):
        run()
    assert "numbers differ" in calls.banned["block", 1]
    assert calls.kept() == 128


@pytest.mark.parametrize("made", [tuple, list, lambda pair: [tuple(pair)], lambda pair: Pair(*pair)])
def test_wrong_numbers_are_found_in_arrays_that_the_repeated_call_overwrites(made: Any) -> None:
    """The sequence was copied, its arrays were not: the kept configuration's numbers were compared with themselves."""
    blocks = Blocks()
    calls = tuned(blocks, check=close())
    buffers = Buffers(blocks, made)
    run = calls.decorate(buffers.run)
    for _ in range(10):
        run()
        assert buffers.one[0] == 2.0
    assert "numbers differ" in calls.banned["block", 1]
    assert calls.kept() == 128


def test_numbers_that_cannot_be_compared_are_named() -> None:
    blocks = Blocks()
    calls = tuned(blocks, check=close())

    def run(size: int) -> None:
        blocks.run(size if size != 1024 else 48)

    for _ in range(5):
        calls.decorate(run)()
    assert "its result cannot be compared: TypeError" in calls.banned["block", 1]


@pytest.mark.parametrize(
    ("result", "reference", "expected"),
    [
        ([1.0, nan, inf], [1.0, nan, inf], True),
        ([1.0, nan, inf], [1.0, nan, -inf], False),
        ([1.0, nan, 2.0], [1.0, 1.0, 2.0], False),
        ([1.0, 1.0, 2.0], [1.0, nan, 2.0], False),
    ],
)
def test_a_nan_or_infinity_is_right_where_the_kept_configuration_has_it(
    result: list[float], reference: list[float], *, expected: bool
) -> None:
    assert close()(result, reference) is expected
    assert close()(np.array(result), np.array(reference)) is expected


def test_a_check_does_not_take_an_overflow_or_another_shape_for_close() -> None:
    saturated = np.array([255], dtype=np.uint8)
    assert not close(atol=1.0)(saturated + np.uint8(1), saturated)
    assert close(atol=1.0)(saturated - np.uint8(1), saturated)
    assert close()(np.array([True]), np.array([True]))
    assert not close()(np.ones(1), np.ones(3))


@pytest.mark.parametrize("items", [lambda _: "many", lambda rows: 1 / rows])
def test_an_error_of_items_ends_the_search_and_does_not_reach_the_program(items: Any) -> None:
    blocks = Blocks()
    reported: list[SearchOutcome] = []
    accounts = CallAccounts(reports=SearchReports(reported.append))
    calls = TunedCalls(CallTerms("block", items=items), blocks, clock=lambda: blocks.now, accounts=accounts)
    assert [calls.decorate(blocks.run)(0) for _ in range(3)] == [2.0] * 3
    assert "the search had an error" in reported[-1].reason
    assert blocks.now == 3.0, "the start has run"


@pytest.mark.parametrize("nothing", [0, -1, nan, inf])
def test_a_call_without_work_is_not_compared(nothing: float) -> None:
    blocks = Blocks()
    calls = tuned(blocks, items=lambda rows: rows)
    run = calls.decorate(blocks.run)
    run(nothing)
    assert not blocks.campaigns["block"].times
    run(2)
    assert blocks.campaigns["block"].times == {0: [0.5]}


def test_each_shape_has_its_own_campaign_and_too_many_run_the_start() -> None:
    blocks = Blocks()
    calls = tuned(blocks, shape=lambda rows: rows)
    run = calls.decorate(blocks.run)
    for rows in range(40):
        for _ in range(8):
            run(rows)
    assert calls.kept(3) == 128
    assert calls.kept(39) == 48


def test_shapes_with_long_texts_share_neither_name_nor_journal(tmp_path: Path) -> None:
    """JAX: the text of a model's parameters has thousands of characters, and only the end of it differs."""
    blocks = Blocks()
    shapes = {end: (*range(100), end) for end in (1, 2)}
    calls = tuned(blocks, Journal(tmp_path, "training"), shape=lambda end: shapes[end])
    for _ in range(10):
        calls.decorate(blocks.run)(1)
    assert calls.kept(shapes[1]) == 128
    again = tuned(Blocks(), Journal(tmp_path, "training"), shape=lambda end: shapes[end])
    assert (again.kept(shapes[1]), again.kept(shapes[2])) == (128, 48)
    names = {bucket.name for bucket in (calls._bucket(shapes[1]), calls._bucket(shapes[2]))}
    assert [len(name) <= 256 for name in names] == [True, True]


def test_a_shape_that_cannot_be_hashed_counts_by_its_text() -> None:
    blocks = Blocks()
    calls = tuned(blocks, shape=lambda rows: [rows, rows])
    run = calls.decorate(blocks.run)
    for _ in range(8):
        run(3)
    assert calls.kept([3, 3]) == 128
    assert calls.kept([4, 4]) == 48


def test_trial_calls_cost_a_share_of_the_time_only() -> None:
    blocks = Blocks(launches=50)
    blocks.sizes = (128, 48, 48, 48)
    calls = TunedCalls(CallTerms("block", share=0.01), blocks, clock=lambda: blocks.now)
    run = calls.decorate(blocks.run)
    for _ in range(3000):
        run()
    wasted = sum(len(times) for ordinal, times in blocks.campaigns["block"].times.items() if ordinal) * 0.3
    assert wasted <= 0.01 * blocks.now + 21 * 0.7


@pytest.mark.parametrize(("reverted", "expected"), [("", 128), ("hints.stop exists", 48)])
def test_what_was_kept_runs_although_nothing_may_be_tried_now(tmp_path: Path, reverted: str, expected: int) -> None:
    """The budget is spent, or a graph is captured; only an order to stop takes a kept configuration back."""
    blocks = Blocks()
    run = tuned(blocks, Journal(tmp_path, "training")).decorate(blocks.run)
    for _ in range(10):
        run()
    later = Journal(tmp_path, "training", running=lambda _: False)
    calls = TunedCalls(
        CallTerms("block", share=1.0),
        blocks,
        later,
        stopped=lambda: "the budget for trials is spent",
        clock=lambda: blocks.now,
        accounts=CallAccounts(reverted=lambda: reverted),
    )
    calls.decorate(blocks.run)()
    assert calls.kept() == expected


def test_stop_and_an_error_of_the_campaign_leave_the_kept_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = Blocks()
    stopped = TunedCalls(CallTerms("block"), blocks, stopped=lambda: "hints.stop exists", clock=lambda: blocks.now)
    for _ in range(5):
        stopped.decorate(blocks.run)()
    assert blocks.now == 5.0

    def broken(_self: object) -> Iterator[None]:
        raise ZeroDivisionError

    monkeypatch.setattr(OneByOne, "next", broken)
    calls = tuned(blocks)
    assert calls.decorate(blocks.run)() == 2.0
    assert calls.failures == 1


def test_a_call_of_another_shape_within_a_trial_is_not_blocked() -> None:
    """A recursive function: its inner calls have shapes of their own, and come while the outer call is a trial."""
    blocks, done = Blocks(), threading.Event()
    calls = tuned(blocks, shape=lambda size: size)

    def halve(block: int, size: int) -> int:
        blocks.run(block if block != 1024 else 48)
        return size if size == 1 else run(size // 2)

    run = calls.decorate(halve)

    def call() -> None:
        run(64)
        done.set()

    threading.Thread(target=call, daemon=True).start()
    assert done.wait(10), "the program waits for itself"


def test_shapes_beyond_a_limit_take_no_memory() -> None:
    blocks = Blocks()
    calls = tuned(blocks, shape=lambda size: size)
    run = calls.decorate(blocks.run)
    for size in range(MAX_BUCKETS + 100):
        assert run(size) == 2.0
    assert len(calls._buckets) == MAX_BUCKETS


class Uncopied(float):
    """A result that refuses every copy."""

    def __copy__(self) -> None:
        raise TypeError("there is one of it")


@pytest.mark.parametrize("made", [Uncopied, lambda number: [number, threading.Lock()]])
def test_a_result_that_cannot_be_copied_ends_the_search_and_bans_nothing(made: Any, tmp_path: Path) -> None:
    blocks, journal = Blocks(), Journal(tmp_path, "training")
    calls = tuned(blocks, journal, check=lambda one, two: one == two)
    sizes: list[int] = []

    def run(size: int) -> Any:
        sizes.append(size)
        return made(blocks.run(size))

    decorated = calls.decorate(run)
    for _ in range(10):
        decorated()
    assert sizes == [48, 64, *[48] * 9]
    later = Journal(tmp_path, "training", running=lambda _: False)
    assert not calls.banned
    assert not any(later.banned("block", str(size)) for size in Blocks.sizes)


@dataclass(frozen=True)
class Locked:
    """A result with arrays and a lock, as of a library's models."""

    lock: Any
    one: Any
    parts: list[Any]


def locked_close(result: Locked, reference: Locked) -> bool:
    return close()([result.one, *result.parts], [reference.one, *reference.parts])


def test_wrong_numbers_are_found_in_arrays_of_an_object_that_holds_a_lock() -> None:
    blocks = Blocks()
    calls = tuned(blocks, check=locked_close)
    lock = threading.Lock()
    run = calls.decorate(Buffers(blocks, lambda pair: Locked(lock, pair[0], [pair[1]])).run)
    for _ in range(10):
        run()
    assert calls.banned.keys() == {("block", 1)}
    assert calls.kept() == 128


@dataclass
class Layer:
    """A part of a result, which knows the whole."""

    lock: Any
    values: Any
    whole: Any = None


@dataclass
class Layers:
    first: Layer
    others: list[Layer]

    @classmethod
    def made(cls, pair: Any) -> "Layers":
        lock = threading.Lock()
        whole = cls(Layer(lock, pair[0]), [Layer(lock, pair[1])])
        whole.first.whole = whole.others[0].whole = whole
        return whole


@pytest.mark.parametrize("part", [lambda one: one.first.values, lambda one: one.others[0].whole.first.values])
def test_wrong_numbers_are_found_in_objects_within_a_result(part: Any) -> None:
    """The candidate's arrays, which the repeated call overwrites, were compared with themselves, and it was kept."""
    blocks = Blocks()
    calls = tuned(blocks, check=lambda one, two: close()(part(one), part(two)))
    run = calls.decorate(Buffers(blocks, Layers.made).run)
    for _ in range(10):
        run()
    assert calls.banned.keys() == {("block", 1)}
    assert calls.kept() == 128


class Handle:
    """A part of a result that frees what it has when it is deleted, as a stream of a library does."""

    freed = 0

    def __del__(self) -> None:
        Handle.freed += 1


def test_a_part_that_frees_a_resource_is_not_copied() -> None:
    blocks, handle = Blocks(), Handle()
    run = tuned(blocks, check=locked_close).decorate(Buffers(blocks, lambda pair: Locked(handle, pair[0], [])).run)
    for _ in range(10):
        run()
    assert Handle.freed == 0


def test_a_result_whose_own_copy_needs_an_argument_is_copied_all_the_same() -> None:
    class Named:
        def __init__(self, value: float) -> None:
            self.value = value

        def copy(self, target: str) -> str:
            return target

    blocks = Blocks()
    calls = tuned(blocks, check=lambda one, two: one.value == two.value)
    run = calls.decorate(lambda size: Named(blocks.run(size)))
    assert [run().value for _ in range(10)] == [2.0] * 10
    assert calls.banned.keys() == {("block", 3)}


def test_findings_about_other_spaces_do_not_displace_those_about_this_one() -> None:
    blocks = Blocks()
    calls = tuned(blocks)
    found = Experience("training", "block", "H100", "v1", failed=("64",))
    for space in ("block", *(f"space {number}" for number in range(100))):
        calls.learn(replace(found, space=space))
    run = calls.decorate(blocks.run)
    for _ in range(10):
        run()
    assert blocks.campaigns["block"].failures[1] == "it failed on another node"


@pytest.mark.parametrize("where", ["prepare", "run", "limit", "check"])
def test_a_candidate_that_fails_late_costs_the_search_its_share(where: str) -> None:
    """Fifty candidates of which each takes 20 s to fail; the kept configuration takes 0.1 s."""

    class Failing(Blocks):
        sizes = tuple(range(50))  # type: ignore[assignment]

    blocks, lost = Failing(), 0.0
    budget = TrialBudget(1.0, lambda: round(blocks.now * 1e9))

    def slow(size: int) -> None:
        nonlocal lost
        lost += 20.0
        blocks.now += 20.0
        if where in {"prepare", "run"}:
            raise RuntimeError(f"{size} does not fit")

    def run(size: int) -> float:
        blocks.now += 0.1
        if size and where != "prepare":
            slow(size)
        return 1.0 + size

    terms = CallTerms(
        "block",
        share=0.01,
        prepare=lambda size: slow(size) if size and where == "prepare" else None,
        limit_seconds=10.0 if where == "limit" else inf,
        check=close() if where == "check" else None,
    )
    calls = TunedCalls(terms, blocks, clock=lambda: blocks.now, accounts=CallAccounts(budget)).decorate(run)
    for _ in range(60_000):
        calls()
    assert 0.005 < lost / blocks.now < 0.02
    assert budget.lost_ns == pytest.approx(lost * 1e9, rel=0.05)


def test_a_kept_configuration_that_cannot_be_compiled_beforehand_runs_all_the_same() -> None:
    """Review: the error of `prepare` ended the program, whose call works without a probe."""
    blocks = Blocks()

    def prepare(size: int) -> None:
        if size == 48:
            raise ValueError("no stream to compile on")

    calls = tuned(blocks, prepare=prepare)
    run = calls.decorate(blocks.run)
    assert [run() for _ in range(10)] == [2.0] * 10
    campaign = blocks.campaigns["block"]
    assert campaign.refusals == {0: "it could not be prepared: ValueError: no stream to compile on"}
    assert set(campaign.times) == {1, 2}
    assert calls.banned.keys() == {("block", 3)}


@dataclass(frozen=True)
class Array:
    """An array on a device."""

    device: Any
    is_cuda = True


def test_compiling_for_a_second_device_is_no_time_of_a_configuration() -> None:
    """A program that alternates between two GPUs compiled a candidate for the second one within its timed call."""
    blocks = Blocks(launches=2)
    compiled = set()

    def compile_(size: int, given: dict[str, Array]) -> None:
        if (size, given["x"].device) not in compiled:
            compiled.add((size, given["x"].device))
            blocks.now += 30.0

    def run(size: int, given: dict[str, Array]) -> float:
        compile_(size, given)
        return blocks.run(size)

    calls = TunedCalls(
        CallTerms("block", share=1e6, limit_seconds=10.0, prepare=compile_, devices=device.devices_of),
        blocks,
        clock=lambda: blocks.now,
    )
    decorated = calls.decorate(run)
    for number in range(12):
        decorated({"x": Array(f"cuda:{number % 2}")})
    times = {one: pytest.approx(seconds) for one, seconds in {0: [1.0] * 2, 1: [0.9] * 2, 2: [0.7] * 2}.items()}
    assert blocks.campaigns["block"].times == times
    assert calls.banned.keys() == {("block", 3)}


class Library:
    """PyTorch or CuPy with two GPUs, of which the first is the current one; the clock shows what was waited for."""

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks
        self.cuda, self.runtime, self.Tensor, self.ndarray = self, self, Array, Array
        self.present, self.work, self.waits = 0, [0.0, 0.0], 0

    def is_initialized(self) -> bool:
        return True

    def current_device(self) -> int:
        return self.present

    getDevice = current_device  # noqa: N815  CuPy's name

    def current_stream(self, device: "Gpu | None" = None) -> Any:
        return SimpleNamespace(synchronize=lambda: self.synchronize(device.id if device else self.present))

    get_current_stream = current_stream

    def synchronize(self, device: int) -> None:
        self.waits += 1
        self.blocks.now += self.work[device]
        self.work[device] = 0.0

    def run(self, size: int, given: Array) -> float:
        began = self.blocks.now
        result = self.blocks.run(size)
        self.work[given.device.id] += self.blocks.now - began
        self.blocks.now = began
        return result


class Gpu:
    """A device, with the names of both libraries; within `with` it is CuPy's current one, and like that has no hash."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, library: Library, number: int) -> None:
        self.library = library
        self.id = self.index = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gpu) and self.id == other.id

    def __enter__(self) -> None:
        self.library.present = self.id

    def __exit__(self, *_: object) -> None:
        self.library.present = 0


@pytest.mark.parametrize("name", ["torch", "cupy"])
@pytest.mark.parametrize("number", [0, 1])
def test_the_work_of_a_call_on_another_device_than_the_current_one_is_waited_for(
    name: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of its launches alone was compared."""
    blocks = Blocks()
    library = Library(blocks)
    for other in ("torch", "cupy"):
        monkeypatch.setitem(sys.modules, other, library if name == other else None)
    run = tuned(blocks, wait=device.wait).decorate(library.run)
    run(Array(Gpu(library, number)))
    assert library.waits == 2 * (1 + number), "each stream, once before the call and once after it"
    for _ in range(10):
        run(Array(Gpu(library, number)))
    times = {one: pytest.approx([seconds]) for one, seconds in enumerate((1.0, 0.9, 0.7))}
    assert blocks.campaigns["block"].times == times
    assert library.present == 0


def test_a_wait_that_fails_ends_the_search_and_does_not_reach_the_program() -> None:
    """On a real GPU every call of a tuned kernel raised: CuPy's devices cannot be hashed."""
    blocks, outcomes = Blocks(), list[SearchOutcome]()

    def wait(_arguments: Any) -> Callable[[Any], None]:
        raise TypeError("unhashable type: 'cupy.cuda.device.Device'")

    accounts = CallAccounts(reports=SearchReports(outcomes.append))
    calls = TunedCalls(CallTerms("block", share=1e6, wait=wait), blocks, clock=lambda: blocks.now, accounts=accounts)
    run = calls.decorate(blocks.run)
    assert [run() for _ in range(10)] == [2.0] * 10
    assert blocks.now == 10 * 1.0, "each call ran the start"
    assert "unhashable type" in outcomes[-1].reason


def test_arguments_that_contain_themselves_are_looked_at_once() -> None:
    layers: list[Any] = [Array("cuda:1")]
    layers.append({"all": layers})
    assert "cuda:1" in device.devices_of((layers,))


def test_devices_that_cannot_be_asked_for_do_not_reach_the_program() -> None:
    class Broken:
        @property
        def device(self) -> str:
            raise RuntimeError("array has been deleted")

    blocks, prepared = Blocks(), []
    calls = tuned(blocks, prepare=lambda size, _given: prepared.append(size), devices=device.devices_of)
    run = calls.decorate(blocks.run)
    assert [run(Broken()) for _ in range(10)] == [2.0] * 10
    assert prepared == list(Blocks.sizes)
    assert calls.kept() == 128


class Process:
    """The id of this process, which a fork changes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pid = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: self.pid)

    def fork(self) -> None:
        self.pid += 1


def test_a_forked_child_tries_nothing_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Review: it tried 13 configurations in 300 calls, under the identity of its parent."""
    process, blocks, outcomes = Process(monkeypatch), Blocks(launches=3), list[SearchOutcome]()
    journal = Journal(tmp_path, "training")
    accounts = CallAccounts(reports=SearchReports(outcomes.append))
    terms = CallTerms("block", share=1.0, shape=len)
    calls = TunedCalls(terms, blocks, journal, clock=lambda: blocks.now, accounts=accounts)
    seen: list[int] = []

    def run(size: int, values: list[int]) -> float:
        seen.append(size)
        return blocks.run(size, values)

    tuned_run = calls.decorate(run)
    for _ in range(5):
        tuned_run([1])
    assert set(seen) == {48, 64}
    written, reported = journal.path.read_text(), len(outcomes)
    process.fork()
    seen.clear()
    for values in ([1], [1, 2]):
        for _ in range(50):
            tuned_run(values)
    assert set(seen) == {48}
    assert (journal.path.read_text(), len(outcomes)) == (written, reported)


@pytest.mark.parametrize("fails", [False, True])
def test_a_child_that_is_forked_within_a_candidates_call_reports_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    process, blocks, outcomes = Process(monkeypatch), Blocks(), list[SearchOutcome]()
    journal = Journal(tmp_path, "training")
    accounts = CallAccounts(reports=SearchReports(outcomes.append))
    calls = TunedCalls(CallTerms("block", share=1.0), blocks, journal, clock=lambda: blocks.now, accounts=accounts)
    written = []

    def run(size: int) -> float:
        if size == 64:
            written.append(journal.path.read_text())
            process.fork()
            if fails:
                raise RuntimeError("CUDA cannot be used in a forked child")
        return blocks.run(size)

    tuned_run = calls.decorate(run)
    reported = [(tuned_run(), len(outcomes)) for _ in range(20)]
    assert len(written) == 1
    assert journal.path.read_text() == written[0]
    assert {result for result, _ in reported} == {2.0}
    assert len({number for _, number in reported}) == 1, "the beginning of the search only"

"""Regions of a program."""

import asyncio
import sys
import threading
from collections.abc import Generator, Iterator
from types import ModuleType

import pytest

from kernelcast.probe.recording import nvtx, regions
from kernelcast.probe.recording.regions import RegionTable, current, region, table


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    table.forget()
    list(table.growth(0))
    yield
    assert current.get() is None
    table.forget()


def walls() -> dict[str, int]:
    return {row.name: row.wall_ns for row in table.growth(0)}


def test_nested_regions_have_their_own_wall_time_and_a_recursion_counts_once() -> None:
    with region("outer"), region("inner"), region("outer"):
        stay = current.get()
        assert stay is not None
        assert stay.totals.name == "outer"
    found = walls()
    assert found["outer"] >= found["inner"] > 0
    assert walls() == {}


def test_a_region_decorates_a_function_and_passes_its_result_and_exceptions() -> None:
    @region("decorated")
    def work(value: int) -> int:
        if value < 0:
            raise ValueError(value)
        return value + 1

    assert work(1) == 2
    with pytest.raises(ValueError, match="-1"):
        work(-1)
    assert walls()["decorated"] > 0
    assert work.__name__ == "work"


def test_threads_have_their_own_innermost_region() -> None:
    seen: list[object] = []
    with region("main"):
        thread = threading.Thread(target=lambda: seen.append(current.get()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_a_generator_that_ends_elsewhere_leaves_no_region_behind() -> None:
    def steps() -> Generator[int, None, None]:
        with region("generator"):
            yield 1

    one = steps()
    next(one)
    one.close()
    assert current.get() is None
    assert walls()["generator"] > 0


def test_names_beyond_the_limit_are_other() -> None:
    small = RegionTable(2)
    for name in ("a", "b", "c", "d"):
        small.totals(name).on(0).launches += 1
    assert {row.name: row.launches for row in small.growth(0)} == {"a": 1, "b": 1, "other": 2}


def test_growth_is_reported_once_and_by_device() -> None:
    small = RegionTable()
    totals = small.totals("a")
    totals.on(1).launches += 3
    totals.on(1).gpu_ns += 7.5
    totals.wall_ns += 9
    assert {(row.device, row.launches, row.gpu_ns, row.wall_ns) for row in small.growth(0)} == {
        (0, 0, 0, 9),
        (1, 3, 7, 0),
    }
    totals.on(1).gpu_ns += 0.5
    assert [(row.device, row.launches, row.gpu_ns) for row in small.growth(0)] == [(1, 0, 1)]


def test_nvtx_ranges_become_regions_and_foreign_pops_end_none(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch.cuda.nvtx")
    calls: list[str] = []
    torch.__dict__.update(range_push=calls.append, range_pop=lambda: calls.append("pop"))
    monkeypatch.setitem(sys.modules, "torch.cuda.nvtx", torch)
    watch = nvtx.watch_nvtx()
    torch.range_push("step")
    assert current.get().totals.name == "step"  # type: ignore[union-attr]
    torch.range_pop()
    with region("own"):
        torch.range_pop()
        assert current.get().totals.name == "own"  # type: ignore[union-attr]
        torch.range_push("never popped")
    watch.stop()
    assert calls == ["step", "pop", "pop", "never popped"]
    assert walls()["step"] > 0


def test_ranges_that_a_program_never_pops_make_no_push_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception between push and pop, or a pop on another thread, as in each step."""

    def depth() -> int:
        found, entry = 0, current.get()
        while entry is not None:
            found, entry = found + 1, entry.outer
        return found

    torch = ModuleType("torch.cuda.nvtx")
    torch.__dict__.update(range_push=lambda _name: None, range_pop=lambda: None)
    monkeypatch.setitem(sys.modules, "torch.cuda.nvtx", torch)
    nvtx.watch_nvtx().stop()
    with region("training"):
        for number in range(1000):
            torch.range_push(f"step {number % 2}")
            torch.range_push("forward")
            torch.range_pop()
        assert depth() < 100
        assert current.get().totals.name == "step 1"  # type: ignore[union-attr]
    assert current.get() is None
    spent = walls()
    assert spent["training"] > 0
    assert spent["forward"] > 0


def test_a_region_decorates_a_coroutine_function_and_lasts_until_it_ends() -> None:
    seen: list[object] = []

    @region("coroutine")
    async def work() -> int:
        await asyncio.sleep(0)
        seen.append(current.get())
        return 7

    async def other() -> None:
        seen.append(current.get())

    async def both() -> int:
        result, _ = await asyncio.gather(work(), other())
        return result

    assert asyncio.run(both()) == 7
    other_saw, work_saw = seen
    assert other_saw is None
    assert work_saw.totals.name == "coroutine"  # type: ignore[attr-defined]
    assert work.__name__ == "work"


def test_a_region_decorates_a_generator_function_and_lasts_while_it_runs() -> None:
    seen: list[str] = []

    def note() -> None:
        entry = current.get()
        seen.append(entry.totals.name if entry else "")

    @region("generator")
    def work() -> Generator[int, str, str]:
        note()
        received = yield 1
        note()
        try:
            yield len(received)
        except KeyError:
            note()
        return "end"

    one = work()
    assert next(one) == 1
    note()
    assert one.send("four") == 4
    with pytest.raises(StopIteration, match="end"):
        one.throw(KeyError())
    assert seen == ["generator", "", "generator", "generator"]
    closed = work()
    next(closed)
    closed.close()
    assert walls()["generator"] > 0


def test_a_generator_that_ends_within_another_region_ends_its_own() -> None:
    def load() -> Generator[int, None, None]:
        with region("load"):
            yield 1

    one = load()
    next(one)
    with region("train"):
        assert list(one) == []
        assert current.get().totals.name == "train"  # type: ignore[union-attr]
    assert current.get() is None
    assert set(walls()) == {"load", "train"}


def test_a_region_that_ends_in_another_thread_ends_no_other_and_runs_no_longer() -> None:
    opened = region("opened here")
    thread = threading.Thread(target=opened.__enter__)
    thread.start()
    thread.join()
    with region("train"):
        opened.__exit__(None, None, None)
        assert current.get().totals.name == "train"  # type: ignore[union-attr]
    assert walls()["opened here"] > 0
    assert "opened here" not in walls()


def test_the_wall_time_of_an_open_region_grows_and_its_end_adds_only_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [1000]
    monkeypatch.setattr(regions, "perf_counter_ns", lambda: now_ns[0])
    with region("training"), region("training"):
        for _ in range(3):
            now_ns[0] += 5
            assert walls() == {"training": 5}
        now_ns[0] += 2
    assert walls() == {"training": 2}


def test_wall_time_waits_for_the_device_and_is_reported_once() -> None:
    small = RegionTable()
    small.totals("load").wall_ns += 9
    assert list(small.growth(None)) == []
    assert [(row.device, row.wall_ns) for row in small.growth(3)] == [(3, 9)]
    small.totals("load").wall_ns += 1
    assert [(row.device, row.wall_ns) for row in small.growth(0)] == [(0, 1)]

"""Spaces and tunables that a program declares before `start()`, as decorators at import do."""

from collections.abc import Iterator
from pathlib import Path
from time import time_ns
from typing import Any

import pytest

from kernelcast import probe as kp
from kernelcast.probe.tuned.space import ProgramSpace
from kernelcast.probe.tuned.waits import MOST_STEPS
from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import Journal
from kernelcast.wire.events import Hint, HintMode, to_event

VALUES = {"x": [1, 2, 3]}


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("KERNELCAST_TUNING_DIRECTORY", str(tmp_path))
    yield tmp_path
    kp.stop()


def started(directory: Path) -> kp.Probe:
    return kp.start("train", socket_path=str(directory / "none"), source="simulated", method="manual")


def test_a_function_that_is_decorated_at_import_is_tuned_once_the_probe_starts(directory: Path) -> None:
    """Review: the example in docs/tuning.md has this order, and nothing was ever tried, silently."""
    seen: list[int] = []

    @kp.space("conv", VALUES, start={"x": 1}).tuned(share=1e6)  # type: ignore[untyped-decorator]
    def run(c: Any) -> None:
        seen.append(c.x)

    for _ in range(5):
        run()
    assert set(seen) == {1}
    running = started(directory)
    for _ in range(6000):
        run()
    assert set(seen) == {1, 2, 3}
    assert running.outcomes[0].tunable == "conv.run"


def test_a_kept_configuration_is_in_force_from_the_first_call_after_the_start_on(directory: Path) -> None:
    Journal(directory, "train").end("conv.run", "[3]", Decision.KEPT)

    @kp.space("conv", VALUES, start={"x": 1}).tuned
    def run(c: Any) -> int:
        return int(c.x)

    assert run() == 1
    started(directory)
    assert run() == 3


def steps(feed: ProgramSpace, number: int) -> list[int]:
    found = []
    for _ in range(number):
        found.append(feed.x)
        kp.step()
    return found


def test_a_space_per_step_changes_at_the_first_step_and_not_within_one(directory: Path) -> None:
    Journal(directory, "train").end("feed", "[3]", Decision.KEPT)
    feed = kp.space("feed", VALUES, start={"x": 1}, per="step", share=1e6)
    assert steps(feed, 3) == [1] * 3
    started(directory)
    assert steps(feed, 3) == [1, 3, 3]
    assert set(steps(feed, MOST_STEPS + 3)) >= {1, 3}, "checked against the start, once its short steps were watched"


def test_hints_change_a_tunable_that_was_declared_at_import(directory: Path) -> None:
    """It kept its value for ever, and no dashboard or hint knew of it."""
    block = kp.tunable("block", [64, 128], 64)
    running = started(directory)
    assert [one.name for one in running._tunables.all()] == ["block"]
    hint = Hint("h1", "train", "block", "128", 2 * time_ns(), mode=HintMode.APPLY)
    running._receiver.receive(to_event(hint, source="/test", time_ns=1))
    assert block.value == 64
    kp.step()
    assert block.value == 128


def test_the_kept_value_of_a_tunable_is_in_force_from_the_next_step_on(directory: Path) -> None:
    for name in ("block", "workers", "bucket"):
        Journal(directory, "train").end(name, "128", Decision.KEPT)
    block = kp.tunable("block", [64, 128], 64)
    workers = kp.tunable("workers", [64, 128], 64, granularity="epoch")
    bucket = kp.tunable("bucket", [64, 128], 64, granularity="restart")
    started(directory)
    assert (block.value, workers.value) == (64, 64)
    kp.step()
    assert (block.value, workers.value) == (128, 64)
    kp.step(epoch=True)
    assert (block.value, workers.value, bucket.value) == (128, 128, 64)


def test_the_value_of_a_hint_stays_in_force_where_another_was_kept_before(directory: Path) -> None:
    """The outcome said that 128 was applied as asked, and 256 was in force."""
    Journal(directory, "train").end("block", "256", Decision.KEPT)
    block = kp.tunable("block", [64, 128, 256], 64)
    running = started(directory)
    hint = Hint("h1", "train", "block", "128", 2 * time_ns(), mode=HintMode.APPLY)
    running._receiver.receive(to_event(hint, source="/test", time_ns=1))
    kp.step()
    assert (running.outcomes[-1].state.value, running.outcomes[-1].value) == ("applied", "128")
    assert block.value == 128


def test_what_is_restored_once_is_not_asked_at_later_steps(directory: Path) -> None:
    """64 tunables made each later step 6 us longer."""
    early = [kp.tunable(f"block{number}", [64, 128], 64) for number in range(8)]
    epochs = kp.tunable("workers", [2, 4], 2, granularity="epoch")
    running = started(directory)
    kp.step()
    assert len(running._receiver._first_steps) == 1
    kp.step(epoch=True)
    assert not running._receiver._first_steps
    assert not running._receiver._searches
    assert [one.value for one in (*early, epochs)] == [*[64] * 8, 2]


def test_a_tunable_that_nobody_uses_any_more_is_not_announced(directory: Path) -> None:
    kp.tunable("block", [64, 128], 64)
    assert not list(started(directory)._tunables.all())


def test_a_space_per_epoch_does_not_change_within_the_first_epoch(directory: Path) -> None:
    Journal(directory, "train").end("feed", "[3]", Decision.KEPT)
    feed = kp.space("feed", VALUES, start={"x": 1}, per="epoch")
    started(directory)
    assert steps(feed, 4) == [1] * 4
    kp.step(epoch=True)
    assert feed.x == 3


def test_what_cannot_be_tuned_any_more_is_named(directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Alone:
        def all_gather(self, text: str) -> list[str]:
            return [text]

    block = kp.tunable("block", [1, 2], 1, scope="collective", group=Alone())
    spaces = [
        kp.space("together", VALUES, start={"x": 1}, per="step", scope="collective", group=Alone()),
        kp.space("foreign", VALUES, start={"x": 1}, search="nowhere"),
    ]
    started(directory)
    kp.step()
    assert (block.value, *(one.x for one in spaces)) == (1, 1, 1)
    shown = caplog.text
    assert "tunable block is collective, so that its ranks must declare it after start()" in shown
    assert "space together is collective, so that its ranks must declare it after start()" in shown
    assert "nowhere" in shown


def test_a_space_that_nobody_uses_any_more_is_not_kept(directory: Path) -> None:
    for _ in range(3):
        kp.space("conv", VALUES, start={"x": 1}, per="step")
    running = started(directory)
    assert running._receiver._searches == ()

"""A space of joint configurations in a program: the example of an HPC engineer, with a plain callable."""

import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kernelcast import probe as kp
from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.tuned.space import ProgramSpace
from kernelcast.tuning.experiment import Decision
from kernelcast.tuning.journal import Journal
from kernelcast.wire.errors import SpaceError

PARAMETERS = {"bx": [16, 32, 64, 128], "by": [1, 2, 4, 8], "tile": [1, 2, 4]}
START = {"bx": 32, "by": 4, "tile": 1}


class Device:
    """Runs a kernel whose time depends on its configuration; two configurations fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.random = Random(1)
        self.ran: list[tuple[int, int, int]] = []
        monkeypatch.setattr("kernelcast.probe.tuned.shapes.perf_counter", lambda: self.now)

    def seconds(self, c: Any) -> float:
        return float((1 + abs(c.bx - 64) / 64) * (1 + abs(c.by - 2) / 4) * (1.2 if c.tile == 1 else 1.0))

    def run(self, c: Any) -> list[float]:
        self.ran.append((c.bx, c.by, c.tile))
        if c.bx * c.tile == 512:
            raise RuntimeError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
        self.now += self.seconds(c) * self.random.uniform(0.99, 1.01) * 1e-3
        return [1.0, 2.0 if c.bx != 16 else float("nan")]


def started(directory: Path) -> Probe:
    return Probe(ProbeSettings("hpc", socket_path=str(directory / "none"), state_directory=str(directory)), {})


def declared(probe: Probe) -> ProgramSpace:
    return probe.space("conv", PARAMETERS, start=START, valid=lambda c: c.bx * c.by <= 512, check=kp.close(rtol=1e-3))


def test_the_best_configuration_is_found_proved_and_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Review: a launch that failed ended the program, and a space of joint values could not be declared."""
    device, probe = Device(monkeypatch), started(tmp_path)
    conv = declared(probe)

    @conv.tuned(share=1.0)  # type: ignore[untyped-decorator]
    def run(c: Any) -> list[float]:
        return device.run(c)

    assert (conv.bx, conv.by, conv.tile) == (32, 4, 1)
    results = [run() for _ in range(1500)]
    assert all(result == [1.0, 2.0] for result in results)
    assert (conv.bx, conv.by) == (64, 2)
    assert conv.tile in (2, 4)
    assert (128, 8, 4) not in device.ran
    assert device.ran.count((128, 4, 4)) == device.ran.count((128, 1, 4)) == 1
    probe.abandon()
    known = Journal(tmp_path, "hpc").kept("conv.run")
    assert known == f"[64,2,{conv.tile}]"

    again = started(tmp_path)
    conv = declared(again)
    device.ran.clear()
    conv.tuned(run.__wrapped__, share=1.0)()
    assert device.ran == [(64, 2, conv.tile), (32, 4, 1)], "its first numbers are compared with those of the start"
    again.abandon()


def test_compiling_a_configuration_is_not_part_of_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Review: the compile time of a first visit was inside the ratio, so that compiled candidates looked slow."""
    device, probe = Device(monkeypatch), started(tmp_path)
    probe.recorder.budget.grant(1e15)
    conv, compiled = declared(probe), set()

    def compile_once(c: Any) -> None:
        if c not in compiled:
            compiled.add(c)
            device.now += 10.0

    @conv.tuned(share=1e6, prepare=compile_once)  # type: ignore[untyped-decorator]
    def run(c: Any) -> list[float]:
        compile_once(c)
        return device.run(c)

    for _ in range(1500):
        run()
    assert (conv.bx, conv.by) == (64, 2)
    probe.abandon()


def test_a_call_that_changes_its_arguments_is_undone_before_it_is_repeated(tmp_path: Path) -> None:
    probe = started(tmp_path)
    conv = probe.space("conv", {"step": [1, 2, 3]}, start={"step": 1})

    def undo(_c: Any, values: list[int]) -> Callable[[], object]:
        before = list(values)
        return lambda: values.__setitem__(slice(None), before)

    @conv.tuned(share=1e6, undo=undo)  # type: ignore[untyped-decorator]
    def add(c: Any, values: list[int]) -> None:
        values[0] += 1
        if c.step != 1:
            raise RuntimeError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")

    values = [0]
    for _ in range(50):
        add(values)
    assert values == [50]
    probe.abandon()


def test_without_a_probe_the_start_runs_and_nothing_is_tried() -> None:
    conv = kp.space("conv", PARAMETERS, start=START)
    seen = []
    run = conv.tuned(lambda c: seen.append((c.bx, c.by, c.tile)))
    for _ in range(50):
        run()
    assert set(seen) == {(32, 4, 1)}
    assert conv.configuration["bx"] == 32


def test_the_switch_of_the_environment_and_the_stop_file_try_nothing(tmp_path: Path) -> None:
    for environ, stop in (({"KERNELCAST_HINTS": "off"}, False), ({}, True)):
        if stop:
            (tmp_path / "hints.stop").touch()
        probe = Probe(ProbeSettings("hpc", socket_path=str(tmp_path / "none"), state_directory=str(tmp_path)), environ)
        seen: list[int] = []
        run = declared(probe).tuned(lambda c, seen=seen: seen.append(c.bx))
        for _ in range(50):
            run()
        assert set(seen) == {32}
        probe.abandon()


def test_a_check_that_cannot_repeat_the_call_tries_nothing_and_says_so(tmp_path: Path) -> None:
    """The check was left out: a configuration with wrong numbers was kept."""
    Journal(tmp_path, "hpc").end("conv.run", "[16,4,1]", Decision.KEPT)
    probe = started(tmp_path)

    @declared(probe).tuned(share=1e9, repeatable=False)  # type: ignore[untyped-decorator]
    def run(c: Any) -> float:
        return 2.0 if dict(c) == START else 999.0

    assert {run() for _ in range(300)} == {2.0}
    (_, last) = probe.outcomes
    probe.abandon()
    assert last.tunable == "conv.run"
    assert "check compares a repeated call, and repeatable=False (or donate_argnames) forbids that" in last.reason


def test_a_start_that_is_not_valid_is_refused() -> None:
    with pytest.raises(SpaceError, match="not valid"):
        kp.space("conv", PARAMETERS, start=START, valid=lambda c: c.bx > 32)
    with pytest.raises(AttributeError, match="no parameter"):
        _ = kp.space("conv", PARAMETERS, start=START).unknown


class Streams:
    """`cupy.cuda` of a process whose driver refuses every question."""

    @staticmethod
    def get_current_stream() -> Any:
        raise RuntimeError("CUDA_ERROR_UNKNOWN")


def test_a_driver_that_refuses_a_question_ends_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device, probe = Device(monkeypatch), started(tmp_path)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=Streams))
    run = declared(probe).tuned(device.run)
    assert [run() for _ in range(10)] == [[1.0, 2.0]] * 10
    assert set(device.ran) == {(32, 4, 1)}, "it is not known whether a graph is being captured"
    probe.abandon()

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelcast.probe.example import main
from kernelcast.probe.stencil import BLOCK_SIZES, CpuPlate


def best_ns(block_size: int) -> int:
    plate = CpuPlate()
    return min(plate.sweep(block_size).duration_ns for _ in range(7))


def test_the_block_size_changes_the_time_and_nothing_else() -> None:
    heats = set()
    for block_size in BLOCK_SIZES:
        plate = CpuPlate(100)
        for _ in range(5):
            plate.sweep(block_size)
        heats.add(plate.heat())
    (heat,) = heats
    assert heat > 0


def test_the_value_it_starts_with_is_measurably_bad() -> None:
    assert best_ns(256) / best_ns(48) <= 0.8


def test_a_launch_shows_its_block_so_that_a_rule_can_see_it() -> None:
    sweep = CpuPlate(96).sweep(48)
    assert (sweep.grid, sweep.block) == ("2x2x1", "48x1x1")


@pytest.fixture
def signals() -> Iterator[None]:
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
def test_the_example_prints_its_steps_and_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KERNELCAST_SOCKET", f"{tmp_path}/none.sock")
    main(["--steps", "2", "--program", "trial"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("trial: Jacobi sweeps on ")
    assert lines[-1].startswith("step 2: block_size 48, ")

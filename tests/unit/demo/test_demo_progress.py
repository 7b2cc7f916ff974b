"""Progress of the demo's start: one line that is rewritten on a terminal, and a plain line now and then elsewhere."""

import io
from pathlib import Path

from kernelcast.cli.demo.progress import StartProgress
from kernelcast.cli.demo.run import _compiled


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_elsewhere_a_new_step_has_a_line_at_once_and_the_same_one_every_15_seconds() -> None:
    clock = iter([100.0, 100.0, 101.0, 104.0, 116.0, 117.0])
    output = io.StringIO()
    progress = StartProgress(output, monotonic=lambda: next(clock))
    for step in (1, 1, 1, 1, 2):
        progress.report(step, 5, f"part {step}")
    progress.end()
    assert output.getvalue() == "step 1 of 5, 0 s: part 1\nstep 1 of 5, 16 s: part 1\nstep 2 of 5, 17 s: part 2\n"


def test_on_a_terminal_one_line_is_rewritten_cut_to_its_width_and_erased() -> None:
    clock = iter([100.0, 100.0, 101.0])
    output = Terminal()
    progress = StartProgress(output, width=30, monotonic=lambda: next(clock))
    for _ in range(2):
        progress.report(2, 5, "waiting until the bridge is ready")
    progress.end()
    lines = output.getvalue().split("\r\x1b[K")
    assert lines == ["", "step 2 of 5, 0 s: waiting unt", "step 2 of 5, 1 s: waiting unt", ""]


def test_of_a_bridge_that_compiles_the_progress_says_so_and_counts_the_parts(tmp_path: Path) -> None:
    log = tmp_path / "bridge.log"
    log.write_text("level=info logger=web event=listening address=127.0.0.1:1\n")
    assert _compiled(log) == ""
    with log.open("a") as bridge:
        bridge.write('logger=bridge event="compiling, as these parts have no machine code on disk"\n')
        bridge.flush()
        assert _compiled(log) == "compiles, once on a machine"
        bridge.write("logger=bridge event=compiled part=decoder done=1/3 seconds=23.5\n")
    assert _compiled(log) == "compiles, once on a machine: 1 of 3 parts"
    line = "step 3 of 5, 112 s: the predictor compiles, once on a machine: 1 of 3 parts"
    assert len(line) < 80, "a terminal shows all of it"

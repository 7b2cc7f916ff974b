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


def test_the_compilers_log_names_the_parts_that_are_ready(tmp_path: Path) -> None:
    log = tmp_path / "compile.log"
    log.write_text("")
    assert _compiled(log) == ""
    log.write_text("compiling on 2 cores\nready series 38.9\nready decoder 0.5\nrea")
    assert _compiled(log) == "; ready: series, decoder"

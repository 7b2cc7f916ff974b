"""Progress of the demo's start: one line every few seconds, with the present step."""

from pathlib import Path

from kernelcast.cli.demo.progress import StartProgress
from kernelcast.cli.demo.run import _compiled


def test_a_line_is_printed_every_four_seconds_and_not_more_often() -> None:
    clock = iter([100.0, 101.0, 104.0, 105.0, 107.9, 108.5])
    lines: list[str] = []
    progress = StartProgress(lines.append, monotonic=lambda: next(clock))
    for step in ("a", "b", "c", "d", "e"):
        progress.report(step)
    assert lines == ["    4 s  b", "    8 s  e"]


def test_the_compilers_log_names_the_parts_that_are_ready(tmp_path: Path) -> None:
    log = tmp_path / "compile.log"
    log.write_text("")
    assert _compiled(log) == "nothing yet"
    log.write_text("compiling on 2 cores\nready series 38.9\nready decoder 0.5\nrea")
    assert _compiled(log) == "series, decoder"

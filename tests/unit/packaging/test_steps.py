"""A step of `make`: one line every few seconds in place of a tool's output, and the whole output where it fails."""

from release.step import report


def run(output: str, code: int, seconds: float) -> list[str]:
    """Lines that a step prints whose command lasts some seconds, and prints its output after the first of them."""
    now = [0.0]
    lines: list[str] = []

    def advance(pause_seconds: float) -> int | None:
        now[0] += pause_seconds
        return code if now[0] >= seconds else None

    report("installing", lambda: output if now[0] >= 1 else "", advance, write=lines.append, monotonic=lambda: now[0])
    return lines


def test_a_step_is_never_silent_for_five_seconds_and_shows_the_last_line_of_its_command() -> None:
    lines = run("Collecting numpy\nDownloading numpy.whl (20 MB)\n", 0, 9)
    assert lines[0] == "installing"
    assert lines[1:3] == [f"  {at:3} s  installing: Downloading numpy.whl (20 MB)" for at in (4, 8)]
    assert lines[3:] == ["    9 s  installing: done"]


def test_a_quick_step_is_one_line() -> None:
    assert run("", 0, 0.3) == ["installing"]


def test_a_step_that_fails_shows_the_whole_output() -> None:
    lines = run("Collecting numpy\nERROR: no such version\n", 1, 2)
    assert lines == ["installing", "Collecting numpy\nERROR: no such version\n"]


def test_a_long_line_is_cut() -> None:
    assert all(len(line) <= 110 for line in run("x" * 500, 0, 6))

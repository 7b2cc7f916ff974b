"""Who gets line, box and report, with streams and a clock of the test."""

import fcntl
import io
import json
import multiprocessing.process
import os
import struct
import sys
import termios
from math import inf
from pathlib import Path

import pytest

from kernelcast.probe.recording.recorder import Recorder
from kernelcast.probe.settings import ProbeSettings
from kernelcast.probe.switch import LAUNCH, REPORT
from kernelcast.probe.terminal.messages import REPORT_SECONDS, StandardError, UserMessages, has_terminal
from kernelcast.probe.terminal.role import LaunchRole
from kernelcast.probe.terminal.situation import Situation
from kernelcast.probe.terminal.summary import RunSummary, summary
from kernelcast.wire.frames import Reception

BEGUN = Situation(has_begun=True, reception=Reception("http://127.0.0.1:1/"))
ALONE = LaunchRole(is_first_of_node=True, is_first_of_job=True, is_quiet=False)


class User:
    """A user with a terminal or without, and what there is to read."""

    def __init__(
        self,
        part: LaunchRole = ALONE,
        *,
        terminal: bool = True,
        steps: int = 3,
        report: Path | str = "",
        launch: str = "",
        own_exporter: bool = False,
    ) -> None:
        environ = {LAUNCH: launch, REPORT: str(report)}
        self.text: list[str] = []
        self.seconds = 10.0
        self.recorder = Recorder()
        for number in range(steps):
            self.recorder.progress.advance(number * 1_000_000)
        self.messages = UserMessages(
            lambda: part,
            environ,
            str if own_exporter else None,
            self.text.append,
            lambda: terminal,
            lambda: self.seconds,
        )

    def summarise(self, has_ended: bool) -> RunSummary:  # noqa: FBT001
        return summary(self.recorder, BEGUN, ProbeSettings("p"), running_seconds=1.0, has_ended=has_ended)

    def poll(self, situation: Situation = BEGUN, *, ends: bool = False) -> float:
        return self.messages.poll(situation, self.summarise, ends=ends)

    def run(self) -> int:
        """Run to the end; returns the number of boxes."""
        self.poll()
        self.poll(ends=True)
        self.messages.finish(self.summarise)
        return sum(text.startswith("+-") for text in self.text)


@pytest.mark.parametrize(
    ("user", "lines", "boxes"),
    [
        (User(launch="1-a"), 1, 1),
        (User(), 1, 0),
        (User(own_exporter=True), 1, 1),
        (User(terminal=False, own_exporter=True), 1, 0),
        (User(terminal=False, launch="1-a"), 1, 0),
        (User(steps=0, launch="1-a"), 1, 1),
        (User(ALONE._replace(is_quiet=True), launch="1-a"), 0, 0),
        (User(ALONE._replace(is_first_of_job=False), launch="1-a"), 1, 0),
        (User(LaunchRole(is_first_of_node=False, is_first_of_job=False, is_quiet=False), launch="1-a"), 0, 0),
    ],
    ids=[
        "command",
        "variable or start()",
        "standalone",
        "standalone, no terminal",
        "no terminal",
        "no step",
        "quiet",
        "other node",
        "other rank",
    ],
)
def test_the_line_is_for_each_node_and_the_box_for_the_command_on_a_terminal(
    user: User, lines: int, boxes: int
) -> None:
    assert (user.run(), len(user.text)) == (boxes, lines + boxes)


def test_nothing_is_written_or_asked_before_there_is_anything_to_report() -> None:
    user = User(launch="1-a")
    idle = Situation(has_begun=False)
    assert user.poll(idle) == user.poll(idle, ends=True) == inf
    assert not user.text


@pytest.mark.parametrize(
    ("user", "said"),
    [
        (User(), "no step was seen, so nothing was measured; call kernelcast.probe.step() after each pass of the loop"),
        (User(terminal=False, report="/r.json"), "nothing was measured, and no report is in /r.json; call"),
        (User(terminal=False), ""),
        (User(ALONE._replace(is_quiet=True)), ""),
        (User(ALONE._replace(is_first_of_job=False)), ""),
    ],
    ids=["terminal", "report", "no terminal", "quiet", "other rank"],
)
def test_a_program_that_has_reported_nothing_is_told_at_its_end_what_to_call(
    user: User, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(sys, "last_type", raising=False)  # of an earlier test that has failed
    user.messages.finish(user.summarise)
    assert said in "".join(user.text)
    assert len(user.text) == bool(said)


def test_a_worker_of_a_program_is_not_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.process, "_parent_process", object())
    user = User()
    user.messages.finish(user.summarise)
    assert not user.text


def test_a_report_is_written_while_the_program_runs_and_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    user = User(terminal=False, launch="1-a", report=path)
    assert user.poll() == REPORT_SECONDS
    assert (json.loads(path.read_text())["steps"], json.loads(path.read_text())["has_ended"]) == (3, False)
    user.recorder.progress.advance(9_000_000)
    user.poll()
    assert json.loads(path.read_text())["steps"] == 3, "not more often than every few seconds"
    user.seconds += REPORT_SECONDS
    user.poll()
    assert json.loads(path.read_text())["steps"] == 4
    assert user.run() == 1, "with a report the box is shown without a terminal, too"
    assert json.loads(path.read_text())["has_ended"]
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


def test_a_quiet_user_has_the_report_all_the_same(tmp_path: Path) -> None:
    user = User(ALONE._replace(is_quiet=True), launch="1-a", report=tmp_path / "run.json")
    assert user.run() == 0
    assert json.loads((tmp_path / "run.json").read_text())["program"] == "p"


def test_a_report_that_cannot_be_written_is_said_once_with_its_path(tmp_path: Path) -> None:
    path = tmp_path / "none" / "run.json"
    user = User(launch="1-a", report=path)
    user.poll()
    user.seconds += REPORT_SECONDS
    user.run()
    said = [text for text in user.text if "report" in text]
    assert said == [
        f"kernelcast: the report cannot be written to {path}: No such file or directory; choose another --report"
    ]


def test_whatever_the_summary_raises_the_program_ends_as_ever() -> None:
    user = User(launch="1-a")
    user.poll()

    def broken(_has_ended: bool) -> RunSummary:  # noqa: FBT001
        raise ZeroDivisionError

    user.messages.finish(broken)
    assert len(user.text) == 1


def test_a_line_is_broken_between_words_and_begins_below_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "kernelcast: steps are measured; see http://127.0.0.1:19400/ or run: kernelcast top 127.0.0.1:19400"
    reader, writer = os.openpty()
    with os.fdopen(writer, "w") as terminal, os.fdopen(reader, "rb", buffering=0) as screen:
        fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 60, 0, 0))
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.delitem(sys.modules, "tqdm", raising=False)
        StandardError().write(line)
        shown = screen.read(4096).decode().split("\r\n")
        assert [len(part) <= 60 for part in shown] == [True] * 3
        assert " ".join(" ".join(shown).split()) == line
        monkeypatch.setitem(sys.modules, "tqdm", sys)
        StandardError().write(line)
        assert screen.read(4096).decode() == "\r\n" + "\r\n".join(shown)


def test_the_output_of_a_notebooks_cell_is_read_by_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    """As ipykernel's stream, whose `isatty` denies it."""
    stream = type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not has_terminal()
    monkeypatch.setattr(sys, "stderr", stream())
    assert has_terminal()

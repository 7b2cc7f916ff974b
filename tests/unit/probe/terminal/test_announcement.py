"""The line that a program's user reads, with a clock and a terminal of the test."""

import os
from dataclasses import replace
from math import inf

import pytest

from kernelcast.probe.terminal.announcement import ANSWER_SECONDS, BESIDE_SECONDS, Announcement, measured
from kernelcast.probe.terminal.situation import Situation
from kernelcast.wire.frames import Reception, Status

PAGE = Reception("http://127.0.0.1:19400/")
ON_CPU = Situation(has_begun=True, framework="PyTorch", socket_path="/run/probe.sock")
ON_GPU = replace(ON_CPU, uses_gpu=True, status=Status("count", "off", "not seen without CUPTI: PyTorch"))


class Terminal:
    """The lines that were written, and the time."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.seconds = 100.0
        self.announcement = Announcement(self.lines.append, lambda: self.seconds)

    def poll(self, situation: Situation, *, ends: bool = False) -> float:
        return self.announcement.poll(situation, ends=ends)


@pytest.fixture
def terminal() -> Terminal:
    return Terminal()


def test_nothing_is_said_before_the_first_step_or_context_nor_at_the_end_of_a_program_without(
    terminal: Terminal,
) -> None:
    idle = Situation(has_begun=False, failure="No such file or directory")
    terminal.poll(idle)
    terminal.seconds += 1_000
    terminal.poll(idle)
    assert terminal.poll(idle, ends=True) == inf
    assert not terminal.lines


def test_one_line_says_what_is_measured_and_where_to_look(terminal: Terminal) -> None:
    found = replace(ON_CPU, is_connected=True, reception=PAGE)
    assert terminal.poll(found) == inf
    terminal.poll(found)
    (line,) = terminal.lines
    assert line == (
        "kernelcast: PyTorch has not used a GPU; steps and data are measured, kernels cannot be; "
        "see http://127.0.0.1:19400/ or run: kernelcast top 127.0.0.1:19400"
    )


def test_a_gpu_without_cupti_is_told_how_to_measure_kernels_and_what_it_costs() -> None:
    assert "kernels are not: KERNELCAST_CUPTI=1 measures them (a training step" in measured(ON_GPU)
    assert "on an H100" in measured(ON_GPU)


@pytest.mark.parametrize(
    ("status", "cupti", "said"),
    [
        (Status("cupti", "active"), "1", "and kernels by CUPTI"),
        (Status("event", "active"), "", "and kernels by sampled CUDA events"),
        (
            Status("count", "off", "CUPTI cannot be used: answered 35"),
            "1",
            "are not: CUPTI cannot be used: answered 35",
        ),
        (Status("count", "off", "KERNELCAST_CUPTI is 0"), "0", "are not: KERNELCAST_CUPTI is 0"),
    ],
)
def test_the_method_or_its_obstacle_is_named(status: Status, cupti: str, said: str) -> None:
    assert said in measured(replace(ON_GPU, status=status, cupti=cupti))


def test_a_gpus_line_waits_for_the_method(terminal: Terminal) -> None:
    assert terminal.poll(replace(ON_GPU, status=None, reception=PAGE)) < inf
    assert not terminal.lines
    terminal.poll(replace(ON_GPU, reception=PAGE))
    assert len(terminal.lines) == 1


def test_without_an_exporter_the_line_says_how_to_get_one(terminal: Terminal) -> None:
    terminal.poll(replace(ON_CPU, failure="No such file or directory"))
    (line,) = terminal.lines
    assert "found no exporter at /run/probe.sock (No such file or directory)" in line
    assert "start `kernelcast exporter` on this node" in line
    assert "--standalone" in line


def test_a_socket_that_this_user_may_not_use_is_not_said_to_have_no_exporter(terminal: Terminal) -> None:
    terminal.poll(replace(ON_CPU, failure="Permission denied"))
    (line,) = terminal.lines
    assert f"user {os.getuid()} may not connect to /run/probe.sock (Permission denied): let this user" in line
    assert "start `kernelcast exporter`" not in line


def test_an_exporter_of_an_earlier_version_gives_no_answer_and_is_not_waited_for_long(terminal: Terminal) -> None:
    connected = replace(ON_CPU, is_connected=True)
    assert terminal.poll(connected) <= ANSWER_SECONDS
    assert not terminal.lines
    terminal.seconds += ANSWER_SECONDS
    terminal.poll(connected)
    assert terminal.lines[0].endswith("the exporter at /run/probe.sock has it")


def test_an_exporter_beside_the_program_may_take_longer(terminal: Terminal) -> None:
    starting = replace(ON_CPU, starts_exporter=True, failure="No such file or directory")
    terminal.poll(starting)
    terminal.seconds += BESIDE_SECONDS - 1
    terminal.poll(starting)
    assert not terminal.lines
    terminal.poll(replace(starting, failure="", is_connected=True, reception=PAGE))
    assert "see http://127.0.0.1:19400/" in terminal.lines[0]


def test_a_program_that_ends_before_the_answer_has_its_line(terminal: Terminal) -> None:
    terminal.poll(replace(ON_CPU, starts_exporter=True))
    terminal.poll(replace(ON_CPU, starts_exporter=True), ends=True)
    assert terminal.lines[0].endswith("; it was too short for a page; --report FILE.json keeps what was measured")


def test_the_address_follows_where_the_exporter_takes_longer_than_the_line_waits(terminal: Terminal) -> None:
    starting = replace(ON_CPU, starts_exporter=True)
    terminal.poll(starting)
    terminal.seconds += BESIDE_SECONDS
    terminal.poll(starting)
    assert terminal.lines[0].endswith("; the page of the exporter beside it is not up yet")
    ready = replace(starting, is_connected=True, reception=PAGE)
    for _ in range(2):
        terminal.poll(ready)
    assert terminal.lines[1:] == ["kernelcast: see http://127.0.0.1:19400/ or run: kernelcast top 127.0.0.1:19400"]


def test_what_the_exporter_refuses_is_said_once_in_its_words(terminal: Terminal) -> None:
    refused = replace(ON_CPU, reception=Reception(refusal="8 processes are known; raise the limit of processes"))
    for _ in range(3):
        terminal.poll(refused)
    (line,) = terminal.lines
    assert line.endswith("the exporter refuses this program: 8 processes are known; raise the limit of processes")


def test_a_refusal_and_the_end_of_the_exporter_beside_it_that_come_later_are_said_once_each(terminal: Terminal) -> None:
    accepted = replace(ON_CPU, starts_exporter=True, reception=PAGE)
    terminal.poll(accepted)
    for _ in range(3):
        terminal.poll(replace(accepted, reception=Reception(refusal="user 7 may not report here")))
        terminal.poll(replace(accepted, trouble="it ended with 3"))
    assert terminal.lines[1:] == [
        "kernelcast: the exporter refuses this program: user 7 may not report here",
        "kernelcast: no exporter runs beside the program: it ended with 3",
    ]


def test_a_program_that_measures_itself_is_not_told_of_a_gpu() -> None:
    said = measured(replace(ON_CPU, reports_itself=True, source="simulated"))
    assert said == "measured is what the program reports, source simulated"

"""What a program's phases say about it, in one sentence."""

import pytest

from kernelcast.wire.verdict import verdict


@pytest.mark.parametrize(
    ("phases", "idle", "said"),
    [
        ({"data": 0.04, "forward": 0.3, "backward": 0.66}, None, "compute-bound: forward and backward take 96 %"),
        ({"data": 0.04, "forward": 0.3, "backward": 0.66}, 0.45, "host-bound: the GPU is idle for 45 %"),
        ({"forward": 0.1, "compilation": 0.9}, None, "90 % of the time is compilation"),
        ({"forward": 0.1, "checkpoint": 0.9}, None, "90 % of the time is saving checkpoints"),
        ({"optimizer": 0.9, "forward": 0.1}, None, "the largest part of the step is optimizer, 90 %"),
        ({"data": 0.08, "forward": 0.41, "backward": 0.51}, None, "compute-bound: forward and backward take 92 %"),
        (
            {"data": 0.08, "optimizer": 0.34, "forward": 0.17, "backward": 0.27, "evaluation": 0.14},
            None,
            "is optimizer, 34 %, data 8 %",
        ),
        ({"evaluation": 0.5, "compilation": 0.3, "other": 0.2}, None, "50 % of the time is evaluation"),
        ({"data": 0.4, "forward": 0.25, "backward": 0.35}, None, "input-bound: 40 % of the step waits for data"),
        ({"data": 0.5, "other": 0.5}, None, "input-bound: 50 % of the step waits for data"),
        ({"data": 0.39, "forward": 0.08, "optimizer": 0.53}, 0.5, "is optimizer, 53 %; 39 % waits for data"),
        ({"data": 0.2, "forward": 0.3, "backward": 0.5}, None, "is backward, 50 %; 20 % waits for data"),
        ({"data": 0.38, "other": 0.62}, None, "is other work, 62 %; 38 % waits for data"),
        ({"data": 0.25, "forward": 0.2, "compilation": 0.55}, None, "55 % of the time is compilation"),
        ({"data": 0.3, "forward": 0.5, "evaluation": 0.2}, None, "is forward, 50 %; 30 % waits for data"),
        ({"data": 0.04, "other": 0.96}, None, "the step's own work takes 96 % of the time; its phases are not known"),
    ],
)
def test_the_verdict_names_the_most_important_cause(phases: dict[str, float], idle: float | None, said: str) -> None:
    assert said in verdict(phases, idle)


def test_without_a_loader_forward_may_be_the_loading_of_data() -> None:
    said = verdict({"forward": 0.97, "backward": 0.02, "optimizer": 0.01})
    assert said == "forward or data: 97 % of the step; probe.data(batches) tells them apart"


def test_with_other_ranks_backward_may_be_the_wait_for_them() -> None:
    phases = {"data": 0.02, "forward": 0.1, "backward": 0.83, "optimizer": 0.05}
    assert verdict(phases, has_peers=True) == "forward, backward and the wait for other ranks take 93 %, data 2 %"


def test_without_phases_there_is_no_verdict() -> None:
    assert verdict({}) == ""


@pytest.mark.parametrize(
    "phases", [("forward", "backward"), ("other",), ("optimizer",), ("evaluation",), ("compilation",)]
)
def test_a_verdict_fits_on_a_line_of_a_terminal(phases: tuple[str, ...]) -> None:
    """Of 80 columns, within a frame."""
    assert 0 < len(verdict({"data": 0.09, **dict.fromkeys(phases, 0.91)})) <= 76
    assert 0 < len(verdict({"data": 0.39, **dict.fromkeys(phases, 0.61)})) <= 76
    assert 0 < len(verdict(dict.fromkeys(phases, 0.91))) <= 76

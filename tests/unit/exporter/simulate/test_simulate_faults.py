"""The syntax of faults on the command line."""

import math

import pytest

from kernelcast.exporter.simulate import BACKGROUNDS, FAULTS, SimulationSettings, parse
from kernelcast.exporter.simulate.faults import syntax
from kernelcast.exporter.simulate.kinds.kind import ALL
from kernelcast.wire.errors import ConfigurationError


def test_times_have_units_and_numbers_have_none() -> None:
    fault = parse("thermal-drift:node=1,gpu=3,start=1.5m,length=2h,rate=0.5", FAULTS, option="--fault")
    assert (fault.node, fault.gpu, fault.start_seconds, fault.length_seconds) == (1, 3, 90, 7200)
    assert fault["rate"] == 0.5
    assert fault.is_fault
    assert [fault.active(seconds) for seconds in (89, 90, 7289, 7290)] == [False, True, True, False]


def test_unset_options_have_defaults() -> None:
    fault = parse("straggler", FAULTS, option="--fault")
    assert (fault.node, fault.gpu, fault.start_seconds, fault.length_seconds) == (0, 0, 60, math.inf)
    assert parse("deploy:gpu=all", BACKGROUNDS, option="--background").gpu == ALL
    assert not parse("deploy", BACKGROUNDS, option="--background").is_fault


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("thermal", "kinds are thermal-drift"),
        ("deploy", "kinds are"),
        ("thermal-drift:gpu", "not one of"),
        ("thermal-drift:speed=3", "rate="),
        ("thermal-drift:rate=fast", "write a number"),
        ("thermal-drift:rate=6s", "write a number"),
        ("thermal-drift:rate=0", "it must be"),
        ("thermal-drift:gpu=1.5", "whole number"),
        ("thermal-drift:start=-5s", "90s, 5m or 2h"),
        ("thermal-drift:start=5y", "90s, 5m or 2h"),
        ("thermal-drift:kernel=1", "not one of"),
        ("thermal-drift:gpu=0,gpu=1", "gpu is given twice; give the option twice"),
        ("", "kinds are"),
    ],
)
def test_what_cannot_be_is_refused_with_the_limit(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        parse(text, FAULTS, option="--fault")
    assert str(raised.value).startswith(f"--fault {text}")


@pytest.mark.parametrize("text", ["thermal-drift:gpu=8", "thermal-drift:node=1", "kernel-slowdown:kernel=12"])
def test_a_fault_of_an_absent_target_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="numbered from 0"):
        SimulationSettings(faults=(parse(text, FAULTS, option="--fault"),))


@pytest.mark.parametrize(
    "numbers",
    [{"nodes": 0}, {"gpus": 0}, {"gpus": 5000}, {"kernels": 0}, {"rate": 0.0}, {"rate": math.nan}, {"seed": -1}],
)
def test_a_fleet_beyond_its_limits_is_refused(numbers: dict[str, float]) -> None:
    with pytest.raises(ConfigurationError, match="it must be"):
        SimulationSettings(**numbers)  # type: ignore[arg-type]


def test_every_kind_is_explained() -> None:
    for kinds in (FAULTS, BACKGROUNDS):
        text = syntax(kinds)
        for name, kind in kinds.items():
            assert f"{name}: {kind.help}" in text

from typing import Any

import pytest

from kernelcast import probe
from kernelcast.probe.tunables import Terms, Tunable, TunableSet
from kernelcast.wire.errors import TunableError
from kernelcast.wire.kernels import label


def test_values_keep_their_type_and_travel_as_text() -> None:
    assert Tunable("a", [32, 64], 32, Terms()).claim("", "").allowed == ("32", "64")
    ratio = Tunable("b", [0.5, 1.0], 0.5, Terms())
    ratio.put("1.0")
    assert ratio.value == 1.0
    assert isinstance(ratio.value, float)
    word = Tunable("c", ["tf32", "fp32"], "fp32", Terms())
    word.put("tf32")
    assert word.value == "tf32"


def test_a_value_lent_for_a_trial_is_not_announced() -> None:
    block = Tunable("block", [32, 64], 32, Terms())
    block.set_for_trial("64")
    assert block.value == 64
    assert block.claim("", "").value == "32"
    block.put("64")
    assert block.claim("", "").value == "64"


def test_kernels_are_announced_by_label() -> None:
    block = Tunable("block", [32], 32, Terms(kernels=("void stencil(float*)",)))
    assert block.claim("", "").kernels == (label("void stencil(float*)"),)


@pytest.mark.parametrize(
    ("name", "allowed", "value", "terms"),
    [
        ("", [1], 1, Terms()),
        ("a,b", [1], 1, Terms()),
        ("a\n", [1], 1, Terms()),
        ("x" * 200, [1], 1, Terms()),
        ("a", [], 1, Terms()),
        ("a", [1, 1], 1, Terms()),
        ("a", list(range(300)), 1, Terms()),
        ("a", [1, 2], 3, Terms()),
        ("a", ["x,y"], "x,y", Terms()),
        ("a", [1], 1, Terms(scope="global")),
        ("a", [1], 1, Terms(granularity="minute")),
    ],
)
def test_a_wrong_registration_raises_an_error(name: str, allowed: list[Any], value: Any, terms: Terms) -> None:
    with pytest.raises(TunableError, match="tunable"):
        Tunable(name, allowed, value, terms)


def test_too_many_tunables_are_refused_before_they_burst_a_frame() -> None:
    long_values = [f"{'v' * 100}{value}" for value in range(250)]
    tunables = TunableSet()
    tunables.add(Tunable("first", long_values, long_values[0], Terms()))
    tunables.add(Tunable("second", long_values, long_values[0], Terms()))
    with pytest.raises(TunableError, match="too long for one frame"):
        tunables.add(Tunable("third", long_values, long_values[0], Terms()))
    assert len(list(tunables.all())) == 2


def test_there_are_at_most_64_tunables() -> None:
    tunables = TunableSet()
    for number in range(64):
        tunables.add(Tunable(f"t{number}", [1], 1, Terms()))
    with pytest.raises(TunableError, match="the limit is 64"):
        tunables.add(Tunable("one more", [1], 1, Terms()))


def test_tunables_overlap_where_they_share_a_kernel_or_one_acts_on_all() -> None:
    a = Tunable("a", [1], 1, Terms(kernels=("x", "y")))
    b = Tunable("b", [1], 1, Terms(kernels=("y",)))
    c = Tunable("c", [1], 1, Terms(kernels=("z",)))
    every = Tunable("d", [1], 1, Terms())
    assert a.overlaps(b)
    assert not a.overlaps(c)
    assert every.overlaps(c)


def test_whoever_starts_the_program_sets_the_first_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KERNELCAST_SET", '{"bucket_mb": "25", "tile": 3}')
    assert probe.tunable("bucket_mb", [1, 25], 1, granularity="restart").value == 25
    assert probe.tunable("tile", [1, 2], 1).value == 1
    assert probe.tunable("other", [1, 2], 2).value == 2
    assert capsys.readouterr().err == "kernelcast: KERNELCAST_SET sets tile to 3; it allows 1, 2; 1 stays\n"
    monkeypatch.setenv("KERNELCAST_SET", "[1]")
    assert probe.tunable("bucket_mb", [1, 25], 1).value == 1
    assert "must be a JSON object" in capsys.readouterr().err

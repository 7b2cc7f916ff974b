import copy
from typing import Any

import pytest

from kernelcast.tuning.space import Space
from kernelcast.wire.errors import SpaceError

VALUES: dict[str, list[Any]] = {"x": [16, 32, 64], "y": [1, 2], "mode": ["plain", "fast"], "padded": [False, True]}
START: dict[str, Any] = {"x": 32, "y": 1, "mode": "plain", "padded": False}


def space(**changes: Any) -> Space:
    options: dict[str, Any] = {"start": START, "valid": lambda c: c.x * c.y <= 64} | changes
    return Space.restricted("conv", VALUES, **options)


def test_a_restriction_leaves_the_valid_configurations() -> None:
    found = space()
    assert len(found) == 20
    assert all(found.configuration(one).x * found.configuration(one).y <= 64 for one in found.ordinals)


def test_values_and_ordinals_are_inverse() -> None:
    found = space()
    assert [found.ordinal(found.values(one)) for one in found.ordinals] == list(found.ordinals)


def test_neighbours_differ_in_one_parameter_and_are_valid() -> None:
    found = space()
    values = found.values(found.start)
    near = [found.values(one) for one in found.neighbours(found.start)]
    assert all(sum(a != b for a, b in zip(values, other, strict=True)) == 1 for other in near)
    assert len(near) == len(set(near)) == 5


def test_a_configuration_reads_by_name_and_is_immutable() -> None:
    one = space().configuration(space().start)
    assert (one.x, one["mode"], dict(one)) == (32, "plain", START)
    with pytest.raises(AttributeError, match="immutable"):
        one.x = 64
    with pytest.raises(AttributeError, match="its parameters are x, y, mode, padded"):
        _ = one.z
    assert copy.copy(one) == one


def test_parameters_may_be_named_like_methods() -> None:
    named: dict[str, list[Any]] = {"values": [1, 2], "keys": [3], "_values": [4], "__class__": [5]}
    start = {"values": 1, "keys": 3, "_values": 4, "__class__": 5}
    found = Space.restricted("s", named, start=start, valid=lambda c: c["values"] == 1)
    assert dict(found.configuration(found.start)) == start
    assert len(found) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"start": START | {"x": 48}}, r"parameter x has no value 48; its values are 16, 32, 64"),
        ({"start": START | {"x": 64, "y": 2}}, r"x=64, y=2, mode='plain', padded=False of space conv is not valid"),
        ({"start": {"x": 32}}, r"differ in mode, padded, y"),
        ({"valid": lambda c: False}, r"has no valid configuration"),
        ({"valid": lambda c: 1 // 0}, r"restriction of space conv raised ZeroDivisionError"),
        ({"valid": lambda c: c.tile > 1}, r"has no parameter tile"),
    ],
)
def test_a_space_that_cannot_be_used_is_refused_with_the_reason(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SpaceError, match=sentence):
        space(**changes)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "0 parameters"),
        ({"x": []}, "0 values"),
        ({"x": [1, True]}, "equal values 1 and True"),
        ({"x": [1, 1.0]}, "equal values 1 and 1.0"),
        ({"x": [float("nan")]}, "not finite"),
        ({"x": [None]}, "NoneType"),
        ({"x": "abc"}, "give a list"),
        ({"": [1]}, "no string of 1 to 256 characters"),
        ({f"p{place}": list(range(10)) for place in range(8)}, "100,000,000 combinations"),
    ],
)
def test_parameters_that_cannot_be_used_are_refused(values: Any, sentence: str) -> None:
    with pytest.raises(SpaceError, match=sentence):
        Space.restricted("s", values, start=dict.fromkeys(values, 1))


def test_a_list_of_configurations_may_come_from_a_product_too_large_to_enumerate() -> None:
    values: dict[str, list[Any]] = {f"p{place}": list(range(100)) for place in range(8)}
    found = Space.listed("s", values, start=[1] * 8, valid=[[1] * 8, [1] * 7 + [2], [3] * 8])
    assert (len(found), [found.values(one)[-1] for one in found.neighbours(found.start)]) == (3, [2])

"""The data of every event: what is written is read as it was, and what a field cannot hold is refused by its name."""

import json
from enum import Enum
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelcast.wire import baselines, events, findings
from kernelcast.wire.event_data import Limits, from_data, to_data
from kernelcast.wire.tuning import approvals, experience, orders, policy

KINDS: list[Any] = [
    events.Hint,
    events.Outcome,
    events.Alert,
    findings.Finding,
    findings.Mark,
    baselines.KernelBaseline,
    experience.Experience,
    approvals.Approval,
    orders.StopOrder,
    policy.Policy,
]
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=9),
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
}


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Every value that a declared type can hold, as far as an event has room for it."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if origin is not None:
        return of_parameters(origin, arguments)
    if issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    hints = get_type_hints(kind, include_extras=True)
    return st.builds(kind, **{name: values(hints[name]) for name in kind.__match_args__})


def of_parameters(origin: Any, arguments: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    if origin is Annotated:
        least, above = arguments[1].least, arguments[1].above
        return values(arguments[0]).filter(
            lambda value: (least is None or value >= least) and (above is None or value > above)
        )
    if NoneType in arguments:
        return st.none() | values(next(one for one in arguments if one is not NoneType))
    if origin is tuple and arguments[-1] is ...:
        return st.lists(values(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    return st.dictionaries(*map(values, arguments), max_size=3)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_what_is_written_is_read_as_it_was(kind: Any, data: st.DataObject) -> None:
    sent = data.draw(values(kind))
    assert from_data(kind, json.loads(json.dumps(to_data(sent)))) == sent


WRONG: list[tuple[Any, Any, str]] = [
    (str, 1, "not a text"),
    (bool, 1, "neither true nor false"),
    (int, True, "not an integer"),
    (int, 1.0, "not an integer"),
    (int, 2**64, "beyond 64 bits"),
    (float, "1", "not a number"),
    (float, True, "not a number"),
    (float, float("nan"), "not finite"),
    (tuple[str, ...], "ab", "not a list"),
    (tuple[str, str], ["a"], "shorter"),
    (dict[str, str], [], "not an object"),
    (dict[str, str], {"a": 1}, "not a text"),
    (orders.StopOrder, [], "not an object"),
    (policy.Mode, "maybe", "'maybe' is not a valid Mode"),
    (Annotated[str, Limits(most=2)], "abc", "3 characters or items; the limit is 2"),
    (Annotated[int, Limits(least=0)], -1, "at least 0"),
    (Annotated[float, Limits(above=0)], 0, "above 0"),
]


@pytest.mark.parametrize(("kind", "value", "problem"), WRONG)
def test_what_a_type_cannot_hold_is_refused_with_the_reason(kind: Any, value: Any, problem: str) -> None:
    with pytest.raises((TypeError, ValueError), match=problem):
        from_data(kind, value)


def test_a_refusal_names_the_field_and_a_long_value_in_part() -> None:
    data = to_data(findings.Mark("f1", findings.Verdict.REPAIRED))
    with pytest.raises(ValueError, match=r"^verdict is '(x{79}): 'x+' is not a valid Verdict$"):
        from_data(findings.Mark, {**data, "verdict": "x" * 200})
    del data["verdict"]
    with pytest.raises(ValueError, match=r"^verdict is missing$"):
        from_data(findings.Mark, data)

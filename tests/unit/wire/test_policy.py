"""The site's policy: quiet hours, modes of programs, and the event that carries them."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kernelcast.wire.cloudevents import NANOSECONDS, encode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.tuning.policy import Mode, Policy, check_policy, policy_event, policy_from


def at(hour: int, minute: int) -> int:
    return int(datetime(2026, 3, 1, hour, minute, tzinfo=UTC).timestamp()) * NANOSECONDS


@pytest.mark.parametrize(
    ("window", "quiet", "loud"),
    [
        ("22:00-06:00", [(22, 0), (23, 59), (0, 0), (5, 59)], [(6, 0), (12, 0), (21, 59)]),
        ("09:30-10:15", [(9, 30), (10, 14)], [(9, 29), (10, 15), (0, 0)]),
        ("08:00-08:00", [(8, 0), (7, 59), (20, 0)], []),
    ],
)
def test_quiet_hours_begin_and_end_to_the_minute(
    window: str, quiet: list[tuple[int, int]], loud: list[tuple[int, int]]
) -> None:
    policy = Policy(quiet_hours=("03:00-03:01", window))
    assert [policy.quiet(at(*time)) for time in quiet] == [window] * len(quiet)
    assert [policy.quiet(at(*time)) for time in loud] == [""] * len(loud)


def test_the_mode_of_a_program_comes_before_that_of_all_others() -> None:
    assert Policy().mode("train") is Mode.TUNE
    policy = Policy({"*": Mode.OFF, "train": Mode.PROPOSE})
    assert (policy.mode("train"), policy.mode("serve")) == (Mode.PROPOSE, Mode.OFF)


def test_a_policy_travels() -> None:
    policy = Policy({"*": Mode.PROPOSE, "train": Mode.TUNE}, ("22:00-06:00",), 5)
    assert policy_from(policy_event(policy, source="/test")) == policy


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"modes": {"train": "maybe"}}, "'maybe' is not a valid Mode"),
        ({"modes": []}, r"modes is \[\]: it is not an object"),
        ({"quiet_hours": ["25:00-06:00"]}, "write HH:MM-HH:MM in UTC"),
        ({"modes": {"": "off"}}, "is no program"),
        ({"quiet_hours": ["00:00-00:01"] * 65}, "65 quiet hours; the limit is 64"),
        ({"modes": {f"p{number}": "off" for number in range(1025)}}, "1025 programs; the limit is 1024"),
    ],
)
def test_what_is_no_policy_is_refused(data: dict[str, Any], reason: str) -> None:
    event = policy_event(Policy(), source="/test")
    event["data"].update(data)
    with pytest.raises(EventError, match=reason):
        policy_from(event)


def test_another_event_is_no_policy() -> None:
    event = {**policy_event(Policy(), source="/test"), "type": "another"}
    with pytest.raises(EventError, match=r"expected .dev\.kernelcast\.policy\.v1."):
        policy_from(event)


def test_a_policy_of_the_settings_is_checked() -> None:
    check_policy({"*": "off"}, ["22:00-06:00"])
    with pytest.raises(ValueError, match="quiet hours are '22-6'"):
        check_policy({}, ["22-6"])


def test_a_policy_that_no_event_can_hold_is_refused_in_the_settings_and_not_only_when_it_is_written() -> None:
    most = {f"a-team/a-rather-long-name-of-a-training-{number:04}": "off" for number in range(600)}
    check_policy(most, [])
    encode_event(policy_event(Policy(dict.fromkeys(most, Mode.OFF)), source="/kernelcast/predictor/a-host"))
    with pytest.raises(ValueError, match=r"the policy is \d+ bytes; the limit is \d+; use `\*`"):
        check_policy({f"{name}-{'x' * 40}": "off" for name in most}, [])

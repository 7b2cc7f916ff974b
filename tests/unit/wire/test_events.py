import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.wire.findings import FINDING, MARK

from kernelcast.wire import cloudevents, events
from kernelcast.wire.errors import EventError
from kernelcast.wire.findings import Verdict
from kernelcast.wire.known_findings import KnownFindings

HINT = events.Hint(
    "h1", "train", "block_size", "128", 2_000_000_000_000_000_000, "48", "H200", "v1",
    expected_ratio=0.8, expected_interval=(0.7, 0.9), evidence=(events.Evidence("rule", "block", "48", "guide"),),
)  # fmt: skip
OUTCOME = events.Outcome(
    "h1", "train", "block_size", events.OutcomeState.KEPT, measured_ratio=0.7, measured_interval=(0.6, 0.8), pairs=15
)
ALERT = events.Alert("f00", "firing", "2026-01-01T00:00:00Z", labels={"alertname": "A"})


def test_hints_outcomes_and_alerts_survive_kafka() -> None:
    for data, read in ((HINT, events.hint_from), (OUTCOME, events.outcome_from), (ALERT, events.alert_from)):
        body = cloudevents.encode_event(
            events.to_event(data, source="/kernelcast/test", time_ns=1_700_000_000_123_456_789)
        )
        assert read(cloudevents.decode_event(body)) == data


def test_an_event_is_a_cloudevent_of_version_1_0() -> None:
    event = json.loads(cloudevents.encode_event(events.to_event(HINT, source="/s", time_ns=1_700_000_000_123_456_789)))
    assert event["specversion"] == "1.0"
    assert event["type"] == "dev.kernelcast.hint.v1"
    assert event["subject"] == "h1"
    assert event["time"] == "2023-11-14T22:13:20.123456Z"
    assert event["datacontenttype"] == "application/json"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"specversion": "0.3"}, "specversion"),
        ({"id": ""}, "id"),
        ({"type": "other"}, "event type"),
        ({"data": None}, "no data object"),
        ({"data": {"hint_id": "x"}}, "unusable data"),
    ],
)
def test_an_invalid_hint_is_refused_with_the_reason(change: dict[str, object], message: str) -> None:
    event = {**events.to_event(HINT, source="/s", time_ns=1), **change}
    with pytest.raises(EventError, match=message):
        events.hint_from(event)


@pytest.mark.parametrize(
    "change",
    [
        {"expires_at_ns": "soon"},
        {"expires_at_ns": 2**64},
        {"value": 128},
        {"mode": "yolo"},
        {"expected_interval": [1]},
        {"expected_interval": [0, 10**400]},
        {"expected_ratio": "fast"},
        {"confidence": float("nan")},
        {"confidence": None},
        {"evidence": [{"x": 1}]},
        {"evidence": [1]},
        {"evidence": [{"rule": 1, "field": "block", "value": "48"}]},
    ],
)
def test_a_hint_with_a_field_of_the_wrong_type_is_refused(change: dict[str, object]) -> None:
    event = events.to_event(HINT, source="/s", time_ns=1)
    event["data"] = {**event["data"], **change}
    with pytest.raises(EventError, match="unusable data"):
        events.hint_from(event)


@pytest.mark.parametrize(
    "number",
    ["0.7", [0.7], {"ratio": 0.7}, True, float("nan"), float("inf"), pytest.param(10**400, id="401 digits"), -0.1],
)
@pytest.mark.parametrize("name", ["measured_ratio", "step_time_ratio", "device_time_ratio", "measured_interval"])
def test_an_outcome_whose_ratio_is_no_finite_number_from_0_on_is_refused(name: str, number: object) -> None:
    event = events.to_event(OUTCOME, source="/s", time_ns=1)
    event["data"][name] = [0.6, number] if name == "measured_interval" else number
    with pytest.raises(EventError, match="unusable data"):
        events.outcome_from(event)


@pytest.mark.parametrize(
    "change",
    [
        {"pairs": -1},
        {"pairs": 2**64},
        {"candidate_steps": 10**400},
        {"candidate_steps": True},
        {"state": ["kept"]},
        {"measured_interval": 0.7},
        {"measured_interval": "67"},
    ],
)
def test_an_outcome_with_an_impossible_count_state_or_interval_is_refused(change: dict[str, object]) -> None:
    event = events.to_event(OUTCOME, source="/s", time_ns=1)
    event["data"] |= change
    with pytest.raises(EventError, match="unusable data"):
        events.outcome_from(event)


def test_an_outcome_that_measured_whole_numbers_is_read() -> None:
    event = events.to_event(OUTCOME, source="/s", time_ns=1)
    event["data"] |= {"measured_ratio": 1, "measured_interval": [0, 2]}
    found = events.outcome_from(event)
    assert (found.measured_ratio, found.measured_interval) == (1.0, (0.0, 2.0))


def test_a_number_that_json_cannot_hold_is_refused_before_it_is_written() -> None:
    event = events.to_event(replace(OUTCOME, measured_ratio=float("nan")), source="/s", time_ns=1)
    with pytest.raises(EventError, match="JSON"):
        cloudevents.encode_event(event)


def test_an_event_beyond_the_limit_is_refused_both_ways() -> None:
    event = events.to_event(ALERT, source="/s", time_ns=1)
    event["data"]["annotations"] = {"text": "x" * cloudevents.MAX_EVENT_BYTES}
    with pytest.raises(EventError, match="the limit is"):
        cloudevents.encode_event(event)
    with pytest.raises(EventError, match="the limit is"):
        cloudevents.decode_event(json.dumps(event).encode())


@given(st.one_of(st.binary(max_size=200), st.text(max_size=100).map(str.encode), st.just(b"[" * 40_000)))
def test_random_bytes_are_refused_and_never_crash(body: bytes) -> None:
    with pytest.raises(EventError):
        cloudevents.decode_event(body)


def test_an_event_in_another_encoding_is_refused_as_it_may_be_too_long_for_a_program_in_ours() -> None:
    text = json.dumps(
        events.to_event(replace(HINT, value="\u4e2d" * 20_000), source="/s", time_ns=1), ensure_ascii=False
    )
    with pytest.raises(EventError, match="is not JSON in UTF-8"):
        cloudevents.decode_event(text.encode("utf-16"))


def test_the_newest_hint_for_a_tunable_replaces_the_older_ones() -> None:
    assert HINT.key == "train|block_size|H200"


def test_a_hint_does_not_replace_that_of_another_program_whose_name_has_the_separator_of_keys() -> None:
    other = replace(HINT, program="train|block", tunable="size")
    assert other.key != replace(HINT, program="train", tunable="block|size").key


def test_findings_and_marks_survive_kafka() -> None:
    for data, read in ((FINDING, events.finding_from), (MARK, events.mark_from)):
        body = cloudevents.encode_event(events.to_event(data, source="/kernelcast/test", time_ns=1))
        event = cloudevents.decode_event(body)
        assert read(event) == data
        assert event["subject"] == "f1"


@pytest.mark.parametrize(
    "change",
    [
        {"cause": "gremlins"},
        {"state": "kept"},
        {"labels": [["gpu", 3]]},
        {"labels": [["gpu"]]},
        {"value": "hot"},
        {"limit": True},
        {"seconds_to_limit": [1.0, 2.0]},
        {"evidence": [{"value": 1.0}]},
        {"evidence": [{"metric": "m", "value": "x"}]},
        {"series": 1.5},
        {"held": "no"},
        {"value": 10**400},
        {"probability": float("nan")},
        {"seconds_to_limit": [1.0, 2.0, float("inf")]},
        {"evidence": [1]},
    ],
)
def test_a_finding_with_a_field_of_the_wrong_type_is_refused(change: dict[str, object]) -> None:
    event = json.loads(cloudevents.encode_event(events.to_event(FINDING, source="/s", time_ns=1)))
    event["data"] = {**event["data"], **change}
    with pytest.raises(EventError, match="unusable data"):
        events.finding_from(event)


def test_a_newer_fact_behind_a_finding_may_have_more_fields() -> None:
    event = json.loads(cloudevents.encode_event(events.to_event(FINDING, source="/s", time_ns=1)))
    event["data"]["evidence"][0]["added later"] = 1
    assert events.finding_from(event) == FINDING


def test_a_newer_reason_for_a_hint_may_have_more_fields() -> None:
    event = events.to_event(HINT, source="/s", time_ns=1)
    event["data"]["evidence"] = [{**fact, "confidence": 0.9} for fact in event["data"]["evidence"]]
    assert events.hint_from(event) == HINT


def test_the_newest_state_and_the_newest_mark_are_kept_whatever_the_order() -> None:
    known = KnownFindings()
    newer = replace(FINDING, updated_ns=FINDING.updated_ns + 1, held=False)
    repaired = replace(MARK, verdict=Verdict.REPAIRED, time_ns=MARK.time_ns + 1)
    for one in (newer, FINDING, repaired, MARK, ALERT):
        known.add(cloudevents.encode_event(events.to_event(one, source="/s", time_ns=1)))
    known.add(b"{}")
    assert known.findings == {"f1": newer}
    assert known.marks == {"f1": repaired}
    assert known.unusable == 1

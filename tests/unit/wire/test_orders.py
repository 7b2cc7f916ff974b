"""Orders to stop trials: as events, and in the file of a node."""

from dataclasses import replace

import pytest

from kernelcast.wire.cloudevents import decode_event, encode_event
from kernelcast.wire.errors import EventError
from kernelcast.wire.tuning.orders import MAX_FILE_BYTES, StopOrder, file_text, reasons_in, stop_event, stop_from

ORDER = StopOrder("train", "node1", reason="driver update", by="ana", time_ns=1_700_000_000_000_000_000)


def test_an_order_survives_kafka() -> None:
    event = stop_event(ORDER, source="/test")
    assert (event["type"], event["subject"]) == ("dev.kernelcast.stop.v1", "stop|train|node1")
    assert stop_from(decode_event(encode_event(event))) == ORDER


def test_unknown_fields_are_ignored_and_missing_ones_have_their_defaults() -> None:
    event = stop_event(ORDER, source="/test")
    assert stop_from({**event, "data": {"program": "train", "until_ns": 5}}) == StopOrder("train")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "dev.kernelcast.hint.v1"}, "expected 'dev.kernelcast.stop.v1'"),
        ({"data": None}, "no data object"),
        ({"data": {"program": 1}}, "program is 1: it is not a text"),
        ({"data": {"in_force": 1}}, "in_force is 1: it is neither true nor false"),
        ({"data": {"node": ""}}, "names ''; a program or node is 1 to 128"),
        ({"data": {"program": "a\tb"}}, "printable"),
    ],
)
def test_an_event_that_is_no_order_is_refused_with_the_reason(change: dict[str, object], message: str) -> None:
    with pytest.raises(EventError, match=message):
        stop_from({**stop_event(ORDER, source="/test"), **change})


def test_no_two_pairs_of_names_have_one_key() -> None:
    pairs = [("a|", "b"), ("a", "|b"), ("a%7C", "b"), ("a", "b"), ("a|b", "")]
    assert len({replace(ORDER, program=program, node=node).key for program, node in pairs}) == len(pairs)


def test_the_file_names_programs_with_reasons_on_one_line_each() -> None:
    text = file_text({"train / a": "stopped by ana: driver\nupdate", "*": ""})
    assert text == "*\t\ntrain / a\tstopped by ana: driver update\n"
    assert reasons_in(text) == {"train / a": "stopped by ana: driver update", "*": ""}


def test_a_file_for_too_many_programs_stops_all() -> None:
    text = file_text({f"program {number}": "r" * 100 for number in range(4000)})
    assert len(text) < MAX_FILE_BYTES
    assert list(reasons_in(text)) == ["*"]

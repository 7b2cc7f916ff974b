"""`kernelcast hints`: outcomes are counted once, and exported with their own facts."""

from tests.support.runtime.kafka_record import Record

from kernelcast.cli.hints.known import KnownHints
from kernelcast.cli.hints.values import kept_rows
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.events import Outcome, OutcomeState, to_event
from kernelcast.wire.topics import OUTCOMES


def test_an_outcome_that_was_written_twice_is_listed_once() -> None:
    known = KnownHints()
    kept = Outcome("h1", "train", "block", OutcomeState.KEPT)
    values = [encode_event(to_event(kept, source="/a", time_ns=0, event_id=one)) for one in ("e1", "e1", "e2")]
    shown = [known.add(Record((OUTCOMES.name, 0, offset), value, 1)) for offset, value in enumerate(values)]
    assert shown == [kept, None, kept]
    assert len(known.records["h1"].answers) == 2
    assert known.unusable == 0


def test_the_export_of_a_search_has_the_device_model_and_code_version_of_its_outcome() -> None:
    known = KnownHints()
    kept = Outcome("search-1", "train", "block", OutcomeState.KEPT, device_model="H200", code_version="v2")
    known.add(Record((OUTCOMES.name, 0, 0), encode_event(to_event(kept, source="/a", time_ns=0)), 1))
    (row,) = kept_rows(known)
    assert (row["device_model"], row["code_version"]) == ("H200", "v2")

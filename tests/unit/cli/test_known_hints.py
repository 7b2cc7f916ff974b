"""`kernelcast hints` counts an outcome once, however often it was written."""

from tests.support.runtime.kafka_record import Record

from kernelcast.cli.hints.known import KnownHints
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

"""`kernelcast hints`: outcomes are counted once, and exported with their own facts."""

import io
import sys
from dataclasses import replace

import pytest
from tests.support.runtime.kafka_record import Record

from kernelcast.cli.hints.known import HintRecord, KnownHints
from kernelcast.cli.hints.values import kept_rows, outcome_of
from kernelcast.cli.kafka import show_table
from kernelcast.runtime.terminal import printable
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.events import Hint, Outcome, OutcomeState, to_event
from kernelcast.wire.topics import OUTCOMES
from kernelcast.wire.tuning.approvals import RESTART, ApprovalState, answer_to


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


def test_an_export_has_no_value_that_was_taken_back_since() -> None:
    """Given to `KERNELCAST_SET`, it would be in force on every node."""
    known = KnownHints()
    kept = Outcome("search-1", "train", "block", OutcomeState.KEPT, value="128", previous="48", hostname="a")
    checked = replace(
        kept, hint_id="search-2", state=OutcomeState.ROLLED_BACK, value="48", previous="128", candidate="128"
    )
    again = replace(kept, hint_id="search-3")
    for offset, one in enumerate((kept, replace(kept, hint_id="search-4", hostname="b"), checked)):
        known.add(Record((OUTCOMES.name, 0, offset), encode_event(to_event(one, source="/a", time_ns=0)), offset + 1))
    assert [row["hostname"] for row in kept_rows(known)] == ["b"]
    known.add(Record((OUTCOMES.name, 0, 9), encode_event(to_event(again, source="/a", time_ns=0)), 9))
    assert [row["hint_id"] for row in kept_rows(known)] == ["search-3", "search-4"]


@pytest.mark.parametrize(
    "verdict",
    [
        '{"decision": "kept", "ratio": -1}',
        f'{{"decision": "kept", "runs": 1{"0" * 30}}}',
        '{"decision": "kept", "runs": -8}',
        "[" * 100_000,
    ],
    ids=["a negative ratio", "over 64 bits of runs", "negative runs", "nested"],
)
def test_a_verdict_that_no_reader_would_accept_is_not_reported(verdict: str) -> None:
    with pytest.raises(ConfigurationError, match=r"python -m kernelcast\.tuning\.runs"):
        outcome_of(approved(), verdict)


def test_a_verdict_is_reported_with_its_figures_and_without_those_that_no_float_holds() -> None:
    found = outcome_of(approved(), '{"decision": "kept", "ratio": 0.8, "interval": [0.7, 0.9], "runs": 8}')
    assert (found.measured_ratio, found.measured_interval, found.pairs) == (0.8, (0.7, 0.9), 4)
    assert found.state is OutcomeState.KEPT
    huge = outcome_of(approved(), f'{{"decision": "kept", "ratio": 1{"0" * 400}}}')
    assert huge.measured_ratio is None


def approved() -> HintRecord:
    """A hint for a restart that a person has approved."""
    hint = Hint("h1", "train", "batch", "64", 2**62, requires="32", granularity=RESTART)
    return HintRecord("h1", hint, approval=answer_to(hint, ApprovalState.APPROVED, by="ana", reason="", time_ns=1))


def test_a_text_of_a_program_is_one_line_and_controls_no_terminal() -> None:
    assert (
        printable("CompilationError: at 3:4\n x \x1b[2J\x1b]0;owned\x07 é")
        == "CompilationError: at 3:4  x  [2J ]0;owned  é"
    )


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_table_shows_a_text_of_a_program_as_it_is(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> None:
    output = io.StringIO()
    monkeypatch.setattr(output, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys, "stdout", output)
    show_table(("a", "b"), [("[/red]", "x\x1b[2J"), ("[bold]y", "z")])
    shown = output.getvalue()
    assert all(text in shown for text in ("[/red]", "[bold]y"))
    assert "\x1b[2J" not in shown

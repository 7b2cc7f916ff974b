"""`kernelcast hints`: an option that makes no sense is named, and nothing is written to Kafka."""

from typing import Any

import pytest

from kernelcast.cli import kafka
from kernelcast.cli.app import run
from kernelcast.cli.hints import answering
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.tuning.approvals import Approval, ApprovalState, search_id


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys of the events that were written."""
    keys: list[str] = []
    monkeypatch.setattr(answering, "require", lambda *_: None)
    monkeypatch.setattr(answering, "write_event", lambda *_, key, **__: keys.append(key))
    return keys


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--days", "nan"),
        ("--days", "inf"),
        ("--days", "1e300"),
        ("--days", "1e6"),
        ("--days", "0"),
        ("--days", "-1"),
        ("--most", "0"),
        ("--most", "99999999999999999999"),
    ],
)
def test_an_approval_that_no_program_could_use_is_refused(
    option: str, value: str, written: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["hints", "approve-search", "train", "space", option, value]) == 2
    assert f"{option} is " in capsys.readouterr().err
    assert not written


@pytest.mark.parametrize("most", [0, 10**9])
def test_an_approval_with_any_number_of_candidates_can_be_withdrawn(
    most: int, written: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Another client may have written the number."""
    withdrawn = Approval(search_id("train", "space"), "train", "space", "", state=ApprovalState.WITHDRAWN, most=most)
    answering.answer_search(KafkaSettings(), withdrawn)
    assert written == [withdrawn.key]
    assert "withdrawn" in capsys.readouterr().out


def test_a_name_that_is_no_text_is_refused_before_kafka_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_producer(*_: Any, **__: Any) -> None:
        pytest.fail("a producer was opened")

    monkeypatch.setattr(kafka, "Producer", no_producer)
    settings = KafkaSettings()
    with pytest.raises(ConfigurationError, match="the order cannot be written"):
        kafka.write_event(settings, client="c", topic="t", key="\udcff", event={"a": "\udcff"}, subject="the order")

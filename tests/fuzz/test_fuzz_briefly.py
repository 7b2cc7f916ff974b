import signal
from collections.abc import Iterator

import pytest
from tests.fuzz.run import main


@pytest.fixture
def own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGALRM, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_signals")
def test_no_mutated_message_breaks_a_parser_or_the_messages_around_it(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = main(["--inputs", "6000", "--seed", "7"])
    assert outcome == 0, capsys.readouterr().out

import pytest
from tests.support.columnar.otlp_messages import delimited
from tests.unit.columnar.test_decoder import gauge

from kernelcast.columnar import Decoder
from kernelcast.columnar.decoding import foreign

NUMBER_POINT_ATTRIBUTES = 7
VALUE = 2


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Messages that protobuf was asked about."""
    messages: list[bytes] = []
    check = foreign.check

    def noted(message: bytes, where: int) -> None:
        messages.append(message)
        check(message, where)

    monkeypatch.setattr(foreign, "check", noted)
    return messages


def with_value(value: bytes) -> bytes:
    """A message whose one attribute has these bytes as its AnyValue."""
    attribute = delimited(NUMBER_POINT_ATTRIBUTES, delimited(1, b"gpu") + delimited(VALUE, value))
    metric = delimited(1, b"m") + delimited(5, delimited(1, attribute))
    return delimited(1, delimited(2, delimited(2, metric)))


@pytest.mark.parametrize(
    "message",
    [
        gauge(gpu="0", UUID="a", empty=""),
        with_value(b"\x10\x01"),  # a boolean
        with_value(b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),  # the integer -1
        with_value(b"\x21" + b"\0" * 8),  # a double
        with_value(b""),
    ],
)
def test_a_new_series_of_plain_attributes_is_read_without_protobuf(message: bytes, parsed: list[bytes]) -> None:
    assert len(Decoder().decode([message]).numbers.series) == 1
    assert not parsed


@pytest.mark.parametrize(
    "message",
    [
        gauge(gpu="é"),
        gauge(host="é"),
        gauge(é="0"),
        with_value(delimited(5, b"")),  # an array
        with_value(b"\x10\x01\x10\x01"),
    ],
)
def test_protobuf_is_asked_about_other_new_series_once(message: bytes, parsed: list[bytes]) -> None:
    decoder = Decoder()
    assert [len(decoder.decode([message]).numbers.series) for _ in range(2)] == [1, 1]
    assert parsed == [message]


def test_text_that_is_not_utf_8_is_refused() -> None:
    message = with_value(delimited(1, b"\xff"))
    assert [index for index, _ in Decoder().decode([message]).failures] == [0]

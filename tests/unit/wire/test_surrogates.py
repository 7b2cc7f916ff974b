import pytest

from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.errors import EventError, FrameError
from kernelcast.wire.frames import HEADER, MAGIC, PROTOCOL_VERSION, Names, decode


def names_frame(signature: bytes) -> bytes:
    return (
        HEADER.pack(MAGIC, PROTOCOL_VERSION, Names.TYPE) + b'{"names":[{"kernel":5,"signature":"' + signature + b'"}]}'
    )


def test_a_frame_with_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(FrameError, match="surrogate"):
        decode(names_frame(b"gemm\\ud800"))


def test_a_frame_with_a_whole_pair_is_read() -> None:
    frame = decode(names_frame(b"gemm \\ud83d\\ude80"))
    assert isinstance(frame, Names)
    assert frame.names[0].signature == "gemm \N{ROCKET}"


def test_an_event_with_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(EventError, match="surrogate"):
        decode_event(b'{"specversion":"1.0","id":"a\\udfff","source":"x","type":"t"}')

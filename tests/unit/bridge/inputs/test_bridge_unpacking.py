"""Compressed messages of several members or frames are read whole, and within the limits."""

import gzip
import time
from collections.abc import Callable

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.shapes import in_snappy

from kernelcast.bridge.inputs.unpacking import MAX_GZIP_MEMBERS, unpacked
from kernelcast.columnar import DecoderLimits
from kernelcast.wire.errors import DecodeError

LIMITS = DecoderLimits()
EMPTY = gzip.compress(b"", mtime=0)


def in_zstd(content: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(content))


PACKERS: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": in_zstd}


@pytest.mark.parametrize("encoding", PACKERS)
@given(contents=st.lists(st.binary(max_size=300_000), min_size=1, max_size=5))
def test_every_member_of_a_message_is_read(encoding: str, contents: list[bytes]) -> None:
    message = b"".join(map(PACKERS[encoding], contents))
    assert unpacked(message, encoding, LIMITS) == b"".join(contents)


@pytest.mark.parametrize("behind", [b"garbage", b"\0", b"\x1f", b"\x1f\x8b", gzip.compress(b"b 2\n", mtime=0)[:-3]])
def test_what_follows_the_last_member_of_gzip_must_be_a_member(behind: bytes) -> None:
    with pytest.raises(DecodeError, match="is no gzip"):
        unpacked(gzip.compress(b"a 1\n") + behind, "gzip", LIMITS)


@pytest.mark.parametrize("behind", [b"garbage", b"\0", in_zstd(b"b 2\n")[:-3]])
def test_what_follows_the_last_frame_of_zstd_must_be_a_frame(behind: bytes) -> None:
    with pytest.raises(DecodeError, match="is no zstd"):
        unpacked(in_zstd(b"a 1\n") + behind, "zstd", LIMITS)


def test_a_block_of_snappy_ends_where_it_says() -> None:
    with pytest.raises(DecodeError, match="is no snappy"):
        unpacked(in_snappy(b"a 1\n") + in_snappy(b"b 2\n"), "snappy", LIMITS)


@pytest.mark.parametrize("encoding", PACKERS)
def test_the_limit_holds_for_all_members_together(encoding: str) -> None:
    limits = DecoderLimits(message_bytes=1_000)
    member = PACKERS[encoding](bytes(400))
    assert len(unpacked(member * 2 + PACKERS[encoding](bytes(200)), encoding, limits)) == 1_000
    with pytest.raises(DecodeError, match="the limit is 1000"):
        unpacked(member * 3, encoding, limits)


def test_members_without_content_are_bounded() -> None:
    assert unpacked(EMPTY * MAX_GZIP_MEMBERS, "gzip", LIMITS) == b""
    began = time.process_time()
    with pytest.raises(DecodeError, match=f"the limit is {MAX_GZIP_MEMBERS}"):
        unpacked(EMPTY * (LIMITS.message_bytes // len(EMPTY)), "gzip", LIMITS)
    assert time.process_time() - began < 5  # 0.05 s on a quiet machine; each member once cost a copy of the rest

"""Ways to break a message: bytes, tokens of text formats, lines, splices."""

import random
from collections.abc import Sequence

from tests.support.columnar.otlp_messages import broken

TOKENS = (
    b'"', b"\\", b"{", b"}", b"[", b"]", b",", b"=", b" ", b"\t", b"\n", b"\r\n", b"#", b":", b"\x00", b"\xff", b"\xc3",
    b"NaN", b"-", b"+", b"1e999", b"1_0", b"0x1p3", b"9" * 25, b"null", b"true", b"-1", b"1.5", b"18446744073709551616",
    "\N{ARABIC-INDIC DIGIT ONE}".encode(), "é".encode(), b" # {",
    b"# TYPE x histogram\n", b"# TYPE x_bucket counter\n", b"# EOF",
    b'le="0.1"',
    b"_created", b"_total", b"[[[[[[[[", b'{"":', b"\xed\xa0\x80", b"i", b"u", b'a="', b"\\n", b"\\\\", b"\\\n",
)  # fmt: skip
SORTS = tuple(tuple(bytes([byte]) for byte in range(sort << 5, (sort + 1) << 5)) for sort in range(8))
"""Control characters, punctuation and digits, capitals, letters, and bytes above."""


def mutated(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds, changed once or a few times."""
    message = rng.choice(seeds)
    for _ in range(rng.choice((0, 1, 1, 1, 1, 2, 4))):
        message = _changed(rng, message, seeds)
    return message


def _changed(rng: random.Random, message: bytes, seeds: Sequence[bytes]) -> bytes:
    kind = rng.randrange(9)
    at = rng.randrange(len(message) + 1)
    if kind > 5 and at < len(message):  # one byte for another of its sort: lengths and grammar mostly stay whole
        return message[:at] + rng.choice(SORTS[message[at] >> 5]) + message[at + 1 :]
    if kind == 0:
        return message[:at] + rng.choice(TOKENS) + message[at:]
    if kind == 1:
        return message[:at] + rng.choice(TOKENS) + message[at + rng.randrange(1, 6) :]
    if kind == 2:
        return message[:at] + message[at + rng.randrange(1, 12) :]
    if kind == 3:
        other = rng.choice(seeds)
        return message[:at] + other[rng.randrange(len(other) + 1) :]
    return _shuffled(rng, message) if kind == 4 else broken(rng, message)


def _shuffled(rng: random.Random, message: bytes) -> bytes:
    lines = message.split(b"\n")
    rng.shuffle(lines)
    return b"\n".join(lines)

"""A set of ordinals below a limit as compressed text: one bit for each configuration of the product.

`Space.to_document` and `from_document` use it. Example: ordinals 0 and 9 of a product of 12 are the bytes 01 02.
"""

import base64
import binascii
import zlib
from array import array
from collections.abc import Iterable
from typing import Final

from kernelcast.wire.errors import SpaceError

MAX_PRODUCT: Final = 1 << 24
"""Largest product of the values' counts whose valid set can travel: a bitmap of 2 MiB before compression."""


def encode(ordinals: Iterable[int], product: int) -> str:
    """Encode a set of ordinals; bit `n & 7` of byte `n >> 3` is set for each ordinal n.

    Raises:
        SpaceError: The product is too large.
    """
    _check(product)
    bits = bytearray((product + 7) // 8)
    for ordinal in ordinals:
        bits[ordinal >> 3] |= 1 << (ordinal & 7)
    return base64.b64encode(zlib.compress(bytes(bits), 9)).decode("ascii")


def decode(text: str, product: int) -> "array[int]":
    """Decode a set of ordinals, sorted.

    Raises:
        SpaceError: The text is no bitmap of this size.
    """
    _check(product)
    size = (product + 7) // 8
    try:
        inflate = zlib.decompressobj()
        bits = inflate.decompress(base64.b64decode(text, validate=True), size + 1)
    except (binascii.Error, zlib.error, ValueError) as error:
        raise SpaceError(
            f"the bitmap of valid configurations cannot be read: {error}; export the space again"
        ) from None
    if len(bits) != size or not inflate.eof or inflate.unused_data:
        raise SpaceError(
            f"the bitmap of valid configurations has not the {size} bytes of a product of {product}; "
            "export the space again"
        )
    found: array[int] = array("Q")
    for place, byte in enumerate(bits):
        if byte:
            found.extend((place << 3) + bit for bit in range(8) if byte >> bit & 1)
    if found and found[-1] >= product:
        raise SpaceError(f"the bitmap has configuration {found[-1]}; the product has {product}; export the space again")
    return found


def _check(product: int) -> None:
    if not 0 < product <= MAX_PRODUCT:
        raise SpaceError(
            f"the product of all values is {product:,}; a bitmap takes at most {MAX_PRODUCT:,}; use fewer values"
        )

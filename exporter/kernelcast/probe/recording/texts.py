"""Makes a program's texts and numbers fit for frames: valid UTF-8 without NUL, bounded length, integers in range."""

from typing import Final

from kernelcast.wire.kernels import OTHER, kernel_id, normalise

Dimensions = str | int | tuple[int, ...] | None

MAX_DIMENSIONS_CHARACTERS: Final = 64
MAX_SIGNATURE_CHARACTERS: Final = 4096
LONGEST_NS: Final = 2**50
"""13 days; a longer duration is a mistake of the caller."""


def printable(raw: str) -> str:
    """Return the normalised signature in valid UTF-8, with a length that fits a frame."""
    signature = normalise(plain(str(raw))) or OTHER
    if len(signature) <= MAX_SIGNATURE_CHARACTERS:
        return signature
    return f"{signature[:MAX_SIGNATURE_CHARACTERS]}...#{kernel_id(signature):016x}"


def plain(text: str) -> str:
    """Return a text in valid UTF-8 without NUL."""
    return text if text.isascii() and text.isprintable() else text.replace("\0", "?").encode(errors="replace").decode()


def dimensions(value: Dimensions) -> str:
    """Format `(48, 1, 1)` as `48x1x1`; a text is not changed. Empty for a value without a text."""
    if value is None:
        return ""
    try:
        shown = "x".join(str(part) for part in value) if isinstance(value, tuple) else str(value)
    except Exception:  # noqa: BLE001  one kernel's dimensions must not prevent the frames of all
        return ""
    return plain(shown[:MAX_DIMENSIONS_CHARACTERS])


def whole(value: int, limit: int = LONGEST_NS) -> int:
    """Convert to an int, because numpy's integers cannot be written as JSON.

    Raises:
        ValueError: The number is not a whole number from 0 to below `limit`.
    """
    number = int(value)
    if not 0 <= number < limit:
        raise ValueError(value)
    return number

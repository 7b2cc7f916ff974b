"""Errors for messages that exceed a limit; the decoder raises them as the reason of a dead letter."""

from kernelcast.columnar.columns import Int64Array
from kernelcast.columnar.decoding.limits import DecoderLimits
from kernelcast.columnar.walk.histograms import MAX_SCALE, MIN_SCALE
from kernelcast.columnar.walk.layout import MAX_BUCKETS, MAX_IDENTITIES, MAX_IDENTITY_BYTES, MAX_POINTS, MessageStatus
from kernelcast.wire.errors import DecodeError


def too_long(length: int, limits: DecoderLimits) -> DecodeError:
    """The error for a message above `DecoderLimits.message_bytes`."""
    return DecodeError(
        f"message is {length} bytes; the limit is {limits.message_bytes}; "
        "split exports at the producer, or raise the limit"
    )


def over_limit(status: MessageStatus, control: Int64Array, where: int) -> DecodeError:
    """The error for a status of the walk.

    Args:
        status: The reason for which the walk stopped.
        control: The walk's control array, for the limits.
        where: The byte of the message it had reached.
    """
    texts = {
        MessageStatus.TOO_MANY_POINTS: f"message has more than {control[MAX_POINTS]} points, the limit; "
        "split exports at the producer, or raise the limit",
        MessageStatus.TOO_MANY_BUCKETS: f"a point has more than {control[MAX_BUCKETS]} buckets or quantiles, the "
        "limit; lower the instrument's maximum size at the producer, or raise the limit",
        MessageStatus.TOO_MANY_IDENTITIES: f"message brings a series beyond the {control[MAX_IDENTITIES]} that may be "
        "known at once; drop a label of high cardinality at the producer, spread partitions over more consumers, or "
        "raise max_identities",
        MessageStatus.IDENTITY_TOO_LONG: f"attributes, or a name and unit, are longer than "
        f"{control[MAX_IDENTITY_BYTES]} bytes, the limit; shorten them at the producer, or raise the limit",
        MessageStatus.SCALE_OUT_OF_RANGE: f"an exponential histogram's scale lies outside {MIN_SCALE}..{MAX_SCALE}, "
        "the range of OpenTelemetry's SDKs; look at the producer",
        MessageStatus.OFFSET_OUT_OF_RANGE: "an exponential histogram's last bucket has an index above 2**31 - 1; "
        "look at the producer",
        MessageStatus.BUCKETS_UNMATCHED: "a histogram's bucket counts and bounds do not match; there must be one count "
        "more than bounds, or none of either; look at the producer",
        MessageStatus.BOUNDS_UNSORTED: "a histogram's bounds do not rise strictly; look at the producer",
    }
    reason = texts.get(
        status, f"the walk stops with {status.name}, though protobuf accepts the message; please report it"
    )
    return DecodeError(f"{reason} (in or after the field at byte {where})")

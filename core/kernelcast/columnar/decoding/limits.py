"""Limits of one message; the decoder refuses a message beyond them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DecoderLimits:
    """Limits of a decoder; with them the memory that a hostile message takes is a small multiple of its length.

    Attributes:
        message_bytes: Longest message; Kafka's default is 1 MiB, ours are split at 512 KiB.
        points_per_message: Points of every kind in one message; a summary has one for each quantile, sum and count.
        buckets_per_point: Buckets, or bounds, of one histogram point; SDKs default to 160.
        identity_bytes: Attribute bytes of one point, of one resource, or name and unit of one metric.
    """

    message_bytes: int = 8 * 1024 * 1024
    points_per_message: int = 1_000_000
    buckets_per_point: int = 10_000
    identity_bytes: int = 64 * 1024

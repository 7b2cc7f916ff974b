"""A receiver's answer to a request, and the decision that follows; `Receiver` makes it, `Delivery` acts on it."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class RetryDecision(Enum):
    """Decision about the points of a request."""

    ACKNOWLEDGED = "acknowledged"
    """The receiver has stored it: commit its messages."""
    REFUSED = "refused"
    """The receiver has examined and rejected it; the same request would be rejected again."""
    AGAIN = "again"
    """It did not reach a receiver that could process it: send the same again after a pause."""
    UNSUPPORTED = "unsupported"
    """The receiver does not know the format: `WriteSender` tries 1.0 after 2.0; else it is sent again like AGAIN."""


@dataclass(frozen=True, slots=True)
class PushAnswer:
    """An answer.

    Attributes:
        decision: The decision.
        cause: Its cause, a value of the label `cause`.
        detail: Its cause in the receiver's words.
        retry_after_seconds: The pause that the receiver asks for.
        discarded: Points that the receiver rejected in a request whose other points it stored.
        headers: Of the response, names in lower case.
        body: Of the response, its beginning.
    """

    decision: RetryDecision
    cause: str = ""
    detail: str = ""
    retry_after_seconds: float | None = None
    discarded: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


CAUSES: Final = (
    ("out of order", "out_of_order"),
    ("duplicate sample", "duplicate"),
    ("too old", "too_old"),
    ("out of bounds", "out_of_bounds"),
    ("too far in the future", "out_of_bounds"),
)
"""Words of Prometheus' storage errors (storage/interface.go), and the cause for each."""

CONTENT_TOO_LARGE: Final = 413
UNSUPPORTED_MEDIA_TYPE: Final = 415
NATIVE_DISABLED: Final = "native histograms are disabled"
"""An old Prometheus says so with a 500; the destination's `native_histograms: false` is the remedy."""

UNPROCESSED: Final = frozenset({401, 403, 404, 405, 407})
"""Statuses of requests that were not examined: a wrong token or path, a receiver that is switched off.

The remote write specification demands that their points are dropped, as for every 4xx but 429. An expired token would
then empty the backlog; here it stays in Kafka until the settings are corrected.
"""


def decide(status: int, text: str) -> tuple[RetryDecision, str]:
    """The decision and its cause, by HTTP status and the response's text."""
    if 200 <= status < 300:
        return RetryDecision.ACKNOWLEDGED, ""
    if status == UNSUPPORTED_MEDIA_TYPE:
        return RetryDecision.UNSUPPORTED, "configuration"
    retried = _cause_of_retry(status, text)
    if retried:
        return RetryDecision.AGAIN, retried
    if status == CONTENT_TOO_LARGE:
        return RetryDecision.REFUSED, "too_large"
    lowered = text.lower()
    return RetryDecision.REFUSED, next((cause for words, cause in CAUSES if words in lowered), "refused")


def _cause_of_retry(status: int, text: str) -> str:
    """Reason why the same request may succeed later; empty where it will not."""
    if status >= 500:
        return "configuration" if NATIVE_DISABLED in text else "server_error"
    if status < 400 or status in UNPROCESSED:
        return "configuration"
    return {429: "throttled", 408: "network"}.get(status, "")

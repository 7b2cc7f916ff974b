"""Reads the bodies of requests, each up to a limit, so that no client fills the memory; the bridge's routes call it."""

from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request


class RefusedBodyError(Exception):
    """A body that is not read to its end.

    Attributes:
        status: HTTP status of the answer.
        reason: Reason for the refusal.
    """

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


async def read_body(request: Request, most_bytes: int, advice: str) -> bytes:
    """Read a body; refuse it as soon as it is too long.

    Args:
        request: The request.
        most_bytes: Largest length.
        advice: Remedy for a body that is too long.

    Raises:
        RefusedBodyError: The body is too long, or the connection has ended before it did.
    """
    parts: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > most_bytes:
                reason = f"the body is longer than {most_bytes} bytes; {advice}"
                raise RefusedBodyError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)
            parts.append(chunk)
    except ClientDisconnect:
        raise RefusedBodyError(HTTPStatus.BAD_REQUEST, "the connection ended before the body did") from None
    return b"".join(parts)

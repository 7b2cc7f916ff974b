"""Basic authentication against bcrypt hashes, with limits on the cost of wrong passwords; `guard` calls it.

bcrypt is slow on purpose: 60 ms of a core at cost 10. So results are cached, one hash is computed at a time, addresses
take turns, and an address that keeps sending wrong passwords is refused with 429 before anything is computed.
"""

import asyncio
import base64
import binascii
import hmac
import os
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Final

from kernelcast.runtime.token_bucket import TokenBucket

CACHED_SUCCESSES: Final = 1000
CACHED_FAILURES: Final = 100
"""Digests of credentials whose result is known; a scraper sends the same ones each time, right or wrong."""
MAX_WAITING: Final = 64
"""Hashes that wait, over all addresses."""
MAX_WAITING_PER_ADDRESS: Final = 8
"""Hashes that wait for one address."""
WRONG_PASSWORD_BURST: Final = 10
"""Wrong passwords that an address may send before it is slowed down to one in `WRONG_INTERVAL_SECONDS`."""
WRONG_INTERVAL_SECONDS: Final = 1.0
REMEMBERED_ADDRESSES: Final = 1000
"""Addresses with a bucket of wrong passwords; of more, the one that was used longest ago is forgotten."""

_UNKNOWN_USER_HASH: Final = "$2b$%s$HNhQjuuURwVCxkr07.kjcupLAhJ7MTTkwUGTA99MeORbVBAre4YP6"
"""Compared for users who do not exist, with the highest cost of those who do, so that the time of an answer does not
show which users exist. Its password is unknown; a constant costs no hash at each start."""


class LoginResult(Enum):
    """Result of a login."""

    RIGHT = "right"
    WRONG = "wrong"
    ADDRESS_LIMIT = "address"
    """The address has sent too many wrong passwords, or waits for too many hashes."""
    QUEUE_LIMIT = "queue"
    """Too many hashes wait."""


class QueueFullError(Exception):
    """Too many hashes wait; the result says which limit was reached."""

    def __init__(self, result: LoginResult) -> None:
        super().__init__(result)
        self.result = result


class Logins:
    """Checks `Authorization` headers. For the event loop's thread only."""

    def __init__(
        self,
        *,
        matches: Callable[[bytes, bytes], bool] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Check passwords.

        Args:
            matches: Whether a password is that of a hash, called on a thread; bcrypt by default.
            clock: Seconds; never goes back.
        """
        self._matches, self._clock = matches or _matches, clock
        self._right = _Recent(CACHED_SUCCESSES)
        self._wrong = _Recent(CACHED_FAILURES)
        self._secret = os.urandom(32)
        self._queue = HashQueue()
        self._running: dict[bytes, asyncio.Future[LoginResult]] = {}
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    async def check(self, users: dict[str, str], authorization: str, *, address: str) -> LoginResult:
        """Check whether a header names a user with the right password.

        Args:
            users: bcrypt hashes by user.
            authorization: The header's value.
            address: Origin of the request (`connections.origin_of`).
        """
        credentials = _credentials(authorization)
        if credentials is None:
            return LoginResult.WRONG
        user, password = credentials
        hashed = (users.get(user) or _unknown_user_hash(users)).replace("$2y$", "$2b$", 1).encode()
        digest = hmac.digest(self._secret, b"\0".join((user.encode(), hashed, password)), "sha256")
        if self._right.knows(digest):
            return LoginResult.RIGHT
        if self._wrong.knows(digest):
            return LoginResult.WRONG
        if (running := self._running.get(digest)) is not None:
            return await asyncio.shield(running)
        return await self._compare_once(digest, lambda: self._matches(password, hashed) and user in users, address)

    async def _compare_once(self, digest: bytes, compare: Callable[[], bool], address: str) -> LoginResult:
        """Compare once; requests that come meanwhile with the same credentials wait for this result."""
        running: asyncio.Future[LoginResult] = asyncio.get_running_loop().create_future()
        self._running[digest] = running
        result = LoginResult.QUEUE_LIMIT
        try:
            result = await self._compare(digest, compare, address)
        finally:
            del self._running[digest]
            running.set_result(result)
        return result

    async def _compare(self, digest: bytes, compare: Callable[[], bool], address: str) -> LoginResult:
        # Each hash costs a token, and a right password gives it back: only wrong ones use the bucket up.
        bucket = self._bucket(address)
        if not bucket.take():
            return LoginResult.ADDRESS_LIMIT
        try:
            async with self._queue.turn(address):
                right = await asyncio.to_thread(compare)
        except QueueFullError as full:
            bucket.give_back()
            return full.result
        if right:
            bucket.give_back()
        (self._right if right else self._wrong).add(digest)
        return LoginResult.RIGHT if right else LoginResult.WRONG

    def _bucket(self, address: str) -> TokenBucket:
        bucket = self._buckets.setdefault(
            address, TokenBucket(WRONG_INTERVAL_SECONDS, WRONG_PASSWORD_BURST, self._clock)
        )
        self._buckets.move_to_end(address)
        while len(self._buckets) > REMEMBERED_ADDRESSES:
            self._buckets.popitem(last=False)
        return bucket


class _Recent:
    """A bounded set of digests; of too many, the one that was used longest ago is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def knows(self, digest: bytes) -> bool:
        if digest not in self._digests:
            return False
        self._digests.move_to_end(digest)
        return True

    def add(self, digest: bytes) -> None:
        self._digests[digest] = None
        while len(self._digests) > self._most:
            self._digests.popitem(last=False)


class HashQueue:
    """A queue in which one hash is computed at a time. For the event loop's thread.

    Addresses take turns: an address that waits for many hashes delays another one by one hash only.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._taken = False

    @asynccontextmanager
    async def turn(self, address: str) -> AsyncIterator[None]:
        """Wait for the address's turn, and keep it.

        Raises:
            QueueFullError: Too many wait, of this address or in all.
        """
        if self._taken:
            await self._wait(address)
        self._taken = True
        try:
            yield
        finally:
            self._wake_next()

    async def _wait(self, address: str) -> None:
        own = self._waiting.get(address, ())
        if len(own) >= MAX_WAITING_PER_ADDRESS:
            raise QueueFullError(LoginResult.ADDRESS_LIMIT)
        if sum(map(len, self._waiting.values())) >= MAX_WAITING:
            raise QueueFullError(LoginResult.QUEUE_LIMIT)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the turn had come already, so it goes to the next one
                self._wake_next()
            raise

    def _wake_next(self) -> None:
        while self._waiting:
            address, line = self._waiting.popitem(last=False)
            turn = line.popleft()
            if line:
                self._waiting[address] = line
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False


def _unknown_user_hash(users: dict[str, str]) -> str:
    return _UNKNOWN_USER_HASH % max((hashed.split("$")[2] for hashed in users.values()), default="10")


def _credentials(authorization: str) -> tuple[str, bytes] | None:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, separator, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if separator else None
    except (binascii.Error, UnicodeDecodeError):
        return None


def _matches(password: bytes, hashed: bytes) -> bool:
    import bcrypt  # noqa: PLC0415  most sites have no users, and their daemons do without it

    try:
        return bcrypt.checkpw(password, hashed)
    except ValueError:
        # Longer than 72 bytes, which bcrypt cannot tell from their beginning.
        return False

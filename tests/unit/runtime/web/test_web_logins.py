"""Logins: the cache, the queue of password checks, and the limit by address."""

import asyncio
import base64
import threading
from collections.abc import Awaitable, Callable

import bcrypt
import pytest

from kernelcast.runtime.web import logins as web_logins
from kernelcast.runtime.web.connections import origin_of
from kernelcast.runtime.web.logins import HashQueue, LoginResult, Logins, QueueFullError

USERS = {"prometheus": "$2b$04$right"}


def header(password: str, user: str = "prometheus") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Hashes:
    """Compares passwords, counting; only `right` is right."""

    def __init__(self) -> None:
        self.computed: list[bytes] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def matches(self, password: bytes, hashed: bytes) -> bool:
        self.may_go_on.wait(10)
        self.computed.append(password)
        return password == b"right" and hashed == b"$2b$04$right"


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(20):
            await scenario()

    asyncio.run(bounded())


def test_a_password_of_an_unknown_user_takes_as_long_to_check_as_one_of_a_known_user() -> None:
    compared: list[bytes] = []

    def matches(_password: bytes, hashed: bytes) -> bool:
        compared.append(hashed)
        return False

    users = {"prometheus": "$2y$05$" + "a" * 53, "admin": "$2y$12$" + "a" * 53}

    async def scenario() -> None:
        await Logins(matches=matches).check(users, header("guess", user="unknown"), address="a")

    run(scenario)
    assert bcrypt.checkpw(b"guess", compared[0].replace(b"$12$", b"$04$")) is False, "bcrypt accepts the hash"
    assert compared[0].split(b"$")[2] == b"12"


def test_no_number_of_wrong_passwords_makes_the_right_one_be_hashed_again() -> None:
    hashes, clock = Hashes(), Clock()
    logins = Logins(matches=hashes.matches, clock=clock)

    async def scenario() -> None:
        assert await logins.check(USERS, header("right"), address="a") is LoginResult.RIGHT
        for number in range(300):
            clock.seconds += 10
            assert await logins.check(USERS, header(f"w{number}"), address="b") is LoginResult.WRONG
        assert await logins.check(USERS, header("right"), address="a") is LoginResult.RIGHT

    run(scenario)
    assert hashes.computed.count(b"right") == 1


def test_a_scraper_with_a_wrong_password_costs_one_hash_and_is_never_slowed_down() -> None:
    hashes = Hashes()
    logins = Logins(matches=hashes.matches, clock=Clock())

    async def scenario() -> None:
        results = [await logins.check(USERS, header("old"), address="a") for _ in range(100)]
        assert set(results) == {LoginResult.WRONG}

    run(scenario)
    assert hashes.computed == [b"old"]


def test_an_address_that_guesses_is_refused_without_a_hash_until_time_has_passed_and_others_are_not() -> None:
    hashes, clock = Hashes(), Clock()
    logins = Logins(matches=hashes.matches, clock=clock)

    async def guess(number: int, address: str) -> LoginResult:
        return await logins.check(USERS, header(f"w{number}"), address=address)

    async def scenario() -> None:
        results = [await guess(number, "a") for number in range(50)]
        assert results == [LoginResult.WRONG] * 10 + [LoginResult.ADDRESS_LIMIT] * 40
        assert len(hashes.computed) == 10
        assert await guess(50, "b") is LoginResult.WRONG
        clock.seconds += web_logins.WRONG_INTERVAL_SECONDS
        assert [await guess(51, "a"), await guess(52, "a")] == [LoginResult.WRONG, LoginResult.ADDRESS_LIMIT]

    run(scenario)


def test_right_passwords_use_up_nothing() -> None:
    users = {f"u{number}": "$2b$04$right" for number in range(50)}
    logins = Logins(matches=Hashes().matches, clock=Clock())

    async def scenario() -> None:
        results = [await logins.check(users, header("right", user), address="a") for user in users]
        assert set(results) == {LoginResult.RIGHT}

    run(scenario)


def test_a_crowd_with_one_password_waits_for_one_hash() -> None:
    hashes = Hashes()
    hashes.may_go_on.clear()
    logins = Logins(matches=hashes.matches, clock=Clock())

    async def scenario() -> None:
        asked = [asyncio.create_task(logins.check(USERS, header("right"), address=f"a{n % 3}")) for n in range(300)]
        await asyncio.sleep(0)
        hashes.may_go_on.set()
        assert set(await asyncio.gather(*asked)) == {LoginResult.RIGHT}

    run(scenario)
    assert hashes.computed == [b"right"]


def test_a_waiter_that_gives_up_does_not_end_other_waits() -> None:
    hashes = Hashes()
    hashes.may_go_on.clear()
    logins = Logins(matches=hashes.matches, clock=Clock())

    async def scenario() -> None:
        guess = asyncio.create_task(logins.check(USERS, header("wrong"), address="b"))
        await asyncio.sleep(0)
        leaves, stays = (asyncio.create_task(logins.check(USERS, header(word), address="a")) for word in ("x", "right"))
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.sleep(0)
        hashes.may_go_on.set()
        assert (await guess, await stays) == (LoginResult.WRONG, LoginResult.RIGHT)
        assert await logins.check(USERS, header("y"), address="a") is LoginResult.WRONG

    run(scenario)


def test_an_address_with_one_login_waits_for_one_hash_of_an_address_with_many() -> None:
    line, order = HashQueue(), []

    async def one(address: str) -> None:
        async with line.turn(address):
            order.append(address)

    async def scenario() -> None:
        async with line.turn("many"):
            tasks = [asyncio.create_task(one(address)) for address in ("many",) * 6 + ("one",)]
            await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    run(scenario)
    assert order == ["many", "one", "many", "many", "many", "many", "many"]


def test_the_line_is_bounded_for_one_address_and_in_all() -> None:
    line = HashQueue()

    async def scenario() -> None:
        async with line.turn("first"):
            waiting = [asyncio.create_task(enter(line, f"a{n // 8}")) for n in range(web_logins.MAX_WAITING)]
            await asyncio.sleep(0)
            for address, result in (("a0", LoginResult.ADDRESS_LIMIT), ("new", LoginResult.QUEUE_LIMIT)):
                with pytest.raises(QueueFullError) as caught:
                    await enter(line, address)
                assert caught.value.result is result
        await asyncio.gather(*waiting)
        await enter(line, "new")

    run(scenario)


async def enter(line: HashQueue, address: str) -> None:
    async with line.turn(address):
        pass


@pytest.mark.parametrize(
    ("client", "origin"),
    [
        (("192.0.2.7", 1), "192.0.2.7"),
        (("::ffff:192.0.2.7", 1, 0, 0), "192.0.2.7"),
        (("2001:db8:1:2:3::4", 1, 0, 0), "2001:db8:1:2::/64"),
        (("2001:db8:1:2:ffff::", 1, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 1, 0, 2), "fe80::/64"),
        (None, "None"),
    ],
)
def test_addresses_count_by_who_can_have_many_of_them(client: object, origin: str) -> None:
    assert origin_of(client) == origin

"""Answers of a receiver that listens on loopback."""

import threading
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
from tests.support.bridge.list_kafka import ManualClock
from tests.support.push.receivers import answer_with, server
from tests.support.waiting import Stopwatch

from kernelcast.bridge.push.answer import RetryDecision
from kernelcast.bridge.push.receiver import LONGEST_RESPONSE_BYTES, Receiver
from kernelcast.bridge.push.settings import PushSettings


def receiver(url: str, transport: httpx.BaseTransport | None = None, **changes: Any) -> Receiver:
    given_ = {"name": "d", "kind": "otlp", "url": url, "timeout_seconds": 5, **changes}
    return Receiver(PushSettings.model_validate(given_), clock=ManualClock(), transport=transport)


def test_a_success_is_acknowledged_and_its_body_is_read() -> None:
    with server(answer_with(200, b"hello", {"X-Some": "thing"})) as url:
        answer = receiver(url).post(b"body", {})
    assert (answer.decision, answer.body, answer.headers["x-some"]) == (RetryDecision.ACKNOWLEDGED, b"hello", "thing")


def test_a_server_that_hangs_is_given_up_after_the_timeout_and_asked_again() -> None:
    ended = threading.Event()

    def hang(_handler: BaseHTTPRequestHandler) -> None:
        ended.wait(10)

    with server(hang) as url:
        with Stopwatch() as took:
            answer = receiver(url, timeout_seconds=0.2).post(b"body", {})
        ended.set()
    assert took.seconds < 5
    assert (answer.decision, answer.cause) == (RetryDecision.AGAIN, "network")
    assert "ReadTimeout" in answer.detail


def test_a_server_that_closes_without_a_word_is_asked_again() -> None:
    with server(lambda handler: handler.connection.close()) as url:
        answer = receiver(url).post(b"body", {})
    assert (answer.decision, answer.cause) == (RetryDecision.AGAIN, "network")


def test_an_absent_source_is_asked_again() -> None:
    with server(answer_with(200)) as url:
        pass
    assert receiver(url).post(b"body", {}).cause == "network"


def test_no_more_of_an_answer_is_read_than_anybody_needs() -> None:
    with server(answer_with(400, b"x" * (4 * LONGEST_RESPONSE_BYTES))) as url:
        answer = receiver(url).post(b"body", {})
    assert answer.decision is RetryDecision.REFUSED
    assert len(answer.body) == LONGEST_RESPONSE_BYTES
    assert len(answer.detail) < 400

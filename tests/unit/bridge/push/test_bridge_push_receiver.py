"""HTTP as it is: a server on this machine that hangs, closes, demands passwords; and settings that keep secrets."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpcore
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.support.bridge.list_kafka import ManualClock

from kernelcast.bridge.push.answer import RetryDecision, decide
from kernelcast.bridge.push.backoff import LONGEST_ASKED_SECONDS, LONGEST_SECONDS, Backoff, retry_after_seconds
from kernelcast.bridge.push.receiver import Receiver, SecretFile
from kernelcast.bridge.push.settings import PushSettings
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.runtime.settings.service import load
from kernelcast.wire.errors import ConfigurationError


def receiver(url: str, transport: httpx.BaseTransport | None = None, **changes: Any) -> Receiver:
    given_ = {"name": "d", "kind": "otlp", "url": url, "timeout_seconds": 5, **changes}
    return Receiver(PushSettings.model_validate(given_), clock=ManualClock(), transport=transport)


class Listener:
    """Keeps the headers of its requests."""

    def __init__(self) -> None:
        self.seen: list[httpx.Headers] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request.headers)
        return httpx.Response(204)


class SlowReceiver(httpx.BaseTransport):
    """Takes 2 s to connect and 2 s for each part of a body; keeps the seconds that are left to read the answer."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.read_seconds: float | None = None

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.SyncByteStream)
        self._clock.seconds += 2
        for part in request.stream:
            assert len(part) <= 64 * 1024
            self._clock.seconds += 2
        self.read_seconds = request.extensions["timeout"].get("read")
        return httpx.Response(204)


@pytest.mark.parametrize(("kib", "cause"), [(64, ""), (1024, "network")])
def test_all_steps_of_a_request_share_one_time_limit(kib: int, cause: str) -> None:
    clock = ManualClock()
    slow = SlowReceiver(clock)
    settings = PushSettings(name="d", kind="otlp", url="http://receiver/", timeout_seconds=5)
    started = clock.seconds
    assert Receiver(settings, clock=clock, transport=slow).post(bytes(kib * 1024), {}).cause == cause
    assert clock.seconds - started <= 5 + 2
    assert slow.read_seconds == (None if cause else 1)


class DrippingStream(httpcore.NetworkStream):
    """Sends an answer: what comes in time at once, and the rest byte by byte, each after 2 s."""

    def __init__(
        self, clock: ManualClock, in_time: bytes = b"", late: bytes = b"HTTP/1.1 204 No Content\r\n\r\n"
    ) -> None:
        self._clock, self._in_time, self._late = clock, in_time, iter(late)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ARG002  the interface's
        assert timeout is not None
        if self._in_time:
            part, self._in_time = self._in_time, b""
            return part
        self._clock.seconds += min(timeout, 2)
        if timeout < 2:
            raise httpcore.ReadTimeout("timed out")
        return bytes([next(self._late)])

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        pass

    def close(self) -> None:
        pass

    def get_extra_info(self, info: str) -> Any:  # noqa: ARG002  the interface's
        return None


def test_a_receiver_that_sends_its_headers_byte_by_byte_has_the_same_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", lambda *_, **__: DrippingStream(clock))
    settings = PushSettings(name="d", kind="otlp", url="http://receiver/", timeout_seconds=5)
    started = clock.seconds
    answer = Receiver(settings, clock=clock).post(b"", {})
    assert (answer.decision, answer.cause) == (RetryDecision.AGAIN, "network")
    assert "ReadTimeout" in answer.detail
    assert clock.seconds - started <= 5


@pytest.mark.parametrize(
    ("status", "decision", "cause"),
    [
        (b"200 OK", RetryDecision.ACKNOWLEDGED, ""),
        (b"400 Bad Request", RetryDecision.REFUSED, "out_of_order"),
        (b"503 Service Unavailable", RetryDecision.AGAIN, "server_error"),
    ],
)
def test_a_status_that_came_in_time_decides_though_its_text_is_late(
    monkeypatch: pytest.MonkeyPatch, status: bytes, decision: RetryDecision, cause: str
) -> None:
    clock = ManualClock()
    head = b"HTTP/1.1 " + status + b"\r\nContent-Length: 100\r\n\r\nout of order sample"
    monkeypatch.setattr(httpcore.SyncBackend, "connect_tcp", lambda *_, **__: DrippingStream(clock, head, b" " * 81))
    settings = PushSettings(name="d", kind="otlp", url="http://receiver/", timeout_seconds=5)
    started = clock.seconds
    answer = Receiver(settings, clock=clock).post(b"", {})
    assert (answer.decision, answer.cause) == (decision, cause)
    assert answer.body.startswith(b"out of order sample")
    assert clock.seconds - started <= 5


class BrokenText(httpx.SyncByteStream):
    """The text of an answer whose connection ends too early."""

    def __iter__(self) -> Iterator[bytes]:
        yield b"out of order sample"
        raise httpx.RemoteProtocolError("peer closed connection without sending complete message body")


@pytest.mark.parametrize(
    ("headers", "stream"),
    [({}, BrokenText()), ({"Content-Encoding": "gzip"}, httpx.ByteStream(b"no gzip"))],
    ids=["ends_too_early", "wrong_compression"],
)
@pytest.mark.parametrize(
    ("status", "decision"),
    [(200, RetryDecision.ACKNOWLEDGED), (400, RetryDecision.REFUSED), (503, RetryDecision.AGAIN)],
)
def test_a_status_decides_though_its_text_cannot_be_read(
    headers: dict[str, str], stream: httpx.SyncByteStream, status: int, decision: RetryDecision
) -> None:
    to = receiver(
        "http://receiver/", httpx.MockTransport(lambda _: httpx.Response(status, headers=headers, stream=stream))
    )
    assert to.post(b"", {}).decision is decision


def test_a_token_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    listener, file = Listener(), tmp_path / "token"
    file.write_text("first\n")
    to = receiver("http://receiver/", httpx.MockTransport(listener), bearer_token_file=file)
    to.post(b"", {})
    replaced = tmp_path / "new"
    replaced.write_text("second\n")
    replaced.rename(file)
    to.post(b"", {})
    assert [headers["authorization"] for headers in listener.seen] == ["Bearer first", "Bearer second"]
    file.unlink()
    answer = to.post(b"", {})
    assert (answer.decision, answer.cause) == (RetryDecision.AGAIN, "configuration")
    assert len(listener.seen) == 2


def test_a_token_that_disappears_between_two_reads_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, reads = tmp_path / "token", [0]
    file.write_text("first")
    whole = SecretFile.read

    def read_and_remove(secret: SecretFile) -> str:
        found = whole(secret)
        reads[0] += 1
        file.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(SecretFile, "read", read_and_remove)
    to = receiver("http://receiver/", httpx.MockTransport(Listener()), bearer_token_file=file)
    assert to.post(b"", {}).decision is RetryDecision.ACKNOWLEDGED
    assert to.post(b"", {}).cause == "configuration"
    assert reads == [1]


def test_user_password_and_headers_reach_the_receiver(tmp_path: Path) -> None:
    listener, file = Listener(), tmp_path / "password"
    file.write_text("s3cret")
    basic = {"username": "bridge", "password_file": file}
    to = receiver(
        "http://receiver/", httpx.MockTransport(listener), basic_auth=basic, headers={"X-Scope-OrgID": "team"}
    )
    to.post(b"", {"Content-Type": "application/x-protobuf"})
    (headers,) = listener.seen
    assert headers["authorization"] == "Basic " + base64.b64encode(b"bridge:s3cret").decode()
    assert (headers["x-scope-orgid"], headers["content-type"]) == ("team", "application/x-protobuf")


@pytest.mark.parametrize("token", ["s3cr€t".encode(), b"\xff\xfe", b"s3c\nr3t", b""])
def test_a_token_that_no_header_can_hold_is_an_answer_that_names_the_file(tmp_path: Path, token: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(token)
    answer = receiver("http://127.0.0.1:1/", bearer_token_file=file).post(b"", {})
    assert (answer.decision, answer.cause) == (RetryDecision.AGAIN, "configuration")
    assert str(file) in answer.detail
    assert "s3c" not in answer.detail.replace(str(file), "")


def test_a_password_that_is_not_utf_8_is_an_answer_that_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"\xff\xfe")
    answer = receiver("http://127.0.0.1:1/", basic_auth={"username": "u", "password_file": file}).post(b"", {})
    assert (answer.decision, answer.cause) == (RetryDecision.AGAIN, "configuration")
    assert str(file) in answer.detail


def test_an_error_of_the_url_that_only_the_request_finds_is_an_answer() -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        assert request.method == "POST"
        raise httpx.InvalidURL("label too long")

    answer = receiver("http://receiver/", httpx.MockTransport(fail)).post(b"", {})
    assert (answer.decision, answer.cause) == (RetryDecision.AGAIN, "configuration")
    assert "label too long" in answer.detail


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"headers": {"X": "hidden-é"}}, "header X"),
        ({"headers": {"X": "hidden\nb"}}, "header X"),
        ({"headers": {"X Y": "hidden"}}, "name of a header"),
        ({"basic_auth": {"username": "u", "password": "hidden"}, "bearer_token_file": "token"}, "bearer_token_file"),
        ({"basic_auth": {"username": "u", "password": "hidden", "password_file": "file"}}, "password_file"),
        ({"tls": {"key_file": "key.pem"}}, "cert_file"),
    ],
)
def test_credentials_and_headers_that_cannot_be_sent_are_an_error_of_the_settings(
    changes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ValidationError, match=expected) as error:
        receiver("http://receiver/", **changes)
    assert "hidden" not in str(error.value)


def test_secrets_are_not_printed() -> None:
    destination = PushSettings.model_validate(
        {
            "name": "d",
            "kind": "otlp",
            "url": "http://receiver/",
            "headers": {"Authorization": "Bearer hidden-token"},
            "basic_auth": {"username": "u", "password": "hidden-password"},
        }
    )
    assert "hidden" not in repr(destination)
    assert "hidden" not in str(BridgeSettings(push=(destination,)))


def test_certificates_that_cannot_be_used_are_an_error_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="ca_file"):
        receiver("https://receiver/", tls={"ca_file": tmp_path / "missing.pem"})


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://receiver/", "receiver:9090", "http://user:secret@receiver/", "http:///path", "http://receiver/a\tb"),
        *("http://receiver/a b", "http://receiver/\0", f"http://{'a' * 64}.example/", "http://a..example/"),
    ],
)
def test_a_url_that_is_none_is_refused_without_being_printed_with_its_password(url: str) -> None:
    with pytest.raises(ValidationError) as error:
        PushSettings(name="d", kind="otlp", url=url)
    assert "secret" not in str(error.value)


def test_a_wrong_destination_is_named_with_its_path(tmp_path: Path) -> None:
    file = tmp_path / "kernelcast.yaml"
    file.write_text("bridge:\n  push:\n    - {name: a b, kind: otlp, url: 'http://x/', colour: red}\n")
    with pytest.raises(ConfigurationError) as error:
        load("bridge", BridgeSettings, path=file, flags={}, environ={})
    assert "bridge.push.0.name" in str(error.value)
    assert "bridge.push.0.colour" in str(error.value)


def test_two_destinations_need_two_names_and_two_groups() -> None:
    first = PushSettings(name="a", kind="otlp", url="http://x/")
    for second in ({"name": "a"}, {"name": "b", "group_id": "kernelcast-push-a"}):
        with pytest.raises(ValidationError, match="two destinations have the same"):
            BridgeSettings(push=(first, PushSettings.model_validate({"kind": "otlp", "url": "http://x/", **second})))


@pytest.mark.parametrize(
    ("status", "text", "verdict", "cause"),
    [
        (200, "", RetryDecision.ACKNOWLEDGED, ""),
        (204, "", RetryDecision.ACKNOWLEDGED, ""),
        (301, "", RetryDecision.AGAIN, "configuration"),
        (400, "out of order sample", RetryDecision.REFUSED, "out_of_order"),
        (400, "duplicate sample for timestamp", RetryDecision.REFUSED, "duplicate"),
        (400, "label name is invalid", RetryDecision.REFUSED, "refused"),
        (401, "", RetryDecision.AGAIN, "configuration"),
        (408, "", RetryDecision.AGAIN, "network"),
        (413, "", RetryDecision.REFUSED, "too_large"),
        (415, "", RetryDecision.UNSUPPORTED, "configuration"),
        (422, "", RetryDecision.REFUSED, "refused"),
        (429, "", RetryDecision.AGAIN, "throttled"),
        (500, "", RetryDecision.AGAIN, "server_error"),
        (500, "native histograms are disabled", RetryDecision.AGAIN, "configuration"),
    ],
)
def test_the_meaning_of_a_status(status: int, text: str, verdict: RetryDecision, cause: str) -> None:
    assert decide(status, text) == (verdict, cause)


def test_a_receiver_says_when_to_come_again_in_seconds_or_as_a_date() -> None:
    assert retry_after_seconds("120", 0) == 120
    assert retry_after_seconds("Thu, 01 Jan 1970 00:02:00 GMT", 20) == 100
    assert retry_after_seconds("Thu, 01 Jan 1970 00:02:00 GMT", 2000) == 0
    for nothing in (None, "", "soon", "-5", "Thu, 99 Jan 1970"):
        assert retry_after_seconds(nothing, 0) is None


@given(st.lists(st.none() | st.floats(-10, 1e6), max_size=30), st.floats(0, 1))
def test_no_wait_is_longer_than_its_limits_nor_shorter_than_requested(asked: list[float | None], chance: float) -> None:
    backoff = Backoff(lambda: chance)
    for each in asked:
        seconds = backoff.next_seconds(each)
        longest = LONGEST_SECONDS if each is None else LONGEST_ASKED_SECONDS + LONGEST_SECONDS
        assert 0 <= seconds <= longest
        assert seconds >= min(each or 0, LONGEST_ASKED_SECONDS)

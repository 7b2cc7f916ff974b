"""A server that is killed within its answer, or is none of ours, ends no command with a traceback."""

import http.client
import io
import urllib.error
import urllib.request
from email.message import Message
from typing import Any, Self, cast

import pytest
import typer

from kernelcast.cli.demo.http import fetch
from kernelcast.predictor import explain_command
from kernelcast.predictor.explain_command import explain


class CutShort:
    """An answer whose body ends before its declared length."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    closed = False

    def close(self) -> None: ...

    def read(self, _size: int = -1) -> bytes:
        """Raise what `http.client` raises."""
        raise http.client.IncompleteRead(b"", 24_334)


@pytest.fixture(autouse=True)
def killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every server is killed within its answer."""

    def answer(*_args: Any, **_options: Any) -> CutShort:
        return CutShort()

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", answer)


def test_the_demo_goes_on_without_that_answer() -> None:
    assert fetch("http://127.0.0.1:9090/metrics") is None


def test_explain_says_that_the_predictor_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        explain('DCGM_FI_DEV_GPU_TEMP{gpu="0"}')
    assert "does not answer: IncompleteRead" in capsys.readouterr().err


@pytest.mark.parametrize("body", [b"{}", b"[]", b"5", b"<html>", b"\xff"])
def test_explain_says_that_another_server_is_no_predictor(
    body: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(urllib.request.OpenerDirector, "open", lambda *_args, **_options: io.BytesIO(body))
    with pytest.raises(typer.Exit):
        explain('DCGM_FI_DEV_GPU_TEMP{gpu="0"}')
    assert "http://127.0.0.1:19402 is no predictor" in capsys.readouterr().err


def test_explain_says_that_an_address_is_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    with pytest.raises(typer.Exit):
        explain("up", "http://[::1")
    assert "write it as http://HOST:PORT" in capsys.readouterr().err


def test_explain_says_that_the_predictor_refuses_although_its_reason_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(asked: urllib.request.Request, *_limits: Any, **_named: Any) -> None:
        raise urllib.error.HTTPError(asked.full_url, 503, "Service Unavailable", Message(), cast("Any", CutShort()))

    monkeypatch.setattr(explain_command, "open_url", refuse)
    with pytest.raises(typer.Exit):
        explain("up")
    assert "the predictor refused: status 503" in capsys.readouterr().err

"""`kernelcast top`: keys, addresses, credentials, alerts and errors."""

import fcntl
import json
import os
import socket
import time
import urllib.error
from pathlib import Path
from typing import Any

import pytest
from tests.support.view.pages import BRIDGE, JUDGED

from kernelcast.cli.app import run
from kernelcast.cli.top import command, target
from kernelcast.cli.top.command import Keys
from kernelcast.cli.top.controls import Controls
from kernelcast.cli.top.target import ServerCredentials, api_url, base_url, bridge_alerts, firing_alerts
from kernelcast.wire import standalone
from kernelcast.wire.errors import ConfigurationError, PageError


@pytest.mark.parametrize("keys", ["\x1bOP", "\x1bOQ", "\x1b[A", "\x1b[15~", "\x1b[1;5C", "\x1b[M !!"])
def test_function_keys_arrows_and_the_mouse_do_nothing(keys: str) -> None:
    controls = Controls()
    controls.text = "gemm"
    assert not controls.press(keys)
    assert (controls.text, controls.paused, controls.sort) == ("gemm", False, "time")


def prometheus(monkeypatch: pytest.MonkeyPatch, *alerts: dict[str, str]) -> None:
    body = json.dumps({"data": {"result": [{"metric": each, "value": [0, "1"]} for each in alerts]}})
    monkeypatch.setattr(target, "get", lambda _url, _access: body)


def test_without_the_heartbeat_an_empty_answer_is_not_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    prometheus(monkeypatch)
    assert firing_alerts("http://prometheus/api/v1", ServerCredentials()).firing is None
    prometheus(monkeypatch, {"alertname": "Watchdog"})
    assert firing_alerts("http://prometheus/api/v1", ServerCredentials()).firing == []
    only_mutes = {"alertname": "KernelcastAllBridgesDown", "severity": "none"}
    prometheus(monkeypatch, {"alertname": "Watchdog"}, only_mutes, {"alertname": "KernelcastGpuHot"})
    assert firing_alerts("http://prometheus/api/v1", ServerCredentials()).firing == [{"alertname": "KernelcastGpuHot"}]


@pytest.mark.parametrize(
    "body", ['{"data": {"result": [1]}}', '{"data": {"result": 1}}', '{"data": {"result": [{}]}}', "[]"]
)
def test_an_answer_that_is_not_prometheus_is_an_error_with_a_remedy(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "get", lambda _url, _access: body)
    with pytest.raises(PageError, match="is not the API of a Prometheus"):
        firing_alerts("http://other/api/v1", ServerCredentials())


def test_keys_sort_pause_filter_and_quit() -> None:
    controls = Controls()
    assert not controls.press("s")
    assert controls.sort == "change"
    controls.press("p")
    assert controls.paused
    controls.press("fgeq\x7fm\r")
    assert (controls.text, controls.typing) == ("gem", False)
    controls.press("\x1b")
    assert controls.text == ""
    assert controls.press("q")


@pytest.mark.parametrize("address", ["", "x y", "ftp://x", "http://", "http://user:pw@x:1", "x:port", "http://[::1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    for url_of in (base_url, api_url):
        with pytest.raises(ConfigurationError, match="is not an address"):
            url_of(address)


@pytest.mark.parametrize("address", ["a..b:1", "h" * 70 + ".x:1", "\udcff:1", "x\x00:1"])
def test_a_host_that_cannot_be_looked_up_is_an_error_without_a_traceback(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["top", address, "--once"]) in (1, 2)
    assert capsys.readouterr().err.startswith("kernelcast: ")


def test_a_password_file_that_is_no_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "password").write_bytes(b"\xff\xfe")
    options = ["--username", "u", "--password-file", str(tmp_path / "password")]
    assert run(["top", "bridge:1", "--once", *options]) == 2
    assert f"--password-file {tmp_path / 'password'} cannot be read" in capsys.readouterr().err


def test_a_prometheus_that_asks_for_a_user_is_named_with_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise urllib.error.HTTPError("u", 401, "Unauthorized", {}, None)  # type: ignore[arg-type]

    monkeypatch.setattr(target, "open_url", refuse)
    with pytest.raises(PageError, match="give --prometheus-username and --prometheus-password-file"):
        firing_alerts("http://prometheus:9090/api/v1", ServerCredentials(option_prefix="--prometheus-"))


@pytest.mark.parametrize(
    ("prometheus", "asked"),
    [
        ("prometheus:9090", "http://prometheus:9090/api/v1/query"),
        ("site:80/prometheus", "http://site:80/prometheus/api/v1/query"),
        ("https://site/prometheus/", "https://site/prometheus/api/v1/query"),
        ("https://site/mimir/prometheus?x=1", "https://site/mimir/prometheus/api/v1/query"),
        ("http://prometheus:9090/graph?g0.expr=up", "http://prometheus:9090/api/v1/query"),
        ("prometheus:9090/query", "http://prometheus:9090/api/v1/query"),
        ("https://site/prometheus/alerts/", "https://site/prometheus/api/v1/query"),
        ("https://site/prometheus/api/v1/", "https://site/prometheus/api/v1/query"),
        ("https://site/prometheus/api/v1/query?query=up", "https://site/prometheus/api/v1/query"),
        ("https://site/my-graph", "https://site/my-graph/api/v1/query"),
    ],
)
def test_a_prometheus_below_a_path_is_asked_there(
    prometheus: str, asked: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    urls: list[str] = []

    def answer(url: str, _access: ServerCredentials) -> str:
        urls.append(url.partition("?")[0])
        return '{"data": {"result": []}}' if "/api/" in url else BRIDGE

    monkeypatch.setattr("kernelcast.cli.top.command.get", answer)
    monkeypatch.setattr(target, "get", answer)
    monkeypatch.setattr("kernelcast.cli.top.command.time.sleep", lambda _seconds: None)
    assert run(["top", "bridge:1", "--once", "--json", "--prometheus", prometheus]) == 0
    assert asked in urls
    capsys.readouterr()


@pytest.mark.parametrize(
    ("prometheus", "options", "user"),
    [
        ("bridge:1", [], "u"),
        ("prometheus:9090", [], ""),
        ("https://bridge:1", [], ""),
        ("bridge:10", [], ""),
        ("prometheus:9090", ["--prometheus-username", "p"], "p"),
        ("bridge:1", ["--prometheus-username", "p"], "p"),
    ],
)
def test_each_server_gets_its_own_password_alone(
    prometheus: str, options: list[str], user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    users: dict[str, str] = {}

    def answer(url: str, access: ServerCredentials) -> str:
        users["api" if "/api/" in url else "page"] = access.username
        return '{"data": {"result": []}}' if "/api/" in url else BRIDGE

    monkeypatch.setattr("kernelcast.cli.top.command.get", answer)
    monkeypatch.setattr(target, "get", answer)
    monkeypatch.setattr("kernelcast.cli.top.command.time.sleep", lambda _seconds: None)
    access = ["--username", "u", "--prometheus", prometheus, *options]
    assert run(["top", "bridge:1", "--once", "--json", *access]) == 0
    assert users == {"page": "u", "api": user}


def test_a_path_in_the_address_is_left_out() -> None:
    assert base_url("https://bridge:19401/metrics?x=1") == "https://bridge:19401"
    assert base_url("bridge:19401") == "http://bridge:19401"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            urllib.error.URLError(ConnectionRefusedError(111, "Connection refused")),
            "does not answer: Connection refused",
        ),
        (urllib.error.URLError(TimeoutError("timed out")), "no answer within 5 s"),
        (urllib.error.HTTPError("u", 401, "Unauthorized", {}, None), "--username and --password-file"),  # type: ignore[arg-type]
        (urllib.error.HTTPError("u", 404, "Not Found", {}, None), "answered 404 Not Found"),  # type: ignore[arg-type]
        (urllib.error.HTTPError("u", 302, "a loop:\nFound", {}, None), "answered 302 a loop: Found"),  # type: ignore[arg-type]
    ],
)
def test_an_address_that_does_not_answer_is_an_error_with_the_reason(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(target, "open_url", refuse)
    assert run(["top", "bridge:19401", "--once"]) == 1
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


def test_a_page_of_something_else_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kernelcast.cli.top.command.get", lambda *_: "go_goroutines 5\n")
    assert run(["top", "other:1", "--once"]) == 1
    assert "has no metrics of kernelcast" in capsys.readouterr().err


@pytest.mark.parametrize("page", ['DCGM_FI_DEV_GPU_TEMP{gpu="0"', JUDGED.replace(" 12", " +Inf")])
def test_a_page_that_is_cut_or_has_no_counts_is_refused(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("kernelcast.cli.top.command.get", lambda *_: page)
    assert run(["top", "bridge:19401", "--once"]) == 1
    assert "is no text exposition" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--interval", "0.1"], ["--interval", "nan"], ["--sort", "size"], ["--json"]], ids=" ".join
)
def test_an_option_that_makes_no_sense_is_refused(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["top", "bridge:1", *options]) == 2
    assert options[0] in capsys.readouterr().err


@pytest.mark.parametrize("lowest", [0, 1_024], ids=["few files open", "many files open"])
def test_a_terminal_that_was_closed_ends_the_keys(lowest: int) -> None:
    """`kernelcast top` went on without a terminal, and drew as fast as it could."""
    short, writer = os.pipe()
    reader = fcntl.fcntl(short, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(short)
    os.write(writer, b"q")
    keys = Keys(reader)
    assert keys(0.0) == "q"
    assert keys(0.0) == ""
    os.close(writer)
    with pytest.raises(EOFError):
        keys(0.0)
    os.close(reader)


def test_alerts_of_a_bridge_are_those_that_alertmanager_has_sent_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "get", lambda _url, _access: '{"firing": [{"alertname": "a"}], "reason": ""}')
    assert bridge_alerts("http://b", ServerCredentials()).firing == [{"alertname": "a"}]
    monkeypatch.setattr(target, "get", lambda _url, _access: "[]")
    assert bridge_alerts("http://b", ServerCredentials()).firing is None


def beside(folder: Path, port: int | str) -> socket.socket:
    """The files of an exporter that runs beside this user's programs."""
    folder.mkdir(mode=0o700)
    (folder / standalone.PORT).write_text(str(port))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / standalone.LIFE_LINE))
    return listener


def answering(monkeypatch: pytest.MonkeyPatch, folder: Path, *addresses: str) -> None:
    """Let these addresses answer, and look for exporters of programs in one folder."""

    def answer(url: str, _access: ServerCredentials) -> str:
        if url.removeprefix("http://").partition("/")[0] not in addresses:
            raise PageError(f"{url} does not answer")
        return BRIDGE

    for module in (target, command):
        monkeypatch.setattr(module, "get", answer)
        monkeypatch.setattr(module, "directories", lambda *_: (str(folder),))


def title(capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["top", "--once", "--json", "--interval", "0.5"]) == 0
    return str(json.loads(capsys.readouterr().out)["title"])


def test_without_an_address_the_exporter_beside_this_users_programs_is_found_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    answering(monkeypatch, tmp_path / "kernelcast", "127.0.0.1:19400", "127.0.0.1:45001")
    assert title(capsys) == "http://127.0.0.1:19400/metrics"
    with beside(tmp_path / "kernelcast", 45001):
        assert title(capsys) == "http://127.0.0.1:45001/metrics"
    (tmp_path / "kernelcast" / standalone.LIFE_LINE).unlink()
    assert title(capsys) == "http://127.0.0.1:19400/metrics", "it has ended, and left the file with its port"


def test_where_nothing_answers_the_error_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answering(monkeypatch, tmp_path / "kernelcast")
    assert run(["top", "--once"]) == 1
    said = capsys.readouterr().err
    assert "neither 127.0.0.1:19401 nor 127.0.0.1:19400 answers" in said
    assert f"no exporter beside a program of yours was found in {tmp_path}/kernelcast" in said
    with beside(tmp_path / "kernelcast", 45001):
        assert run(["top", "--once"]) == 1
    assert "the exporter beside your programs (127.0.0.1:45001) does not answer yet" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["", "x", "1 2"])
def test_files_that_are_no_exporters_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    answering(monkeypatch, tmp_path / "kernelcast")  # not in /tmp, where an exporter of this user may run
    with beside(tmp_path / "kernelcast", port):
        assert target.beside_programs({}) == []
    (tmp_path / "kernelcast" / standalone.PORT).write_text("45001")
    assert target.beside_programs({}) == ["127.0.0.1:45001"]
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert target.beside_programs({}) == [], "the folder of another user"

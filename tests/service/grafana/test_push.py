"""`kernelcast grafana push`, over a socket to a double of Grafana's HTTP API (`tests/support/grafana_double.py`)."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.support.dripping_server import dripping
from tests.support.grafana_double import TOKEN, GrafanaDouble
from typer.testing import CliRunner

from kernelcast.grafana import dashboards
from kernelcast.grafana.command import grafana
from kernelcast.grafana.routes import grafana_api
from kernelcast.grafana.routes.push import folder_uid
from kernelcast.grafana.routes.push_command import TOKEN_VARIABLE

FOLDER = folder_uid("kernelcast")
UIDS = {build().uid for build in dashboards.DASHBOARDS}


@pytest.fixture
def server() -> Iterator[GrafanaDouble]:
    with GrafanaDouble() as double:
        yield double


def push(server: GrafanaDouble, *options: str, token: str = TOKEN) -> tuple[int, str]:
    arguments = ["push", "--url", server.url, *options]
    result = CliRunner().invoke(grafana, arguments, env={TOKEN_VARIABLE: token})
    return result.exit_code, result.output


def test_the_first_push_makes_folder_and_dashboards_and_the_second_changes_nothing(server: GrafanaDouble) -> None:
    code, said = push(server)
    assert (code, sorted(said.splitlines())) == (0, sorted(f"created {uid}" for uid in UIDS))
    assert server.folders == {FOLDER: "kernelcast"}
    assert {uid: folder for uid, (_, folder) in server.dashboards.items()} == dict.fromkeys(UIDS, FOLDER)

    server.requests.clear()
    assert push(server) == (0, "Grafana has these dashboards already\n")
    assert server.writes == []


def test_pushed_panels_lead_to_the_runbooks_of_the_site(server: GrafanaDouble, tmp_path: Path) -> None:
    site = tmp_path / "site.yaml"
    site.write_text("runbooks_url: https://wiki.example/kernelcast\n")
    assert push(server, "--site", str(site))[0] == 0
    assert "https://wiki.example/kernelcast#kernelcastgpudown" in str(server.dashboards["kernelcast-overview"])


def test_a_dry_run_shows_the_difference_and_writes_nothing(server: GrafanaDouble) -> None:
    push(server)
    uid = min(UIDS)
    server.dashboards[uid][0]["title"] = "by hand"
    server.requests.clear()
    code, said = push(server, "--dry-run")
    assert code == 0
    assert f"would replace {uid}\n" in said
    assert '\n- "title": "by hand",\n+ "title": "kernelcast / ' in said
    assert server.writes == []

    assert push(server) == (0, f"replaced {uid}\n")
    assert server.dashboards[uid][0]["title"] != "by hand"


def test_dashboards_that_are_no_longer_made_are_deleted_and_no_others(server: GrafanaDouble) -> None:
    push(server)
    for uid, folder, tags in (
        ("kernelcast-old", FOLDER, ["kernelcast"]),
        ("kernelcast-elsewhere", "other", ["kernelcast"]),
        ("theirs", FOLDER, ["kernelcast"]),
        ("kernelcast-copy", FOLDER, ["copy"]),
    ):
        server.dashboards[uid] = {"uid": uid, "tags": tags, "version": 1}, folder

    assert push(server, "--dry-run") == (0, "would delete kernelcast-old\n")
    assert push(server) == (0, "deleted kernelcast-old\n")
    assert set(server.dashboards) == UIDS | {"kernelcast-elsewhere", "theirs", "kernelcast-copy"}


def test_a_dashboard_in_another_folder_is_moved(server: GrafanaDouble) -> None:
    push(server)
    uid = min(UIDS)
    server.dashboards[uid] = server.dashboards[uid][0], "other"
    assert push(server) == (0, f"moved {uid}\n")
    assert server.dashboards[uid][1] == FOLDER


def test_a_refused_token_is_one_line_with_its_remedy_and_is_never_printed(server: GrafanaDouble) -> None:
    code, said = push(server, token="glsa_wrong")
    assert code == 1
    assert said.count("\n") == 1
    assert "was answered with 401; Unauthorized; the token is missing, wrong or expired" in said
    assert "glsa_wrong" not in said


def test_the_token_comes_from_a_file_where_one_is_named(server: GrafanaDouble, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    assert push(server, "--token-file", str(path), token="")[0] == 0
    path.write_text("two words\n")
    code, said = push(server, "--token-file", str(path), token="")
    assert (code, "does not hold one token" in said) == (2, True)


def test_a_redirect_is_not_followed_with_the_token(server: GrafanaDouble) -> None:
    with GrafanaDouble() as other:
        server.redirect = f"{other.url}/login"
        code, said = push(server)
    assert code == 1
    assert f"use the address to which it redirects: {other.url}/login" in said
    assert other.requests == []


def test_a_proxy_does_not_get_the_token_for_a_grafana_on_this_machine(server: GrafanaDouble) -> None:
    proxy = {"http_proxy": "http://127.0.0.1:1", "no_proxy": ""}
    result = CliRunner().invoke(grafana, ["push", "--url", server.url], env={TOKEN_VARIABLE: TOKEN, **proxy})
    assert (result.exit_code, len(server.dashboards)) == (0, len(UIDS))


def test_no_answer_is_one_line(server: GrafanaDouble) -> None:
    arguments = ["push", "--url", "http://127.0.0.1:1"]
    result = CliRunner().invoke(grafana, arguments)
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "does not answer" in result.output


@pytest.mark.parametrize("arguments", [["push"], ["push", "--url", "grafana:3000"]])
def test_without_a_usable_address_it_is_a_usage_error(arguments: list[str]) -> None:
    result = CliRunner().invoke(grafana, arguments)
    assert result.exit_code == 2
    assert "--url" in result.output


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{",
        b"HTTP/1.1 500 Oh\r\nContent-Length: 900\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b'HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"a"',
    ],
)
def test_a_server_that_is_not_grafana_is_one_line(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        served = threads.submit(_serve_once, listener, answer)
        result = CliRunner().invoke(grafana, ["push", "--url", f"http://127.0.0.1:{listener.getsockname()[1]}"])
        served.result()
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert "http://127.0.0.1:" in result.output


def _serve_once(listener: socket.socket, answer: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65_536)
        connection.sendall(answer)


def test_a_server_that_is_no_grafana_is_asked_for_by_its_option(
    server: GrafanaDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "answer", lambda *_request: (404, {}))
    code, said = push(server)
    assert code == 1
    assert "/api/folders was answered with 404; is it Grafana's address?" in said
    assert "give Grafana's as --url" in said


def test_a_refusal_whose_text_comes_too_slowly_is_still_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grafana_api, "TIMEOUT_SECONDS", 0.05)
    with dripping(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\n") as url:
        result = CliRunner().invoke(grafana, ["push", "--url", url], env={TOKEN_VARIABLE: TOKEN})
    assert result.exit_code == 1
    assert "was answered with 403; the token's service account needs the role Editor" in result.output

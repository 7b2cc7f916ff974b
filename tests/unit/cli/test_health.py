"""`kernelcast health`: a wrong option is one line with exit code 2, not a traceback."""

from pathlib import Path

import pytest

from kernelcast.cli.health import main

URL = "http://localhost:1/-/ready"


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "inf", "1e10"])
def test_a_time_limit_that_is_none_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([URL, "--timeout", seconds]) == 2
    assert "--timeout" in capsys.readouterr().err


@pytest.mark.parametrize(
    "url", ["http://localhost:port/", "http://localhost:99999/", "http://localhost/é", "http://[::1/", "http://x y/"]
)
def test_what_is_no_address_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([url]) == 2
    assert capsys.readouterr().err.startswith("kernelcast: URL is ")


def test_a_host_that_cannot_be_looked_up_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["http://a..b:1/"]) == 1
    assert capsys.readouterr().out.startswith("http://a..b:1/-/ready does not answer: ")


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ("http://127.0.0.1:1", "http://127.0.0.1:1/-/ready"),
        ("http://127.0.0.1:1/", "http://127.0.0.1:1/-/ready"),
        ("http://127.0.0.1:1/-/healthy", "http://127.0.0.1:1/-/healthy"),
    ],
)
def test_an_address_without_a_path_asks_whether_the_daemon_is_ready(
    given: str, asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([given]) == 1
    assert capsys.readouterr().out == (
        f"{asked} does not answer: [Errno 111] Connection refused; "
        "check that the daemon runs, and its web.listen_address\n"
    )


def test_a_file_of_certificates_that_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "ca.pem"
    assert main(["https://bridge:1/", "--ca-file", str(missing)]) == 2
    assert str(missing) in capsys.readouterr().err


def test_a_password_that_is_no_text_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "password").write_bytes(b"\xff")
    assert main([URL, "--username", "u", "--password-file", str(tmp_path / "password")]) == 2
    assert str(tmp_path / "password") in capsys.readouterr().err

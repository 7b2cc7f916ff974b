"""Secrets, certificates and addresses of the Prometheus that answers the pages' queries."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kernelcast.bridge.browser.credentials import SecretFile, client_context
from kernelcast.bridge.browser.settings import BasicAuth, PagesSettings, TlsSettings
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.wire.errors import ConfigurationError


def test_a_secret_is_read_again_when_its_file_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    secret = SecretFile(file)
    assert secret.read_token() == "first"
    replaced = tmp_path / "new"
    replaced.write_text("second\n")
    replaced.rename(file)
    assert secret.read_token() == "second"
    file.unlink()
    with pytest.raises(OSError, match="token"):
        secret.read_token()


@pytest.mark.parametrize("token", ["s3cr€t".encode(), b"\xff\xfe", b"s3c\nr3t", b""])
def test_a_token_that_no_header_can_hold_is_an_error_that_names_the_file(tmp_path: Path, token: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(token)
    with pytest.raises(OSError, match="token") as error:
        SecretFile(file).read_token()
    assert str(file) in str(error.value)
    assert "s3c" not in str(error.value).replace(str(file), "")


def test_a_password_that_is_not_utf_8_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(OSError, match="is not UTF-8") as error:
        SecretFile(file).read()
    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"basic_auth": {"username": "u", "password": "hidden"}, "bearer_token_file": "token"}, "bearer_token_file"),
        ({"basic_auth": {"username": "u", "password": "hidden", "password_file": "file"}}, "password_file"),
        ({"tls": {"key_file": "key.pem"}}, "cert_file"),
    ],
)
def test_credentials_that_contradict_each_other_are_an_error_of_the_settings(
    changes: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ValidationError, match=expected) as error:
        PagesSettings.model_validate(changes)
    assert "hidden" not in str(error.value)


def test_passwords_are_not_printed() -> None:
    pages = PagesSettings(basic_auth=BasicAuth(username="u", password="hidden"))
    assert "hidden" not in repr(pages)
    assert "hidden" not in str(BridgeSettings(pages=pages))


def test_certificates_that_cannot_be_used_are_an_error_of_the_settings(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="ca_file"):
        client_context(TlsSettings(ca_file=tmp_path / "missing.pem"))


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://host/", "host:9090", "http://user:secret@host/", "http:///path", "http://host/a\tb"),
        *("http://host/a b", "http://host/\0", f"http://{'a' * 64}.example/", "http://a..example/"),
    ],
)
def test_a_url_that_is_none_is_refused_without_being_printed_with_its_password(url: str) -> None:
    with pytest.raises(ValidationError) as error:
        PagesSettings(prometheus_url=url)
    assert "secret" not in str(error.value)

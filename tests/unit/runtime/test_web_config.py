"""The web configuration file: what exporter-toolkit accepts and we serve, and what is refused."""

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.unit.runtime.certificates import self_signed

from kernelcast.runtime.web_config import read_web_config
from kernelcast.wire.errors import ConfigurationError

HASH = "$2y$10$XYi5Y4lmK.6zWA4xjBUYTOSDJXX3xPAUkRS9qN7wvUEl6kzMcTzhW"
WHOLE = f"""\
tls_server_config:
  cert_file: server.crt
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: server.crt
  min_version: TLS13
http_server_config:
  http2: true
  headers:
    X-Frame-Options: deny
basic_auth_users:
  prometheus: {HASH}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    self_signed(tmp_path, "server")
    return tmp_path


def write(folder: Path, text: str) -> Path:
    file = folder / "web.yml"
    file.write_text(text)
    return file


def test_a_whole_file_is_read_with_paths_relative_to_it(folder: Path) -> None:
    config = read_web_config(write(folder, WHOLE))

    assert config.tls_server_config is not None
    assert config.tls_server_config.cert_file == folder / "server.crt"
    assert config.http_server_config.headers == {"X-Frame-Options": "deny"}
    assert config.basic_auth_users == {"prometheus": HASH}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_accepts_the_same_file(folder: Path) -> None:
    file = write(folder, WHOLE)

    done = subprocess.run(["promtool", "check", "web-config", str(file)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


def test_an_empty_file_lets_everybody_in_without_tls(tmp_path: Path) -> None:
    config = read_web_config(write(tmp_path, ""))

    assert config.tls_server_config is None
    assert config.basic_auth_users == {}


def test_hashes_are_not_printed(folder: Path) -> None:
    assert HASH not in repr(read_web_config(write(folder, WHOLE)))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tls_config: {}", r"tls_config is not a setting .*did you mean tls_server_config"),
        ("tls_server_config: {cert_file: server.crt}", r"tls_server_config\.key_file is missing"),
        ("tls_server_config: {cert_file: no.crt, key_file: server.key}", r"no\.crt with .* cannot be used"),
        ("tls_server_config: {cert_file: server.crt, key_file: server.key, min_version: TLS10}", "it must be one of"),
        (
            "tls_server_config: {cert_file: server.crt, key_file: server.key, client_auth_type: RequireAnyClientCert}",
            "it must be one of",
        ),
        (
            "tls_server_config: {cert_file: server.crt, key_file: server.key, client_ca_file: server.crt}",
            "client_ca_file needs client_auth_type",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequireAndVerifyClientCert}",
            "needs client_ca_file",
        ),
        ("tls_server_config: {cert_file: server.crt, key_file: server.key, cipher_suites: [A]}", "is not a setting"),
        ("http_server_config: {headers: {Server: x}}", "Server cannot be set"),
        ("basic_auth_users: {prometheus: hunter2}", "the password of prometheus is not a bcrypt hash"),
        ("basic_auth_users: [prometheus]", "must map users to bcrypt hashes"),
    ],
)
def test_what_cannot_be_served_is_refused_not_ignored(folder: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        read_web_config(write(folder, text))

    assert "hunter2" not in str(caught.value)

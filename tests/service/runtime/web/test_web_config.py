"""The web configuration file: settings of exporter-toolkit that are supported, and those that are refused."""

import errno
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.support.runtime.certificates import self_signed

from kernelcast.runtime.web.config import read_web_config
from kernelcast.runtime.web.watched import RETRY_SECONDS, WatchedConfig
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


VERIFIES = "client_auth_type: RequireAndVerifyClientCert, client_ca_file: server.crt"
UNVERIFIED = "it takes certificates without verifying them, which is not supported; use RequireAndVerifyClientCert"


def pair(more: str) -> str:
    return f"tls_server_config: {{cert_file: server.crt, key_file: server.key, {more}}}"


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


def accepted_by_promtool(file: Path) -> None:
    """Skips where there is no promtool, or one that does not know a key of the file."""
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(["promtool", "check", "web-config", str(file)], capture_output=True, text=True, check=False)
    if "not found in type" in done.stderr:
        pytest.skip(f"this promtool is too old: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


NEWER: dict[str, str] = {
    "ciphers": "  cipher_suites: [TLS_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]\n",
    "curves": "  curve_preferences: [X25519, CurveP256, CurveP384, CurveP521]\n",
    "names": "  client_allowed_sans: [localhost, 10.0.0.1]\n",
    "rate limit": "rate_limit: {interval: 1m30s, burst: 20}\n",
}


@pytest.mark.parametrize("key", NEWER)
def test_further_settings_are_read_and_accepted_by_a_promtool_that_knows_them(folder: Path, key: str) -> None:
    head, rest = WHOLE.split("http_server_config")
    text = NEWER[key] if key == "rate limit" else ""
    text += head + ("" if text else NEWER[key]) + "http_server_config" + rest
    without = read_web_config(write(folder, WHOLE))
    file = write(folder, text)

    assert read_web_config(file) != without
    accepted_by_promtool(file)


def test_certificate_and_key_in_the_file_are_accepted_and_the_key_is_never_shown(folder: Path) -> None:
    def indented(name: str) -> str:
        return "".join(f"    {line}\n" for line in (folder / name).read_text().splitlines())

    text = f"tls_server_config:\n  cert: |\n{indented('server.crt')}  key: |\n{indented('server.key')}"
    secret = (folder / "server.key").read_text().splitlines()[1]

    assert secret not in repr(read_web_config(write(folder, text)))
    for wrong in ("min_version: TLS10", "key_file: server.key", "client_auth_type: RequireAndVerifyClientCert"):
        with pytest.raises(ConfigurationError) as caught:
            read_web_config(write(folder, f"{text}  {wrong}\n"))
        assert secret not in str(caught.value)
    accepted_by_promtool(write(folder, text))


@pytest.mark.parametrize(
    ("interval", "seconds"), [("0", 0), ("1s", 1), ("100ms", 0.1), ("1m30s", 90), ("1.5h", 5400), ("0s", 0)]
)
def test_intervals_are_written_as_go_writes_them(tmp_path: Path, interval: str, seconds: float) -> None:
    limit = read_web_config(write(tmp_path, f"rate_limit: {{interval: {interval}, burst: 1}}")).rate_limit

    assert limit.interval == pytest.approx(seconds)


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
        (
            "tls_server_config: {cert_file: no.crt, key_file: server.key}",
            r"no\.crt with .* cannot be used: \S*no\.crt cannot be read; name files in PEM",
        ),
        ("tls_server_config: {cert_file: server.crt, key_file: server.key, min_version: TLS10}", "it must be one of"),
        (
            "tls_server_config: {cert_file: server.crt, key_file: server.key, client_ca_file: server.crt}",
            "client_ca_file needs client_auth_type",
        ),
        (
            "tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequireAndVerifyClientCert}",
            "needs client_ca_file",
        ),
        (pair("cipher_suites: [A]"), "A is not a supported cipher suite; these are: TLS_"),
        (pair("cipher_suites: [TLS_RSA_WITH_AES_128_GCM_SHA256]"), "not a supported cipher suite"),
        (pair("cipher_suites: [TLS_AES_128_GCM_SHA256], max_version: TLS12"), "none for TLS 1.2"),
        (pair("curve_preferences: [P256]"), "P256 is not a supported curve; these are: CurveP256, "),
        (pair("client_allowed_sans: [a]"), "client_allowed_sans needs client_auth_type RequireAndVerify"),
        (pair(f"{VERIFIES}, client_allowed_sans: []"), "client_allowed_sans is empty"),
        (pair(f"{VERIFIES}, client_ca: x"), "client_ca and client_ca_file are both set"),
        (pair("client_auth_type: RequestClientCert"), UNVERIFIED),
        (pair("client_auth_type: RequireAnyClientCert"), UNVERIFIED),
        (pair("cert: x"), r"tls_server_config\.cert and cert_file are both set; remove one"),
        ("tls_server_config: {cert: x, key: y}", "cert with key cannot be used"),
        ("tls_server_config: {cert: [x], key: y}", r"tls_server_config\.cert is not a text"),
        ("tls_server_config: {key: y}", "cert_file is missing; set it, or cert"),
        ("rate_limit: {interval: 5, burst: 1}", "must be a duration with its unit"),
        ("rate_limit: {interval: -1s, burst: 1}", "must be a duration with its unit"),
        ("rate_limit: {interval: 1s}", r"^rate_limit \(.*/web\.yml\): burst is 0, so every request would be refused"),
        (f"rate_limit: {{interval: {'9' * 400}h, burst: 1}}", "must be a duration with its unit"),
        ("http_server_config: {headers: {X-Frame-Options: allow}}", "it can be deny or sameorigin"),
        ('http_server_config: {headers: {Content-Security-Policy: "a\\nb"}}', "characters that a header cannot have"),
        ("http_server_config: {headers: {Server: x}}", "Server cannot be set"),
        ("basic_auth_users: {prometheus: hunter2}", "the password of prometheus is not a bcrypt hash"),
        ("basic_auth_users: [prometheus]", r"^basic_auth_users is .*/web\.yml\); .*must map users to bcrypt hashes"),
    ],
)
def test_what_cannot_be_served_is_refused_not_ignored(folder: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        read_web_config(write(folder, text))

    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "mistake", ["basic_auth_users: {a: 2026-13-01}", "basic_auth_users: [", pair('client_ca_file: "a\\0b"')]
)
def test_after_a_mistake_in_the_file_no_request_is_served(folder: Path, mistake: str) -> None:
    """The old configuration may let requests in without a login."""
    path = write(folder, pair("min_version: TLS12"))
    watched = WatchedConfig(path)
    watched.current()
    write(folder, mistake)
    for _ in range(2):
        watched.tls()
        with pytest.raises(ConfigurationError):
            watched.current()


def test_a_file_that_could_not_be_opened_for_a_moment_is_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the file changes afterwards: the process had no file descriptor left."""
    seconds = 0.0
    path = write(folder, pair("min_version: TLS12"))
    watched = WatchedConfig(path, monotonic=lambda: seconds)
    write(folder, pair("min_version: TLS13"))

    def fail(file: Path, *_arguments: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files", str(file))

    with monkeypatch.context() as without_descriptors:
        without_descriptors.setattr(Path, "open", fail)
        with pytest.raises(ConfigurationError, match="Too many open files"):
            watched.current()
    with pytest.raises(ConfigurationError):
        watched.current()  # not at each request
    seconds = RETRY_SECONDS
    config = watched.current().tls_server_config
    assert config is not None
    assert config.min_version == "TLS13"

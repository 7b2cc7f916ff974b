"""TLS of the web server: certificates and settings that change while clients connect, and the file's options."""

import queue
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.runtime.certificates import self_signed
from tests.support.runtime.web_clients import address_of, guarded, open_files, rewrite
from tests.support.waiting import eventually

from kernelcast.runtime.settings.yaml_file import read_yaml
from kernelcast.runtime.web import config as web_config
from kernelcast.runtime.web.curves import offered_curves
from kernelcast.runtime.web.server import WebServer
from kernelcast.wire.errors import ConfigurationError

TLS = "tls_server_config: {cert_file: server.crt, key_file: server.key}"
MUTUAL = """\
tls_server_config:
  cert_file: server.crt
  key_file: server.key
  client_ca_file: client.crt
  client_auth_type: RequireAndVerifyClientCert
  client_allowed_sans: [%s]
"""


def trusting(*authorities: Path, client: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata="".join(path.read_text() for path in authorities))
    if client is not None:
        context.load_cert_chain(*client)
    return context


def ask(server: WebServer, context: ssl.SSLContext, *, patience_seconds: float = 10.0) -> int:
    """The status that a client gets which sets itself no limit; 0 without an answer, -1 if it still hangs."""
    answers: queue.Queue[int] = queue.Queue()

    def client() -> None:
        try:
            with (
                socket.create_connection(address_of(server)) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as connection,
            ):
                connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                answers.put(int(connection.recv(4096).split(b" ", 2)[1] or 0))
        except (OSError, IndexError):
            answers.put(0)

    threading.Thread(target=client, daemon=True).start()
    try:
        return answers.get(timeout=patience_seconds)
    except queue.Empty:
        return -1


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    self_signed(tmp_path, "server")
    return tmp_path


def test_a_wrong_file_hangs_no_handshake_leaks_no_connection_and_serves_no_request(folder: Path) -> None:
    with guarded(folder, TLS) as server:
        context = trusting(folder / "server.crt")
        assert ask(server, context) == 200
        rewrite(folder / "web.yml", f"{TLS}\nbasic_auth_users: {{prometheus: hunter2}}\n")
        assert ask(server, context, patience_seconds=5) == 500
        before = open_files()
        answers = [ask(server, context, patience_seconds=5) for _ in range(20)]
        eventually(lambda: open_files() <= before)
        rewrite(folder / "web.yml", TLS)

        assert answers == [500] * 20
        assert ask(server, context) == 200


def missing(path: Path) -> None:
    path.unlink()


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def endless_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def empty(path: Path) -> None:
    rewrite(path, "")


@pytest.mark.parametrize("name", ["server.crt", "server.key", "web.yml"])
@pytest.mark.parametrize("spoil", [missing, directory, endless_link, empty])
def test_a_file_that_is_gone_unreadable_or_empty_for_a_moment_costs_500s_and_no_handshake(
    folder: Path, name: str, spoil: object
) -> None:
    path, kept = folder / name, folder / "kept"
    with guarded(folder, TLS) as server:
        context = trusting(folder / "server.crt")
        shutil.copy2(path, kept)
        spoil(path)  # type: ignore[operator]
        spoiled = ask(server, context, patience_seconds=5)
        if path.is_dir():
            path.rmdir()
        kept.rename(path)

        assert (spoiled, ask(server, context)) == (500, 200)


def test_a_certificate_that_is_replaced_before_its_key_is_used_once_both_are_there(folder: Path) -> None:
    old, new = folder / "server.crt", folder / "new"
    new.mkdir()
    self_signed(new, "server")
    with guarded(folder, TLS) as server:
        either = trusting(old, new / "server.crt")
        only_new = trusting(new / "server.crt")
        (new / "server.crt").rename(old)
        between = ask(server, either, patience_seconds=5)
        (new / "server.key").rename(folder / "server.key")

        assert (between, ask(server, only_new)) == (500, 200)


def test_a_key_that_comes_while_the_certificate_is_read_is_not_missed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = folder / "server.crt", folder / "new"
    new.mkdir()
    self_signed(new, "server")
    with guarded(folder, TLS) as server:
        load = ssl.SSLContext.load_cert_chain

        def slowly(context: ssl.SSLContext, *arguments: object, **named: object) -> None:
            try:
                load(context, *arguments, **named)  # type: ignore[arg-type]
            finally:
                if (new / "server.key").exists():
                    (new / "server.key").rename(folder / "server.key")

        context = trusting(old, new / "server.crt")
        (new / "server.crt").rename(old)
        monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", slowly)

        assert [ask(server, context), ask(server, context)][-1] == 200


def test_rights_that_are_given_back_are_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but the file's rights changes; the tests may run as root, who may read everything."""

    def by_rights(path: Path, *, option: str) -> dict[str, object]:
        if not path.stat().st_mode & 0o400:
            raise ConfigurationError(f"{path} cannot be read")
        return read_yaml(path, option=option)

    monkeypatch.setattr(web_config, "read_yaml", by_rights)
    with guarded(folder, TLS) as server:
        context = trusting(folder / "server.crt")
        answers = []
        for mode in (0o000, 0o600):
            (folder / "web.yml").chmod(mode)
            answers.append(ask(server, context))

    assert answers == [500, 200]


@pytest.mark.parametrize(("allowed", "status"), [("localhost", 200), ("127.0.0.1", 200), ("other", 0)])
def test_of_the_authoritys_clients_only_those_with_an_allowed_name_get_in(
    folder: Path, allowed: str, status: int
) -> None:
    client = self_signed(folder, "client")
    with guarded(folder, MUTUAL % allowed) as server:
        assert ask(server, trusting(folder / "server.crt", client=client)) == status
        assert ask(server, trusting(folder / "server.crt")) == 0


def test_certificate_key_and_authority_can_be_text_in_the_file(folder: Path) -> None:
    client = self_signed(folder, "client")
    texts = {"cert": "server.crt", "key": "server.key", "client_ca": "client.crt"}
    lines = ["tls_server_config:", "  client_auth_type: RequireAndVerifyClientCert"]
    for key, name in texts.items():
        remark = "    # Schlüssel der Zentrale, as `openssl x509 -text` writes names in front of a PEM block"
        lines += [f"  {key}: |", remark, *(f"    {line}" for line in (folder / name).read_text().splitlines())]
    with guarded(folder, "\n".join(lines)) as server:
        assert ask(server, trusting(folder / "server.crt", client=client)) == 200
        assert ask(server, trusting(folder / "server.crt")) == 0


@pytest.fixture
def of_two_suites(folder: Path) -> Iterator[WebServer]:
    suites = "[TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]"
    text = f"tls_server_config: {{cert_file: server.crt, key_file: server.key, cipher_suites: {suites}}}"
    with guarded(folder, text) as server:
        yield server


@pytest.mark.parametrize(
    ("offered", "status"),
    [
        ("ECDHE-ECDSA-AES128-GCM-SHA256", 200),
        ("ECDHE-ECDSA-AES256-GCM-SHA384", 200),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", 0),
    ],
)
def test_a_client_of_tls_1_2_gets_in_with_a_listed_cipher_suite_only(
    folder: Path, of_two_suites: WebServer, offered: str, status: int
) -> None:
    context = trusting(folder / "server.crt")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(offered)

    assert ask(of_two_suites, context) == status


def test_suites_of_tls_1_3_alone_leave_tls_1_2_out(folder: Path) -> None:
    text = TLS.replace("}", ", cipher_suites: [TLS_AES_128_GCM_SHA256]}")
    old, new = trusting(folder / "server.crt"), trusting(folder / "server.crt")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with guarded(folder, text) as server:
        assert [ask(server, old), ask(server, new)] == [0, 200]


@pytest.fixture(scope="module")
def rsa(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """In TLS 1.2, a client that does not offer the curve of a certificate's key does not take the certificate."""
    return self_signed(tmp_path_factory.mktemp("rsa"), "server", ("rsa:2048",))


@pytest.mark.parametrize(
    ("curves", "offered", "status"),
    [
        ("CurveP256", "prime256v1", 200),
        ("CurveP256", "secp384r1", 0),
        ("X25519", "X25519", 200),
        ("CurveP521, CurveP384, CurveP256", "secp384r1", 200),
        ("CurveP521, CurveP384, CurveP256", "X25519", 0),
    ],
)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_gets_in_with_a_listed_curve_only(
    tmp_path: Path, rsa: tuple[Path, Path], curves: str, offered: str, status: int, version: ssl.TLSVersion
) -> None:
    for path in rsa:
        shutil.copy(path, tmp_path)
    context = trusting(rsa[0])
    context.minimum_version = context.maximum_version = version
    context.set_ecdh_curve(offered)
    with guarded(tmp_path, TLS.replace("}", f", curve_preferences: [{curves}]}}")) as server:
        assert ask(server, context) == status


def hello(*, curves: bytes = b"\x00\x04\x00\x17\x00\x1d") -> bytes:
    """A ClientHello as a client sends it, in one record."""
    extensions = b"\x00\x00\x00\x00" + b"\x00\x0a" + len(curves).to_bytes(2, "big") + curves
    body = b"\x03\x03" + bytes(32) + b"\x01s" + b"\x00\x02\x13\x01" + b"\x01\x00"
    body += len(extensions).to_bytes(2, "big") + extensions
    message = b"\x01" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message


def test_the_curves_of_a_client_are_read_however_its_first_message_is_cut() -> None:
    whole = hello()
    message = whole[5:]
    cut = b"".join(b"\x16\x03\x01" + len(part).to_bytes(2, "big") + part for part in (message[:3], message[3:]))

    assert offered_curves(whole) == offered_curves(cut) == offered_curves(whole + b"\x17 more") == (23, 29)
    assert all(offered_curves(data[:end]) is None for data in (whole, cut) for end in range(len(data)))


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1", bytes(70_000), b"\x16" * 70_000, hello(curves=b"\xff\xff")])
def test_bytes_that_are_no_client_hello_offer_no_curve(data: bytes) -> None:
    assert offered_curves(data) == ()


@given(st.binary(max_size=300), st.integers(0, 80), st.binary(max_size=4))
def test_no_bytes_break_the_reading_of_curves(data: bytes, position: int, change: bytes) -> None:
    changed = hello()[:position] + change + hello()[position + len(change) :]
    for sent in (data, b"\x16\x03\x01" + data, changed):
        assert all(0 <= curve < 2**16 for curve in offered_curves(sent) or ())

"""Secrets and certificates for the configured Prometheus; `PrometheusProxy` uses them."""

import ssl
from pathlib import Path

from kernelcast.bridge.browser.settings import TlsSettings
from kernelcast.wire.errors import ConfigurationError


class SecretFile:
    """A file with one secret, read again whenever it changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file_status: tuple[int, int, int] | None = None
        self._secret = ""

    def read(self) -> str:
        """The secret as it is now, without white space around it.

        Raises:
            OSError: The file cannot be read, or is not UTF-8.
        """
        status = self._path.stat()
        file_status = (status.st_mtime_ns, status.st_size, status.st_ino)
        if file_status != self._file_status:
            try:
                self._secret = self._path.read_text("utf-8").strip()
            except UnicodeDecodeError:
                raise OSError(f"{self._path} is not UTF-8; write the secret as text") from None
            self._file_status = file_status
        return self._secret

    def read_token(self) -> str:
        """The secret as it is now, for a header.

        Raises:
            OSError: The file cannot be read, or no header can hold its text.
        """
        token = self.read()
        if not token or not token.isascii() or not token.isprintable():
            raise OSError(f"{self._path} holds no token: a token is one line of ASCII characters; write it again")
        return token


def client_context(tls: TlsSettings) -> ssl.SSLContext:
    """The TLS context of a client with these certificates.

    Raises:
        ConfigurationError: A certificate cannot be used.
    """
    try:
        context = ssl.create_default_context(cafile=str(tls.ca_file) if tls.ca_file is not None else None)
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"bridge.pages.tls: certificates cannot be used (ca_file {tls.ca_file}, cert_file {tls.cert_file}, "
            f"key_file {tls.key_file}): {error}; give PEM files that this process may read"
        ) from None
    if tls.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context

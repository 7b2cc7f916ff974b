"""Access to the HTTP API of another server: credentials from files, certificates, a tenant, and the proxy.

`PrometheusClient` and the sender of alerts use it. Files are read for each request, so that a token or a certificate
that was renewed counts at once.
"""

import base64
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernelcast.wire.errors import ConfigurationError

TENANT_HEADER: Final = "X-Scope-OrgID"
"""Header that names the tenant; Mimir, Cortex, Loki and Thanos' receiver read it."""


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """How requests to one server are made.

    Attributes:
        bearer_token_file: File with a token.
        user: Name for basic authentication; empty for none.
        password_file: File with its password.
        ca_file: Certificates that are trusted instead of the system's.
        cert_file: Own certificate.
        key_file: Its key; None where the certificate's file has it.
        tenant: Value of `X-Scope-OrgID`; empty for none.
        with_proxy: Whether the environment's proxy (`https_proxy`) is used.
    """

    bearer_token_file: Path | None = None
    user: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    tenant: str = ""
    with_proxy: bool = True

    def check(self) -> None:
        """Check the files.

        Raises:
            ConfigurationError: One cannot be used.
        """
        self.headers()
        self.context()

    def headers(self) -> dict[str, str]:
        """The headers of a request.

        Raises:
            ConfigurationError: A file cannot be read, or is empty.
        """
        headers = {TENANT_HEADER: self.tenant} if self.tenant else {}
        if self.bearer_token_file is not None:
            headers["Authorization"] = f"Bearer {_content(self.bearer_token_file, 'bearer_token_file')}"
        elif self.user:
            password = "" if self.password_file is None else _content(self.password_file, "password_file")
            headers["Authorization"] = basic(self.user, password)
        return headers

    def context(self) -> ssl.SSLContext | None:
        """The TLS of a request; None for the system's certificates.

        Raises:
            ConfigurationError: A file cannot be read, or is no certificate.
        """
        if self.ca_file is None and self.cert_file is None:
            return None
        name, path = "ca_file", self.ca_file
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                name, path = "cert_file", self.cert_file
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:  # an SSLError is one
            shown = f"predictor.prometheus.{name} is {path}"
            reason = f"{shown}; it cannot be used: {error.strerror or error}; give a file in PEM format"
            raise ConfigurationError(reason) from None
        return context


def basic(user: str, password: str) -> str:
    """Return the header `Authorization` of basic authentication."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _content(path: Path, name: str) -> str:
    try:
        content = path.read_text().strip()
    except OSError as error:
        reason = f"it cannot be read: {error.strerror}"
    except UnicodeDecodeError:
        reason = "it is no text"
    else:
        if content:
            return content
        reason = "it is empty"
    raise ConfigurationError(f"predictor.prometheus.{name} is {path}; {reason}; give a file with the secret alone")

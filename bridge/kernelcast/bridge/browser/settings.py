"""Settings of the dashboards that the bridge serves: the section `pages` of the bridge's settings."""

from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from kernelcast.runtime.settings.masking import MASKED
from kernelcast.runtime.settings.service import Section


class BasicAuth(Section):
    """HTTP's basic authentication.

    Attributes:
        username: The user.
        password: Its password.
        password_file: A file with the password instead, read again whenever it changes.
    """

    username: Annotated[str, Field(min_length=1)]
    password: str = ""
    password_file: Path | None = None

    @model_validator(mode="after")
    def _must_have_one_password(self) -> Self:
        if self.password and self.password_file is not None:
            raise ValueError("password and password_file are both set; remove one")
        return self

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Hide the password wherever the settings are printed or logged."""
        return [("username", self.username), ("password", MASKED), ("password_file", self.password_file)]


class TlsSettings(Section):
    """TLS settings of a receiver: its authorities, and the client's certificate.

    Attributes:
        ca_file: PEM certificates to trust instead of the system's.
        cert_file: Our own certificate, for receivers that demand one.
        key_file: Its key; empty where `cert_file` holds both.
        insecure_skip_verify: Do not verify the server's certificate; for tests.
    """

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_skip_verify: bool = False

    @model_validator(mode="after")
    def _must_have_certificate_of_key(self) -> Self:
        if self.key_file is not None and self.cert_file is None:
            raise ValueError("key_file is set without cert_file; set cert_file, or remove key_file")
        return self


class PagesSettings(Section):
    """The dashboards that the bridge serves at `/pages`: their source and limits.

    Attributes:
        enabled: Whether they are served.
        prometheus_url: The Prometheus that answers the pages' queries, such as `http://prometheus:9090`. Empty:
            there are no dashboards, and `/pages` leads to the bridge's first page.
        basic_auth: User and password for that Prometheus.
        bearer_token_file: A file with a token for it, read again whenever it changes.
        tls: Certificates for it.
        timeout_seconds: How long one query may take.
        max_response_bytes: Largest answer of one query, as it is transferred.
        concurrent_queries: Queries that Prometheus works on at one time; others wait.
        scrape_interval_seconds: How often this Prometheus scrapes: the shortest step of a graph.
    """

    enabled: bool = True
    prometheus_url: str = ""
    basic_auth: BasicAuth | None = None
    bearer_token_file: Path | None = None
    tls: TlsSettings = TlsSettings()
    timeout_seconds: Annotated[float, Field(ge=0.1, le=120)] = 10.0
    max_response_bytes: Annotated[int, Field(ge=1024, le=256 * 1024 * 1024)] = 8 * 1024 * 1024
    concurrent_queries: Annotated[int, Field(ge=1, le=64)] = 4
    scrape_interval_seconds: Annotated[float, Field(ge=0.1, le=3600)] = 15.0

    @field_validator("prometheus_url")
    @classmethod
    def _must_be_http(cls, value: str) -> str:
        if not value:
            return value
        _check_http_url(value)
        parts = urlsplit(value)
        if parts.query or parts.fragment:
            raise ValueError("it must end with a path; leave out ? and #")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _must_have_one_kind_of_credentials(self) -> Self:
        if self.basic_auth is not None and self.bearer_token_file is not None:
            raise ValueError("basic_auth and bearer_token_file are both set; remove one")
        return self


def _check_http_url(url: str) -> None:
    """Check a URL of the settings.

    Raises:
        ValueError: It cannot be requested, or it has a user or password.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("it must begin with http:// or https:// and name a host")
    if parts.username or parts.password:
        raise ValueError("it must hold no user or password; set basic_auth")
    if not url.isprintable() or " " in url:
        raise ValueError("it must hold no blanks or control characters; write %20 for a blank")
    try:
        _ = parts.port
    except ValueError:  # its words would show part of a password that has a / in it
        raise ValueError("its port must be a number below 65536") from None
    try:
        parts.hostname.encode("idna")
    except UnicodeError:
        raise ValueError("its host is no valid name: each part must have 1 to 63 characters") from None

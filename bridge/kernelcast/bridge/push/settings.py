"""Settings of a destination: the items of `push` in the bridge's section of the settings file."""

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from kernelcast.runtime.settings.secrets import MASKED
from kernelcast.runtime.settings.service import Remedy, Section

NAME_PATTERN: Final = r"^[a-zA-Z0-9][a-zA-Z0-9._-]{0,62}$"
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110, section 5.6.2."""


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


class PushSettings(Section):
    """One destination.

    Attributes:
        name: Its name in metrics, logs and the default consumer group.
        kind: `otlp` (OTLP over HTTP: Prometheus' `/api/v1/otlp/v1/metrics`, a Collector's `/v1/metrics`) or
            `remote_write` (Prometheus' `/api/v1/write` and all that take it).
        url: Where requests go.
        topics: What to read; empty for the bridge's own topics. Messages need keys: order holds within a partition.
        group_id: The consumer group; empty for `kernelcast-push-NAME`.
        start: Where a group without committed offsets begins.
        consumers: Members of the group in this process, each with its own thread; they divide the partitions.
        protocol: Remote write's version; `auto` begins with 2.0 and falls back when the receiver knows 1.0 only.
        native_histograms: Whether exponential histograms go as native ones; else as classic buckets.
        compression: Of OTLP; remote write is always snappy.
        max_points: Points of one request.
        max_request_bytes: Bytes read from Kafka for one request, before they are encoded.
        max_series: Known series; beyond it all are forgotten and learned again.
        linger_seconds: How long to wait for more before a request is sent.
        timeout_seconds: How long a receiver may take.
        headers: Added to every request, such as `X-Scope-OrgID`.
        basic_auth: User and password.
        bearer_token_file: A file with a token, read again whenever it changes.
        tls: Certificates.
    """

    name: Annotated[str, Field(pattern=NAME_PATTERN), Remedy("use letters, digits, dots and dashes")]
    kind: Literal["otlp", "remote_write"]
    url: str
    topics: tuple[str, ...] = ()
    group_id: str = ""
    start: Literal["end", "beginning"] = "end"
    consumers: Annotated[int, Field(ge=1, le=64)] = 1
    protocol: Literal["auto", "2.0", "1.0"] = "auto"
    native_histograms: bool = True
    compression: Literal["gzip", "zstd", "none"] = "gzip"
    max_points: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    max_request_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 2 * 1024 * 1024
    max_series: Annotated[int, Field(ge=1000)] = 2_000_000
    linger_seconds: Annotated[float, Field(ge=0, le=60)] = 0.5
    timeout_seconds: Annotated[float, Field(ge=0.1, le=240), Remedy("stay below max.poll.interval.ms")] = 30.0
    headers: dict[str, str] = Field(default_factory=dict)
    basic_auth: BasicAuth | None = None
    bearer_token_file: Path | None = None
    tls: TlsSettings = TlsSettings()

    @field_validator("url")
    @classmethod
    def _must_be_http(cls, value: str) -> str:
        check_http_url(value)
        return value

    @field_validator("headers")
    @classmethod
    def _must_be_headers(cls, value: dict[str, str]) -> dict[str, str]:
        for name, text in value.items():
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a header; use letters, digits and dashes")
            if not (text.isascii() and text.replace("\t", " ").isprintable() and text == text.strip()):
                raise ValueError(f"header {name} must hold printable ASCII characters, without blanks at its ends")
        return value

    @model_validator(mode="after")
    def _must_have_one_kind_of_credentials(self) -> Self:
        check_credentials(self.basic_auth, self.bearer_token_file)
        return self

    @property
    def group(self) -> str:
        """The consumer group."""
        return self.group_id or f"kernelcast-push-{self.name}"

    def __repr_args__(self) -> list[tuple[str | None, Any]]:
        """Hide what headers hold: tokens, mostly."""
        masked = dict.fromkeys(self.headers, MASKED)
        return [(name, masked if name == "headers" else value) for name, value in super().__repr_args__()]


def check_http_url(url: str) -> None:
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


def check_credentials(basic_auth: BasicAuth | None, bearer_token_file: Path | None) -> None:
    """Check that a server gets one kind of credentials.

    Raises:
        ValueError: Both are set.
    """
    if basic_auth is not None and bearer_token_file is not None:
        raise ValueError("basic_auth and bearer_token_file are both set; remove one")

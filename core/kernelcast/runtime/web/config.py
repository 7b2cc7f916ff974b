"""The web configuration file of Prometheus's exporter-toolkit: TLS, client certificates, users, headers, rate limit.

The web server reads it at the start and after each change (`watched`). A setting that we do not support is refused,
never ignored; docs/web.md lists them.

Format: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from kernelcast.runtime.settings.layers import Layers
from kernelcast.runtime.settings.problems import explain
from kernelcast.runtime.settings.service import Section
from kernelcast.runtime.settings.yaml_file import read_yaml
from kernelcast.runtime.web.tls_config import TlsConfig
from kernelcast.wire.errors import ConfigurationError

_HEADERS: Final[Mapping[str, tuple[str, ...]]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
"""Headers that can be set, with their allowed values; an empty tuple allows any value."""
_BCRYPT: Final = re.compile(r"\$2[aby]\$(0[4-9]|1\d)\$[./A-Za-z0-9]{53}")
"""Hashes with a cost above 19 take minutes a request, so they are refused as mistakes."""
_DURATION: Final = re.compile(r"(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+")
LONGEST_DURATION: Final = 40
"""Characters of a duration: one with hundreds of digits would refuse every request for ever."""
_DURATION_PART: Final = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_UNIT_SECONDS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PATHS: Final = ("cert_file", "key_file", "client_ca_file")
_TEXTS: Final = ("cert", "key", "client_ca")


class HttpConfig(Section):
    """`http_server_config`. `http2` is accepted and has no effect: we serve HTTP/1.1."""

    http2: bool = True
    headers: dict[str, str] = Field(default_factory=dict)

    @field_validator("headers")
    @classmethod
    def _must_be_known(cls, headers: dict[str, str]) -> dict[str, str]:
        unknown = sorted(set(headers) - set(_HEADERS))
        if unknown:
            raise ValueError(f"{', '.join(unknown)} cannot be set; these can: {', '.join(_HEADERS)}")
        for name, value in headers.items():
            if _HEADERS[name] and value not in _HEADERS[name]:
                raise ValueError(f"{name} cannot be {value!r}; it can be {' or '.join(_HEADERS[name])}")
            if not value.isascii() or not value.isprintable():
                raise ValueError(f"{name} has characters that a header cannot have; write it in printable ASCII")
        return {name: value for name, value in headers.items() if value}


class RateLimit(Section):
    """`rate_limit`: a token bucket over all requests, those of the probes excepted.

    Attributes:
        interval: Seconds between two requests; 0 sets no limit.
        burst: Requests that may come at once.
    """

    interval: float = 0.0
    burst: int = Field(default=0, ge=0)

    @field_validator("interval", mode="before")
    @classmethod
    def _must_be_a_duration(cls, value: Any) -> float:
        if value in (0, "0") and not isinstance(value, bool):
            return 0.0
        fits = isinstance(value, str) and len(value) <= LONGEST_DURATION and _DURATION.fullmatch(value)
        if not fits:
            raise ValueError("it must be a duration with its unit, as 100ms, 1s or 1m30s; 0 sets no limit")
        return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _DURATION_PART.findall(value))

    @model_validator(mode="after")
    def _must_let_some_in(self) -> Self:
        if self.interval and not self.burst:
            raise ValueError("burst is 0, so every request would be refused; the minimum is 1")
        return self


class WebConfig(Section):
    """The file.

    Attributes:
        tls_server_config: TLS; None serves plain HTTP.
        http_server_config: Headers to send with every response.
        basic_auth_users: bcrypt hashes of passwords, by user; empty demands no login.
        rate_limit: Limit of requests.
    """

    tls_server_config: TlsConfig | None = None
    http_server_config: HttpConfig = HttpConfig()
    basic_auth_users: Annotated[dict[str, str], Field(repr=False)] = Field(default_factory=dict)
    rate_limit: RateLimit = RateLimit()

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it names."""
        return self.tls_server_config.files if self.tls_server_config is not None else ()

    @field_validator("basic_auth_users", mode="before")
    @classmethod
    def _must_be_hashes(cls, users: Any) -> Any:
        if users is None:
            return {}
        if not isinstance(users, Mapping):
            raise ValueError("it must map users to bcrypt hashes")  # noqa: TRY004 - pydantic reports ValueError
        for user, hashed in users.items():
            if not isinstance(hashed, str) or _BCRYPT.fullmatch(hashed) is None:
                raise ValueError(
                    f"the password of {user} is not a bcrypt hash; make one with `htpasswd -nBC 10 {user}`"
                )
        return users


def read_web_config(path: Path) -> WebConfig:
    """Read and check a web configuration file, certificates included.

    Raises:
        ConfigurationError: Every problem found, one a line.
    """
    config = parse_web_config(path)
    if config.tls_server_config is not None:
        config.tls_server_config.context()
    return config


def parse_web_config(path: Path) -> WebConfig:
    """Read and check a web configuration file, but none of the files that it names.

    Raises:
        ConfigurationError: Every problem found, one a line.
    """
    document = read_yaml(path, option="--web.config.file")
    layers = Layers(path.name)
    for key, value in document.items():
        if key == "basic_auth_users":
            layers.values[key] = value
        elif value is not None:
            layers.put((str(key),), value, name=str(key), source=f"{path}")
        layers.origins.setdefault((str(key),), (str(key), f"{path}"))
    _prepare(layers.values.get("tls_server_config"), path.parent)
    try:
        config = WebConfig.model_validate(layers.values)
    except ValidationError as error:
        raise ConfigurationError(explain(error, WebConfig, layers)) from None
    if config.tls_server_config is not None:
        config.tls_server_config.check()
    return config


def _prepare(tls: Any, folder: Path) -> None:
    """Resolve paths, and remove empty values, which mean "not set".

    Raises:
        ConfigurationError: A PEM text is something else; its value, which may be a key, is not shown.
    """
    if not isinstance(tls, dict):
        return
    for key in (*_PATHS, *_TEXTS):
        if tls.get(key, "") in ("", None):
            tls.pop(key, None)
        elif key in _TEXTS and not isinstance(tls[key], str):
            raise ConfigurationError(f"tls_server_config.{key} is not a text; it must be PEM, after `{key}: |`")
        elif isinstance(tls[key], str) and key in _PATHS:
            tls[key] = str(folder / tls[key])

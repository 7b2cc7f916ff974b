"""The web configuration file of Prometheus's exporter-toolkit: TLS, client certificates, users, headers.

Format: https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md. What we cannot do is
refused, never ignored.
"""

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from kernelcast.runtime.layers import Layers
from kernelcast.runtime.problems import explain
from kernelcast.runtime.settings import Section
from kernelcast.runtime.yaml_file import read_yaml
from kernelcast.wire.errors import ConfigurationError

_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_HEADERS: Final = (
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
)
_BCRYPT: Final = re.compile(r"\$2[aby]\$(0[4-9]|1\d)\$[./A-Za-z0-9]{53}")
"""Costs above 19 take minutes a request; nobody means them."""


class TlsConfig(Section):
    """`tls_server_config`; paths are relative to the file."""

    cert_file: Path
    key_file: Path
    client_auth_type: Literal["", "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"] = ""
    client_ca_file: Path | None = None
    min_version: Literal["TLS12", "TLS13"] = "TLS12"
    max_version: Literal["TLS12", "TLS13"] = "TLS13"
    prefer_server_cipher_suites: bool = True

    @model_validator(mode="after")
    def _must_agree(self) -> Self:
        verifies = self.client_auth_type not in {"", "NoClientCert"}
        if verifies and self.client_ca_file is None:
            raise ValueError(f"client_auth_type {self.client_auth_type} needs client_ca_file")
        if self.client_ca_file is not None and not verifies:
            raise ValueError("client_ca_file needs client_auth_type RequireAndVerifyClientCert")
        if self.min_version > self.max_version:
            raise ValueError(f"min_version {self.min_version} is above max_version {self.max_version}")
        return self

    def context(self) -> ssl.SSLContext:
        """What a TLS server needs.

        Raises:
            ConfigurationError: A certificate or a key cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self.min_version]
        context.maximum_version = _VERSIONS[self.max_version]
        if self.prefer_server_cipher_suites:
            context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
        try:
            context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:
            raise ConfigurationError(
                f"tls_server_config: {self.cert_file} with {self.key_file} cannot be used: {error}"
            ) from None
        if self.client_ca_file is not None:
            try:
                context.load_verify_locations(self.client_ca_file)
            except OSError as error:
                raise ConfigurationError(
                    f"tls_server_config.client_ca_file {self.client_ca_file} cannot be used: {error}"
                ) from None
        context.verify_mode = _CLIENT_AUTH[self.client_auth_type or "NoClientCert"]
        return context


class HttpConfig(Section):
    """`http_server_config`."""

    http2: bool = True
    headers: dict[str, str] = Field(default_factory=dict)

    @field_validator("headers")
    @classmethod
    def _must_be_known(cls, headers: dict[str, str]) -> dict[str, str]:
        unknown = sorted(set(headers) - set(_HEADERS))
        if unknown:
            raise ValueError(f"{', '.join(unknown)} cannot be set; these can: {', '.join(_HEADERS)}")
        return headers


class WebConfig(Section):
    """The file.

    Attributes:
        tls_server_config: TLS; None serves plain HTTP.
        http_server_config: Headers to send with every response.
        basic_auth_users: bcrypt hashes of passwords, by user; empty lets everybody in.
    """

    tls_server_config: TlsConfig | None = None
    http_server_config: HttpConfig = HttpConfig()
    basic_auth_users: Annotated[dict[str, str], Field(repr=False)] = Field(default_factory=dict)

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
    document = read_yaml(path, option="--web.config.file")
    layers = Layers(path.name)
    for key, value in document.items():
        if key == "basic_auth_users":
            layers.values[key] = value
        elif value is not None:
            layers.put((str(key),), value, name=str(key), source=f"{path}")
    _resolve_paths(layers.values.get("tls_server_config"), path.parent)
    try:
        config = WebConfig.model_validate(layers.values)
    except ValidationError as error:
        raise ConfigurationError(explain(error, WebConfig, layers)) from None
    if config.tls_server_config is not None:
        config.tls_server_config.context()
    return config


def _resolve_paths(tls: Any, folder: Path) -> None:
    if isinstance(tls, dict):
        for key in ("cert_file", "key_file", "client_ca_file"):
            if isinstance(tls.get(key), str) and tls[key]:
                tls[key] = str(folder / tls[key])
            elif tls.get(key) == "":
                del tls[key]

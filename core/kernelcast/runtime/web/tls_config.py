"""`tls_server_config` of the web configuration file, and the `ssl` context that is made from it.

`config` reads and checks it. Go's names for cipher suites and curves: https://pkg.go.dev/crypto/tls#pkg-constants.
"""

import contextlib
import ipaddress
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, field_validator

from kernelcast.runtime.settings.service import Section
from kernelcast.runtime.web.curves import CURVES, CurvesContext
from kernelcast.wire.errors import ConfigurationError

_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_UNVERIFIED: Final = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
_TLS13_SUITES: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""Go cannot choose among them and uses them all, whatever the list says; neither can Python."""
_SUITES: Final = MappingProxyType(
    {
        "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
        "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
        "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    }
)
"""Go's `tls.CipherSuites()` for TLS 1.2, and OpenSSL's names for them."""
_INLINE: Final = {"cert": "cert_file", "key": "key_file", "client_ca": "client_ca_file"}


class TlsConfig(Section):
    """`tls_server_config`; paths are relative to the file, `cert`, `key` and `client_ca` are PEM texts in it."""

    cert: str | None = None
    key: Annotated[str | None, Field(repr=False)] = None
    client_ca: str | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    client_ca_file: Path | None = None
    client_auth_type: Literal["", "NoClientCert", "VerifyClientCertIfGiven", "RequireAndVerifyClientCert"] = ""
    client_allowed_sans: tuple[str, ...] | None = None
    min_version: Literal["TLS12", "TLS13"] = "TLS12"
    max_version: Literal["TLS12", "TLS13"] = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    curve_preferences: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True

    @field_validator("client_auth_type", mode="before")
    @classmethod
    def _must_verify(cls, value: Any) -> Any:
        if value in _UNVERIFIED:
            raise ValueError(
                "it takes certificates without verifying them, which is not supported; "
                "use RequireAndVerifyClientCert with client_ca_file"
            )
        return value

    @field_validator("cipher_suites", "curve_preferences", mode="before")
    @classmethod
    def _must_be_a_list(cls, value: Any) -> Any:
        return () if value is None else value

    @field_validator("cipher_suites")
    @classmethod
    def _must_be_suites(cls, suites: tuple[str, ...]) -> tuple[str, ...]:
        _must_be_known("cipher suite", suites, (*_SUITES, *sorted(_TLS13_SUITES)))
        return suites

    @field_validator("curve_preferences")
    @classmethod
    def _must_be_curves(cls, curves: tuple[str, ...]) -> tuple[str, ...]:
        _must_be_known("curve", curves, CURVES)
        return curves

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that it names."""
        return tuple(path for path in (self.cert_file, self.key_file, self.client_ca_file) if path is not None)

    def check(self) -> None:
        """Check settings that depend on one another; no error shows a value, for `key` is one of them.

        Raises:
            ConfigurationError: They contradict each other.
        """
        problems = [f"tls_server_config.{problem}" for problem in self._contradictions()]
        if problems:
            raise ConfigurationError("\n".join(problems))

    def _contradictions(self) -> Iterator[str]:
        for inline, file in _INLINE.items():
            if getattr(self, inline) is not None and getattr(self, file) is not None:
                yield f"{inline} and {file} are both set; remove one"
        for inline, file in (("cert", "cert_file"), ("key", "key_file")):
            if getattr(self, inline) is None and getattr(self, file) is None:
                yield f"{file} is missing; set it, or {inline}"
        if self.min_version > self.max_version:
            yield f"min_version {self.min_version} is above max_version {self.max_version}"
        if self.max_version == "TLS12" and self.cipher_suites and not self._old_suites():
            yield "cipher_suites has none for TLS 1.2, the max_version; add one, or remove max_version"
        yield from self._client_contradictions()

    def _client_contradictions(self) -> Iterator[str]:
        verifies = self.client_auth_type not in {"", "NoClientCert"}
        authority = self.client_ca is not None or self.client_ca_file is not None
        if verifies and not authority:
            yield f"client_auth_type {self.client_auth_type} needs client_ca_file or client_ca"
        if authority and not verifies:
            yield "client_ca_file needs client_auth_type RequireAndVerifyClientCert"
        if self.client_allowed_sans is not None and self.client_auth_type != "RequireAndVerifyClientCert":
            yield "client_allowed_sans needs client_auth_type RequireAndVerifyClientCert"
        if self.client_allowed_sans == ():
            yield "client_allowed_sans is empty, so no client could connect; list a name, or remove it"

    def context(self) -> ssl.SSLContext:
        """The settings as Python's `ssl` takes them.

        Raises:
            ConfigurationError: A certificate, a key or an authority cannot be used.
        """
        if len(self.curve_preferences) <= 1:
            return self._context(*self.curve_preferences)
        context = CurvesContext(ssl.PROTOCOL_TLS_SERVER)
        context.by_curve = tuple((CURVES[curve][1], self._context(curve)) for curve in self.curve_preferences)
        return context

    def _context(self, curve: str = "") -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if curve:
            context.set_ecdh_curve(CURVES[curve][0])
        context.minimum_version = _VERSIONS[self.min_version]
        context.maximum_version = _VERSIONS[self.max_version]
        if self.prefer_server_cipher_suites:
            context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
        if self.cipher_suites:
            self._choose_suites(context)
        self._load_certificate(context)
        self._load_authority(context)
        context.verify_mode = _CLIENT_AUTH[self.client_auth_type or "NoClientCert"]
        if self.client_allowed_sans is not None:
            context.sslobject_class = _checking(frozenset(self.client_allowed_sans))
        return context

    def _old_suites(self) -> list[str]:
        return [_SUITES[suite] for suite in self.cipher_suites if suite in _SUITES]

    def _choose_suites(self, context: ssl.SSLContext) -> None:
        suites = self._old_suites()
        if suites:
            context.set_ciphers(":".join(suites))
        else:
            context.minimum_version = ssl.TLSVersion.TLSv1_3

    def _load_certificate(self, context: ssl.SSLContext) -> None:
        shown = f"{self.cert_file or 'cert'} with {self.key_file or 'key'}"
        try:
            with _as_file(self.cert_file, self.cert) as certificate, _as_file(self.key_file, self.key) as key:
                context.load_cert_chain(certificate, key, password=_no_password)
        except (OSError, ValueError) as error:
            missing = [str(path) for path in (self.cert_file, self.key_file) if path and not os.access(path, os.R_OK)]
            unread = f"{' and '.join(missing)} cannot be read; name files in PEM that this user may read"
            reason = unread if missing else str(error)
            raise ConfigurationError(f"tls_server_config: {shown} cannot be used: {reason}") from None

    def _load_authority(self, context: ssl.SSLContext) -> None:
        if self.client_ca_file is None and self.client_ca is None:
            return
        try:
            with _as_file(self.client_ca_file, self.client_ca) as authority:
                context.load_verify_locations(authority)
        except (OSError, ValueError) as error:
            where = f"client_ca_file {self.client_ca_file}" if self.client_ca_file is not None else "client_ca"
            raise ConfigurationError(f"tls_server_config.{where} cannot be used: {error}") from None


def _must_be_known(what: str, names: tuple[str, ...], known: Any) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{', '.join(unknown)} is not a supported {what}; these are: {', '.join(known)}")


def _no_password() -> bytes:
    """OpenSSL would ask for an encrypted key's password on the terminal."""
    raise ValueError("the key is encrypted; store it without a password, readable by the service only")


@contextlib.contextmanager
def _as_file(path: Path | None, text: str | None) -> Iterator[Path]:
    """A file for OpenSSL: it reads a key from nothing else, and in it text around the PEM blocks may be of any script.

    A key in the text stays in memory where possible.
    """
    if path is not None:
        yield path
        return
    content = (text or "").encode()
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").exists():
        with os.fdopen(os.memfd_create("kernelcast-pem"), "wb") as file:
            file.write(content)
            file.flush()
            yield Path(f"/proc/self/fd/{file.fileno()}")
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield Path(file.name)


class _CheckingObject(ssl.SSLObject):
    """One connection whose client certificate must name one of the allowed subjects."""

    allowed: ClassVar[frozenset[str]] = frozenset()

    def do_handshake(self) -> None:
        super().do_handshake()
        if self.allowed.isdisjoint(_names(self.getpeercert() or {})):
            raise ssl.SSLCertVerificationError("the client's certificate has no name of client_allowed_sans")


def _checking(allowed: frozenset[str]) -> type[ssl.SSLObject]:
    return type("CheckingObject", (_CheckingObject,), {"allowed": allowed})


def _names(certificate: Any) -> Iterator[str]:
    """Subject alternative names (DNS, e-mail, URI, IP address), as Go writes them."""
    for kind, name in certificate.get("subjectAltName", ()):
        if kind in {"DNS", "email", "URI"}:
            yield name
        elif kind == "IP Address":
            with contextlib.suppress(ValueError):
                yield str(ipaddress.ip_address(name.strip()))

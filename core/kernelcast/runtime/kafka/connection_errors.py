"""Finds the reason for which no broker can be reached, and the remedy; consumers, readers and `Admin` report it.

librdkafka retries for ever and reports "Broker transport failure" to the caller, whatever the cause. It reports the
cause to its error callback only (`ConnectionErrors.note`). For TLS even that is the same sentence for an expired
certificate, an unknown CA and a wrong host name; a plaintext client on a TLS port gets no reason at all. In these
cases `examine` makes one TLS handshake.
"""

import math
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError

from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.wire.errors import BrokerAccessError, BrokerError

LOGIN_PATIENCE_SECONDS: Final = 60.0
"""Time for which a reading service retries a login that Kafka refuses, before it ends and is restarted."""
REPEATED_SECONDS: Final = 45.0
"""Longest time between two reports of a login that is refused at each try; librdkafka omits equal ones for 30 s."""
HANDSHAKE_SECONDS: Final = 3.0
_LOGIN: Final = KafkaError._AUTHENTICATION  # noqa: SLF001  how librdkafka names its local errors
_TLS: Final = KafkaError._SSL  # noqa: SLF001  as above
_NAME: Final = KafkaError._RESOLVE  # noqa: SLF001  as above
_CONNECTION: Final = KafkaError._TRANSPORT  # noqa: SLF001  as above
_RANK: Final = {_CONNECTION: 1, _NAME: 2, _TLS: 3, _LOGIN: 4}
"""A later error replaces a known one of the same or a lower rank: connections that fail follow each refusal."""
_TIMING: Final = re.compile(r" \(after \d+ms in state \w+(?:[^()]|\([^()]*\))*\)")
"""librdkafka's note on an attempt, which may contain "1 identical error(s) suppressed"."""
_BROKER: Final = re.compile(r"^(?:\w+://)?(.+?)/(?:bootstrap|\d+): ")
_CERTIFICATE: Final = "the broker's certificate is refused"
_START: Final = "check that Kafka runs, that kafka.bootstrap_servers names it, and that no firewall is in between"
_SET_PROTOCOL: Final = "set security.protocol in kafka.properties to"


class ConnectionErrors:
    """Keeps the last reason that librdkafka gave for a failed connection; any thread that serves its callbacks writes.

    Attributes:
        reason: librdkafka's text; empty without an error.
    """

    def __init__(self, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Start without an error.

        Args:
            monotonic: A clock, in seconds.
        """
        self._monotonic, self._lock = monotonic, threading.Lock()
        self._code = 0
        self._refused: tuple[float, float] | None = None  # when first and last, without a pause in between
        self.reason = ""

    def note(self, error: KafkaError) -> None:
        """Record an error; this is librdkafka's error callback."""
        rank = _RANK.get(error.code(), 0)
        with self._lock:
            if not rank or rank < _RANK.get(self._code, 0):
                return
            self._code, self.reason = error.code(), without_timing(error.str())
            if error.code() == _LOGIN:
                now_seconds = self._monotonic()
                first, last = self._refused or (now_seconds, now_seconds)
                self._refused = (first if now_seconds - last < REPEATED_SECONDS else now_seconds), now_seconds

    def clear(self) -> None:
        """Clear the error, because Kafka has answered."""
        if self._code:
            with self._lock:
                self._code, self.reason, self._refused = 0, "", None

    def check_login(self) -> None:
        """Raise if Kafka has refused the login for a minute, without a message in between, and refuses it still.

        A single refusal is none: a broker that starts may not know its users yet.

        Raises:
            BrokerError: The login has been refused for that long.
        """
        first, last = self._refused or (math.inf, math.inf)
        now_seconds = self._monotonic()
        if now_seconds - first >= LOGIN_PATIENCE_SECONDS and now_seconds - last < REPEATED_SECONDS:
            refused = f"Kafka has refused our login for {LOGIN_PATIENCE_SECONDS:g} s: {self.reason}"
            raise BrokerError(f"{refused}; {remedy_of_login(self.reason)}")

    def summary(self) -> tuple[str, str]:
        """Return the last reason and its remedy, without a handshake of our own: a callback must not wait."""
        return self.reason or "no broker answers", _remedy(self._code, self.reason) or _START

    def error(self, doing: str, settings: KafkaSettings) -> BrokerAccessError:
        """Return the error for a failed connection, with its reason and remedy.

        Args:
            doing: The action that failed.
            settings: Settings of the connection, to find the reason if librdkafka does not name it.
        """
        reason, remedy = _explained(self._code, self.reason, settings)
        return BrokerAccessError(f"{doing} failed: {reason}", remedy=remedy)


def without_timing(reason: str) -> str:
    """Return a reason of librdkafka's without its note on how long the attempt took."""
    return _TIMING.sub("", reason)


def remedy_of_login(reason: str) -> str:
    """Return the remedy for a refused login."""
    if "mechanism" in reason:
        return "set sasl.mechanism in kafka.properties to one that the broker offers"
    return "set sasl.username and sasl.password in kafka.properties to a user that the broker knows"


def _explained(code: int, reason: str, settings: KafkaSettings) -> tuple[str, str]:
    """Return a text that names the cause, and the remedy."""
    if remedy := _remedy(code, reason):
        return reason, remedy
    broker = _BROKER.match(reason)
    address = broker[1] if broker else settings.bootstrap_servers.partition(",")[0].strip()
    if "connecting to a PLAINTEXT broker" in reason:
        return reason, _closed_at_the_handshake(address)[1]
    return examine(address, settings.properties) or (
        reason or f"{address} does not answer",
        _START,
    )


def _remedy(code: int, reason: str) -> str:
    """Return the remedy that a reason of librdkafka's shows by itself; empty if it shows none."""
    if code == _LOGIN:
        return remedy_of_login(reason)
    if code == _NAME:
        return "correct the host in kafka.bootstrap_servers, or this machine's name resolution"
    if "refused" in reason and code != _TLS and "connecting to a PLAINTEXT broker" not in reason:
        return "start Kafka, or correct the port in kafka.bootstrap_servers"
    return ""


def examine(address: str, properties: Mapping[str, Any]) -> tuple[str, str] | None:
    """Find the cause of a failure by one TLS handshake, where librdkafka does not name it.

    Args:
        address: Host and port of a broker.
        properties: librdkafka's, of which `security.protocol` and `ssl.ca.location` are used.

    Returns:
        Reason and remedy; None if the handshake shows none.
    """
    uses_tls = str(properties.get("security.protocol", "plaintext")).lower().endswith("ssl")
    try:
        context = ssl.create_default_context(cafile=properties.get("ssl.ca.location"))
        if not uses_tls or str(properties.get("enable.ssl.certificate.verification", "true")).lower() == "false":
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        with (
            socket.create_connection((host, int(port)), HANDSHAKE_SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            if uses_tls:
                return None
            return f"{address} speaks TLS and we do not", f"{_SET_PROTOCOL} SSL or SASL_SSL, or use the plaintext port"
    except ssl.SSLCertVerificationError as error:
        return f"{_CERTIFICATE}: {error.verify_message.rstrip('.')} ({address})", _remedy_of_certificate(error)
    except (ssl.SSLEOFError, ConnectionResetError):
        return _closed_at_the_handshake(address) if uses_tls else None
    except (OSError, ValueError):
        return None


def _closed_at_the_handshake(address: str) -> tuple[str, str]:
    """Return reason and remedy for a port that closes the connection at the first byte of a TLS handshake."""
    remedy = f"{_SET_PROTOCOL} PLAINTEXT or SASL_PLAINTEXT, or use the port that speaks TLS"
    return f"{address} closed the connection at the TLS handshake, as a PLAINTEXT port does", remedy


def _remedy_of_certificate(error: ssl.SSLCertVerificationError) -> str:
    """Return the remedy for a refused certificate, by OpenSSL's code X509_V_ERR."""
    if error.verify_code in {9, 10}:
        return "renew the broker's certificate, or correct this machine's clock"
    if error.verify_code in {62, 64}:
        return "use a name in kafka.bootstrap_servers that the certificate is for, or have one made for this name"
    return "set ssl.ca.location in kafka.properties to the file of the CA that signed the broker's certificate"

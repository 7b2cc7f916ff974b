"""HTTP to the page that `top` shows, and to a Prometheus for the alerts that fire."""

import base64
import http.client
import json
import os
import re
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kernelcast.runtime.web.requests import open_url
from kernelcast.view.model import HEARTBEAT, Alerts
from kernelcast.wire.errors import ConfigurationError, PageError
from kernelcast.wire.standalone import LIFE_LINE, PORT, directories

TIMEOUT_SECONDS: Final = 5.0
"""Longest silence."""
WHOLE_SECONDS: Final = 120.0
"""Time for a whole page."""
MAX_PAGE_BYTES: Final = 256 * 2**20
"""The page of a bridge with a million series has 160 MB."""
DEFAULTS: Final = ("127.0.0.1:19401", "127.0.0.1:19400")
"""A bridge, then an exporter, on this machine."""
ALERTS: Final = 'ALERTS{alertstate="firing"}'
BRIDGE_ALERTS: Final = "/api/v1/alerts/firing"
"""Path of a bridge at which the alerts that fire can be read, as Alertmanager has sent them."""

_PAGE: Final = re.compile(r"(/api/v1)?(/(graph|query|alerts))?$")
"""End of the path of a Prometheus's page or API."""


@dataclass(frozen=True, slots=True)
class ServerCredentials:
    """Credentials and certificates for a server.

    Attributes:
        username: User for basic authentication; empty for none.
        password_file: File with the password.
        ca_file: Certificates to trust instead of the system's.
        option_prefix: Start of the options' names, for error messages.
    """

    username: str = ""
    password_file: Path | None = None
    ca_file: Path | None = None
    option_prefix: str = "--"

    def headers(self) -> dict[str, str]:
        """Headers of a request.

        Raises:
            ConfigurationError: The password cannot be read.
        """
        if not self.username:
            return {}
        try:
            password = self.password_file.read_text(encoding="utf-8").strip() if self.password_file is not None else ""
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
            raise ConfigurationError(
                f"{self.option_prefix}password-file {self.password_file} cannot be read: {reason}; check the path"
            ) from None
        token = base64.b64encode(f"{self.username}:{password}".encode(errors="surrogateescape")).decode()
        return {"Authorization": f"Basic {token}"}

    def context(self) -> ssl.SSLContext:
        """TLS of a request.

        Raises:
            ConfigurationError: The certificates cannot be read.
        """
        try:
            return ssl.create_default_context(cafile=str(self.ca_file) if self.ca_file is not None else None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"--ca-file {self.ca_file} cannot be used: {error}; give a PEM file") from None


def beside_programs(environ: Mapping[str, str]) -> list[str]:
    """Addresses of exporters that run beside this user's programs, as `kernelcast probe --standalone` starts them."""
    addresses = []
    for folder in map(Path, directories(environ, os.getuid())):
        with suppress(OSError, ValueError):
            if folder.lstat().st_uid == os.getuid() and (folder / LIFE_LINE).is_socket():
                addresses.append(f"127.0.0.1:{int((folder / PORT).read_text('ascii'))}")
    return addresses


def base_url(address: str) -> str:
    """The URL of a server from `HOST:PORT` or a URL; a path, such as `/metrics`, is left out.

    Raises:
        ConfigurationError: It is neither.
    """
    text = address if "://" in address else f"http://{address}"
    try:
        parts = urllib.parse.urlsplit(text)
        valid = (
            not re.search(r"\s", text)
            and parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and not parts.username
        )
        _ = parts.port
    except ValueError:
        valid = False
    if not valid:
        raise ConfigurationError(f"{address!r} is not an address; give HOST:PORT or http(s)://HOST:PORT")
    return f"{parts.scheme}://{parts.netloc}"


def api_url(prometheus: str) -> str:
    """The URL of a Prometheus's API from `HOST:PORT`, or a URL with a prefix, as Mimir's `/prometheus`, or of a page.

    Raises:
        ConfigurationError: It is neither.
    """
    server = base_url(prometheus)
    prefix = urllib.parse.urlsplit(prometheus if "://" in prometheus else f"//{prometheus}").path
    return f"{server}{_PAGE.sub('', prefix.rstrip('/'))}/api/v1"


def get(url: str, access: ServerCredentials) -> str:
    """The body at a URL.

    Raises:
        PageError: It does not answer 2xx in time; the reason names a remedy.
    """
    request = urllib.request.Request(url, headers={"Accept": "text/plain;version=0.0.4", **access.headers()})  # noqa: S310
    secure = access.context() if url.startswith("https:") else None
    try:
        with open_url(request, TIMEOUT_SECONDS, secure, whole_seconds=WHOLE_SECONDS) as answer:
            body = answer.read(MAX_PAGE_BYTES + 1)
    except urllib.error.HTTPError as error:
        options = f"; give {access.option_prefix}username and {access.option_prefix}password-file"
        remedy = options if error.code == http.client.UNAUTHORIZED else ""
        reason = " ".join(str(error.reason).split())  # of a loop of redirects it has several lines
        raise PageError(f"{url} answered {error.code} {reason}{remedy}") from None
    except (OSError, http.client.HTTPException, UnicodeError) as error:  # a label of the host that no name can have
        raise PageError(f"{url} does not answer: {_reason(error)}") from None
    if len(body) > MAX_PAGE_BYTES:
        raise PageError(f"{url} is larger than {MAX_PAGE_BYTES} bytes; ask an exporter instead")
    return str(body.decode("utf-8", "replace"))


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({cause.verify_message}); give --ca-file"
    if isinstance(cause, TimeoutError):
        return f"no answer within {TIMEOUT_SECONDS:g} s, or no whole one within {WHOLE_SECONDS:g} s"
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return " ".join(str(cause).split()) or type(cause).__name__


def firing_alerts(api_url: str, access: ServerCredentials) -> Alerts:
    """The alerts that fire now, as a Prometheus knows them; unknown where it has no rules of ours.

    The heartbeat alert always fires: without it an empty answer would say nothing.

    Args:
        api_url: URL of the API, up to `/api/v1`.
        access: Credentials and certificates for it.

    Raises:
        PageError: It does not answer.
    """
    found = _query(api_url, ALERTS, access)
    if not any(labels.get("alertname") == HEARTBEAT for labels in found):
        return Alerts(None, "this Prometheus has no rules of kernelcast: its heartbeat alert does not fire")
    return Alerts.for_people(found)


def bridge_alerts(url: str, access: ServerCredentials) -> Alerts:
    """The alerts that fire now, as Alertmanager has sent them to a bridge; unknown where it has sent none."""
    try:
        answer = json.loads(get(f"{url}{BRIDGE_ALERTS}", access))
        return Alerts(answer["firing"], answer["reason"])
    except PageError as error:  # a bridge without a webhook
        return Alerts(None, str(error))
    except (ValueError, KeyError, TypeError):
        return Alerts(None, f"{url}{BRIDGE_ALERTS} is no list of alerts")


def _query(api_url: str, expression: str, access: ServerCredentials) -> list[dict[str, str]]:
    parameters = {"query": expression, "time": f"{time.time():.3f}"}
    body = get(f"{api_url}/query?{urllib.parse.urlencode(parameters)}", access)
    try:
        result: list[Any] = json.loads(body)["data"]["result"]
        return [dict(item["metric"]) for item in result]
    except (ValueError, KeyError, TypeError):
        raise PageError(f"{api_url} is not the API of a Prometheus; check --prometheus") from None

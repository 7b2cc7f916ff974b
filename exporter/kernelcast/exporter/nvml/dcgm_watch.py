"""Whether device metrics are written: not where a dcgm-exporter on the node writes the same ones.

The daemon's assembly makes `DeviceMetrics`, which has a `DcgmWatch` with `exporter.device_metrics: auto`.
"""

import contextlib
import ssl
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Self
from urllib.error import HTTPError
from urllib.parse import urlsplit

from kernelcast.exporter.settings import ExporterSettings
from kernelcast.runtime.logging import get_logger
from kernelcast.runtime.settings.listen import parse_listen_address
from kernelcast.runtime.threads import Worker
from kernelcast.runtime.timed_http import TimedHandler, TimeLimit

DCGM_TIMEOUT_SECONDS: Final = 2.0
DCGM_CHECK_SECONDS: Final = 60.0
"""Time between two checks for a dcgm-exporter."""
DCGM_MARK: Final = b"DCGM_FI_"
"""A page that contains it is a dcgm-exporter's."""
DCGM_READ_BYTES: Final = 256 * 1024
"""Bytes read of that page at most; the first metric begins far earlier."""
ASKS_WHO_WE_ARE: Final = (401, 403)
"""HTTP statuses of a server that wants a password."""
TLS_ONLY: Final = b"HTTP request to an HTTPS server"
"""What servers written in Go answer on a port where they speak TLS."""

Fetch = Callable[[str], bytes]

_log = get_logger(__name__)


class DcgmWatch:
    """Looks for a dcgm-exporter on this node, at once and then every `DCGM_CHECK_SECONDS` on a thread of its own.

    If both write the same series, every sum over GPUs is doubled. Both start with the node, in any order, so checking
    once is not enough. Use as a context manager; any thread may read `answers`.

    Args:
        url: URL of its metrics page.
        fetch: Returns the start of a page; raises OSError if there is none.
    """

    def __init__(self, url: str, *, fetch: Fetch | None = None) -> None:
        self._url = url
        self._fetch = fetch or _fetch
        self._thread = Worker("dcgm-watch", self._run)
        self.answers = False
        """Whether one answered at the last check."""

    def __enter__(self) -> Self:
        self.check()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.stop(DCGM_TIMEOUT_SECONDS)

    def check(self) -> None:
        """Check once; a change is logged."""
        before = self.answers
        try:
            self.answers = DCGM_MARK in self._fetch(self._url)
        except (OSError, ValueError, HTTPException):
            self.answers = False
        if self.answers and not before:
            _log.warning(
                "dcgm-exporter found; device metrics are left to it",
                url=self._url,
                remedy="set exporter.device_metrics to on to write them all the same",
            )
        elif before and not self.answers:
            _log.warning("dcgm-exporter is gone; device metrics are written again", url=self._url)

    def _run(self) -> None:
        while not self._thread.stopping.wait(DCGM_CHECK_SECONDS):
            self.check()


class DeviceMetrics:
    """Whether device metrics are written: as the settings ask, and with `auto` by whether a dcgm-exporter answers.

    Use as a context manager.

    Args:
        settings: The settings at the start.
        has_gpus: Whether there is anything to write; else no dcgm-exporter is looked for.
    """

    def __init__(self, settings: ExporterSettings, *, has_gpus: bool) -> None:
        self._asked = _asked(settings)
        self._listen_address = settings.web.listen_address
        self._has_gpus = has_gpus
        self._watch: DcgmWatch | None = None

    def __enter__(self) -> Self:
        self._start_watch()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_watch()

    def change(self, settings: ExporterSettings) -> None:
        """Use other settings from now on; waits for one check, whose steps take `DCGM_TIMEOUT_SECONDS` each at most."""
        if self._asked != _asked(settings):
            self._stop_watch()
            self._asked = _asked(settings)
            self._start_watch()

    @property
    def off(self) -> str:
        """Reason why device metrics are not written: `setting` or `dcgm_exporter`; empty where they are."""
        if self._watch is not None:
            return "dcgm_exporter" if self._watch.answers else ""
        return "setting" if self._asked[0] == "off" else ""

    def _start_watch(self) -> None:
        wanted, url = self._asked
        if wanted == "auto" and self._has_gpus and not _is_own(url, self._listen_address):
            self._watch = DcgmWatch(url).__enter__()

    def _stop_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.__exit__()


def _asked(settings: ExporterSettings) -> tuple[str, str]:
    return settings.device_metrics, settings.dcgm_exporter_url


def _is_own(url: str, listen_address: str) -> bool:
    """Whether a URL is this exporter's own page, which has the same metrics."""
    host, port = parse_listen_address(listen_address)
    try:
        asked = urlsplit(url)
        asked_host, own_host = _host(asked.hostname or ""), _host(host or "localhost")
        return asked.port == port and (asked_host == own_host or (_is_local(asked_host) and _is_local(own_host)))
    except ValueError:
        return False


def _host(text: str) -> IPv4Address | IPv6Address | str:
    try:
        return ip_address(text)
    except ValueError:
        return text.lower()


def _is_local(host: IPv4Address | IPv6Address | str) -> bool:
    """Whether a host is the loopback interface, or every interface of this machine."""
    return host == "localhost" if isinstance(host, str) else host.is_loopback or host.is_unspecified


def _fetch(url: str) -> bytes:
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"{url} is not a web address")
    limit = TimeLimit(DCGM_TIMEOUT_SECONDS)
    try:
        return _page(url, limit)
    except HTTPError as refusal:
        with refusal:
            if refusal.code in ASKS_WHO_WE_ARE:
                # We have no password for it. Only a metrics page is likely to be protected at this address.
                return DCGM_MARK
            if TLS_ONLY not in refusal.read(DCGM_READ_BYTES):
                raise
        return _page(url.replace("http://", "https://", 1), limit)


def _page(url: str, limit: TimeLimit) -> bytes:
    # A proxy that the node's environment names would answer for an address of the node, perhaps with a refusal.
    # Only the presence of the page is used, and such certificates are often self-signed.
    unverified = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), TimedHandler(limit, unverified))
    with opener.open(url, timeout=DCGM_TIMEOUT_SECONDS) as response:
        return _beginning(response)


def _beginning(response: HTTPResponse) -> bytes:
    """Return the bytes of a page that arrive within the time limit, at most `DCGM_READ_BYTES`."""
    body = b""
    # `read1` returns the bytes that have arrived; `read` waits for the whole number.
    with contextlib.suppress(TimeoutError):
        while len(body) < DCGM_READ_BYTES and (part := response.read1(DCGM_READ_BYTES - len(body))):
            body += part
    return body

"""Client of Grafana's HTTP API for dashboards and folders; `push` uses it.

Source: https://grafana.com/docs/grafana/latest/developers/http_api/, pages "dashboard" and "folder". No redirect is
followed, as that would send the token to another server.
"""

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, NoReturn
from urllib.parse import quote, urlencode, urlsplit

from kernelcast.grafana.site import is_web_address
from kernelcast.wire.errors import ConfigurationError, KernelcastError

TIMEOUT_SECONDS: Final = 30.0
"""Limit for the connection and each read of an answer."""
MAX_ANSWER_BYTES: Final = 32 * 1024 * 1024
"""An answer that is larger is an error, so that memory stays bounded; a dashboard has less than a megabyte."""
SEARCH_LIMIT: Final = 5_000
"""Grafana's own maximum for one page of a search."""
_SEARCH: Final = "/api/search"
_THIS_MACHINE: Final = ("localhost", "127.0.0.1", "::1")
_REMEDIES: Final[Mapping[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "the token is missing, wrong or expired; make one for a service account in Grafana",
    HTTPStatus.FORBIDDEN: "the token's service account needs the role Editor",
    HTTPStatus.NOT_FOUND: "is it Grafana's address? Prometheus and others answer so; give Grafana's as --url",
    HTTPStatus.PRECONDITION_FAILED: "the dashboard is provisioned; remove its provisioning file",
}


class GrafanaError(KernelcastError):
    """Grafana cannot be reached, or refuses a request; the message has the address and the remedy."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_arguments: Any, **_named: Any) -> None:
        return None


class GrafanaApi:
    """A Grafana server.

    Args:
        url: Its address, with a path where it is served below one.
        token: Of a service account; empty where Grafana asks for none.
        ca_file: Authority that signed its certificate; empty for the system's.

    Raises:
        ConfigurationError: The address or the file cannot be used.
    """

    def __init__(self, url: str, token: str, *, ca_file: str = "") -> None:
        if not is_web_address(url):
            raise ConfigurationError(f"--url is {url!r}; it must be like https://grafana.example")
        self._url = url.rstrip("/")
        self._token = token
        try:
            context = ssl.create_default_context(cafile=ca_file or None)
        except OSError as error:
            raise ConfigurationError(f"{ca_file} is no certificate: {error}; give another --ca-file") from error
        # The token is not for the environment's proxy where Grafana is on this machine.
        direct = [urllib.request.ProxyHandler({})] if urlsplit(url).hostname in _THIS_MACHINE else []
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirect(), *direct)

    def folder(self, uid: str) -> Mapping[str, Any] | None:
        """A folder; None if there is none of that uid."""
        found: Mapping[str, Any] | None = self._call("GET", f"/api/folders/{quote(uid)}", absent=True)
        return found

    def make_folder(self, uid: str, title: str) -> None:
        """Create a folder."""
        self._call("POST", "/api/folders", {"uid": uid, "title": title})

    def uids_in(self, folder_uid: str, tag: str) -> list[str]:
        """The uids of a folder's dashboards that have a tag."""
        query = urlencode({"type": "dash-db", "folderUIDs": folder_uid, "tag": tag, "limit": SEARCH_LIMIT})
        found: Any = self._call("GET", f"{_SEARCH}?{query}")
        return sorted(str(one["uid"]) for one in found if one.get("folderUid") == folder_uid)

    def dashboard(self, uid: str) -> Mapping[str, Any] | None:
        """A dashboard with its `meta`; None if there is none of that uid."""
        found: Mapping[str, Any] | None = self._call("GET", f"/api/dashboards/uid/{quote(uid)}", absent=True)
        return found

    def write_dashboard(self, dashboard: Mapping[str, Any], folder_uid: str, message: str) -> None:
        """Create or replace a dashboard, by its uid."""
        body = {"dashboard": {**dashboard, "id": None}, "folderUid": folder_uid, "overwrite": True, "message": message}
        self._call("POST", "/api/dashboards/db", body)

    def delete_dashboard(self, uid: str) -> None:
        """Delete a dashboard; none of that uid is no error."""
        self._call("DELETE", f"/api/dashboards/uid/{quote(uid)}", absent=True)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None, *, absent: bool = False) -> Any:
        """Send a request; the answer's JSON, or None where `absent` permits that the object does not exist.

        Raises:
            GrafanaError: No answer, an error, or no JSON.
        """
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        headers |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(f"{self._url}{path}", data, headers, method=method)  # noqa: S310  checked above
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                content = answer.read(MAX_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            with error:
                if absent and error.code == HTTPStatus.NOT_FOUND:
                    return None
                self._refused(method, path, error)
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = " ".join(str(getattr(error, "reason", None) or error).split())
            raise GrafanaError(f"{self._url} does not answer: {reason}; is it Grafana's address?") from error
        return self._decoded(path, content, list if path.startswith(_SEARCH) else dict)

    def _decoded(self, path: str, content: bytes, kind: type) -> Any:
        if len(content) > MAX_ANSWER_BYTES:
            raise GrafanaError(f"{self._url}{path} answered with more than {MAX_ANSWER_BYTES} bytes; is it Grafana?")
        try:
            found = json.loads(content)
        except ValueError as error:
            raise GrafanaError(f"{self._url}{path} did not answer with JSON; is it Grafana's address?") from error
        if not isinstance(found, kind):
            raise GrafanaError(f"{self._url}{path} did not answer with what Grafana does; is it Grafana's address?")
        return found

    def _refused(self, method: str, path: str, error: urllib.error.HTTPError) -> NoReturn:
        try:
            message = str(json.loads(error.read(65_536)).get("message", ""))
        except (OSError, ValueError, AttributeError, http.client.HTTPException):
            message = ""
        moved = error.headers.get("Location", "") if 300 <= error.code < 400 else ""
        remedy = f"use the address to which it redirects: {moved}" if moved else _REMEDIES.get(error.code, "")
        parts = [f"{method} {self._url}{path} was answered with {error.code}", message, remedy]
        raise GrafanaError("; ".join(part for part in parts if part)) from error

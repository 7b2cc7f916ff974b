"""Lists of the Kubernetes API server, over HTTP, with the service account of this pod.

The client follows no redirect and uses no proxy: the token goes to the one address that was given. A list is asked for
from the API server's cache (`resourceVersion=0`), of this node's objects alone, in pages. For threads that may wait.
"""

import http.client
import json
import os
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from kernelcast.runtime.timed_http import TimeLimit

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_SECONDS: Final = 10.0
"""Longest time without a byte of an answer."""
DEADLINE_SECONDS: Final = 30.0
"""Limit for all pages of a list together."""
MAX_PAGES: Final = 20
"""Limit for a list: no node has 5,000 pods."""
MAX_BYTES: Final = 16 * 2**20
"""Limit for one page."""
READ_BYTES: Final = 2**16
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class ApiServerError(Exception):
    """The API server has no usable address, refuses the request, or answers without a list."""


class NoSuchListError(ApiServerError):
    """The API server does not serve this list in this version."""


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Address and credentials of the API server.

    Attributes:
        node_name: The node's name in Kubernetes.
        url: `https://HOST:PORT`; empty takes the address that every pod has in its environment.
        service_account: The directory with `token` and `ca.crt`; read at each request, since the kubelet renews them.
    """

    node_name: str
    url: str = ""
    service_account: Path = SERVICE_ACCOUNT

    def address(self, environment: Mapping[str, str] = os.environ) -> str:
        """The API server's address.

        Raises:
            ApiServerError: No address is known, or a token would be sent in plain text to another host.
        """
        host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
        if not self.url and not host:
            raise ApiServerError(
                "KUBERNETES_SERVICE_HOST is not set, so this is no pod; set exporter.kubernetes_api_url"
            )
        url = self.url or f"https://{f'[{host}]' if ':' in host else host}:{port}"
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in LOOPBACK):
            raise ApiServerError(f"exporter.kubernetes_api_url is {url}; it has to begin with https://")
        return url


@dataclass(frozen=True, slots=True)
class NodeList:
    """A list of objects that belong to one node.

    Attributes:
        path: Of the list, such as `/api/v1/pods`.
        accept: The form of the answer.
        page_size: Objects of a page.
        selector: Field selectors beside the node's.
    """

    path: str
    accept: str = "application/json"
    page_size: int = 500
    selector: str = ""

    @property
    def resource(self) -> str:
        """The resource's name, as in a right, such as `pods`."""
        return self.path.rpartition("/")[2]

    def pages(self, server: ApiServer, monotonic: Callable[[], float] = time.monotonic) -> Iterator[Mapping[str, Any]]:
        """Yield the pages of the list, decoded.

        Args:
            server: Address and credentials.
            monotonic: Monotonic seconds.

        Raises:
            NoSuchListError: The API server does not serve it.
            ApiServerError: It has no usable address, refuses, or answers without a list.
            OSError: It does not answer, or not in time, or the token cannot be read.
            ValueError: Its address or the token is malformed.
        """
        limit = TimeLimit(DEADLINE_SECONDS, monotonic)
        token = ""
        for _ in range(MAX_PAGES):
            page = self._page(server, token, limit)
            yield page
            try:
                token = str((page.get("metadata") or {}).get("continue") or "")
            except AttributeError as error:
                raise self.malformed(error) from error
            if not token:
                return
        raise ApiServerError(
            f"the API server's list has more than {MAX_PAGES} pages of {self.page_size} {self.resource} for node "
            f"{server.node_name}; check that it supports the field selector spec.nodeName"
        )

    def malformed(self, error: Exception) -> ApiServerError:
        """The error for an answer that is no such list."""
        return ApiServerError(f"the API server's answer is no list of {self.resource}: {type(error).__name__}: {error}")

    def _page(self, server: ApiServer, token: str, limit: TimeLimit) -> Any:
        url = urlsplit(server.address())
        selectors = filter(None, (f"spec.nodeName={server.node_name}", self.selector))
        query = {"fieldSelector": ",".join(selectors), "limit": str(self.page_size)}
        query |= {"continue": token} if token else {"resourceVersion": "0"}
        headers = {"Accept": self.accept, "Authorization": f"Bearer {_token(server)}"}
        connection = limit.apply(_connection(server, url.scheme, url.hostname or "", url.port))
        try:
            connection.request("GET", f"{url.path.rstrip('/')}{self.path}?{urlencode(query)}", headers=headers)
            with connection.getresponse() as answer:
                if answer.status != http.client.OK:
                    raise self._refusal(answer)
                body = self._body(answer)
        except http.client.HTTPException as error:
            raise self.malformed(error) from error
        finally:
            connection.close()
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise self.malformed(error) from error

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        parts: list[bytes] = []
        size_bytes = 0
        while part := answer.read(READ_BYTES):
            parts.append(part)
            size_bytes += len(part)
            if size_bytes > MAX_BYTES:
                raise ApiServerError(
                    f"the API server's answer has more than {MAX_BYTES} bytes for {self.page_size} {self.resource}"
                )
        return b"".join(parts)

    def _refusal(self, answer: http.client.HTTPResponse) -> ApiServerError:
        status = f"the API server answered {answer.status} {answer.reason}"
        if answer.status == http.client.NOT_FOUND:
            return NoSuchListError(f"{status} to a request for {self.resource}")
        if answer.status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            return ApiServerError(f"{status}; the exporter's service account has to be allowed to list {self.resource}")
        return ApiServerError(f"{status} to a request for {self.resource}")


def _connection(server: ApiServer, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    authority = server.service_account / "ca.crt"
    context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)


def _token(server: ApiServer) -> str:
    return (server.service_account / "token").read_text().strip()

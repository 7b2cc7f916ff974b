"""Labels of the node's pods, from the Kubernetes API server; only those that the operator allows.

dcgm-exporter: `--kubernetes-enable-pod-labels` and `--kubernetes-pod-label-allowlist-regex`. One list request asks for
the metadata of this node's pods from the API server's cache (`resourceVersion=0`). No redirect is followed and no proxy
used: the token goes to the one address that was given.
"""

import http.client
import json
import os
import re
import ssl
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from kernelcast.exporter.attribution.pod_resources import Container
from kernelcast.wire.catalogue import CATALOGUE

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_SECONDS: Final = 10.0
"""Of one answer's silence."""
DEADLINE_SECONDS: Final = 30.0
"""Of all pages together."""
PAGE_PODS: Final = 500
MAX_PAGES: Final = 20
MAX_BYTES: Final = 16 * 2**20
"""Of one page."""
READ_BYTES: Final = 2**16
MAX_LABELS: Final = 32
"""Of one pod, after the allow-list."""
PREFIX: Final = "pod_label_"
"""Before a name that another label of ours has, as with dcgm-exporter."""
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")

_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")
_OURS: Final = frozenset(label for row in CATALOGUE for label in row.labels)
_OTHERS: Final = frozenset(
    (
        "hostname",
        "instance",
        "job",
        "le",
        "quantile",
        "user",
        "vgpu",
        "dra_claim_name",
        "dra_claim_namespace",
        "dra_driver_name",
        "dra_pool_name",
        "dra_device_name",
    )
)
_TAKEN: Final = _OURS | _OTHERS

Pod = tuple[str, str]
"""Namespace and name."""


class ApiServerError(Exception):
    """The API server cannot be asked, or refuses."""


@dataclass(frozen=True, slots=True)
class PodLabels:
    """Labels by pod.

    Attributes:
        pods: Under names that Prometheus allows.
    """

    pods: Mapping[Pod, Mapping[str, str]]

    def of(self, container: Container) -> Mapping[str, str] | None:
        """The labels of a container's pod; None where the pod is not known."""
        return self.pods.get((container.namespace, container.pod))


NO_PODS: Final = PodLabels({})


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
            ApiServerError: There is none, or a token would be sent in plain text to another host.
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


class PodLabelReader:
    """Reads the labels of this node's pods; one request at a time.

    Args:
        server: Whom to ask.
        patterns: A label is taken where one of these is found in its key, as with dcgm-exporter; at least one.
    """

    def __init__(self, server: ApiServer, patterns: Iterable[str]) -> None:
        self._server = server
        self._patterns = [re.compile(pattern) for pattern in patterns]

    def read(self) -> PodLabels:
        """The allowed labels of every pod of the node.

        Raises:
            ApiServerError: The API server cannot be asked, or refuses.
            OSError: It does not answer, or the token cannot be read.
            ValueError: Its answer is none.
        """
        deadline = time.monotonic() + DEADLINE_SECONDS
        pods: dict[Pod, Mapping[str, str]] = {}
        token = ""
        for _ in range(MAX_PAGES):
            page = self._page(token, deadline)
            for item in page.get("items") or ():
                metadata = item.get("metadata") or {}
                pod = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
                pods[pod] = self.allowed(metadata.get("labels") or {})
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                break
        return PodLabels(pods)

    def allowed(self, found: Mapping[str, str]) -> Mapping[str, str]:
        """The labels whose keys are allowed, under names that Prometheus allows and that no other label has."""
        labels: dict[str, str] = {}
        for key in sorted(found):
            if len(labels) < MAX_LABELS and any(pattern.search(key) for pattern in self._patterns):
                labels.setdefault(label_name(key), str(found[key]))
        return {name: value for name, value in labels.items() if value}

    def _page(self, token: str, deadline: float) -> dict[str, Any]:
        url = urlsplit(self._server.address())
        query = {"fieldSelector": f"spec.nodeName={self._server.node_name}", "limit": str(PAGE_PODS)}
        query |= {"continue": token} if token else {"resourceVersion": "0"}
        headers = {"Accept": METADATA_ONLY, "Authorization": f"Bearer {self._token()}"}
        connection = self._connection(url.scheme, url.hostname or "", url.port)
        try:
            connection.request("GET", f"{url.path.rstrip('/')}/api/v1/pods?{urlencode(query)}", headers=headers)
            with connection.getresponse() as answer:
                if answer.status != http.client.OK:
                    raise ApiServerError(
                        f"the API server answered {answer.status} {answer.reason}; the exporter's service account has "
                        "to be allowed to list pods"
                    )
                page = json.loads(_body(answer, deadline))
        finally:
            connection.close()
        if not isinstance(page, dict):
            raise ApiServerError(f"the API server answered with a {type(page).__name__} in place of a list of pods")
        return page

    def _connection(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        if scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        authority = self._server.service_account / "ca.crt"
        context = ssl.create_default_context(cafile=str(authority) if authority.exists() else None)
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)

    def _token(self) -> str:
        return (self._server.service_account / "token").read_text().strip()


def label_name(key: str) -> str:
    """The name under which a pod's label is written, such as `app_kubernetes_io_name`."""
    name = _NOT_IN_A_NAME.sub("_", key)
    return f"{PREFIX}{name}" if name in _TAKEN or name[:1].isdigit() or name.startswith("__") else name


def _body(answer: http.client.HTTPResponse, deadline: float) -> bytes:
    parts: list[bytes] = []
    size_bytes = 0
    while part := answer.read(READ_BYTES):
        parts.append(part)
        size_bytes += len(part)
        if size_bytes > MAX_BYTES:
            raise ApiServerError(f"the API server's answer has more than {MAX_BYTES} bytes for {PAGE_PODS} pods")
        if time.monotonic() > deadline:
            raise ApiServerError(f"the API server's answer took more than {DEADLINE_SECONDS:.0f} s")
    return b"".join(parts)

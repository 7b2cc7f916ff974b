"""Labels of the node's pods, and images of their containers, from the Kubernetes API server.

Labels: only those that the operator allows, as dcgm-exporter's `--kubernetes-enable-pod-labels` and
`--kubernetes-pod-label-allowlist-regex`. One list request asks for this node's pods from the API server's cache
(`resourceVersion=0`): for their metadata alone, or for whole pods where images are wanted, which are in their status.
The client follows no redirect and uses no proxy: the token goes to the one address that was given. `Attribution` calls
`read` on a thread of its own (`background_value.Refreshed`), which counts and logs each failure.
"""

import http.client
import ipaddress
import json
import os
import re
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from kernelcast.exporter.attribution.pod_resources import Container
from kernelcast.runtime.timed_http import TimeLimit
from kernelcast.wire.catalogue import CATALOGUE
from kernelcast.wire.catalogue.devices.device import OPT_IN_LABELS

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TIMEOUT_SECONDS: Final = 10.0
"""Longest time without a byte of an answer."""
DEADLINE_SECONDS: Final = 30.0
"""Limit for all pages of a list together."""
PAGE_PODS: Final = 500
PAGE_WHOLE_PODS: Final = 250
"""A whole pod has some ten KiB, its metadata a tenth of that."""
MAX_PAGES: Final = 20
"""Limit for a list: no node has 5,000 pods."""
MAX_BYTES: Final = 16 * 2**20
"""Limit for one page."""
READ_BYTES: Final = 2**16
MAX_LABELS: Final = 32
"""Limit for one pod, after the allow-list."""
MAX_IMAGE_CHARACTERS: Final = 200
"""Of an image's end, where its tag and digest are."""
DIGEST_DIGITS: Final = 12
"""Of an image's digest, as many as Docker shows: a tag that was pushed again has another digest."""
PREFIX: Final = "pod_label_"
"""Prefix of a name that a label of our series has already, as with dcgm-exporter."""
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1, application/json"
WHOLE_PODS: Final = "application/json"
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")

SCRAPE: Final = "kernelcast.io/scrape"
"""Annotation of a pod: port and path of its page."""
_PAGE: Final = re.compile(r"([0-9]{1,5})(/[A-Za-z0-9_./-]{0,128})?")
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")
_CATALOGUE_LABELS: Final = frozenset(label for row in CATALOGUE for label in row.labels)
# Labels of series that the catalogue does not list, and those that Prometheus adds.
_OTHER_LABELS: Final = frozenset(
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
_USED_NAMES: Final = _CATALOGUE_LABELS | _OTHER_LABELS | OPT_IN_LABELS.keys()

Pod = tuple[str, str]
"""Namespace and name."""


class ApiServerError(Exception):
    """The API server has no usable address, refuses the request, or answers without a list of pods."""


@dataclass(frozen=True, slots=True)
class PodLabels:
    """Labels by pod, and images by container.

    Attributes:
        pods: Under names that Prometheus allows.
        images: As `train:1.4@abcdef012345`: reference, then the beginning of the digest, as far as they are known.
        pages: URL by pod of those that ask for it by the annotation `SCRAPE`.
    """

    pods: Mapping[Pod, Mapping[str, str]]
    images: Mapping[Container, str] = field(default_factory=dict)
    pages: Mapping[Pod, str] = field(default_factory=dict)

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


class PodLabelReader:
    """Reads the labels of this node's pods, and the images of their containers. For one thread.

    Args:
        server: Address and credentials of the API server.
        patterns: A label is taken where one of these is found in its key, as with dcgm-exporter.
        images: Read images, too.
        pages: Read addresses of pages, too.
        monotonic: Monotonic seconds.
    """

    def __init__(
        self,
        server: ApiServer,
        patterns: Iterable[str],
        *,
        images: bool = False,
        pages: bool = False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._patterns = [re.compile(pattern) for pattern in patterns]
        self._whole = images or pages
        self._monotonic = monotonic

    def read(self) -> PodLabels:
        """Return the allowed labels of every pod of the node, and the image of each container that has started.

        Raises:
            ApiServerError: The API server has no usable address, refuses, or answers without a list of pods.
            OSError: It does not answer, or not in time, or the token cannot be read.
            ValueError: Its address or the token is malformed.
        """
        limit = TimeLimit(DEADLINE_SECONDS, self._monotonic)
        pods: dict[Pod, Mapping[str, str]] = {}
        images: dict[Container, str] = {}
        pages: dict[Pod, str] = {}
        token = ""
        for _ in range(MAX_PAGES):
            page = self._page(token, limit)
            try:
                token = self._add(page, pods, images, pages)
            except (AttributeError, TypeError) as error:
                raise _malformed(error) from error
            if not token:
                return PodLabels(pods, images, pages)
        raise ApiServerError(
            f"the API server's list has more than {MAX_PAGES} pages of {self._page_pods} pods for node "
            f"{self._server.node_name}; check that it supports the field selector spec.nodeName"
        )

    def allowed(self, found: Mapping[str, str]) -> Mapping[str, str]:
        """Return the labels whose keys are allowed, under names that Prometheus allows and no other label has.

        Labels without a value are left out; of two keys with the same name, the first in alphabetical order is taken.
        """
        labels: dict[str, str] = {}
        for key in sorted(key for key, value in found.items() if value):
            if len(labels) < MAX_LABELS and any(pattern.search(key) for pattern in self._patterns):
                labels.setdefault(label_name(key), str(found[key]))
        return labels

    def _add(
        self, page: Any, pods: dict[Pod, Mapping[str, str]], images: dict[Container, str], pages: dict[Pod, str]
    ) -> str:
        """Add the pods of a page; returns the token of the next page, empty after the last one."""
        for item in page.get("items") or ():
            metadata = item.get("metadata") or {}
            pod = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
            pods[pod] = self.allowed(metadata.get("labels") or {})
            status = item.get("status") or {}
            images.update(_images(pod, status))
            if url := page_url(str((metadata.get("annotations") or {}).get(SCRAPE, "")), str(status.get("podIP", ""))):
                pages[pod] = url
        return str((page.get("metadata") or {}).get("continue") or "")

    @property
    def _page_pods(self) -> int:
        return PAGE_WHOLE_PODS if self._whole else PAGE_PODS

    def _page(self, token: str, limit: TimeLimit) -> Any:
        url = urlsplit(self._server.address())
        query = {"fieldSelector": f"spec.nodeName={self._server.node_name}", "limit": str(self._page_pods)}
        query |= {"continue": token} if token else {"resourceVersion": "0"}
        headers = {"Accept": WHOLE_PODS if self._whole else METADATA_ONLY, "Authorization": f"Bearer {self._token()}"}
        connection = limit.apply(self._connection(url.scheme, url.hostname or "", url.port))
        try:
            connection.request("GET", f"{url.path.rstrip('/')}/api/v1/pods?{urlencode(query)}", headers=headers)
            with connection.getresponse() as answer:
                if answer.status != http.client.OK:
                    raise ApiServerError(_refusal(answer))
                body = self._body(answer)
        except http.client.HTTPException as error:
            raise _malformed(error) from error
        finally:
            connection.close()
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise _malformed(error) from error

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        parts: list[bytes] = []
        size_bytes = 0
        while part := answer.read(READ_BYTES):
            parts.append(part)
            size_bytes += len(part)
            if size_bytes > MAX_BYTES:
                raise ApiServerError(
                    f"the API server's answer has more than {MAX_BYTES} bytes for {self._page_pods} pods"
                )
        return b"".join(parts)

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
    return f"{PREFIX}{name}" if name in _USED_NAMES or name[:1].isdigit() or name.startswith("__") else name


def page_url(asked: str, address: str) -> str:
    """The URL of a pod's page from its annotation, such as `8000/metrics`; empty where one of them is malformed."""
    found = _PAGE.fullmatch(asked)
    try:
        host = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if found is None or not 0 < int(found[1]) < 2**16:
        return ""
    return f"http://{f'[{host}]' if host.version == 6 else host}:{found[1]}{found[2] or '/metrics'}"


def _images(pod: Pod, status: Mapping[str, Any]) -> Iterator[tuple[Container, str]]:
    """The images of a pod's containers that have been started; the kubelet writes `imageID` when it has pulled one."""
    namespace, name = pod
    for group in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for container in status.get(group) or ():
            if image_id := str(container.get("imageID") or ""):
                yield Container(namespace, name, str(container.get("name", ""))), _image(container, image_id)


def _image(container: Mapping[str, Any], image_id: str) -> str:
    """An image's reference, without the digest that it may have, and the first digits of its digest."""
    reference = str(container.get("image") or "").partition("@")[0]
    digest = image_id.rpartition("sha256:")[2][:DIGEST_DIGITS] if "sha256:" in image_id else ""
    # An image that the runtime knows by its digest alone has that in place of a reference.
    whole = digest if not reference or reference.startswith("sha256:") else "@".join(filter(None, (reference, digest)))
    return "".join(character for character in whole if character.isprintable())[-MAX_IMAGE_CHARACTERS:]


def _refusal(answer: http.client.HTTPResponse) -> str:
    denied = answer.status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}
    remedy = "; the exporter's service account has to be allowed to list pods" if denied else " to a request for pods"
    return f"the API server answered {answer.status} {answer.reason}{remedy}"


def _malformed(error: Exception) -> ApiServerError:
    return ApiServerError(f"the API server's answer is no list of pods: {type(error).__name__}: {error}")

"""Labels of the node's pods, and images of their containers, from the Kubernetes API server.

Labels: only those that the operator allows, as dcgm-exporter's `--kubernetes-enable-pod-labels` and
`--kubernetes-pod-label-allowlist-regex`. One list request asks for this node's pods from the API server's cache
(`resourceVersion=0`): for their metadata alone, or for whole pods where images are wanted, which are in their status.
`Attribution` calls `read` on a thread of its own (`background_value.Refreshed`), which counts and logs each failure.
"""

import ipaddress
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kernelcast.exporter.attribution.api_server import ApiServer, NodeList
from kernelcast.exporter.attribution.pod_resources import Container
from kernelcast.wire.catalogue import CATALOGUE
from kernelcast.wire.catalogue.devices.device import OPT_IN_LABELS

PAGE_PODS: Final = 500
PAGE_WHOLE_PODS: Final = 250
"""A whole pod has some ten KiB, its metadata a tenth of that."""
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
        "pod_uid",
        "dra_claim_name",
        "dra_claim_namespace",
        "dra_driver_name",
        "dra_pool_name",
        "dra_device_name",
        "dra_mig_profile",
        "dra_mig_device_uuid",
    )
)
_USED_NAMES: Final = _CATALOGUE_LABELS | _OTHER_LABELS | OPT_IN_LABELS.keys()

Pod = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class PodLabels:
    """Labels by pod, and images by container.

    Attributes:
        pods: Under names that Prometheus allows.
        images: As `train:1.4@abcdef012345`: reference, then the beginning of the digest, as far as they are known.
        uids: Uid by pod.
        pages: URL by pod of those that ask for it by the annotation `SCRAPE`.
    """

    pods: Mapping[Pod, Mapping[str, str]]
    images: Mapping[Container, str] = field(default_factory=dict)
    uids: Mapping[Pod, str] = field(default_factory=dict)
    pages: Mapping[Pod, str] = field(default_factory=dict)

    def of(self, container: Container) -> Mapping[str, str] | None:
        """The labels of a container's pod; None where the pod is not known."""
        return self.pods.get((container.namespace, container.pod))


NO_PODS: Final = PodLabels({})


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
        self._list = (
            NodeList("/api/v1/pods", WHOLE_PODS, PAGE_WHOLE_PODS)
            if images or pages
            else NodeList("/api/v1/pods", METADATA_ONLY, PAGE_PODS)
        )
        self._monotonic = monotonic

    def read(self) -> PodLabels:
        """Return the allowed labels of every pod of the node, and the image of each container that has started.

        Raises:
            ApiServerError: The API server has no usable address, refuses, or answers without a list of pods.
            OSError: It does not answer, or not in time, or the token cannot be read.
            ValueError: Its address or the token is malformed.
        """
        pods: dict[Pod, Mapping[str, str]] = {}
        images: dict[Container, str] = {}
        uids: dict[Pod, str] = {}
        pages: dict[Pod, str] = {}
        for page in self._list.pages(self._server, self._monotonic):
            try:
                for item in page.get("items") or ():
                    metadata, status = item.get("metadata") or {}, item.get("status") or {}
                    pod = str(metadata.get("namespace", "")), str(metadata.get("name", ""))
                    pods[pod] = self.allowed(metadata.get("labels") or {})
                    uids[pod] = str(metadata.get("uid") or "")
                    images.update(_images(pod, status))
                    if url := _page_of(metadata, status):
                        pages[pod] = url
            except (AttributeError, TypeError) as error:
                raise self._list.malformed(error) from error
        return PodLabels(pods, images, uids, pages)

    def allowed(self, found: Mapping[str, str]) -> Mapping[str, str]:
        """Return the labels whose keys are allowed, under names that Prometheus allows and no other label has.

        Labels without a value are left out; of two keys with the same name, the first in alphabetical order is taken.
        """
        labels: dict[str, str] = {}
        for key in sorted(key for key, value in found.items() if value):
            if len(labels) < MAX_LABELS and any(pattern.search(key) for pattern in self._patterns):
                labels.setdefault(label_name(key), str(found[key]))
        return labels


def label_name(key: str) -> str:
    """The name under which a pod's label is written, such as `app_kubernetes_io_name`."""
    name = _NOT_IN_A_NAME.sub("_", key)
    return f"{PREFIX}{name}" if name in _USED_NAMES or name[:1].isdigit() or name.startswith("__") else name


def _page_of(metadata: Mapping[str, Any], status: Mapping[str, Any]) -> str:
    return page_url(str((metadata.get("annotations") or {}).get(SCRAPE, "")), str(status.get("podIP", "")))


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

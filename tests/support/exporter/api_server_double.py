"""A Kubernetes API server that a test fills."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class FakeApiServer(ThreadingHTTPServer):
    """Answers GET /api/v1/pods and GET …/resourceslices, two a page, to whoever has the token.

    Attributes:
        pods: Of all nodes.
        slices: ResourceSlices of all nodes, by version of the API; other versions are not served.
        asked, headers, paths: Of all requests.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pods: list[dict[str, Any]] = []
        self.slices: dict[str, list[dict[str, Any]]] = {}
        self.paths: list[str] = []
        self.asked: list[dict[str, list[str]]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.body: bytes | None = None
        self.location = ""
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, name: str, namespace: str = "team", node: str = "node-1", **labels: str) -> None:
        self.pods.append({"metadata": {"name": name, "namespace": namespace, "labels": labels}, "node": node})

    def run(self, name: str, container: str, image: str, image_id: str) -> None:
        """A pod with one container, as its kubelet reports it."""
        self.add(name)
        self.pods[-1]["status"] = {
            "containerStatuses": [{"name": container, "image": image, "imageID": image_id}],
            "initContainerStatuses": None,
        }


class _Handler(BaseHTTPRequestHandler):
    server: FakeApiServer

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        self.server.paths.append(url.path)
        self.server.asked.append(query)
        self.server.headers.append(dict(self.headers.items()))
        allowed = self.headers["Authorization"] == "Bearer the-token"
        own = self._own(url.path, query)
        self.send_response(401 if not allowed else 404 if own is None else self.server.status)
        if self.server.location:
            self.send_header("Location", self.server.location)
        self.end_headers()
        self.wfile.write(self.server.body if self.server.body is not None else self._page(query, own or []))

    def _own(self, path: str, query: dict[str, list[str]]) -> list[dict[str, Any]] | None:
        """This node's objects; None where the path is not served."""
        selector = dict(one.split("=") for one in query["fieldSelector"][0].split(","))
        node, driver = selector["spec.nodeName"], selector.get("spec.driver")
        if path == "/api/v1/pods":
            metadata_only = "PartialObjectMetadataList" in self.headers["Accept"]
            parts = ("metadata",) if metadata_only else ("metadata", "status")
            own = [one for one in self.server.pods if one["node"] == node]
            return [{part: one[part] for part in parts if part in one} for one in own]
        slices = self.server.slices.get(path.removeprefix("/apis/resource.k8s.io/").removesuffix("/resourceslices"))
        if slices is None:
            return None
        return [one for one in slices if (one["spec"]["nodeName"], one["spec"]["driver"]) == (node, driver)]

    def _page(self, query: dict[str, list[str]], own: list[dict[str, Any]]) -> bytes:
        first = int(query.get("continue", ["0"])[0])
        more = {"continue": str(first + 2)} if first + 2 < len(own) else {}
        return json.dumps({"metadata": more, "items": own[first : first + 2]}).encode()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

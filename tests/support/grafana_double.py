"""Grafana's HTTP API for folders and dashboards, as a server on loopback: a double, not Grafana.

It keeps what Grafana's documents say of status codes, the token, the search's filters and the fields that Grafana sets.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "glsa_test"


class GrafanaDouble:
    """A server; also a context manager.

    Attributes:
        folders: Titles by uid.
        dashboards: `(dashboard, folder uid)` by uid.
        requests: Method and path of each request, in order.
        redirect: Where every request is redirected, if anywhere.
    """

    def __init__(self) -> None:
        self.folders: dict[str, str] = {}
        self.dashboards: dict[str, tuple[dict[str, Any], str]] = {}
        self.requests: list[tuple[str, str]] = []
        self.redirect = ""
        double = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Prints nothing."""

            def _serve(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                status, answer = double.answer(self.command, self.path, self.headers.get("Authorization", ""), body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                if double.redirect:
                    self.send_header("Location", double.redirect)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = _serve  # noqa: N815  names of http.server

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def writes(self) -> list[tuple[str, str]]:
        """The requests that change something."""
        return [request for request in self.requests if request[0] != "GET"]

    def answer(  # noqa: PLR0911  one per request that Grafana knows
        self, method: str, path: str, authorization: str, body: Any
    ) -> tuple[int, Any]:
        """The status and JSON of an answer."""
        self.requests.append((method, path))
        if self.redirect:
            return 302, {}
        if authorization != f"Bearer {TOKEN}":
            return 401, {"message": "Unauthorized"}
        parts = urlsplit(path)
        match (method, unquote(parts.path).strip("/").split("/")):
            case "GET", ["api", "folders", uid]:
                return (200, {"uid": uid, "title": self.folders[uid]}) if uid in self.folders else (404, {})
            case "POST", ["api", "folders"]:
                self.folders[body["uid"]] = body["title"]
                return 200, body
            case "GET", ["api", "search"]:
                return 200, self._found(parse_qs(parts.query))
            case "POST", ["api", "dashboards", "db"]:
                return self._written(body)
            case "GET", ["api", "dashboards", "uid", uid] if uid in self.dashboards:
                dashboard, folder = self.dashboards[uid]
                return 200, {"dashboard": dashboard, "meta": {"folderUid": folder}}
            case "DELETE", ["api", "dashboards", "uid", uid] if uid in self.dashboards:
                del self.dashboards[uid]
                return 200, {"title": uid}
        return 404, {"message": "Not found"}

    def _found(self, query: dict[str, list[str]]) -> list[dict[str, Any]]:
        (folder,), (tag,) = query["folderUIDs"], query["tag"]
        return [
            {"uid": uid, "folderUid": where}
            for uid, (dashboard, where) in self.dashboards.items()
            if where == folder and tag in dashboard.get("tags", ())
        ]

    def _written(self, body: dict[str, Any]) -> tuple[int, Any]:
        if body["folderUid"] not in self.folders:
            return 400, {"message": "folder not found"}
        sent = body["dashboard"]
        before = self.dashboards.get(sent["uid"])
        if before is not None and not body["overwrite"]:
            return 412, {"message": "The dashboard has been changed by someone else"}
        version = before[0]["version"] + 1 if before is not None else 1
        kept = {**sent, "id": 100 + len(self.dashboards), "version": version, "schemaVersion": 42}
        self.dashboards[sent["uid"]] = kept, body["folderUid"]
        return 200, {"status": "success"}

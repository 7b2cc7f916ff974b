"""Routes of the dashboards that the bridge serves: a page, its files, the dashboards' JSON, answers."""

# `Bridge` makes one `PageSite` at its start and gives its routes to the web server; handlers run on the event loop.

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from kernelcast.bridge.browser.batch import QueryBatch
from kernelcast.bridge.browser.connections import ForwardedAnswer
from kernelcast.bridge.browser.models import PageModel
from kernelcast.bridge.browser.settings import PagesSettings
from kernelcast.wire.catalogue.exporter import TICKS

PATH: Final = "/pages"
"""Prefix of every route of the pages."""
MOVED: Final = {
    "kernelcast-node": "kernelcast-gpus",
    "kernelcast-forecasts": "kernelcast-gpus",
    "kernelcast-synchronisation": "kernelcast-kernels",
    "kernelcast-hints": "kernelcast-kernels",
}
"""Pages that are a part of another one; links to them still lead there."""
_MEASURED: Final = f"group({TICKS.prometheus_name})"
"""PromQL with a result since the first measurement: pages open on no longer time than that."""
_STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
"""No inline script or style, nothing from another server, and no string that becomes HTML (Trusted Types)."""
_SECURITY: Final[Mapping[str, str]] = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "x-frame-options": "DENY",
}


class QueryAnswers(Protocol):
    """Answers the pages' queries."""

    async def answer(self, request: Request) -> Response:
        """Answer a request for one query."""

    async def ask(self, query: str) -> ForwardedAnswer:
        """Answer one query of a posted list: an address below `/api/v1/`, such as `query?query=up&time=1`."""


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    content_type: str
    etag: str


class PageSite:
    """Serves the pages. Page, files and dashboards are read when it is made, so no handler waits for a disk."""

    def __init__(
        self,
        settings: PagesSettings,
        models: tuple[PageModel, ...],
        *,
        prometheus: QueryAnswers,
    ) -> None:
        """Serve these pages.

        Args:
            settings: Settings of the pages.
            models: The dashboards.
            prometheus: Forwards queries to Prometheus.
        """
        self._settings, self._prometheus = settings, prometheus
        self._models = {model.uid: model for model in models}
        self._files = {path.name: _file(path) for path in sorted(_STATIC.iterdir()) if path.suffix in _TYPES}
        self._page = (_STATIC / "page.html").read_text(encoding="utf-8")

    def routes(self) -> list[Route]:
        """The routes. They change nothing; only a list of queries is posted, because it is too long for an address."""
        # Those with fixed words come before `/pages/{uid}`, which fits them, too.
        return [
            Route(PATH, self.page),
            _batch(self._prometheus, self._settings.scrape_interval_seconds),
            Route(f"{PATH}/api/v1/{{kind}}", self._prometheus.answer, include_in_schema=False),
            Route(f"{PATH}/api/site", self._site, include_in_schema=False),
            Route(f"{PATH}/api/dashboards/{{uid}}", self._model),
            Route(f"{PATH}/static/{{name}}", self._static),
            Route(f"{PATH}/{{uid}}", self.page),
        ]

    async def page(self, request: Request) -> Response:
        """Dashboards in the browser, without Grafana."""
        moved = MOVED.get(request.path_params.get("uid", ""))
        if moved:
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(f"{PATH}/{moved}{query}", headers=_SECURITY)
        return HTMLResponse(self._page, headers={**_SECURITY, "cache-control": "no-cache"})

    async def _static(self, request: Request) -> Response:
        file = self._files.get(request.path_params["name"])
        if file is None:
            return JSONResponse({"error": "there is no such file"}, status_code=404)
        headers = {**_SECURITY, "cache-control": "no-cache", "etag": file.etag}
        if file.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return _compressed(request, file.body, {**headers, "content-type": file.content_type})

    async def _model(self, request: Request) -> Response:
        uid = request.path_params["uid"]
        model = self._models.get(uid)
        if model is None:
            known = ", ".join(self._models)
            return JSONResponse({"error": f"there is no page {uid[:100]}; there are {known}"}, status_code=404)
        headers = {**_SECURITY, "content-type": "application/json", "cache-control": "no-cache"}
        return _compressed(request, model.body, headers)

    async def _site(self, _request: Request) -> Response:
        listed = [
            {"uid": model.uid, "title": model.title, "description": model.description}
            for model in self._models.values()
        ]
        about: dict[str, Any] = {
            "dashboards": listed,
            "scrape_interval_seconds": self._settings.scrape_interval_seconds,
            "measured": _MEASURED,
        }
        return JSONResponse(about, headers={**_SECURITY, "cache-control": "no-store"})


def _batch(answers: QueryAnswers, keep_seconds: float) -> Route:
    batch = QueryBatch(answers.ask, keep_seconds)
    return Route(f"{PATH}/api/queries", batch.answer, methods=["POST"], include_in_schema=False)


def _file(path: Path) -> _File:
    body = path.read_bytes()
    tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    return _File(gzip.compress(body, mtime=0), _TYPES[path.suffix], tag)


def _compressed(request: Request, body: bytes, headers: Mapping[str, str]) -> Response:
    """A body that is kept compressed; every browser accepts gzip, and other clients get it unpacked."""
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(body, headers={**headers, "content-encoding": "gzip", "vary": "accept-encoding"})
    return Response(gzip.decompress(body), headers={**headers, "vary": "accept-encoding"})

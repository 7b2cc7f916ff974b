"""A client of an ASGI application in the same process: no server, no port."""

import asyncio
from collections.abc import Mapping, Sequence

import httpx
from starlette.applications import Starlette
from starlette.routing import BaseRoute


class AsgiClient:
    """Sends requests to routes; each call is one run of an event loop."""

    def __init__(self, routes: Sequence[BaseRoute]) -> None:
        self._app = Starlette(routes=list(routes))

    async def send(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, content: bytes = b""
    ) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=self._app), base_url="http://bridge") as client:
            return await client.request(method, path, headers=headers, content=content)

    def request(self, method: str, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return asyncio.run(self.send(method, path, headers))

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.request("GET", path, headers)

"""`/sd?shards=n`: Prometheus' HTTP service discovery of this bridge, one target for each part of its series.

`Bridge` makes the route. Each target is `/metrics` with another `shard`. They need different `instance` labels, or
their `up` would be one series; the first keeps the plain address, because the process's own metrics are there. Series
have their own `instance`, which `honor_labels: true` leaves alone.

Source: prometheus/prometheus, docs/http_sd.md.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from kernelcast.bridge.layouts.view import MAX_SHARDS
from kernelcast.wire.errors import RequestError

PATH: Final = "/sd"
_ADDRESS: Final = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


def discovery(advertised_address: str = "") -> Callable[[Request], Awaitable[Response]]:
    """The handler of `/sd`.

    Args:
        advertised_address: `HOST:PORT` where Prometheus reaches this bridge; the request's own Host header by default.
    """

    async def answer(request: Request) -> Response:
        """Prometheus' HTTP service discovery; `?shards=n` shares the series out to n scrapes."""
        try:
            shards = _shards(request.query_params.getlist("shards"))
            address = advertised_address or _host(request)
        except RequestError as error:
            return PlainTextResponse(f"{error}\n", status_code=400)
        return JSONResponse([_target(address, request.url.scheme, i, shards) for i in range(shards)])

    return answer


def _target(address: str, scheme: str, number: int, shards: int) -> dict[str, object]:
    labels = {
        "instance": address if number == 0 else f"{address}?shard={number}/{shards}",
        "__scheme__": scheme,
        "__meta_kernelcast_shard": str(number),
        "__meta_kernelcast_shards": str(shards),
    }
    if shards > 1:
        labels["__param_shard"] = f"{number}/{shards}"
    return {"targets": [address], "labels": labels}


def _shards(values: list[str]) -> int:
    text = values[0] if len(values) == 1 else "1" if not values else ",".join(values)
    if not re.fullmatch(r"[0-9]{1,4}", text) or not 1 <= int(text) <= MAX_SHARDS:
        raise RequestError(f"shards is {text[:100]!r}; give one whole number from 1 to {MAX_SHARDS}, as in shards=4")
    return int(text)


def _host(request: Request) -> str:
    host = request.headers.get("host", "")
    if not _ADDRESS.fullmatch(host):
        raise RequestError(
            f"Host is {host[:100]!r}; the targets need an address: set bridge.advertised_address to HOST:PORT"
        )
    return host

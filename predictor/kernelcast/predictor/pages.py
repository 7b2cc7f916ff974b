"""The predictor's web server: `/metrics`, explanations of single series, and the facts of its first page.

Every service of the predictor, on Kafka or not, serves the same pages.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from kernelcast.predictor.cycle_loop import CycleLoop
from kernelcast.predictor.engine import Engine
from kernelcast.predictor.explain_command import PATH as EXPLAIN_PATH
from kernelcast.predictor.settings import PredictorSettings
from kernelcast.runtime.web.landing import Fact, ago
from kernelcast.runtime.web.server import WebServer
from kernelcast.wire.catalogue.predictor import RAISED, SERIES
from kernelcast.wire.errors import ConfigurationError, KernelcastError

LATE_CYCLES: Final = 10
"""Cycles without one that was completed, after which the landing page calls the predictor late."""


class Pages:
    """Answers for one predictor; the web server calls it on threads of its own."""

    def __init__(
        self, settings: PredictorSettings, registry: CollectorRegistry, engine: Engine, cycles: CycleLoop
    ) -> None:
        self._settings, self._registry, self._engine, self._cycles = settings, registry, engine, cycles

    def server(self, ready: Callable[[], tuple[bool, str]], routes: Sequence[Route] = ()) -> WebServer:
        """Return the web server, which is not started yet.

        Args:
            ready: Whether the predictor is of use yet, and why not.
            routes: Further pages.

        Raises:
            ConfigurationError: The web configuration file is wrong.
        """
        return WebServer(
            self._settings.web,
            title="predictor",
            metrics=self._registry,
            ready=ready,
            routes=[Route(EXPLAIN_PATH, self._explain), *routes],
            facts=self._facts,
        )

    def _facts(self) -> list[Fact]:
        """Return the lines of the landing page."""
        figures = [
            Fact(name, f"{self._registry.get_sample_value(row.prometheus_name) or 0:,.0f}")
            for name, row in (("Series with a window", SERIES), ("Series with a forecast", RAISED))
        ]
        completed_at = self._cycles.completed_at
        if completed_at is None:
            return [Fact("Last cycle", "none is complete yet"), *figures]
        age = time.monotonic() - completed_at
        late = age > LATE_CYCLES * self._settings.sweep_every_seconds
        return [Fact("Last cycle", f"{ago(age)}, every {self._settings.sweep_every_seconds:g} s", wrong=late), *figures]

    async def _explain(self, request: Request) -> Response:
        """Knowledge, expectation and decision about one series, with the reasons."""
        try:
            explained: list[dict[str, Any]] = await run_in_threadpool(
                self._engine.explain, request.query_params.get("series", "")
            )
        except ConfigurationError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        except KernelcastError as error:
            return JSONResponse({"error": str(error)}, status_code=503)
        return JSONResponse({"series": explained})

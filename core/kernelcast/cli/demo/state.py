"""State of the demo, gathered once a second for the terminal, the progress lines and the summary.

`run.Demo` calls `Gatherer.gather` on the main thread; `view` and `summary` read the `DemoState`.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from kernelcast.cli.demo.children import Supervisor
from kernelcast.cli.demo.event_log import EventLog
from kernelcast.cli.demo.http import fetch, query
from kernelcast.cli.demo.sources import DemoSource
from kernelcast.cli.demo.workspace import Workspace
from kernelcast.cli.top.page import ScrapedPage, read
from kernelcast.cli.top.target import ServerCredentials, firing_alerts
from kernelcast.cli.top.view import Alerts, TopView
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.errors import PageError
from kernelcast.wire.topics import ALERTS, HINTS, OUTCOMES

LAUNCHES_QUERY = f"sum({kernel.LAUNCHES.prometheus_name})"
SECONDS_QUERY = f"sum({kernel.DURATION.prometheus_name}_sum)"


@dataclass(slots=True)
class DemoState:
    """The newest state of the demo; `Gatherer` changes it, on the main thread."""

    # Source of the data.
    source: DemoSource
    # Its folder and endpoints.
    workspace: Workspace
    # `embedded` or `kafka`.
    broker: str
    # Time since everything was ready.
    elapsed_seconds: float = 0.0
    # The state of the screen.
    view: TopView = field(default_factory=lambda: TopView(""))
    # Whether the bridge answered last time.
    reachable: bool = False
    # Events from Kafka, oldest first.
    hints: list[dict[str, Any]] = field(default_factory=list)
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    # Number of dead letters.
    dead_letters: int = 0
    # State of each process, by name.
    processes: dict[str, str] = field(default_factory=dict)
    # Kernel launches and GPU time in Prometheus; None without an answer.
    prometheus_launches: float | None = None
    prometheus_seconds: float | None = None
    # Highest probability of each predicted degradation, with its labels.
    peak_degradations: dict[tuple[str, ...], dict[str, Any]] = field(default_factory=dict)
    # Highest number of forecast series.
    peak_forecasts: int = 0

    @property
    def snapshot(self) -> ScrapedPage:
        """The bridge's newest page; an empty one before the first."""
        return self.view.page


class Gatherer:
    """Fills a `DemoState` from the bridge, Kafka and Prometheus."""

    def __init__(self, state: DemoState, supervisor: Supervisor, events: EventLog) -> None:
        self.state = state
        self._supervisor = supervisor
        self._events = events

    def gather(self, elapsed_seconds: float) -> DemoState:
        """Read everything once. If the bridge does not answer, its last page stays, and `reachable` is False."""
        state = self.state
        body = fetch(f"http://{state.workspace.endpoints.bridge}/metrics")
        state.reachable = body is not None
        state.view.now_seconds = time.time()
        state.view.error = "" if body is not None or state.view.history.page is None else "the bridge does not answer"
        if body is not None:
            self._add_page(read(body))
        state.elapsed_seconds = elapsed_seconds
        state.hints = self._events.of(HINTS.name)
        state.outcomes = self._events.of(OUTCOMES.name)
        state.alerts = self._events.of(ALERTS.name)
        state.dead_letters = self._events.dead_letters
        state.processes = {child.name: child.state for child in self._supervisor.children}
        if state.workspace.endpoints.prometheus:
            url = f"http://{state.workspace.endpoints.prometheus}"
            state.prometheus_launches = query(url, LAUNCHES_QUERY)
            state.prometheus_seconds = query(url, SECONDS_QUERY)
        state.view.alerts = self._alerts()
        return state

    def _alerts(self) -> Alerts:
        """Alerts that fire now; the topic on Kafka also has those that have ended."""
        address = self.state.workspace.endpoints.prometheus
        if not address:
            return Alerts(None, "rules need a Prometheus, which was not started")
        try:
            return Alerts(
                firing_alerts(f"http://{address}/api/v1", ServerCredentials()), "the rules are not evaluated yet"
            )
        except PageError:
            return Alerts(None, "Prometheus does not answer yet")

    def _add_page(self, snapshot: ScrapedPage) -> None:
        state = self.state
        state.view.history.add(state.view.now_seconds, snapshot)
        state.peak_forecasts = max(state.peak_forecasts, snapshot.forecasts)
        for labels, probability in snapshot.degradations:
            key = tuple(labels.get(name, "") for name in ("Hostname", "gpu", "program", "kernel", "metric", "cause"))
            best = state.peak_degradations.get(key)
            if best is None or probability > best["probability"]:
                state.peak_degradations[key] = {"labels": labels, "probability": probability}

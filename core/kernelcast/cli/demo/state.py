"""State of the demo, gathered once a second for the terminal, the progress lines and the summary.

`run.Demo` calls `Gatherer.gather` on the main thread; `view` and `summary` read the `DemoState`.
"""

import time
from dataclasses import dataclass, field
from typing import Any

from kernelcast.cli.demo.children import Supervisor
from kernelcast.cli.demo.event_log import EventLog
from kernelcast.cli.demo.http import query
from kernelcast.cli.demo.sources import DemoSource
from kernelcast.cli.demo.workspace import Workspace
from kernelcast.cli.top.command import PageReader
from kernelcast.cli.top.controls import Controls
from kernelcast.cli.top.target import ServerCredentials
from kernelcast.view.model import Picture, Recent
from kernelcast.view.page import ScrapedPage
from kernelcast.wire.catalogue import kernel
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
    # Time of the last reading, Unix seconds.
    now_seconds: float = 0.0
    # The bridge's newest pages, and the alerts that fire.
    recent: Recent = field(default_factory=lambda: Recent(""))
    # The user's choices.
    controls: Controls = field(default_factory=Controls)
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
        return self.recent.page

    @property
    def picture(self) -> Picture:
        """What matters now."""
        return self.recent.picture(self.now_seconds, sort=self.controls.sort, text=self.controls.text)


class Gatherer:
    """Fills a `DemoState` from the bridge, Kafka and Prometheus."""

    def __init__(self, state: DemoState, supervisor: Supervisor, events: EventLog) -> None:
        self.state = state
        endpoints = state.workspace.endpoints
        self._reader = PageReader(f"http://{endpoints.bridge}", ServerCredentials())
        state.recent = self._reader.recent
        state.recent.title, state.recent.note = endpoints.page, state.source.banner
        self._supervisor = supervisor
        self._events = events

    def gather(self, elapsed_seconds: float) -> DemoState:
        """Read everything once. If the bridge does not answer, its last page stays, and the screen says so."""
        state = self.state
        state.now_seconds = time.time()
        known = state.recent.page
        self._reader.read_or_note(state.now_seconds)
        if state.recent.page is not known:
            self._note_peaks(state.recent.page)
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
        return state

    def _note_peaks(self, snapshot: ScrapedPage) -> None:
        state = self.state
        state.peak_forecasts = max(state.peak_forecasts, snapshot.forecasts)
        for labels, probability in snapshot.degradations:
            key = tuple(labels.get(name, "") for name in ("Hostname", "gpu", "program", "kernel", "metric", "cause"))
            best = state.peak_degradations.get(key)
            if best is None or probability > best["probability"]:
                state.peak_degradations[key] = {"labels": labels, "probability": probability}

"""An exporter's end of the probe socket in this process."""

import time
from pathlib import Path

from prometheus_client import CollectorRegistry

from kernelcast.exporter.programs.devices import DeviceResolver
from kernelcast.exporter.programs.limits import ProbeLimits
from kernelcast.exporter.programs.server import ProbeServer
from kernelcast.exporter.totals.aggregate import Aggregator
from kernelcast.wire.events import Outcome, OutcomeState
from kernelcast.wire.identity import Device

GPU = Device("node", "GPU-1", "0", model_name="NVIDIA A100")


class Node:
    """A daemon's end with an aggregator behind it, as the exporter has; can be restarted."""

    def __init__(self, path: Path, limits: ProbeLimits | None = None, uids: tuple[int, ...] | None = None) -> None:
        self.path = path
        self.limits = limits
        self.uids = uids
        self.totals: dict[str, tuple[int, int, int]] = {}
        self.outcomes: list[Outcome] = []
        self.finals = 0
        self.begin()

    def begin(self) -> None:
        self.registry = CollectorRegistry()
        self.aggregator = Aggregator(max_kernels=None)
        self.server = ProbeServer(
            self.path,
            clock=time.time_ns,
            registry=self.registry,
            devices=DeviceResolver("node", lambda: (GPU,)),
            allowed_uids=self.uids,
            limits=self.limits,
        )
        self.server.start()

    def restart(self) -> None:
        self.server.close()
        self.begin()

    def turn(self) -> None:
        for report in self.server.poll(time.time_ns()).reports:
            self.finals += report.final
            self.aggregator.report(report)
        self.outcomes += [received.outcome for received in self.server.outcomes()]

    def launches(self) -> int:
        self.turn()
        return self.aggregator.counts.launches

    def ended(self) -> int:
        self.turn()
        return self.finals

    def states(self) -> list[OutcomeState]:
        self.turn()
        return [outcome.state for outcome in self.outcomes]

    def metric(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0

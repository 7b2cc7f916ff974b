"""A fleet of simulated GPUs in the place of the exporter's sources, deterministic in its seed."""

import hashlib
import math
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from kernelcast.exporter.simulate import faults
from kernelcast.exporter.simulate.activity import COPIES_PER_SECOND
from kernelcast.exporter.simulate.durations import FleetDurations
from kernelcast.exporter.simulate.effects import Influence
from kernelcast.exporter.simulate.faults import SimulatedFault
from kernelcast.exporter.simulate.fleet_settings import SimulationSettings
from kernelcast.exporter.simulate.influence import influence
from kernelcast.exporter.simulate.kinds.hardware import ENDS_PROGRAMS, XID_79
from kernelcast.exporter.simulate.nodes.health import DeviceHealth, GpuTraffic, starting
from kernelcast.exporter.simulate.nodes.monitor import Monitor
from kernelcast.exporter.simulate.physics import Gpus
from kernelcast.exporter.simulate.process import RankPlacement, SimulatedProcess
from kernelcast.exporter.simulate.program import USUAL_BUSY_RATIO, FloatArray, Program, make_program
from kernelcast.exporter.simulate.truth import FaultReading, Truth
from kernelcast.exporter.simulate.workload import Step, Workload
from kernelcast.exporter.totals.report import ProcessReport, SourceBatch
from kernelcast.runtime.logging import get_logger
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND
from kernelcast.wire.identity import SIMULATED, Device
from kernelcast.wire.kernels import label

MODEL_NAME: Final = "Simulated H100 80GB"
QUEUE_DELAY_NS: Final = 8_000.0
"""Time from a launch's call to its start on an idle GPU; a few microseconds are usual."""
BUSY_QUEUE_FACTOR: Final = 8.0
"""Growth of that time on a GPU that is always busy."""
COLLECTIVE_BYTES_PER_NS: Final = 300.0
"""Bytes a nanosecond that a collective sends, its wait for peers left out: two thirds of all NVLinks' 450 GB/s."""

_log = get_logger(__name__)


class SimulatedFleet:
    """Simulates in fixed steps up to each poll, so a sample depends on seed and time, not on the polls.

    `replay.run.publish` polls it, on one thread. A node runs one program, whose ranks are the processes on its GPUs.

    Attributes:
        longest_poll_seconds: Real time after which `poll` returns what there is; can be changed.
    """

    def __init__(
        self,
        settings: SimulationSettings,
        *,
        start_ns: int,
        speed: float = 1.0,
        duration_seconds: float = math.inf,
        name: str = "sim",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the fleet, in its steady state at the usual load.

        Args:
            settings: Size, rate, seed and faults.
            start_ns: Start of the simulated time, Unix nanoseconds.
            speed: Simulated seconds in one second.
            duration_seconds: Length in simulated time.
            name: Nodes are called `<name>-node-0` and so on, programs `<name>-train-0`.
            monotonic: Monotonic seconds.
        """
        self.settings = settings
        self.start_ns, self._speed, self._duration_seconds = start_ns, speed, duration_seconds
        self._monotonic = monotonic
        self.longest_poll_seconds = math.inf
        self._random = np.random.default_rng(settings.seed)
        self._gpus = Gpus(settings.count, self._random)
        self._bad = _bad_kernels(settings)
        self._places = [_place(settings, number, name) for number in range(settings.count)]
        self._versions = [0] * settings.count
        self._generations = [0] * settings.count
        self._processes = [self._begin(gpu, start_ns) for gpu in range(settings.count)]
        self._workload = Workload(settings, [process.program for process in self._processes])
        self._durations = FleetDurations(settings.count, settings.kernels)
        self._queue_delay_ns = np.zeros((settings.count, settings.kernels), dtype=np.int64)
        self._health = DeviceHealth(settings.count)
        self._monitor = Monitor(settings, self._places, start_ns)
        self._truth = Truth(settings)
        self._ended: list[ProcessReport] = []
        self._steps = 0
        self._done = self._is_behind = False
        self._warm_up()

    @property
    def position_seconds(self) -> float:
        """Simulated time so far."""
        return self._steps * self.settings.step_seconds

    @property
    def length_seconds(self) -> float:
        """Simulated time in all; infinite unless a duration was given."""
        return self._duration_seconds

    def poll(self, now_ns: int) -> SourceBatch:
        """Simulate up to `now_ns`, or less if that takes too long; an empty batch if no step is due."""
        if self._done:
            return SourceBatch(done=True)
        elapsed = (now_ns - self.start_ns) * self._speed / NANOSECONDS_PER_SECOND
        wanted = math.floor(min(elapsed, self._duration_seconds) / self.settings.step_seconds)
        if wanted <= self._steps and elapsed < self._duration_seconds:
            return SourceBatch()
        self._advance_to(wanted)
        self._done = elapsed >= self._duration_seconds and not self._is_behind
        time_ns = self.when_ns(self.position_seconds)
        lost = self._health.lost.tolist()
        now = tuple(self._report(gpu, final=self._done) for gpu in range(self.settings.count) if not lost[gpu])
        reports, self._ended = (*self._ended, *now), []
        samples = self._monitor.samples(self._gpus, self._health, self._processes, time_ns)
        return SourceBatch(reports=reports, samples=tuple(samples), done=self._done)

    def close(self) -> None:
        """Part of the interface of a source; there is nothing to close."""

    def ground_truth(self) -> list[dict[str, Any]]:
        """Records of the events so far, ready for JSON: one for each GPU of a fault or of another change."""
        return self._truth.records(self._labels, self.when_ns)

    def when_ns(self, seconds: float) -> int:
        """From simulated seconds to the real time at which they are reached, Unix nanoseconds, rounded down."""
        return self.start_ns + math.floor(seconds / self._speed * NANOSECONDS_PER_SECOND)

    def _advance_to(self, wanted: int) -> None:
        """Simulate until a step, as far as one poll may take."""
        began, before = self._monotonic(), self._steps
        took_seconds = 0.0
        while self._steps < wanted and took_seconds < self.longest_poll_seconds:
            self._advance()
            took_seconds = self._monotonic() - began
        was_behind, self._is_behind = self._is_behind, self._steps < wanted
        if self._is_behind and not was_behind:
            possible = (self._steps - before) * self.settings.step_seconds / took_seconds
            _log.warning("this machine cannot simulate as fast as asked", speed=self._speed, possible=round(possible))

    def _advance(self) -> None:
        seconds = self.settings.step_seconds
        self._steps += 1
        now = self.position_seconds
        self._begin_faults(now - seconds, now)
        acting = influence(self.settings, now)
        noise = self._random.standard_normal((self.settings.count, self.settings.kernels + 1))
        step = self._workload.step(acting, self._gpus.clock_mhz, noise[:, 1:], seconds)
        traffic = self._account(step, acting, seconds)
        full = self._gpus.allocate(acting, seconds)
        self._gpus.advance(acting, noise[:, 0], seconds)
        self._health.advance(acting, self._gpus, traffic, seconds)
        self._truth.observe(
            now,
            FaultReading(
                temp_c=self._gpus.temp_c,
                used_mib=self._gpus.used_mib,
                busy_percent=100 * self._gpus.busy_ratio,
                slower_ratio=step.slower_ratio,
                compute_ratio=step.compute_ratio,
            ),
        )
        for gpu in np.flatnonzero(full).tolist():
            self._restart(gpu, now)

    def _account(self, step: Step, acting: Influence, seconds: float) -> GpuTraffic:
        gpu_time = self._durations.add(step.launches, step.mean_ns, spread=step.spread, step=self._steps)
        step_ns = round(seconds * NANOSECONDS_PER_SECOND)
        collective_ns = gpu_time[:, self._workload.collective].sum(axis=1)
        compute_ns = gpu_time.sum(axis=1) - collective_ns
        self._gpus.busy_ratio = np.minimum((compute_ns + collective_ns) / step_ns, 1.0)
        self._gpus.waiting_ratio = np.minimum(collective_ns / step_ns, self._gpus.busy_ratio)
        self._gpus.copy_ratio = np.minimum((gpu_time * self._workload.memory_bound).sum(axis=1) / step_ns, 1.0)
        delay_ns = QUEUE_DELAY_NS * (1 + BUSY_QUEUE_FACTOR * self._gpus.busy_ratio**2)
        self._queue_delay_ns += np.rint(step.launches * delay_ns[:, None]).astype(np.int64)
        before = self._copied()
        for gpu, process in enumerate(self._processes):
            process.activity.spend(
                launches=int(step.launches[gpu].sum()),
                compute_ns=int(compute_ns[gpu]),
                collective_ns=int(collective_ns[gpu]),
                copies=round(COPIES_PER_SECOND * float(acting.load[gpu]) * seconds),
                lanes=float(acting.pcie_lanes[gpu]),
                step_ns=step_ns,
            )
        copied = self._copied() - before
        collectives = step.launches * np.where(self._workload.collective, self._workload.base_ns, 0.0)
        return GpuTraffic(copied[:, 0], copied[:, 1], collectives.sum(axis=1) * COLLECTIVE_BYTES_PER_NS)

    def _copied(self) -> FloatArray:
        return np.array([process.activity.copied_bytes for process in self._processes], dtype=np.float64)

    def _report(self, gpu: int, *, final: bool) -> ProcessReport:
        return self._processes[gpu].report(
            self._durations.totals(gpu),
            self._queue_delay_ns[gpu].tolist(),
            used_mib=float(self._gpus.used_mib[gpu]),
            final=final,
        )

    def _begin_faults(self, since: float, until: float) -> None:
        """Begin the faults of this step: their XIDs, and the programs that end with them, each once."""
        ended: dict[int, float] = {}
        for fault, gpu in starting(self.settings, since, until):
            self._health.begin(fault, gpu, self.when_ns(until))
            self._versions[gpu] += fault.kind == faults.DEPLOY
            if fault.kind in {faults.RESTART, faults.DEPLOY, *ENDS_PROGRAMS}:
                # The ranks of a job end together where one of them loses its GPU.
                job = np.flatnonzero(self.settings.nodes_of(fault)).tolist() if fault.kind == XID_79 else [gpu]
                for rank in job:
                    ended.setdefault(rank, fault.start_seconds)
        for rank, seconds in ended.items():
            self._restart(rank, seconds)

    def _restart(self, gpu: int, seconds: float) -> None:
        """One process ends, its totals stay; another begins at 0."""
        self._ended.append(self._report(gpu, final=True))
        self._durations.reset(gpu)
        self._queue_delay_ns[gpu] = 0
        self._generations[gpu] += 1
        self._processes[gpu] = self._begin(gpu, self.when_ns(seconds))
        self._workload.replace(gpu, self._processes[gpu].program)
        self._gpus.forget_memory(np.array([gpu]))

    def _begin(self, gpu: int, start_ns: int) -> SimulatedProcess:
        bad = self._bad.get(gpu)
        program = self._program(self._versions[gpu], bad)
        return SimulatedProcess(
            self._places[gpu], program, generation=self._generations[gpu], start_ns=start_ns, bad=bad
        )

    def _program(self, version: int, bad: int | None) -> Program:
        settings = self.settings
        return make_program(
            settings.kernels, rate=settings.rate, distributed=settings.gpus > 1, version=version, bad=bad
        )

    def _warm_up(self) -> None:
        acting = influence(self.settings, 0.0)
        self._gpus.busy_ratio = np.minimum(USUAL_BUSY_RATIO * acting.load, 1.0)
        self._gpus.waiting_ratio = self._gpus.busy_ratio * self._processes[0].program.collective_ratio
        self._gpus.settle(acting)
        self._gpus.allocate(acting, 0.0)

    def _labels(self, fault: SimulatedFault, gpu: int) -> dict[str, str]:
        place = self._places[gpu]
        joined = {**place.device.join_labels(SIMULATED), "program": place.program, "rank": place.rank}
        if faults.KINDS[fault.kind].per_kernel:
            joined["kernel"] = label(self._processes[gpu].program.names[fault.kernel].signature)
        return {name: value for name, value in joined.items() if value}


def _place(settings: SimulationSettings, number: int, name: str) -> RankPlacement:
    node, gpu = divmod(number, settings.gpus)
    text = f"{name}|{settings.seed}|{node}|{gpu}"
    digest = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
    device = Device(
        hostname=f"{name}-node-{node}",
        uuid=f"GPU-sim-{digest}-{gpu}",
        gpu=str(gpu),
        pci_bus_id=f"00000000:{gpu + 1:02X}:00.0",
        device=f"nvidia{gpu}",
        model_name=MODEL_NAME,
    )
    return RankPlacement(f"{name}-train-{node}", str(gpu) if settings.gpus > 1 else "", device, settings.seed)


def _bad_kernels(settings: SimulationSettings) -> dict[int, int]:
    """The badly tuned kernel of each GPU that has one."""
    return {
        gpu: fault.kernel
        for fault in settings.faults
        if fault.kind == faults.BAD_TUNING
        for gpu in np.flatnonzero(settings.where(fault)).tolist()
    }

"""`kernelcast simulate`: a fleet of simulated GPUs on Kafka, with faults whose truth is known."""

import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import Field

from kernelcast.exporter.replay.progress import progress
from kernelcast.exporter.replay.run import (
    check_writable,
    finish,
    make_producer,
    paced,
    publish,
    say,
    summary,
    write_json,
)
from kernelcast.exporter.replay.settings import (
    ReplayOptions,
    RunSettings,
)
from kernelcast.exporter.simulate.faults import BACKGROUNDS, FAULTS, parse, syntax
from kernelcast.exporter.simulate.fleet import SimulatedFleet
from kernelcast.exporter.simulate.fleet_settings import SimulationSettings
from kernelcast.runtime import logging
from kernelcast.runtime.command import command
from kernelcast.runtime.lifecycle import Shutdown
from kernelcast.runtime.settings.service import OptionName, load
from kernelcast.wire.errors import ConfigurationError
from kernelcast.wire.histogram import NANOSECONDS_PER_SECOND

_PLACES: Final = "Each takes node=, gpu= (a number or all), start= and length= (such as 90s, 5m, 2h)."
_EPILOG: Final = "\n\n".join(
    (
        f"FAULTS, as KIND[:key=value,…]. {_PLACES}",
        syntax(FAULTS),
        "BACKGROUNDS, which are no faults.",
        syntax(BACKGROUNDS),
    )
)

MAX_SPEED: Final = 1e6
"""A day in 0.1 s, beyond any machine; `max` does not wait at all."""

simulate = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class SimulateSettings(RunSettings):
    """Settings of `kernelcast simulate`: publishing, and the simulation.

    Attributes:
        nodes, gpus, kernels_per_program, rate, seed: As in `SimulationSettings`.
        fault: Faults, each as on the command line.
        background: What only looks like a fault.
        duration_seconds: How long, in simulated time; None goes on until stopped.
    """

    nodes: int = 1
    gpus: int = 8
    kernels_per_program: int = 12
    rate: float = 1000.0
    seed: int = 0
    fault: list[str] = Field(default_factory=list)
    background: list[str] = Field(default_factory=list)
    duration_seconds: Annotated[Annotated[float, Field(gt=0)] | None, OptionName("--duration")] = None

    def simulation(self) -> SimulationSettings:
        """Settings of the simulation.

        Raises:
            ConfigurationError: A fault is not one, or a number is beyond its limits.
        """
        faults = [parse(text, FAULTS, option="--fault") for text in self.fault]
        backgrounds = [parse(text, BACKGROUNDS, option="--background") for text in self.background]
        return SimulationSettings(
            nodes=self.nodes,
            gpus=self.gpus,
            kernels=self.kernels_per_program,
            rate=self.rate,
            seed=self.seed,
            faults=(*faults, *backgrounds),
        )


@simulate.command(epilog=_EPILOG)
@command
def simulate_command(  # noqa: PLR0913 - typer makes an option of each
    *,
    nodes: Annotated[int | None, typer.Option("--nodes", help="Nodes; default 1.")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="GPUs of each node; default 8.")] = None,
    kernels_per_program: Annotated[
        int | None, typer.Option("--kernels-per-program", help="Kernels of each program; default 12.")
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="Launches per second and GPU; default 1000.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Same seed, same fleet; default 0.")] = None,
    fault: Annotated[list[str] | None, typer.Option("--fault", metavar="KIND[:…]", help="See below.")] = None,
    background: Annotated[
        list[str] | None, typer.Option("--background", metavar="KIND[:…]", help="No fault, but confusing: see below.")
    ] = None,
    duration: Annotated[
        float | None, typer.Option("--duration", metavar="SECONDS", help="Of simulated time; default until stopped.")
    ] = None,
    run: ReplayOptions,
    truth: Annotated[
        Path | None,
        typer.Option("--truth", metavar="FILE", help="Write what really happened, as JSON.", dir_okay=False),
    ] = None,
) -> None:
    """Publish simulated GPUs; their series carry source="simulated".

    With --speed max the whole --duration is published as a past that ends now.
    """
    simulated = {
        "nodes": nodes,
        "gpus": gpus,
        "kernels_per_program": kernels_per_program,
        "rate": rate,
        "seed": seed,
        "duration_seconds": duration,
        "fault": fault or None,
        "background": background or None,
    }
    _simulate(simulated, run, truth=truth)


def _simulate(simulated: Mapping[str, object], run: ReplayOptions, *, truth: Path | None) -> None:
    """Publish the fleet.

    Args:
        simulated: What to simulate, by the names of its settings; None where an option was not given.
        run: How to publish it.
        truth: Where to write what really happened.
    """
    flags = {**run.flags(), **simulated}
    settings = load("simulate", SimulateSettings, path=run.config, flags=flags, environ=os.environ)
    logging.configure(settings.log)
    simulation = settings.simulation()
    check_writable(truth, run.summary_file, inputs=(run.config,))
    fleet = _fleet(settings, simulation)
    say(_summary(simulation))
    with Shutdown().signals() as shutdown, progress("simulate") as shown:
        outbox = make_producer(settings, client_id="kernelcast-simulate")
        ticks = (
            _past(fleet, settings, shutdown) if settings.speed is None else paced(shutdown, settings.interval_seconds)
        )
        account = publish(fleet, settings, outbox=outbox, ticks=ticks, progress=shown, shutdown=shutdown)
    say(account.summary_line("simulate", settings.kafka.bootstrap_servers))
    if truth is not None:
        write_json(truth, fleet.ground_truth())
    if run.summary_file is not None:
        write_json(run.summary_file, summary(account, _about(settings)))
    finish(account)


def _fleet(settings: SimulateSettings, simulation: SimulationSettings) -> SimulatedFleet:
    duration_seconds = math.inf if settings.duration_seconds is None else settings.duration_seconds
    if settings.speed is None:
        if math.isinf(duration_seconds):
            raise ConfigurationError(
                "speed is max, and there is no duration; say with --duration how long a past to make"
            )
        now_ns = time.time_ns()
        if duration_seconds * NANOSECONDS_PER_SECOND > now_ns:
            raise ConfigurationError(
                f"duration_seconds is {duration_seconds:g}; with speed max the past would begin before 1970; give less"
            )
        start_ns = now_ns - math.ceil(duration_seconds * NANOSECONDS_PER_SECOND)
        return SimulatedFleet(simulation, start_ns=start_ns, duration_seconds=duration_seconds)
    if settings.speed > MAX_SPEED:
        raise ConfigurationError(f"speed is {settings.speed:g}; the maximum is {MAX_SPEED:g}; give less, or max")
    fleet = SimulatedFleet(simulation, start_ns=time.time_ns(), speed=settings.speed, duration_seconds=duration_seconds)
    fleet.longest_poll_seconds = settings.interval_seconds
    return fleet


def _past(fleet: SimulatedFleet, settings: SimulateSettings, shutdown: Shutdown) -> Iterator[int]:
    """The ticks of a past that ends now, one after the other without waiting."""
    interval_seconds = settings.interval_seconds
    count = math.ceil(fleet.length_seconds / interval_seconds)
    for number in range(1, count + 1):
        if shutdown.requested:
            return
        seconds = fleet.length_seconds if number == count else number * interval_seconds
        yield fleet.start_ns + math.ceil(seconds * NANOSECONDS_PER_SECOND)


def _summary(simulation: SimulationSettings) -> str:
    faults: Sequence[str] = [fault.kind for fault in simulation.faults]
    return (
        f"simulate: {simulation.nodes} nodes of {simulation.gpus} simulated GPUs, {simulation.kernels} kernels each, "
        f"{simulation.rate:g} launches/s, seed {simulation.seed}; {', '.join(faults) or 'no faults'}"
    )


def _about(settings: SimulateSettings) -> dict[str, Any]:
    return {
        "source": "simulate",
        "nodes": settings.nodes,
        "gpus": settings.gpus,
        "kernels_per_program": settings.kernels_per_program,
        "rate": settings.rate,
        "seed": settings.seed,
        "faults": settings.fault,
        "backgrounds": settings.background,
    }

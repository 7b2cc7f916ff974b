"""Simulated GPUs with known faults as an input of the exporter."""

from kernelcast.exporter.simulate.faults import BACKGROUNDS, FAULTS, SimulatedFault, parse
from kernelcast.exporter.simulate.fleet import SimulatedFleet
from kernelcast.exporter.simulate.fleet_settings import SimulationSettings

__all__ = ["BACKGROUNDS", "FAULTS", "SimulatedFault", "SimulatedFleet", "SimulationSettings", "parse"]

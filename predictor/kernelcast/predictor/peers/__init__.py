"""Comparison of workers with their peers: stragglers, slow links and an unequal division of work."""

from kernelcast.predictor.peers.detector import PeerDetector
from kernelcast.predictor.peers.findings import Basis, Division, LinkFinding, Shares, WorkerFinding
from kernelcast.predictor.peers.groups import PeerGroups
from kernelcast.predictor.peers.panel import Links, PeerStep, busy_from_waits

__all__ = [
    "Basis",
    "Division",
    "LinkFinding",
    "Links",
    "PeerDetector",
    "PeerGroups",
    "PeerStep",
    "Shares",
    "WorkerFinding",
    "busy_from_waits",
]

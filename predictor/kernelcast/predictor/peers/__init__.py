"""Comparison of workers with their peers: who is slower than those that do equal work, and for how long."""

from kernelcast.predictor.peers.detector import PeerDetector
from kernelcast.predictor.peers.findings import Basis, WorkerFinding
from kernelcast.predictor.peers.groups import PeerGroups
from kernelcast.predictor.peers.panel import PeerStep

__all__ = ["Basis", "PeerDetector", "PeerGroups", "PeerStep", "WorkerFinding"]

"""Makes causes with evidence from the findings of `peers`, which `cycle.causes.stragglers` publishes."""

from dataclasses import dataclass

from kernelcast.predictor.causes.find import FoundCause
from kernelcast.predictor.peers.findings import Basis, Division, LinkFinding, Shares, WorkerFinding
from kernelcast.wire.catalogue import kernel
from kernelcast.wire.catalogue.cause_rules import PEER_PAGES
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.catalogue.model import Metric
from kernelcast.wire.findings import FindingEvidence, Severity

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Where:
    """Labels and time of a finding of peers.

    Attributes:
        labels: Labels of the worker, of the link's sending worker, or of the program; sorted pairs.
        begin_ns: Begin of the steps that show it, Unix nanoseconds.
        end_ns: End of them.
        metric: Series that the times were computed from.
    """

    labels: Labels
    begin_ns: int
    end_ns: int
    metric: Metric = kernel.DEVICE_TIME


def straggler(found: WorkerFinding, where: Where) -> FoundCause:
    """A worker that is slow against the peers of its stage, or against its own past where it has too few."""
    against = "peers" if found.basis is Basis.PEERS else "baseline"
    fact = _fact(where, found.own_seconds, found.reference_seconds, against)
    return _cause(Cause.STRAGGLER, found.ratio - 1, fact)


def slow_link(found: LinkFinding, where: Where) -> FoundCause:
    """A link that is slow against its peers, while neither of its ends computes slowly."""
    fact = _fact(where, found.own_seconds, found.peers_seconds, "peers")
    return _cause(Cause.SLOW_LINK, found.cost_ratio, fact)


def uneven_work(division: Division, shares: Shares, where: Where) -> FoundCause | None:
    """Work that is divided unevenly over stages or sequences; it blames no GPU. None where it is not."""
    share = {Division.STAGE: shares.stage, Division.SEQUENCE: shares.sequence}.get(division)
    if share is None:
        return None
    return _cause(Cause.UNEVEN_WORK, share, _fact(where, 1 + share, 1.0, "peers"))


def _cause(cause: Cause, prolongation: float, fact: FindingEvidence) -> FoundCause:
    severity = Severity.PAGE if prolongation >= PEER_PAGES[cause] else Severity.TICKET
    return FoundCause(cause, severity, (fact,))


def _fact(where: Where, value: float, reference: float, against: str) -> FindingEvidence:
    return FindingEvidence(
        where.metric.prometheus_name, where.labels, value, reference, against, where.begin_ns, where.end_ns
    )

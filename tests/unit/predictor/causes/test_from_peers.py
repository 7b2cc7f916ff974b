"""Causes that the comparison of workers finds."""

import pytest

from kernelcast.predictor.causes.from_peers import Where, slow_link, straggler, uneven_work
from kernelcast.predictor.peers.findings import Basis, Division, LinkFinding, Shares, WorkerFinding
from kernelcast.wire.catalogue.meanings import Cause
from kernelcast.wire.findings import Severity

WHERE = Where((("program", "train"), ("rank", "3")), 10, 20)


@pytest.mark.parametrize(("ratio", "severity"), [(1.3, Severity.PAGE), (1.06, Severity.TICKET)])
@pytest.mark.parametrize(("basis", "against"), [(Basis.PEERS, "peers"), (Basis.OWN_PAST, "baseline")])
def test_a_slow_worker_is_a_straggler_with_its_time_and_that_of_its_reference(
    ratio: float, severity: Severity, basis: Basis, against: str
) -> None:
    found = straggler(WorkerFinding(3, basis, ratio, 7, 9, None, 3, ratio * 0.2, 0.2, 7), WHERE)
    (fact,) = found.evidence

    assert (found.cause, found.severity) == (Cause.STRAGGLER, severity)
    assert (fact.value, fact.reference, fact.against) == (ratio * 0.2, 0.2, against)
    assert (fact.labels, fact.begin_ns, fact.end_ns) == (WHERE.labels, 10, 20)


def test_a_slow_link_pages_by_its_cost_not_by_its_ratio() -> None:
    cheap = slow_link(LinkFinding(0, 8.0, 3, 0.008, 0.001, 0.02), WHERE)
    dear = slow_link(LinkFinding(0, 2.0, 3, 0.2, 0.1, 0.3), WHERE)

    assert (cheap.cause, cheap.severity) == (Cause.SLOW_LINK, Severity.TICKET)
    assert (dear.cause, dear.severity) == (Cause.SLOW_LINK, Severity.PAGE)


def test_uneven_work_is_a_ticket_and_no_division_is_none() -> None:
    shares = Shares(stage=0.5, sequence=0.02, link=0.0)
    found = uneven_work(Division.STAGE, shares, WHERE)

    assert found is not None
    assert (found.cause, found.severity, found.evidence[0].value) == (Cause.UNEVEN_WORK, Severity.TICKET, 1.5)
    assert uneven_work(Division.NONE, shares, WHERE) is None
    assert uneven_work(Division.LINK, shares, WHERE) is None

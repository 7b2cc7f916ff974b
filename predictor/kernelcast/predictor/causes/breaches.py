"""Cause of a breach of one metric of recorded series: from its companions, else the metric's own cause."""

from kernelcast.predictor.causes.features import features
from kernelcast.predictor.causes.find import FoundCause, find
from kernelcast.predictor.causes.observed import Observed
from kernelcast.wire.catalogue.cause_rules import RULES
from kernelcast.wire.catalogue.meanings import Meaning
from kernelcast.wire.findings import Severity


def causes_of_breaches(seen: Observed, meaning: Meaning) -> list[FoundCause]:
    """Cause of the breach of each row; without evidence it is the metric's own cause, as a page.

    Args:
        seen: Rows whose metric breaches or will, with their companions.
        meaning: Judgement of that metric.
    """
    allowed = frozenset({meaning.cause}) | meaning.other_causes
    # Rules of another topic answer another question: a hot GPU does not slow a kernel while its clock is as usual.
    rules = [rule for rule in RULES if rule.topic in (None, meaning.topic)]
    own = FoundCause(meaning.cause, Severity.PAGE, ())
    return [found.first_of(allowed) or own for found in find(features(seen), rules)]

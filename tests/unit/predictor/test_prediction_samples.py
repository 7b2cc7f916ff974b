"""The published alert state follows the engine's alert rule, not a probability."""

from kernelcast.columnar import Sample
from kernelcast.predictor.cycle.predictions import Degradation, Prediction
from kernelcast.predictor.prediction_samples import by_key
from kernelcast.predictor.series.subjects import DURATION, VARIANT, Form, Subject
from kernelcast.wire.catalogue.forecast import DEGRADATION_ALERT, DEGRADATION_CROSSED, DEGRADATION_PROBABILITY
from kernelcast.wire.catalogue.meanings import Cause

KERNEL = (("Hostname", "n1"), ("gpu", "0"), ("kernel", "gemm"), ("program", "train"))


def prediction(
    probability: float, *, firing: bool, passed: bool = False, crossed_ns: int = 0, variant: str = ""
) -> Prediction:
    labels = tuple(sorted((*KERNEL, *([("variant", variant)] if variant else []))))
    degradation = Degradation(
        Cause.AGEING, 2.0, {3600.0: probability}, {0.5: 60.0}, passed=passed, crossed_ns=crossed_ns, firing=firing
    )
    subject = Subject(VARIANT if variant else DURATION, Form.MEAN, labels)
    return Prediction(row=0, subject=subject, end_ns=10, value=1.0, bounds={}, degradation=degradation)


def published(*predictions: Prediction) -> list[Sample]:
    return [one for found in by_key(predictions, time_ns=20).values() for one in found]


def alerts(*predictions: Prediction) -> list[tuple[str, object]]:
    rows = [one for one in published(*predictions) if one.metric is DEGRADATION_ALERT]
    for one in rows:
        assert dict(one.attributes).items() >= {**dict(KERNEL), "cause": "ageing", "metric": DURATION}.items()
    return [(dict(one.attributes)["state"], one.value) for one in rows]


def test_an_alert_that_fires_is_published_with_its_state() -> None:
    assert alerts(prediction(0.95, firing=True)) == [("predicted", 1.0)]
    assert alerts(prediction(1.0, firing=True, passed=True, crossed_ns=5)) == [("passed", 1.0)]


def test_an_alert_that_has_passed_its_limit_stays_passed_until_it_ends() -> None:
    assert alerts(prediction(0.6, firing=True, crossed_ns=5)) == [("passed", 1.0)]


def test_the_time_of_a_crossing_is_published_with_its_alert() -> None:
    def crossings(one: Prediction) -> list[object]:
        return [each.value for each in published(one) if each.metric is DEGRADATION_CROSSED]

    assert crossings(prediction(1.0, firing=True, passed=True, crossed_ns=7_500_000_000)) == [7.5]
    assert crossings(prediction(0.6, firing=True, crossed_ns=7_500_000_000)) == [7.5]
    assert crossings(prediction(0.9, firing=True)) == []


def test_a_probable_breach_without_an_alert_has_no_alert_state() -> None:
    assert alerts(prediction(0.99, firing=False)) == []


def test_an_alert_that_is_held_by_its_hysteresis_is_published_although_the_breach_is_improbable() -> None:
    assert alerts(prediction(0.3, firing=True)) == [("predicted", 1.0)]


def test_of_two_variants_the_one_that_fires_is_published_before_the_more_probable_one() -> None:
    held, doubtful = prediction(0.3, firing=True, variant="a"), prediction(0.7, firing=False, variant="b")
    assert alerts(held, doubtful) == alerts(doubtful, held) == [("predicted", 1.0)]
    (probability,) = (one for one in published(held, doubtful) if one.metric is DEGRADATION_PROBABILITY)
    assert probability.value == 0.3

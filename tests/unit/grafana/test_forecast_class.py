"""Pages and rules join a forecast with the scores of the class under which the predictor scores it."""

import re

from kernelcast.grafana.forecast_class import with_class
from kernelcast.predictor.scoring.classes import class_number
from kernelcast.wire.catalogue.meanings import MEANINGS, SCORE_CLASSES, score_class


def test_the_places_of_classes_in_stored_scores_never_change() -> None:
    assert SCORE_CLASSES[:5] == ("temperature", "memory", "utilisation", "kernel", "other")
    assert class_number("DCGM_FI_DEV_GPU_TEMP") == 0
    assert class_number("a_metric_of_the_site") == SCORE_CLASSES.index("other")


def test_the_class_follows_from_the_label_metric() -> None:
    named = dict(re.findall(r'"class", "(\w+)", "metric", "([^"]+)"', with_class("x")))
    assert {one for metrics in named.values() for one in metrics.split("|")} == {
        metric for metric in MEANINGS if score_class(metric) != "other"
    }
    assert '"class", "other", "", ""' in with_class("x")

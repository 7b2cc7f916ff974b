"""PromQL that gives a forecast the label `class`, by which panels and alerts join it with the scores of its class."""

from typing import Final

from kernelcast.wire.catalogue.meanings import MEANINGS, score_class

_BY_CLASS: Final = {
    name: "|".join(metric for metric in MEANINGS if score_class(metric) == name)
    for name in sorted({score_class(metric) for metric in MEANINGS} - {score_class("")})
}


def with_class(expr: str) -> str:
    """The results with the label `class`, by their label `metric`."""
    expr = f'label_replace({expr}, "class", "{score_class("")}", "", "")'
    for name, metrics in _BY_CLASS.items():
        expr = f'label_replace({expr}, "class", "{name}", "metric", "{metrics}")'
    return expr

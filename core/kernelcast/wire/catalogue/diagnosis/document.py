"""Writes `docs/diagnosis.md` from the rules: `python -m kernelcast.wire.catalogue.diagnosis.document` prints it.

`make docs` runs it in a checkout, and `make lint` compares its output with the file.
"""

import sys
from collections.abc import Iterator
from typing import Final

from kernelcast.wire.catalogue.diagnosis.rules import RULES, SIGNALS, UNMEASURED, DiagnosisRule, Threshold

_PREAMBLE: Final = """\
# What to change in a program

<!-- Made by `python -m kernelcast.wire.catalogue.diagnosis.document`; change wire/catalogue/diagnosis instead. -->

The predictor computes the signals below for each program on each GPU, over the last 5 minutes. It publishes each rule
that holds as `kernelcast_diagnosis_signal`, with the value of the deciding signal. It publishes each signal that is
needed and not measured as `kernelcast_diagnosis_missing_signal`. A rule holds when all its thresholds hold; without a
signal it does not hold.

No rule states a gain. A gain is unknown until programs have tried the advice and reported a measurement.
"""
_RULES_HEAD: Final = (
    "| rule | holds when | advice | tunables that carry it out | thresholds from |\n|---|---|---|---|---|"
)
_SIGNALS_HEAD: Final = "| signal | meaning | from | if it is missing |\n|---|---|---|---|"


def document() -> str:
    """The whole page, in Markdown."""
    unmeasured = [f"* {what}: {reason}." for what, reason in UNMEASURED.items()]
    return "\n".join(
        [
            _PREAMBLE,
            "## Rules\n",
            _RULES_HEAD,
            *map(_rule, RULES),
            "\n## Signals\n",
            _SIGNALS_HEAD,
            *_signals(),
            "\n## Not measured\n",
            *unmeasured,
            "",
        ]
    )


def _rule(rule: DiagnosisRule) -> str:
    kinds = ", ".join(f"`{kind}`" for kind in rule.advice.kinds) or "none"
    if rule.advice.changes_results:
        kinds += "; changes results, so a person has to approve it"
    holds = " and ".join(map(_threshold, rule.thresholds))
    return f"| `{rule.name}` | {holds} | {rule.advice.text} | {kinds} | {rule.source} |"


def _threshold(one: Threshold) -> str:
    return f"`{one.signal}` {'≥' if one.at_least else '<'} {one.limit:g}"


def _signals() -> Iterator[str]:
    for signal, source in SIGNALS.items():
        yield f"| `{signal}` | {source.help} | `{source.metric}` | {source.how_to_get} |"


if __name__ == "__main__":
    sys.stdout.write(document())

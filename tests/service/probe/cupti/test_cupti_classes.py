"""The decoder gives kernels the class that Python gives them: one set of rules, sent to it at the start."""

import pytest
from tests.service.probe.cupti.double import Double
from tests.service.probe.cupti.records import START_NS, Packer
from tests.support.wire.kernel_names import COLLECTIVE_NAMES, OTHER_NAMES, recorded_names

from kernelcast.probe.cupti import native
from kernelcast.probe.cupti.native import STATES, ActivityDecoder, NativeError
from kernelcast.wire.kernels import COLLECTIVE, COLLECTIVE_RULES, kernel_class

SPACING_NS, LENGTH_NS = 1_000, 7


def collectives(names: list[str], decoder: ActivityDecoder, double: Double) -> set[str]:
    """The names whose time the decoder counts as that of a collective; each name has an interval of its own."""
    packer, found = Packer(), set()
    double.connect(decoder)
    for at, name in enumerate(names):
        double.bring([packer.kernel(name or None, START_NS + at * SPACING_NS, START_NS + at * SPACING_NS + LENGTH_NS)])
        assert decoder.settle(5_000)
        state_ns = dict(zip(STATES, decoder.drain(final=True).devices[0].state_ns, strict=True))
        assert (state_ns["compute"] + state_ns["collective"], state_ns["overlap"]) == (LENGTH_NS, 0)
        if state_ns["collective"]:
            found.add(name)
    return found


def test_the_table_of_names_has_the_same_classes_in_c(decoder: ActivityDecoder, double: Double) -> None:
    names = [*COLLECTIVE_NAMES, *OTHER_NAMES]
    assert collectives(names, decoder, double) == set(COLLECTIVE_NAMES)


def test_every_recorded_name_has_the_same_class_in_c(decoder: ActivityDecoder, double: Double) -> None:
    names = sorted(recorded_names())
    assert collectives(names, decoder, double) == {name for name in names if kernel_class(name) == COLLECTIVE}


def test_both_words_of_every_rule_are_needed(decoder: ActivityDecoder, double: Double) -> None:
    both = [f"_Z9x{first.upper()}9y_{second}9z" for first, second in COLLECTIVE_RULES]
    one = [f"_Z9x{word}9y" for first, second in COLLECTIVE_RULES if second for word in (first, second)]
    assert collectives([*both, *one], decoder, double) == set(both)


@pytest.mark.parametrize("rules", ["nccl", "a&b|c", "x" * 64 + "&", "a&" + "y" * 64, "|".join(["a&b"] * 129)])
def test_rules_that_the_decoder_cannot_keep_are_refused(
    rules: str, decoder: ActivityDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "class_rules", lambda: rules)
    with pytest.raises(NativeError, match="could not start"):
        decoder.open(native.NativeSettings(), 1)

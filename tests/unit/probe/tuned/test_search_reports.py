"""Searches of spaces are in the stream of outcomes: each trial ends in exactly one."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.tuned.calls import TunedCalls
from kernelcast.probe.tuned.reports import SearchOutcome, SearchReports
from kernelcast.probe.tuned.terms import CallAccounts, CallTerms
from kernelcast.tuning.campaign import Campaign
from kernelcast.tuning.journal import Journal
from kernelcast.tuning.space import Space
from kernelcast.wire.events import SEARCH_PREFIX, OutcomeState
from kernelcast.wire.frames import DeviceClaim


class Conv:
    """A space of eight block sizes, one of which fails; the larger the faster. A real campaign searches it."""

    sizes = (16, 32, 48, 64, 96, 128, 192, 1024)
    start = 0

    def __init__(self, gain: float = 0.002, *, journal: Journal | None = None, fails: int = 1024) -> None:
        self.now, self.gain, self.fails = 0.0, gain, fails
        self.launched: list[int] = []
        self.space = Space.restricted("conv", {"block": list(self.sizes)}, start={"block": 16})
        self.outcomes: list[SearchOutcome] = []
        accounts = CallAccounts(reports=SearchReports(self.outcomes.append))
        terms = CallTerms("conv.run", share=1.0)
        self.calls: TunedCalls[Any] = TunedCalls(terms, self, journal, clock=lambda: self.now, accounts=accounts)
        self.run = self.calls.decorate(self.launch)

    def launch(self, configuration: Any) -> int:
        self.launched.append(configuration.block)
        if configuration.block == self.fails:
            raise RuntimeError("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES")
        self.now += 1.0 - self.gain * configuration.block
        return int(configuration.block)

    def configuration(self, ordinal: int) -> Any:
        return self.space.configuration(ordinal)

    def text(self, ordinal: int) -> str:
        return str(list(self.space.values(ordinal)))

    def find(self, text: str) -> int | None:
        return next((one for one in range(len(self.sizes)) if self.text(one) == text), None)

    def campaign(self, name: str) -> Campaign:
        del name
        return Campaign(self.space, seed=1, budget=200)

    def states(self) -> list[tuple[str, str]]:
        return [(one.state.value, one.facts.get("decision", "")) for one in self.outcomes]


def test_a_search_reports_its_begin_its_failures_and_its_kept_configuration_once_each() -> None:
    conv = Conv()
    for _ in range(3000):
        conv.run()
    assert conv.run() == 192
    assert conv.states() == [("applied", ""), ("rolled_back", "failed"), ("kept", "kept")]
    begun, failed, kept = conv.outcomes
    assert begun.trial_id == kept.trial_id != failed.trial_id
    assert all(one.trial_id.startswith(SEARCH_PREFIX) and one.space == "conv.run" for one in conv.outcomes)
    assert failed.facts["candidate"] == "[1024]"
    assert failed.reason == "RuntimeError: CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
    assert (kept.facts["candidate"], kept.facts["value"], kept.facts["previous"]) == ("[192]", "[192]", "[16]")
    assert kept.facts["measured_ratio"] == pytest.approx((1 - 0.002 * 192) / (1 - 0.002 * 16), rel=0.01)


def test_a_search_that_finds_nothing_ends_inconclusive() -> None:
    conv = Conv(gain=0.0)
    for _ in range(3000):
        conv.run()
    assert conv.run() == 16
    assert conv.states()[-1] == ("rolled_back", "inconclusive")
    assert conv.outcomes[-1].reason == "no configuration was worth an experiment"


@pytest.mark.parametrize("calls", [2, 5, 30, 100])
def test_a_search_that_the_end_of_the_program_interrupts_ends_in_one_outcome(calls: int) -> None:
    conv = Conv()
    for _ in range(calls):
        conv.run()
    for _ in range(2):
        conv.calls.close("the program ended")
    assert conv.run() == 16
    ends = [one for one in conv.outcomes if one.trial_id == conv.outcomes[0].trial_id]
    assert [one.state for one in ends] == [OutcomeState.APPLIED, OutcomeState.ROLLED_BACK]
    assert ends[-1].reason == "the program ended"


def test_every_trial_of_many_searches_ends_in_exactly_one_outcome() -> None:
    conv = Conv()
    for _ in range(3000):
        conv.run()
    final = Counter(one.trial_id for one in conv.outcomes if one.state is not OutcomeState.APPLIED)
    assert set(final.values()) == {1}


def test_the_outcomes_of_a_program_that_only_searches_wait_to_be_sent(tmp_path: Path) -> None:
    devices = (DeviceClaim("cpu", model_name="CPU"),)
    settings = ProbeSettings("training", "0", str(tmp_path / "none.sock"), devices=devices, source="simulated")
    probe = Probe(settings)
    space = probe.space("conv", {"block": [16, 32]}, start={"block": 16})
    run = space.tuned(lambda c: c.block)
    run()
    run()  # the search is reported once the time of a call is known
    assert probe.recorder.touched
    (begun,) = probe.outcomes
    assert (begun.tunable.partition(".")[0], begun.state, begun.value) == ("conv", OutcomeState.APPLIED, "[16]")
    assert begun.granularity == "call"
    assert begun.is_search
    probe.stop()
    probe.abandon()
    assert [one.state for one in probe.outcomes] == [OutcomeState.APPLIED, OutcomeState.ROLLED_BACK]

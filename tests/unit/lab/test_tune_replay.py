"""`lab.tune_replay --through kafka` ends a seed once Kafka and the predictor have all that its program reported."""

import fcntl
import json
import os
from contextlib import nullcontext
from typing import Any

import pytest
from lab.replay import tuner_command
from lab.replay.run import SeedResult
from lab.tune_replay import ProgramMessages, delivered, first_line, program_environment

from kernelcast.probe.conditions.orders import OFF
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.errors import ConfigurationError, KernelcastError
from kernelcast.wire.events import Outcome, OutcomeState, to_event
from kernelcast.wire.topics import OUTCOMES, POLICY
from kernelcast.wire.tuning.experience import Experience, KeptElsewhere, experience_event

FOUND: dict[str, Any] = {
    "run": {"seed": 3, "evaluations": 5, "kept": [2], "verdicts": []},
    "space": "grid",
    "verdicts": ["search-1"],
    "reported": [["search-1", "applied"], ["search-2", "rolled_back"], ["search-1", "kept"]],
}


def outcome(trial: str, state: OutcomeState, program: str = "p", **facts: Any) -> bytes:
    found = Outcome(trial, program, "grid", state, value="[2]", previous="[1]", **facts)
    return encode_event(to_event(found, source="/test", time_ns=1))


BEGUN = outcome("search-1", OutcomeState.APPLIED)
FAILED = outcome("search-2", OutcomeState.ROLLED_BACK, decision="failed", candidate="[9]")
KEPT = outcome(
    "search-1",
    OutcomeState.KEPT,
    decision="kept",
    candidate="[2]",
    measured_ratio=0.5,
    measured_interval=(0.4, 0.6),
)


def learnt(*failed: str, program: str = "p") -> bytes:
    experience = Experience(program, "grid", failed=failed, kept=(KeptElsewhere("[2]", 1),))
    return encode_event(experience_event(experience, source="/test", time_ns=1))


@pytest.mark.parametrize("error", [ConfigurationError("no such search"), ValueError("an error of a search")])
def test_the_seeds_that_have_ended_are_printed_although_a_later_one_has_an_error(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    def replayed(seed: int) -> SeedResult:
        if seed == 2:
            raise error
        return SeedResult(seed, {"seed": seed, "evaluations": 1, "launches": 1, "verdicts": []})

    arguments = ["--measure", "unix:/none", "--seeds", "5", "--through", "kafka"]
    with pytest.raises(type(error)):
        tuner_command.main(arguments, {"kafka": lambda *_: nullcontext(replayed)})
    assert [run["seed"] for run in json.loads(capsys.readouterr().out)["runs"]] == [0, 1]


@pytest.mark.parametrize("lowest", [0, 1_024], ids=["few files open", "many files open"])
def test_a_service_that_breaks_off_while_the_program_tunes_ends_the_wait(lowest: int) -> None:
    """The program then waits for its exporter for ever, and nothing was said."""
    short, writing = os.pipe()
    reading = fcntl.fcntl(short, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(short)

    def check() -> None:
        raise KernelcastError("the exporter exited 1")

    with os.fdopen(reading) as output, os.fdopen(writing, "w") as program:
        with pytest.raises(KernelcastError, match="the exporter exited 1"):
            first_line(output, check)
        program.write("{}\n")
        program.flush()
        assert first_line(output, check) == "{}\n"


def test_the_program_tunes_although_hints_are_switched_off_in_this_shell() -> None:
    """It waited for ever for the end of that."""
    environ = program_environment("/run/s", {"KERNELCAST_HINTS": "off", "KERNELCAST_TRIAL_SHARE": "0", "HOME": "/root"})
    assert environ["KERNELCAST_HINTS"] not in OFF
    assert (environ["HOME"], environ["KERNELCAST_SOCKET"]) == ("/root", "/run/s")


def test_a_seed_ends_once_every_outcome_and_the_predictors_findings_have_arrived() -> None:
    arrivals = ProgramMessages("p", FOUND)
    for value, missing in (
        (BEGUN, "2 of 3 outcomes did not reach Kafka"),
        (BEGUN, "2 of 3 outcomes did not reach Kafka"),
        (FAILED, "1 of 3 outcomes did not reach Kafka"),
        (outcome("search-1", OutcomeState.KEPT, program="another"), "1 of 3 outcomes did not reach Kafka"),
        (b"no event", "1 of 3 outcomes did not reach Kafka"),
        (KEPT, "the predictor has not written its findings from them"),
    ):
        arrivals.add(OUTCOMES.name, value)
        assert arrivals.missing == missing
    for value in (learnt(), learnt("[9]", program="another"), b"no event", BEGUN):
        arrivals.add(POLICY.name, value)
        assert not arrivals.complete
    arrivals.add(POLICY.name, learnt("[9]"))
    assert arrivals.complete


def test_the_document_has_the_verdicts_that_kafka_delivered() -> None:
    arrivals = ProgramMessages("p", FOUND)
    for value in (BEGUN, FAILED, KEPT, KEPT):
        arrivals.add(OUTCOMES.name, value)
    run = delivered(FOUND, arrivals.outcomes, 3)
    verdict = {"config": [2], "against": [1], "decision": "kept", "ratio": 0.5, "interval": [0.4, 0.6]}
    assert run.document == {**FOUND["run"], "kept": [2], "verdicts": [verdict]}

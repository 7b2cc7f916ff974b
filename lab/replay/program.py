"""The program of `python -m lab.tune_replay --through kafka`: a decorated function whose times an oracle gives.

It runs the code of any tuned program, with the oracle's times as its clock. Once its search has ended it prints a JSON
object with its findings and the ids of its outcomes. It goes on until it reads the verdicts, as they came out of Kafka,
from its standard input; it passes them on to the oracle.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from os import environ
from pathlib import Path
from typing import Any, Final

from kernelcast.probe.probe import Probe
from kernelcast.probe.settings import settings_from
from kernelcast.probe.trial_budget import TrialBudget
from kernelcast.probe.tuned.calls import TunedCalls
from kernelcast.probe.tuned.reports import SearchOutcome, SearchReports
from kernelcast.probe.tuned.terms import CallAccounts, CallTerms
from kernelcast.tuning.campaign import Campaign
from kernelcast.tuning.formats import measurements
from kernelcast.tuning.search import OWN, named_search, warm
from kernelcast.tuning.space import Value
from kernelcast.wire.errors import KernelcastError
from kernelcast.wire.events import OutcomeState
from kernelcast.wire.frames import DeviceClaim
from kernelcast.wire.identity import SIMULATED
from lab.replay.client import Oracle, OracleError, Task
from lab.replay.run import document

SHARE: Final = 1e9
"""The oracle counts launches: no time is reserved for the kept configuration."""
MAX_UNSENT: Final = 64
PAUSE_SECONDS: Final = 0.01


class FailedLaunchError(Exception):
    """The oracle's answer for a configuration that fails."""


class RecordedSpace:
    """The oracle's space, with one campaign.

    Args:
        task: The space as the oracle describes it.
        campaign: The campaign.
    """

    def __init__(self, task: Task, campaign: Campaign) -> None:
        self._space = task.space
        self._campaign = campaign
        self.start = task.space.start

    def configuration(self, ordinal: int) -> tuple[Value, ...]:
        """Return the values of a configuration."""
        return self._space.values(ordinal)

    def text(self, ordinal: int) -> str:
        """Return them as text."""
        return json.dumps(list(self._space.values(ordinal)), separators=(",", ":"))

    def find(self, text: str) -> int | None:
        """Return None: nothing is remembered from earlier runs."""
        del text
        return None

    def campaign(self, name: str) -> Campaign:
        """Return the campaign."""
        del name
        return self._campaign


class ReplayedProgram:
    """Calls the function until its search has ended.

    Args:
        oracle: Measures.
        task: The space.
        campaign: Searches it.
        running: The probe.

    Attributes:
        reported: The outcomes of the search.
    """

    def __init__(self, oracle: Oracle, task: Task, campaign: Campaign, running: Probe) -> None:
        self._oracle = oracle
        self._probe = running
        self._seconds = 0.0
        self._error: OracleError | None = None
        self.reported: list[SearchOutcome] = []
        services = running.surroundings
        self._reason = services.stopped
        self._calls = TunedCalls(
            CallTerms(task.space.name, share=SHARE, code_version=services.code_version),
            RecordedSpace(task, campaign),
            stopped=lambda: services.stopped(None),
            clock=lambda: self._seconds,
            accounts=CallAccounts(TrialBudget(share=1.0), SearchReports(self._report, "call")),
        )
        services.register(self._calls)

    def run(self) -> list[str]:
        """Call until the search has ended; returns the ids of the outcomes of its verdicts.

        Raises:
            OracleError: The oracle broke off, or refused a launch.
        """
        call = self._calls.decorate(self._launch)
        while True:
            if self._reason(None) or self._probe.unsent_outcomes > MAX_UNSENT:
                time.sleep(PAUSE_SECONDS)
                continue
            before = len(self.reported)
            try:
                call()
            except FailedLaunchError as error:
                raise self._error or OracleError(f"the kept configuration failed: {error}") from error
            if self._error is not None:
                raise self._error
            ended = [one for one in self.reported[before:] if one.state is not OutcomeState.APPLIED]
            if any(one.trial_id == self.reported[0].trial_id for one in ended):
                return [one.trial_id for one in ended if one.facts.get("candidate")]

    def _launch(self, values: tuple[Value, ...]) -> None:
        try:
            measured = self._oracle.measure(values, 1)
        except OracleError as error:
            self._error = error
            raise
        if measured.refused:
            self._error = OracleError(f"the oracle refused a launch: {measured.refused}")
        if measured.failed or measured.refused:
            raise FailedLaunchError(measured.failed or measured.refused)
        self._seconds += measured.times[0]

    def _report(self, outcome: SearchOutcome) -> None:
        self.reported.append(outcome)
        self._probe.surroundings.report(outcome)


def main(arguments: Sequence[str]) -> int:
    """Replay one seed; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        devices = [measurements.read(path) for path in options.warm_from]
        with Oracle(options.oracle) as oracle:
            _replay(oracle, options, devices)
    except KernelcastError as error:
        sys.stderr.write(f"kernelcast: {error}\n")
        return 1
    return 0


def _replay(oracle: Oracle, options: argparse.Namespace, devices: Sequence[measurements.Measurements]) -> None:
    task = oracle.space(options.seed)
    space, allowed = task.space, min(options.budget, task.budget)
    seeds = warm.seeds(space, [device.ordered(space) for device in devices])
    search = named_search(options.search, space, seed=options.seed, budget=allowed, seeds=seeds)
    campaign = Campaign(space, seed=options.seed, budget=allowed, search=search)
    settings = settings_from(options.program, None, environ)
    device = DeviceClaim(f"GPU-{options.program}", model_name=task.device or "recorded")
    running = Probe(replace(settings, source=SIMULATED, devices=(device,), state_directory=""))
    running.start()
    try:
        program = ReplayedProgram(oracle, task, campaign, running)
        verdicts = program.run()
        found = document(campaign, options.seed)
        reported = [[one.trial_id, one.state.value] for one in program.reported]
        _write({"run": found, "space": space.name, "verdicts": verdicts, "reported": reported})
        delivered: dict[str, Any] = json.loads(sys.stdin.readline() or "{}")
    finally:
        running.stop()
    if not delivered:
        raise OracleError("the verdicts did not come out of Kafka")
    for verdict in delivered["verdicts"]:
        oracle.verdict(verdict)
    oracle.end(delivered["kept"])


def _write(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m lab.replay.program", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("oracle", type=Path, help="socket of the oracle")
    add("--program", required=True, help="name of the program")
    add("--seed", type=int, required=True, help="the seed")
    add("--budget", type=int, required=True, help="different configurations")
    add("--search", default=OWN, help="name of the search")
    add("--warm-from", type=Path, action="append", default=[], help="measurements on another device")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Cost of a step and of a tunable's value in a program: `python -m benchmarks.probe.steps`.

Processor time of the program's thread, the least of several rounds, and its ratio to the call of an empty function.

Ranks of a collective tunable meet at some steps, and exchange a text. Here the group has one rank and its exchange
costs nothing, so the time of a meeting is the probe's part of it. Ranks meet every two seconds; here a step takes no
time, so they meet at every 1,024th step, the longest distance that the probe allows.
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kernelcast.probe.probe import Probe, ProbeSettings
from kernelcast.probe.tunables import Terms
from kernelcast.probe.tuned.space import SpaceTerms
from kernelcast.wire.events import Hint, to_event

CALLS: Final = 50_000
ROUNDS: Final = 9
TRIAL_STEPS: Final = 2_000
"""Largest number of steps of a trial that are timed."""
FAR_NS: Final = 4_000_000_000 * 10**9
"""Expiry of the hint: never, in this run."""


class OneRank:
    """A group of one rank, which counts its meetings and their time."""

    def __init__(self) -> None:
        self.meetings = 0
        self.texts: list[str] = []

    def all_gather(self, text: str) -> list[str]:
        """Return the text."""
        self.meetings += 1
        self.texts.append(text)
        return [text]


def empty() -> None:
    """Do nothing."""


def nanoseconds(work: Callable[[], object], calls: int = CALLS) -> float:
    """Time of a call, the least of several rounds."""
    rounds = []
    for _ in range(ROUNDS):
        began = time.thread_time_ns()
        for _ in range(calls):
            work()
        rounds.append((time.thread_time_ns() - began) / calls)
    return min(rounds)


def probe_in(folder: str) -> Probe:
    """A probe that is not started: no thread of its own, no exporter."""
    return Probe(ProbeSettings("benchmark", socket_path=str(Path(folder) / "none")), {})


def trial_step(running: Probe) -> float:
    """Return the median time of a step while a trial runs on all ranks, its meetings included."""
    hint = Hint("h1", "benchmark", "batch", "2", FAR_NS)
    running._receiver.receive(to_event(hint, source="/benchmark", time_ns=1))  # noqa: SLF001  no exporter runs here
    while not any(one.state.value == "applied" for one in running.outcomes):
        running.step()
    taken: list[int] = []
    while not any(one.state.value in ("kept", "rolled_back") for one in running.outcomes) and len(taken) < TRIAL_STEPS:
        began = time.thread_time_ns()
        running.step()
        taken.append(time.thread_time_ns() - began)
    return sorted(taken)[len(taken) // 2]


def main() -> None:
    """Print a table."""
    with tempfile.TemporaryDirectory() as folder:
        plain = probe_in(folder)
        local = probe_in(folder)
        block = local.tunable("block", [1, 2], 1)
        group, other = OneRank(), OneRank()
        together = probe_in(folder)
        batch = together.tunable("batch", [1, 2], 1, Terms("collective", group=group))
        spaces = probe_in(folder)
        size = spaces.space("size", {"size": [1, 2]}, start={"size": 1}, terms=SpaceTerms("step", "collective", other))
        rows = {
            "empty call": nanoseconds(empty),
            "step()": nanoseconds(plain.step),
            "step(), a local tunable": nanoseconds(local.step),
            "step(), a collective tunable with a group": nanoseconds(together.step),
            ".value of a local tunable": nanoseconds(lambda: block.value),
            ".value of a collective tunable": nanoseconds(lambda: batch.value),
            "attribute of a collective space": nanoseconds(lambda: size.size),
        }
        (council,) = together._receiver.councils.all  # noqa: SLF001  a step would meet too seldom to time it
        rows["a meeting, nothing open, without the exchange"] = nanoseconds(council._meet, 500)  # noqa: SLF001
        meetings, exchanged = group.meetings, max(map(len, group.texts))
        rows["median step of a trial on all ranks"] = trial_step(together)
    for name, time_ns in rows.items():
        print(f"{name:46} {time_ns:9.0f} ns  {time_ns / rows['empty call']:7.1f} times an empty call")
    print(f"{meetings} meetings, messages of at most {exchanged} characters")


if __name__ == "__main__":
    main()

"""The tuner's side of the oracle's protocol: one connection for one seed.

`run.replay` uses it, and the program of `--through kafka`.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kernelcast.tuning.formats.kernel_tuner import is_time
from kernelcast.tuning.space import Space, Value
from kernelcast.wire.errors import KernelcastError, SpaceError
from lab.replay.lines import JsonLines

TIMEOUT_SECONDS: Final = 600.0
"""Longest wait for a part of an answer: an oracle may compile and run a configuration for it."""


class OracleError(KernelcastError):
    """The process that measures configurations broke the protocol or ended early."""


@dataclass(frozen=True, slots=True)
class MeasuredLaunches:
    """The answer to one request to measure.

    Attributes:
        times: Times of single launches.
        failed: The reason of a failing configuration; empty otherwise.
        refused: The reason of a refusal; empty otherwise.
        left: Configurations that may still be measured for the first time; None where the answer does not say it.
    """

    times: tuple[float, ...] = ()
    failed: str = ""
    refused: str = ""
    left: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """The space to search, as the oracle describes it."""

    space: Space
    budget: int
    device: str
    unit: str


class Oracle:
    """A connection to the process that measures. For one thread; use it in a `with` statement."""

    def __init__(self, path: Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(timeout_seconds)
        self._lines = JsonLines(self._socket)

    def __enter__(self) -> Self:
        try:
            self._socket.connect(str(self._path))
        except OSError as error:
            self._socket.close()
            raise OracleError(f"nothing answers on {self._path}: {error}; start python -m lab.tune_oracle") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def space(self, seed: int) -> Task:
        """Return the space of a seed.

        Raises:
            OracleError: The oracle refused, or its answer cannot be used.
        """
        answer = self._accepted({"op": "space", "seed": seed})
        try:
            name = str(answer.get("kernel") or "space")
            space = Space.listed(name, answer["parameters"], start=answer["start"], valid=answer["valid"])
            budget = answer["budget"]
        except (KeyError, TypeError, AttributeError, SpaceError) as error:
            raise OracleError(f"the oracle's space cannot be used: {error}") from None
        if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
            raise OracleError(f"the oracle's budget is {budget!r}; it must be 1 or more")
        return Task(space, budget, str(answer.get("device", "")), str(answer.get("unit", "")))

    def measure(self, configuration: Sequence[Value], launches: int) -> MeasuredLaunches:
        """Measure a configuration.

        Raises:
            OracleError: The answer cannot be used.
        """
        answer = self._ask({"op": "measure", "config": list(configuration), "launches": launches})
        left = answer.get("left")
        if left is not None and (isinstance(left, bool) or not isinstance(left, int)):
            raise OracleError(f"the oracle's answer has left={left!r}; it must be a number")
        if "refused" in answer:
            return MeasuredLaunches(refused=str(answer["refused"]) or "no reason given", left=left)
        if "failed" in answer:
            return MeasuredLaunches(failed=str(answer["failed"]) or "failed", left=left)
        times = answer.get("times")
        if not isinstance(times, list) or not times or not all(map(is_time, times)):
            raise OracleError(f"the oracle's answer {str(answer)[:200]} has no list of positive times")
        return MeasuredLaunches(times=tuple(map(float, times)), left=left)

    def verdict(self, verdict: Mapping[str, Any]) -> None:
        """Report a verdict.

        Raises:
            OracleError: The oracle refused it.
        """
        self._accepted({"op": "verdict", **verdict})

    def end(self, kept: Sequence[Value]) -> None:
        """Report the kept configuration and end the seed.

        Raises:
            OracleError: The oracle refused it.
        """
        self._accepted({"op": "end", "kept": list(kept)})

    def _accepted(self, request: Mapping[str, Any]) -> dict[str, Any]:
        answer = self._ask(request)
        if "refused" in answer:
            raise OracleError(f"the oracle refused {request['op']}: {answer['refused']}")
        return answer

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self._lines.write(request)
            answer = self._lines.read()
        except (OSError, ValueError) as error:
            raise OracleError(f"the oracle on {self._path} broke off: {error}") from None
        if answer is None:
            raise OracleError(f"the oracle on {self._path} closed the connection")
        if not isinstance(answer, dict):
            raise OracleError(f"the oracle answered {str(answer)[:200]}; an answer is an object")
        return answer

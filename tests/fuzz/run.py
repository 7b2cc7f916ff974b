"""Fuzzes the decoder, parsers and readers: `python -m tests.fuzz.run --inputs 100000 [--only influx] [--seed 1]`.

Of every mutated message it is asked that it is refused or read, in time and without another exception; that a refused
one leaves nothing; that the good messages around it are read as ever. Of some it is asked besides that an independent
reading finds the same. What breaks one of these rules is a finding: it is printed, and ends the run with 1.
"""

import argparse
import random
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any

import numpy as np
from tests.fuzz.documents import DOCUMENTS, Document
from tests.fuzz.mutation import mutated
from tests.fuzz.targets import TARGETS, Target

from kernelcast.bridge.tables.placement import Placement
from kernelcast.columnar import Decoded

AT_ONCE = 32
SEEDS = 200
LONGEST_SECONDS = 20
NEW_SEEDS_EVERY = 200
FORGET_EVERY = 25
MAX_FINDINGS = 20


say = partial(print, flush=True)


class HungError(Exception):
    """A batch took too long."""


class Stopped:
    """Whether SIGINT or SIGTERM has asked the run to stop; its results are printed all the same."""

    requested = False

    def tell(self, _signal: int, _frame: FrameType | None) -> None:
        self.requested = True


def _hung(_signal: int, _frame: FrameType | None) -> None:
    raise HungError


def trace(source: Any, decoded: Decoded, message: int) -> list[tuple[Any, ...]]:
    """Everything a message brought, comparable between two runs."""
    found: list[tuple[Any, ...]] = []
    for columns, names in (
        (decoded.numbers, ("time_ns", "start_ns", "flags")),
        (decoded.histograms, ("time_ns", "count")),
    ):
        for i in np.flatnonzero(columns.message == message).tolist():
            row = tuple(int(getattr(columns, name)[i]) for name in names)
            found.append((_identity(source, int(columns.series[i])), *row))
    found += [(decoded.numbers.value[decoded.numbers.message == message].tobytes(),)]
    noted = decoded.exemplars
    for row, histogram, raw in zip(noted.row.tolist(), noted.histogram.tolist(), noted.raw, strict=True):
        if (decoded.histograms if histogram else decoded.numbers).message[row] == message:
            found.append((histogram, raw))
    return found


def _identity(source: Any, number: int) -> object:
    """A series without what another message may have said of it: help and kind are those first seen."""
    identity = source.identity(number)
    return (identity.name, identity.labels) if isinstance(identity, Placement) else identity


class Fuzzer:
    """One input under fire.

    Attributes:
        findings: Descriptions of the findings.
        done: Inputs so far.
        refused: Of these, refused.
    """

    def __init__(self, target: Target, seed: int) -> None:
        self._target, self._rng = target, random.Random(seed)
        self._source = target.make()
        self._good, self._expected = self._usable()
        self.findings: list[str] = []
        self.done = self.refused = self._batches = 0
        self._seeds: list[bytes] = []

    def _usable(self) -> tuple[bytes, list[tuple[Any, ...]]]:
        while True:
            message = self._target.shape(self._rng)
            source = self._target.make()
            decoded = source.decode([message])
            if not decoded.failures and len(decoded.numbers.series):
                return message, trace(source, decoded, 0)

    def batch(self) -> None:
        """Try some inputs, a good message in their middle and one at the end."""
        if self._batches % NEW_SEEDS_EVERY == 0:
            self._seeds = [self._target.shape(self._rng) for _ in range(SEEDS)]
        self._batches += 1
        messages = [mutated(self._rng, self._seeds) for _ in range(AT_ONCE)]
        if self._target.wrap is not None:
            messages = [self._target.wrap(m) if self._rng.random() < 0.3 else m for m in messages]
        good = (AT_ONCE // 2, AT_ONCE + 1)
        for index in good:
            messages.insert(index, self._good)
        signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
        try:
            self._judge(messages, self._source.decode(messages), good)
        except Exception as error:  # noqa: BLE001  whatever escapes is a finding
            self._found(f"{type(error).__name__}: {error}", b"\0".join(messages))
            self._source = self._target.make()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self.done += AT_ONCE
        if self._batches % FORGET_EVERY == 0:
            self._source.forget(np.arange(self._rng.randrange(3000), dtype=np.int32))

    def _judge(self, messages: Sequence[bytes], decoded: Decoded, good: tuple[int, int]) -> None:
        failed = {index for index, error in decoded.failures}
        strange = [error for _, error in decoded.failures if "; " not in str(error)]  # what, limit; remedy
        self.refused += len(failed)
        brought = {*decoded.numbers.message.tolist(), *decoded.histograms.message.tolist()}
        if strange or failed & brought:
            self._found(f"errors without a remedy {strange}, or rows of refused messages", b"\0".join(messages))
        for index in good:
            if index in failed or trace(self._source, decoded, index) != self._expected:
                self._found("a good message is not read as ever", b"\0".join(messages))
        for index, message in enumerate(messages):
            if self._rng.randrange(self._target.one_in) == 0:
                wrong = self._target.compare(self._source, message, decoded, index)
                if wrong:
                    self._found(wrong, message)

    def _found(self, what: str, message: bytes) -> None:
        self.findings.append(what)
        if len(self.findings) <= MAX_FINDINGS:
            say(f"FINDING {self._target.name}: {what[:400]}\n  {message[:400]!r}")


class DocumentFuzzer:
    """One reader of documents under fire; see `Fuzzer`."""

    def __init__(self, document: Document, seed: int) -> None:
        self._document, self._rng = document, random.Random(seed)
        self.findings: list[str] = []
        self.done = self.refused = self._batches = 0
        self._seeds: list[bytes] = []

    def batch(self) -> None:
        """Try some documents."""
        if self._batches % NEW_SEEDS_EVERY == 0:
            self._seeds = [self._document.shape(self._rng) for _ in range(SEEDS)]
        self._batches += 1
        for _ in range(AT_ONCE):
            self._try(mutated(self._rng, self._seeds))
        self.done += AT_ONCE

    def _try(self, content: bytes) -> None:
        signal.setitimer(signal.ITIMER_REAL, LONGEST_SECONDS)
        try:
            wrong = self._document.read(content)
        except self._document.refusal as error:
            self.refused += 1
            wrong = "" if "; " in str(error) or not self._document.remedy else f"no remedy: {error}"
        except Exception as error:  # noqa: BLE001  whatever else escapes is a finding
            wrong = f"{type(error).__name__}: {error}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if wrong:
            self.findings.append(wrong)
            if len(self.findings) <= MAX_FINDINGS:
                say(f"FINDING {self._document.name}: {wrong[:400]}\n  {content[:400]!r}")


def main(arguments: Sequence[str]) -> int:
    """Run, print the counts, and return 1 for findings."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.run", description="Fuzz the decoder, every parser and readers of documents."
    )
    parser.add_argument("--inputs", type=int, default=100_000, help="inputs in all, shared by the formats")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", choices=[one.name for one in (*TARGETS, *DOCUMENTS)])
    chosen = parser.parse_args(arguments)
    stopped = Stopped()
    signal.signal(signal.SIGALRM, _hung)
    signal.signal(signal.SIGTERM, stopped.tell)
    targets = [one for one in (*TARGETS, *DOCUMENTS) if not chosen.only or one.name in chosen.only]
    share = chosen.inputs / sum(one.share for one in targets)
    findings = 0
    for target in targets:
        began = time.monotonic()
        fuzzer = (Fuzzer if isinstance(target, Target) else DocumentFuzzer)(target, chosen.seed)  # type: ignore[arg-type]
        while fuzzer.done < share * target.share and not stopped.requested:
            fuzzer.batch()
        seconds = time.monotonic() - began
        findings += len(fuzzer.findings)
        say(
            f"{target.name}: seed {chosen.seed}, {fuzzer.done} inputs, {fuzzer.refused} refused, "
            f"{len(fuzzer.findings)} findings, {seconds:.0f} s"
        )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The command `python -m lab.tune_replay`, with the services that `--through kafka` starts between program and verdict.

Without that option, `lab.replay.tuner_command` does all of it. With it, a program with the probe (`lab.replay.program`)
tunes; its outcomes go through an exporter and Kafka, and a predictor reads them. The verdicts of the document are those
read back from Kafka.
"""

import argparse
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from kernelcast.runtime.exits import report
from kernelcast.wire.cloudevents import decode_event
from kernelcast.wire.errors import EventError, KernelcastError, MissingExtraError
from kernelcast.wire.events import Outcome, outcome_from
from kernelcast.wire.topics import OUTCOMES, POLICY
from kernelcast.wire.tuning.experience import MAX_FAILED, Experience, experience_from
from lab.replay import tuner_command
from lab.replay.run import SeedResult

if TYPE_CHECKING:
    from kernelcast.cli.demo.children import Supervisor
    from kernelcast.cli.demo.workspace import Workspace
    from kernelcast.runtime.kafka.consumer import Consumer

READY_SECONDS: Final = 180.0
"""The first start of the predictor on a machine compiles for about a minute."""
SEED_SECONDS: Final = 600.0
"""Longest wait for the messages of one seed, and for the end of its program."""
READ_SECONDS: Final = 0.2
MAX_MESSAGES: Final = 500
SERVICES: Final = ("predictor", "exporter")
"""In the order of their start: the predictor compiles while the exporter starts."""


def main(arguments: Sequence[str]) -> int:
    """Replay all seeds and print the document; returns the exit code."""
    return tuner_command.main(arguments, {"kafka": through_kafka})


@contextmanager
def through_kafka(oracle: Path, options: argparse.Namespace) -> Iterator[tuner_command.Replay]:
    """Exporter, broker and predictor, until the end of the block.

    Args:
        oracle: Socket of the oracle.
        options: Options of the command.

    Yields:
        Replays a seed by a program of its own.

    Raises:
        KernelcastError: A service did not start.
    """
    try:
        from kernelcast.cli.demo.children import Supervisor  # noqa: PLC0415  the command alone needs no extra
        from kernelcast.cli.demo.workspace import Endpoints, Workspace, reserved_addresses  # noqa: PLC0415
        from kernelcast.runtime.kafka.embedded import EmbeddedBroker  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"--through kafka needs {error.name}: pip install 'kernelcast[all]'") from error
    supervisor = Supervisor()
    temporary = tempfile.TemporaryDirectory(prefix="kernelcast-tune-")
    with temporary as folder, reserved_addresses(3) as addresses, EmbeddedBroker() as broker:
        workspace = Workspace(Path(folder), Endpoints(*addresses), broker.bootstrap_servers)
        workspace.write_config(nvml="off", kernels="10")
        try:
            _start_services(supervisor, workspace)
            yield lambda seed: _replay(seed, oracle, options, workspace, supervisor)
        finally:
            supervisor.stop()


def _start_services(supervisor: "Supervisor", workspace: "Workspace") -> None:
    from kernelcast.cli.demo.children import KERNELCAST, DemoProcess  # noqa: PLC0415
    from kernelcast.cli.demo.http import answers  # noqa: PLC0415

    for name in SERVICES:
        command = (*KERNELCAST, name, "--config", str(workspace.config))
        supervisor.start(DemoProcess(name, command, workspace.log(name), unblocks=True))
    deadline = time.monotonic() + READY_SECONDS
    for name in SERVICES:
        while not answers(f"http://{getattr(workspace.endpoints, name)}/-/ready"):
            _check(supervisor)
            if time.monotonic() > deadline:
                raise KernelcastError(f"the {name} was not ready within {READY_SECONDS:g} s")
            time.sleep(READ_SECONDS)


def _check(supervisor: "Supervisor") -> None:
    for child in supervisor.failed():
        raise KernelcastError(f"the {child.name} {child.state}; its log ends with:\n{child.log_end()}")


def _replay(
    seed: int, oracle: Path, options: argparse.Namespace, workspace: "Workspace", supervisor: "Supervisor"
) -> SeedResult:
    """Replay one seed by a program, and read its verdicts from Kafka.

    Raises:
        KernelcastError: The program, the oracle or a service broke off.
    """
    name = f"tune-replay-{seed}-{uuid.uuid4().hex[:8]}"
    command = [sys.executable, "-m", "lab.replay.program", str(oracle), "--program", name]
    command += ["--seed", str(seed), "--budget", str(options.budget), "--search", options.search]
    command += [word for path in options.warm_from for word in ("--warm-from", str(path))]
    pipe, environ = subprocess.PIPE, program_environment(str(workspace.socket), os.environ)
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environ, start_new_session=True) as process:
        try:
            line = first_line(process.stdout, lambda: _check(supervisor)) if process.stdout else ""
            if not line:
                process.wait()
                raise KernelcastError(f"the program ended with exit code {process.returncode}; its reason is above")
            found = json.loads(line)
            run = delivered(
                found, _wait_for_messages(found, name, workspace.bootstrap_servers, lambda: _check(supervisor)), seed
            )
            last = run.document["verdicts"]
            process.communicate(json.dumps({"verdicts": last, "kept": run.document["kept"]}) + "\n", SEED_SECONDS)
        except subprocess.TimeoutExpired:
            raise KernelcastError(f"the program had its verdicts, and did not end within {SEED_SECONDS:g} s") from None
        finally:
            tuner_command.stop(process)
    if process.returncode:
        raise KernelcastError(f"the program ended with exit code {process.returncode}; its reason is above")
    return run


def program_environment(socket_path: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the program: it tunes, whatever the user has switched off for programs of this node."""
    own = {"KERNELCAST_SOCKET": socket_path, "KERNELCAST_PROBE_INTERVAL_SECONDS": "0.1", "KERNELCAST_HINTS": "on"}
    return {**environ, **own}


def first_line(output: IO[str], check: Callable[[], None]) -> str:
    """Return the first line of a program; empty if it ends without one.

    Args:
        output: Its standard output.
        check: Called while there is none; raises if a service has broken off, because the program waits for it then.
    """
    readable = select.poll()  # `select.select` refuses descriptors from 1,024 on
    readable.register(output, select.POLLIN)
    while not readable.poll(READ_SECONDS * 1e3):
        check()
    return output.readline()


def _wait_for_messages(
    found: dict[str, Any], program: str, bootstrap_servers: str, check: Callable[[], None]
) -> dict[tuple[str, str], Outcome]:
    """Wait until Kafka has every outcome that a program has reported, and the predictor's findings from them.

    Raises:
        KernelcastError: They did not come.
    """
    from kernelcast.runtime.kafka.consumer import Consumer  # noqa: PLC0415
    from kernelcast.runtime.settings.service import KafkaSettings  # noqa: PLC0415

    messages = ProgramMessages(program, found)
    deadline = time.monotonic() + SEED_SECONDS
    reader = Consumer(KafkaSettings(bootstrap_servers=bootstrap_servers), group_id="kernelcast-tune-replay")
    try:
        _read_from_the_beginning(reader)
        while not messages.complete:
            check()
            if time.monotonic() > deadline:
                raise KernelcastError(f"within {SEED_SECONDS:g} s {messages.missing}")
            for message in reader.consume(MAX_MESSAGES, READ_SECONDS)[0]:
                messages.add(message.topic() or "", message.value() or b"")
    finally:
        reader.close()
    return messages.outcomes


def _read_from_the_beginning(reader: "Consumer") -> None:
    partitions = [one for topic in (OUTCOMES, POLICY) for one in reader.partitions(topic.name)]
    for partition in partitions:
        partition.offset = reader.watermarks(partition)[0]
    reader.assign(partitions)


class ProgramMessages:
    """The messages of a program on Kafka: its outcomes, and the predictor's findings from them.

    Args:
        program: The program.
        found: The line that the program has printed.

    Attributes:
        outcomes: The outcomes by id and state; one that was written twice counts once.
    """

    def __init__(self, program: str, found: dict[str, Any]) -> None:
        self._program = program
        self._space = found["space"]
        self._reported = {(one, state) for one, state in found["reported"]}
        self._experience: Experience | None = None
        self.outcomes: dict[tuple[str, str], Outcome] = {}

    def add(self, topic: str, value: bytes) -> None:
        """Add one message."""
        try:
            event = decode_event(value)
            if topic == OUTCOMES.name:
                outcome = outcome_from(event)
                if outcome.program == self._program:
                    self.outcomes[outcome.hint_id, outcome.state.value] = outcome
                return
            experience = experience_from(event)
        except EventError:
            return  # the topic of policies has other events, too
        if experience.program == self._program and experience.space == self._space:
            self._experience = experience

    @property
    def complete(self) -> bool:
        """Whether everything has arrived."""
        return not self.missing

    @property
    def missing(self) -> str:
        """The missing part, as a clause; empty if everything has arrived."""
        lost = self._reported - self.outcomes.keys()
        if lost:
            return f"{len(lost)} of {len(self._reported)} outcomes did not reach Kafka"
        kept = {one.candidate for one in self.outcomes.values() if one.decision == "kept"}
        failed = {one.candidate for one in self.outcomes.values() if one.decision == "failed"}
        known = self._experience or Experience(self._program, self._space)
        unknown = failed - set(known.failed)
        if kept - {one.value for one in known.kept} or (unknown and len(known.failed) < MAX_FAILED):
            return "the predictor has not written its findings from them"
        return ""


def delivered(found: dict[str, Any], outcomes: dict[tuple[str, str], Outcome], seed: int) -> SeedResult:
    """Return a run with the verdicts that Kafka has delivered.

    Args:
        found: The line that the program has printed.
        outcomes: The outcomes from Kafka.
        seed: The seed.
    """
    by_id = {outcome.hint_id: outcome for (_, state), outcome in outcomes.items() if state != "applied"}
    verdicts = [_verdict(by_id[one]) for one in found["verdicts"]]
    last = by_id[found["reported"][-1][0]]
    return SeedResult(seed, {**found["run"], "kept": json.loads(last.value), "verdicts": verdicts})


def _verdict(outcome: Outcome) -> dict[str, Any]:
    return {
        "config": json.loads(outcome.candidate),
        "against": json.loads(outcome.previous),
        "decision": outcome.decision,
        "ratio": outcome.measured_ratio,
        "interval": outcome.measured_interval and list(outcome.measured_interval),
    }


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KernelcastError as error:
        sys.exit(report(error))

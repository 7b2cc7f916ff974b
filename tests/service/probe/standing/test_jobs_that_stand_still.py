"""Jobs of four ranks with PyTorch that stand still: told in time, with the rank that holds them up."""

import itertools
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.service.nursery import Adopted, Nursery, nursery
from tests.service.require import missing
from tests.service.servers import PrometheusServer, ServerProcess, answers, stopping, wait_for
from tests.service.stack import KERNELCAST
from tests.support.ports import free_ports
from tests.support.service.packages import FRAMEWORKS, environment, python_with
from tests.support.waiting import LONGEST_SECONDS

from kernelcast.grafana.rules import ALERTS_FILE, CLASSIC_FILE, DEMO, render
from kernelcast.wire.catalogue import kernel

pytestmark = pytest.mark.service

JOB: Final = Path(__file__).parent / "job.py"
FORKED: Final = "tests.service.probe.standing.forked"
RANKS: Final = 4
LIMIT_SECONDS: Final = 10
TOLD_WITHIN_SECONDS: Final = 15
"""After the limit."""
DIFFERS, TOGETHER = "KernelcastJobStandsStill", "KernelcastJobStandsStillInOnePhase"
ENDED, SLOW = "KernelcastRankEnded", "KernelcastStraggler"
KNOWN_STEPS: Final = 1_500
"""Once the exporter knows the gaps of the job, whose steps take 0.02 s at least and whose reports come each 0.2 s."""
RUNS: Final = 20
"""Of each fault in the nightly run."""
NETWORK: Final = Path(__file__).parent / "network.sh"
HEALTHY_PROGRAM: Final = Path(__file__).parent / "healthy.py"
HEALTHY: Final = (
    "evaluation",
    "checkpoint",
    "compilation",
    "notebook",
    "epoch",
    "accumulation",
    "person",
    "steps",
)
"""What its programs do."""
PROGRAMS: Final = 20
FAULTS: Final = {
    "stopped": "stopped",
    "asleep": "forward",
    "loader": "data",
    "breakpoint": "person",
    "evaluation": "evaluation",
    "checkpoint": "checkpoint",
    "checkpoint_in_native_code": "silent",
}
"""Faults of rank 2 to the state in which it is found."""


class Watched:
    """An exporter with a Prometheus that evaluates our rules, and what starts programs that report to it."""

    def __init__(
        self,
        folder: Path,
        programs: Nursery,
        *,
        training_seconds: float = LIMIT_SECONDS,
        long_seconds: float = LIMIT_SECONDS,
    ) -> None:
        self._programs = programs
        self.socket = folder / "probe.sock"
        (port,) = free_ports(1)
        configuration = folder / "exporter.yaml"
        limits = f"{{training_seconds: {training_seconds}, long_seconds: {long_seconds}}}"
        configuration.write_text(
            f"exporter: {{nvml: 'off', kubernetes: 'off', tpu: 'off', standing: {limits}, "
            f"web: {{listen_address: '127.0.0.1:{port}'}}}}\n"
        )
        command = [*KERNELCAST, "exporter", "--config", str(configuration), "--kafka", "off", "--interval", "1"]
        command += ["--probe.socket", str(self.socket), "--state.directory", str(folder / "state")]
        self.exporter = ServerProcess("exporter", command, folder)
        self.page = f"http://127.0.0.1:{port}"
        for name, text in render(DEMO).items():
            (folder / name).write_text(text)
        prometheus = folder / "prometheus.yaml"
        prometheus.write_text(
            f"global: {{scrape_interval: 1s}}\nrule_files: [{CLASSIC_FILE}, {ALERTS_FILE}]\nscrape_configs:\n"
            f"- {{job_name: kernelcast-exporter, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}\n"
        )
        self.prometheus = PrometheusServer(folder, prometheus)

    def start(self, script: Path, *arguments: str, log: Path, environ: Mapping[str, str]) -> Adopted:
        """Start a program with PyTorch, as a fork of a process that has imported it."""
        own = environment(KERNELCAST_SOCKET=str(self.socket), **environ)
        return Adopted(self._programs.born([str(script), *arguments], log, own))

    def alerts(self) -> dict[str, list[dict[str, Any]]]:
        """Labels and texts of the alerts of this module that fire, by name."""
        found: dict[str, list[dict[str, Any]]] = {}
        for alert in self.prometheus.api("alerts")["alerts"]:
            name = alert["labels"]["alertname"]
            if alert["state"] == "firing" and name in {DIFFERS, TOGETHER, ENDED, SLOW}:
                found.setdefault(name, []).append({**alert["labels"], **alert["annotations"]})
        return found


@contextmanager
def watching(folder: Path, **settings: float) -> Iterator[Watched]:
    """A node that runs."""
    with nursery([str(python_with(FRAMEWORKS)), "-m", FORKED], environment()) as programs, ExitStack() as stack:
        node = Watched(folder, programs, **settings)
        stack.enter_context(stopping(node.exporter, node.prometheus))
        node.exporter.start(lambda: answers(f"{node.page}/metrics"))
        node.prometheus.run()
        yield node


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with watching(tmp_path_factory.mktemp("standing")) as node:
        yield node


@contextmanager
def job(
    watched: Watched,
    fault: str,
    folder: Path,
    *,
    address: str = "127.0.0.1",
    places: Sequence[tuple[str, str]] = (("", "lo"),) * RANKS,
    step: int = 20,
) -> Iterator[list[Adopted]]:
    """Four ranks that have made their first steps; killed at the end.

    Args:
        watched: The node's exporter.
        fault: What `job.py` is told.
        folder: For their files.
        address: The master's.
        places: Of each rank, the pid of a process in its network namespace, and its network interface.
        step: The first with the fault.
    """
    (port,) = free_ports(1)
    ranks = list[Adopted]()
    try:
        for rank, (namespace, interface) in enumerate(places):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": address}
            own |= {"MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": interface}
            own |= {"KERNELCAST_PROBE_INTERVAL_SECONDS": "0.2", "NAMESPACES_OF": namespace}
            log = folder / f"rank-{rank}.log"
            ranks.append(watched.start(JOB, fault, str(folder), str(step), log=log, environ=own))
        wait_for("the job's first steps", lambda: all((folder / f"begun-{rank}").exists() for rank in range(RANKS)))
        yield ranks
    finally:
        end(ranks)


def end(ranks: Sequence[Adopted]) -> None:
    for rank in ranks:
        rank.send_signal(signal.SIGKILL)
        rank.wait(LONGEST_SECONDS)


def told(watched: Watched, limit_seconds: float = LIMIT_SECONDS) -> dict[str, list[dict[str, Any]]]:
    """The alerts about the job, once there are any within the time that they may take."""
    began = time.monotonic()
    found: dict[str, list[dict[str, Any]]] = wait_for(
        "an alert", lambda: {name: each for name, each in watched.alerts().items() if name in {DIFFERS, TOGETHER}}
    )
    took = time.monotonic() - began
    print(f"told after {took:.1f} s: {[each['summary'] for alerts in found.values() for each in alerts]}")  # noqa: T201  a figure
    assert took <= limit_seconds + TOLD_WITHIN_SECONDS
    return found


def found_by(watched: Watched, fault: str, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Let rank 2 of a job have a fault; returns what is told, in time."""
    os.mkfifo(folder / "pipe")  # a file system that does not answer: opening it waits for a reader
    with job(watched, fault, folder) as ranks:
        if fault == "stopped":
            ranks[2].send_signal(signal.SIGSTOP)
        found = told(watched)
    wait_for("the end of the alerts", lambda: not watched.alerts())
    return found


def is_right(found: dict[str, list[dict[str, Any]]], fault: str) -> bool:
    """Whether exactly the faulty rank is named, with its state, or where none differs no rank."""
    if fault == "mismatch":
        sentence = "all ranks in backward: a collective that not all have entered, or the network"
        return (
            found.keys() == {TOGETHER}
            and sentence in found[TOGETHER][0]["summary"]
            and "rank" not in found[TOGETHER][0]
        )
    named = [(alert["rank"], alert["state"]) for alert in found.get(DIFFERS, ())]
    return found.keys() == {DIFFERS} and named == [("2", FAULTS[fault])]


@pytest.mark.parametrize("fault", [*FAULTS, "mismatch"])
def test_the_rank_that_holds_up_its_job_is_told_in_time(watched: Watched, fault: str, tmp_path: Path) -> None:
    found = found_by(watched, fault, tmp_path)
    assert is_right(found, fault), found
    if fault == "mismatch":
        return
    (alert,) = found[DIFFERS]
    if FAULTS[fault] in {"stopped", "silent"}:
        assert "stacks" not in alert  # no thread of the process gets any time
    else:
        stacks = Path(alert["stacks"])
        assert stacks.stat().st_mode & 0o777 == 0o600
        assert "job.py" in stacks.read_text()


@pytest.mark.nightly
def test_with_the_default_limits_a_loader_that_blocks_is_told_within_75_seconds(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    defaults = {"training_seconds": 60.0, "long_seconds": 600.0}
    folder = tmp_path_factory.mktemp("defaults")
    with watching(folder, **defaults) as node, job(node, "loader", tmp_path, step=KNOWN_STEPS):
        assert is_right(told(node, defaults["training_seconds"]), "loader")


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [*FAULTS, "mismatch"])
def test_nineteen_of_twenty_runs_name_the_right_rank(watched: Watched, fault: str, tmp_path: Path) -> None:
    right = 0
    for run in range(RUNS):
        folder = tmp_path / str(run)
        folder.mkdir()
        right += is_right(found_by(watched, fault, folder), fault)
    assert right >= RUNS - 1


def test_a_network_that_drops_between_two_nodes_is_told_and_no_rank_is_named(watched: Watched, tmp_path: Path) -> None:
    found = found_without_network(watched, tmp_path)
    assert is_right(found, "mismatch"), found


@pytest.mark.nightly
def test_in_twenty_networks_that_drop_no_rank_is_ever_named(watched: Watched, tmp_path: Path) -> None:
    for run in range(RUNS):
        folder = tmp_path / str(run)
        folder.mkdir()
        found = found_without_network(watched, folder)
        assert is_right(found, "mismatch"), found


def found_without_network(watched: Watched, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Let a job lose its network; returns what is told, in time.

    The job runs in two namespaces, joined by a pair of interfaces; ranks 0 and 1 are in the first.
    """
    tried = subprocess.run(["unshare", "--user", "--map-root-user", "--net", "true"], check=False, capture_output=True)
    if tried.returncode:
        missing("a network namespace", f"unshare says: {tried.stderr.decode().strip()}")
    command = ["unshare", "--user", "--map-root-user", "--net", "sh", str(NETWORK)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as network:
        assert network.stdin is not None
        assert network.stdout is not None
        first, second = network.stdout.readline().split()
        into_first = ("nsenter", "--target", first, "--user", "--net", "--preserve-credentials")
        places = [(first, "first"), (first, "first"), (second, "second"), (second, "second")]
        try:
            with job(watched, "none", folder, address="10.9.0.1", places=places):
                subprocess.run([*into_first, "ip", "link", "set", "first", "down"], check=True)
                found = told(watched)
        finally:
            network.stdin.close()
    wait_for("the end of the alerts", lambda: not watched.alerts())
    return found


def test_a_rank_that_is_killed_is_told_at_once_and_is_no_stand_still(watched: Watched, tmp_path: Path) -> None:
    wait_for("the end of the alerts", lambda: not watched.alerts())
    with job(watched, "none", tmp_path) as ranks:
        ranks[1].send_signal(signal.SIGKILL)
        began = time.monotonic()
        found = wait_for("the alert", watched.alerts)
        print(f"told after {time.monotonic() - began:.1f} s")  # noqa: T201  a figure
        assert time.monotonic() - began < LIMIT_SECONDS
        assert [alert["rank"] for alert in found[ENDED]] == ["1"]
        for rank in ranks:
            rank.wait(LONGEST_SECONDS)  # its peers raise
        time.sleep(LIMIT_SECONDS + 5)  # nothing further is told
        assert watched.alerts().keys() <= {ENDED}


def test_a_slow_rank_is_told_as_slow_and_is_no_stand_still(watched: Watched, tmp_path: Path) -> None:
    wait_for("the end of the alerts", lambda: not watched.alerts())
    with job(watched, "slow", tmp_path):
        found = wait_for("the alert", watched.alerts)
        assert found.keys() == {SLOW}
        assert [(alert["rank"], alert["phase"]) for alert in found[SLOW]] == [("2", "forward")]


def test_a_healthy_job_raises_no_alarm_while_ranks_wait_for_one_that_works_long(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """One evaluates, saves and compiles for longer than training may wait: its peers stand still, the job does not."""
    with watching(tmp_path_factory.mktemp("healthy"), long_seconds=60) as node, job(node, "healthy", tmp_path):
        waited = set[str]()

        def done() -> bool:
            standing = node.prometheus.query(f"{kernel.STANDING.prometheus_name} > 0")
            waited.update(labels["rank"] for labels, _ in standing)
            assert not node.alerts()
            return (tmp_path / "done").exists()

        wait_for("the end of its work", done)
        assert waited == {"0", "1", "3"}


@pytest.mark.nightly
@pytest.mark.timeout(5400)
def test_twenty_healthy_programs_raise_no_alarm_for_an_hour(tmp_path: Path) -> None:
    """Evaluations of 10 minutes, checkpoints of 3, compilations of 8, and so on, with the default limits."""
    kinds = [*itertools.islice(itertools.cycle(HEALTHY), PROGRAMS)]
    with watching(tmp_path, training_seconds=60, long_seconds=600) as node, ExitStack() as programs:
        for number, kind in enumerate(kinds):
            program = node.start(
                HEALTHY_PROGRAM,
                *(kind, str(tmp_path)),
                log=tmp_path / f"{number}-{kind}.log",
                environ={"KERNELCAST_PROBE_INTERVAL_SECONDS": "1"},
            )
            programs.callback(end, [program])
        until = time.monotonic() + 3600
        while time.monotonic() < until:
            time.sleep(5)
            assert not node.alerts()
        done = [path.name.partition("-")[0] for path in tmp_path.iterdir() if path.suffix == ""]
        assert {kind: done.count(kind) for kind in HEALTHY} == Counter(kinds)
        assert len(node.prometheus.query(f"{kernel.STANDING.prometheus_name} >= 0")) >= len(HEALTHY)

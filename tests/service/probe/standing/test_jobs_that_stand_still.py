"""Jobs of four ranks with PyTorch that stand still: told in time, with the rank that holds them up."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.service.servers import PrometheusServer, ServerProcess, answers, stopping, wait_for
from tests.service.stack import KERNELCAST
from tests.support.ports import free_ports
from tests.support.service.frameworks import environment, framework_python
from tests.support.waiting import LONGEST_SECONDS

from kernelcast.grafana.rules import ALERTS_FILE, CLASSIC_FILE, DEMO, render

pytestmark = pytest.mark.service

JOB: Final = Path(__file__).parent / "job.py"
RANKS: Final = 4
LIMIT_SECONDS: Final = 10
TOLD_WITHIN_SECONDS: Final = 15
"""After the limit."""
DIFFERS, TOGETHER, ENDED = "KernelcastJobStandsStill", "KernelcastJobStandsStillInOnePhase", "KernelcastRankEnded"
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
    """An exporter with a Prometheus that evaluates our rules."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "probe.sock"
        (port,) = free_ports(1)
        configuration = folder / "exporter.yaml"
        configuration.write_text(
            f"exporter: {{nvml: 'off', kubernetes: 'off', tpu: 'off', standing: {{training_seconds: {LIMIT_SECONDS}, "
            f"long_seconds: {LIMIT_SECONDS}}}, web: {{listen_address: '127.0.0.1:{port}'}}}}\n"
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

    def alerts(self) -> dict[str, list[dict[str, Any]]]:
        """Labels and texts of the alerts of this module that fire, by name."""
        found: dict[str, list[dict[str, Any]]] = {}
        for alert in self.prometheus.api("alerts")["alerts"]:
            name = alert["labels"]["alertname"]
            if alert["state"] == "firing" and name in {DIFFERS, TOGETHER, ENDED, "KernelcastRankSlow"}:
                found.setdefault(name, []).append({**alert["labels"], **alert["annotations"]})
        return found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    node = Watched(tmp_path_factory.mktemp("standing"))
    with stopping(node.exporter, node.prometheus):
        node.exporter.start(lambda: answers(f"{node.page}/metrics"))
        node.prometheus.run()
        yield node


@contextmanager
def job(watched: Watched, fault: str, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Four ranks that have made their first steps; killed at the end."""
    (port,) = free_ports(1)
    ranks = list[subprocess.Popen[bytes]]()
    try:
        for rank in range(RANKS):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1"}
            own |= {"MASTER_PORT": str(port), "KERNELCAST_SOCKET": str(watched.socket)}
            with (folder / f"rank-{rank}.log").open("wb") as log:
                ranks.append(
                    subprocess.Popen(
                        [framework_python(), JOB, fault, str(folder)],
                        env=environment(**own),
                        stdin=subprocess.PIPE,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        wait_for("the job's first steps", lambda: all((folder / f"begun-{rank}").exists() for rank in range(RANKS)))
        yield ranks
    finally:
        end(ranks)


def end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        rank.kill()
        rank.wait(LONGEST_SECONDS)
        assert rank.stdin is not None
        rank.stdin.close()


def told(watched: Watched) -> dict[str, list[dict[str, Any]]]:
    """The alerts about the job, once there are any within the time that they may take."""
    began = time.monotonic()
    found: dict[str, list[dict[str, Any]]] = wait_for(
        "an alert", lambda: {name: each for name, each in watched.alerts().items() if name in {DIFFERS, TOGETHER}}
    )
    took = time.monotonic() - began
    print(f"told after {took:.1f} s: {[each['summary'] for alerts in found.values() for each in alerts]}")  # noqa: T201  a figure
    assert took <= LIMIT_SECONDS + TOLD_WITHIN_SECONDS
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_the_rank_that_holds_up_its_job_is_told_in_time(watched: Watched, fault: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # a file system that does not answer: opening it waits for a reader
    with job(watched, fault, tmp_path) as ranks:
        if fault == "stopped":
            ranks[2].send_signal(signal.SIGSTOP)
        found = told(watched)
        assert found.keys() == {DIFFERS}
        (alert,) = found[DIFFERS]
        assert (alert["rank"], alert["state"]) == ("2", FAULTS[fault])
        if FAULTS[fault] in {"stopped", "silent"}:
            assert "stacks" not in alert  # no thread of the process gets any time
        else:
            stacks = Path(alert["stacks"])
            assert stacks.stat().st_mode & 0o777 == 0o600
            assert "job.py" in stacks.read_text()
    wait_for("its end", lambda: not watched.alerts().keys() & {DIFFERS, TOGETHER})


def test_ranks_in_one_phase_are_told_with_a_sentence_and_no_rank(watched: Watched, tmp_path: Path) -> None:
    with job(watched, "mismatch", tmp_path):
        found = told(watched)
        assert found.keys() == {TOGETHER}
        (alert,) = found[TOGETHER]
        assert "all ranks in backward: a collective that not all have entered, or the network" in alert["summary"]
        assert "rank" not in alert
    wait_for("its end", lambda: not watched.alerts().keys() & {DIFFERS, TOGETHER})

"""Examples that roll out approved values: parsed, and run with doubles of Airflow, kubectl and the program."""

import io
import json
import os
import runpy
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
import yaml

from kernelcast.cli.app import run as kernelcast
from kernelcast.runtime.kafka.embedded import EmbeddedBroker
from kernelcast.runtime.kafka.producer import Producer
from kernelcast.runtime.settings.service import KafkaSettings
from kernelcast.tuning import runs
from kernelcast.wire.cloudevents import encode_event
from kernelcast.wire.events import Hint, HintMode, to_event
from kernelcast.wire.topics import HINTS, ORDERS, OUTCOMES
from kernelcast.wire.tuning.approvals import REQUIRED, RESTART

ROLLOUT = Path(__file__).parents[2] / "examples" / "rollout"
WAITING = Hint(
    "bucket-1",
    "train",
    "bucket_mb",
    "25.0",
    time.time_ns() + 14_400_000_000_000,
    requires="1.0",
    mode=HintMode.DRY_RUN,
    approval=REQUIRED,
    granularity=RESTART,
)
STEP = replace(WAITING, hint_id="batch-1", tunable="batch", granularity="step")


class Task:
    """A task of Airflow that runs when it is expanded."""

    results: list[Any]

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self) -> Any:
        return self.function()

    def expand(self, *, change: list[Any]) -> None:
        Task.results = [self.function(one) for one in change]


@pytest.mark.service
@pytest.mark.parametrize(
    ("seconds", "state", "put"),
    [
        (([10.0],), "rolled_back", []),
        (([8.0],), "kept", ["25.0"]),
        (([8.0], [13.0]), "rolled_back", ["25.0", "1.0"]),
    ],
)
def test_an_approved_value_is_rolled_out_proved_before_and_after_and_its_outcome_is_on_kafka(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    seconds: tuple[list[float], ...],
    state: str,
    put: list[str],
) -> None:
    """The commands of kernelcast are real; Airflow, kubectl and the program are doubles.

    Args:
        seconds: Of a run with the new value, before the roll-out and after it; one with the old value takes 10 s.
    """
    changed: list[str] = []
    noise = Random(7)

    def run_program(_command: Any, values: Any) -> runs.MeasuredRun:
        ((name, value),) = values.items()
        assert name == "bucket_mb"
        typical = seconds[min(len(changed), len(seconds) - 1)][0] if value == "25.0" else 10.0
        return runs.MeasuredRun(typical * noise.gauss(1.0, 0.002))

    def run(command: tuple[str, ...], *, input: str = "", **_: Any) -> SimpleNamespace:  # noqa: A002  as of subprocess
        if command[:2] == ("kubectl", "set"):
            changed.append(command[-1])
        if command[0] == "kubectl":
            return SimpleNamespace(returncode=0)
        capsys.readouterr()
        monkeypatch.setattr(sys, "stdin", io.StringIO(input))
        if command[0] == "kernelcast":
            code = kernelcast([broker.bootstrap_servers if one == "kafka:9092" else one for one in command[1:]])
            assert code == 0
        else:
            assert command[1:3] == ("-m", "kernelcast.tuning.runs")
            code = runs.main(["--seed", "1", *command[3:]])
        return SimpleNamespace(stdout=capsys.readouterr().out, returncode=code)

    sdk = ModuleType("airflow.sdk")
    sdk.dag, sdk.task = (lambda **_: lambda function: function), Task  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "airflow", ModuleType("airflow"))
    monkeypatch.setitem(sys.modules, "airflow.sdk", sdk)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(runs, "run_command", run_program)
    with EmbeddedBroker(topics=[HINTS.name, OUTCOMES.name, ORDERS.name]) as broker:
        kafka = ("--kafka.bootstrap-servers", broker.bootstrap_servers)
        send(broker.bootstrap_servers, WAITING, replace(WAITING, hint_id="other", program="other"), STEP)
        roll_out()
        assert (Task.results, changed) == ([], []), "it is not approved"
        assert kernelcast(["hints", "report", WAITING.hint_id, *kafka]) == 2
        for hint in (WAITING.hint_id, "other", STEP.hint_id):
            assert kernelcast(["hints", "approve", hint, "--by", "ana", *kafka]) == 0
        roll_out()
        assert changed == [f'KERNELCAST_SET={{"bucket_mb": "{value}"}}' for value in put]
        assert Task.results == [state]
        capsys.readouterr()
        assert kernelcast(["hints", "list", "--json", *kafka]) == 0
        found = {one["hint_id"]: one for one in map(json.loads, capsys.readouterr().out.splitlines())}
        (outcome,) = found[WAITING.hint_id]["outcomes"]
        assert (outcome["decision"], outcome["granularity"]) == (state, "restart")
        assert outcome["value"] == ("25.0" if state == "kept" else "1.0")
        assert outcome["measured_ratio"] is not None
        roll_out()
        assert Task.results == [], "it is decided"
        assert kernelcast(["hints", "export", "--granularity", "restart", "--program", "train", *kafka]) == 0
        kept = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [one["hint_id"] for one in kept] == [WAITING.hint_id] * (state == "kept")


def roll_out() -> None:
    Task.results = []
    runpy.run_path(str(ROLLOUT / "airflow_dag.py"))


def send(servers: str, *hints: Hint) -> None:
    producer = Producer(KafkaSettings(bootstrap_servers=servers), client_id="test")
    for one in hints:
        value = encode_event(to_event(one, source="/test", time_ns=1))
        producer.send(HINTS.name, key=one.key.encode(), value=value)
    producer.close(5.0)


def test_the_manifest_is_valid() -> None:
    manifest = yaml.safe_load((ROLLOUT / "kubernetes.yaml").read_text())
    kubernetes_validate.validate(manifest, "1.34", strict=True)
    assert manifest["kind"] == "CronJob"
    manifest["spec"]["schedules"] = manifest["spec"].pop("schedule")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, "1.34", strict=True)


@pytest.mark.service
@pytest.mark.parametrize(
    ("after", "last", "reported"), [("0", "25.0", "second"), ("3", "1.0", "second"), ("1", "1.0", "failed")]
)
def test_the_script_of_the_manifest_proves_a_value_before_and_after(
    tmp_path: Path, after: str, last: str, reported: str
) -> None:
    (container,) = yaml.safe_load((ROLLOUT / "kubernetes.yaml").read_text())["spec"]["jobTemplate"]["spec"]["template"][
        "spec"
    ]["containers"]
    doubles = {
        "kernelcast": 'if [ "$2" = report ]; then echo "$3" > reported; cat >> reported; else echo "$@" > selected; '
        "printf 'tunable,value,hint_id,previous\\nbucket_mb,25.0,h1,1.0\\nother,9,h0,9\\n'; fi",
        "python": f'if [ "$1" = -c ]; then exec {sys.executable} -S "$@"; fi; echo "$@" >> proofs; '
        f"if [ -e first ]; then if [ {after} != 1 ]; then echo second; fi; exit {after}; fi; touch first; echo first",
        "kubectl": 'echo "$@" >> changes',
    }
    for name, script in doubles.items():
        (tmp_path / name).write_text(f"#!/bin/bash\n{script}\n")
        (tmp_path / name).chmod(stat.S_IRWXU)
    environ = {one["name"]: one["value"] for one in container["env"]}
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    command = [*container["command"], *container["args"]]
    subprocess.run(command, check=True, cwd=tmp_path, env={**os.environ, **environ, "PATH": path}, timeout=60)
    proofs = (tmp_path / "proofs").read_text().splitlines()
    wanted = "-m kernelcast.tuning.runs --set bucket_mb=25.0 --against bucket_mb=1.0 -- python train.py --steps 200"
    assert proofs == [wanted] * 2
    assert "export --state approved --granularity restart --program train" in (tmp_path / "selected").read_text()
    report = (tmp_path / "reported").read_text().splitlines()
    assert report[0] == "h1"
    assert reported in report[1]
    changes = [line for line in (tmp_path / "changes").read_text().splitlines() if line.startswith("set")]
    assert changes[-1] == f'set env deployment/train KERNELCAST_SET={{"bucket_mb": "{last}"}}'

"""Examples that roll out kept values: parsed, and run with doubles of Airflow, kubectl and the proof."""

import json
import os
import runpy
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import kubernetes_validate
import pytest
import yaml

ROLLOUT = Path(__file__).parents[2] / "examples" / "rollout"
ROW = {"program": "train", "tunable": "bucket_mb", "value": "25.0", "previous": "1.0"}


class Task:
    """A task of Airflow that runs when it is expanded."""

    results: list[Any]

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self) -> Any:
        return self.function()

    def expand(self, *, change: list[Any]) -> None:
        Task.results = [self.function(one) for one in change]


@pytest.mark.parametrize(
    ("codes", "expected", "put"),
    [
        ([3], ["not proved"], []),
        ([0, 0], ["in force"], ["25.0"]),
        ([0, 3], ["taken back"], ["25.0", "1.0"]),
    ],
)
def test_the_dag_proves_a_value_before_and_after_it_is_in_force(
    monkeypatch: pytest.MonkeyPatch, codes: list[int], expected: list[str], put: list[str]
) -> None:
    commands: list[tuple[str, ...]] = []
    left = list(codes)

    def run(command: tuple[str, ...], **_: Any) -> SimpleNamespace:
        commands.append(command)
        if command[0] == "kernelcast":
            other = {**ROW, "program": "other"}
            return SimpleNamespace(stdout="\n".join(json.dumps(row) for row in (other, ROW, {**ROW, "value": "5.0"})))
        return SimpleNamespace(returncode=left.pop(0) if command[0] == "python" else 0)

    sdk = ModuleType("airflow.sdk")
    sdk.dag, sdk.task = (lambda **_: lambda function: function), Task  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "airflow", ModuleType("airflow"))
    monkeypatch.setitem(sys.modules, "airflow.sdk", sdk)
    monkeypatch.setattr(subprocess, "run", run)
    runpy.run_path(str(ROLLOUT / "airflow_dag.py"))
    assert Task.results == expected
    assert left == []
    changed = [command[-1] for command in commands if command[:2] == ("kubectl", "set")]
    assert changed == [f'KERNELCAST_SET={{"bucket_mb": "{value}"}}' for value in put]
    proof = next(command for command in commands if command[0] == "python")
    assert proof[3:8] == ("--set", "bucket_mb=25.0", "--against", "bucket_mb=1.0", "--")


def test_the_manifest_is_valid() -> None:
    manifest = yaml.safe_load((ROLLOUT / "kubernetes.yaml").read_text())
    kubernetes_validate.validate(manifest, "1.34", strict=True)
    assert manifest["kind"] == "CronJob"
    manifest["spec"]["schedules"] = manifest["spec"].pop("schedule")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, "1.34", strict=True)


@pytest.mark.service
@pytest.mark.parametrize(("after", "last"), [("0", "25.0"), ("3", "1.0")])
def test_the_script_of_the_manifest_proves_a_value_before_and_after(tmp_path: Path, after: str, last: str) -> None:
    (container,) = yaml.safe_load((ROLLOUT / "kubernetes.yaml").read_text())["spec"]["jobTemplate"]["spec"]["template"][
        "spec"
    ]["containers"]
    doubles = {
        "kernelcast": "printf 'program,tunable,value,previous\\nother,bucket_mb,9,9\\ntrain,bucket_mb,25.0,1.0\\n'",
        "python": f'if [ "$1" = -c ]; then exec {sys.executable} -S "$@"; fi; echo "$@" >> proofs; '
        f"if [ -e first ]; then exit {after}; fi; touch first",
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
    changes = [line for line in (tmp_path / "changes").read_text().splitlines() if line.startswith("set")]
    assert changes[-1] == f'set env deployment/train KERNELCAST_SET={{"bucket_mb": "{last}"}}'

"""The bridge's Deployment: without rights or a folder to write to, with time to start."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kernelcast.bridge.modes import check
from kernelcast.bridge.service import WEBHOOK_PATH
from kernelcast.bridge.settings import BridgeSettings
from kernelcast.runtime.settings.listen import parse_listen_address
from kernelcast.runtime.settings.service import load

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
MANIFEST = DEPLOY / "kubernetes" / "bridge.yaml"


def documents() -> dict[str, Any]:
    return {document["kind"]: document for document in yaml.safe_load_all(MANIFEST.read_text())}


@pytest.fixture
def pod() -> dict[str, Any]:
    spec: dict[str, Any] = documents()["Deployment"]["spec"]["template"]["spec"]
    return spec


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod["containers"]
    found: dict[str, Any] = only
    return found


def test_the_pods_are_those_that_the_deployment_and_the_service_select() -> None:
    spec = documents()["Deployment"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert documents()["Service"]["spec"]["selector"].items() <= labels.items()


def test_the_bridge_runs_without_rights_on_a_read_only_file_system(
    pod: dict[str, Any], container: dict[str, Any]
) -> None:
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] != 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert pod["automountServiceAccountToken"] is False
    assert [mount.get("readOnly") for mount in container["volumeMounts"]] == [True]


def test_its_user_is_the_one_for_which_the_image_checks_the_machine_code(pod: dict[str, Any]) -> None:
    dockerfile = (DEPLOY / "docker" / "Dockerfile").read_text()
    user, group = pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]
    assert f"USER {user}:{group}\n" in dockerfile.partition("kernelcast compile --check")[0]


def test_it_listens_where_its_settings_say_and_has_time_to_start(container: dict[str, Any]) -> None:
    _, port = parse_listen_address(BridgeSettings().web.listen_address)
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    (served,) = documents()["Service"]["spec"]["ports"]
    assert (served["port"], served["targetPort"]) == (port, "http")
    assert f":{port}{WEBHOOK_PATH}" in MANIFEST.read_text()
    paths = {name: container[name]["httpGet"]["path"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {"startupProbe": "/-/healthy", "livenessProbe": "/-/healthy", "readinessProbe": "/-/ready"}
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 180, "a busy node compiles for minutes"


def test_its_memory_is_bounded(container: dict[str, Any]) -> None:
    assert set(container["resources"]) == {"requests", "limits"}
    assert container["resources"]["limits"]["memory"]


def test_its_settings_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "kernelcast.yaml"
    path.write_text(documents()["ConfigMap"]["data"]["kernelcast.yaml"])
    made = load("bridge", BridgeSettings, path=path, flags={}, environ={})
    check(made)
    assert made.mode == "group"
